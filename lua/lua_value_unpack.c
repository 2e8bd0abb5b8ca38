/* SPDX-License-Identifier: MIT */
/*
 * lua_value_unpack.c - the receiver's side: a message into values.
 *
 * Everything made on the way is on the stack or in a table from the start, so an
 * error may leave at any point.
 */
#include "lua_value.h"

#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

#include "lua_value_cache.h"
#include "lua_value_format.h"

struct unpacker {
  lua_State *L;
  const unsigned char *start, *at, *end;
  int shared_index; /* table: offset -> value that is referred to; nil when none is */
  int recent_index; /* the first of the places for short strings, */
  unsigned recent_count;
  int depth;
  bool is_call; /* the first value is a function that is called, and no more */
};

static void unpack_value(struct unpacker *self);

/* ----------------------------------------------------------------- reading */

/* Does not return. */
static void refuse_damage(struct unpacker *self) {
  luaL_error(self->L, "damaged message, at byte %I of %I: this is a bug in idlesched",
             (LUAI_UACINT)(self->at - self->start), (LUAI_UACINT)(self->end - self->start));
}

/* The next bytes, skipped. */
static const unsigned char *take(struct unpacker *self, size_t size) {
  if (size > (size_t)(self->end - self->at))
    refuse_damage(self);
  const unsigned char *bytes = self->at;
  self->at += size;
  return bytes;
}

static int take_byte(struct unpacker *self) {
  return *take(self, 1);
}

static uint32_t take_u32(struct unpacker *self) {
  uint32_t number;
  memcpy(&number, take(self, sizeof number), sizeof number);
  return number;
}

static void enter(struct unpacker *self) {
  if (++self->depth > LIDS_VALUE_DEPTH_MAX)
    refuse_damage(self);
  lids_reserve_stack(self->L, 8);
}

/* ------------------------------------------------------------- shared values */

/* The value on top of the stack will be asked for by that offset. */
static void keep_shared(struct unpacker *self, ptrdiff_t offset) {
  lua_State *L = self->L;
  if (!lua_istable(L, self->shared_index))
    refuse_damage(self);
  lua_pushvalue(L, -1);
  lua_rawseti(L, self->shared_index, (lua_Integer)offset);
}

static void push_shared(struct unpacker *self, uint32_t offset) {
  lua_State *L = self->L;
  if (!lua_istable(L, self->shared_index) || lua_rawgeti(L, self->shared_index, offset) == LUA_TNIL)
    refuse_damage(self);
}

/* -------------------------------------------------- numbers, strings, tables */

static void unpack_integer32(struct unpacker *self) {
  int32_t integer;
  memcpy(&integer, take(self, sizeof integer), sizeof integer);
  lua_pushinteger(self->L, integer);
}

static void unpack_integer64(struct unpacker *self) {
  lua_Integer integer;
  memcpy(&integer, take(self, sizeof integer), sizeof integer);
  lua_pushinteger(self->L, integer);
}

static void unpack_float(struct unpacker *self) {
  lua_Number number;
  memcpy(&number, take(self, sizeof number), sizeof number);
  lua_pushnumber(self->L, number);
}

static void unpack_light_userdata(struct unpacker *self) {
  void *address;
  memcpy(&address, take(self, sizeof address), sizeof address);
  lua_pushlightuserdata(self->L, address);
}

static void unpack_string(struct unpacker *self, size_t length) {
  lua_pushlstring(self->L, (const char *)take(self, length), length);
}

static void check_place(struct unpacker *self, int place) {
  if (place >= (int)self->recent_count)
    refuse_damage(self);
}

static void unpack_short_string(struct unpacker *self, bool is_shared) {
  lua_State *L = self->L;
  int place = take_byte(self);
  unpack_string(self, (size_t)take_byte(self));
  if (!is_shared)
    return;
  check_place(self, place);
  lua_copy(L, -1, self->recent_index + place);
}

static void unpack_recent_string(struct unpacker *self) {
  int place = take_byte(self);
  check_place(self, place);
  lua_pushvalue(self->L, self->recent_index + place);
}

static void unpack_table(struct unpacker *self, ptrdiff_t shared_offset) {
  lua_State *L = self->L;
  uint32_t items = take_u32(self);
  uint32_t pairs = take_u32(self);
  /* A value takes a byte at least, so there is no asking for more than is there. */
  size_t rest = (size_t)(self->end - self->at);
  if (items > rest || pairs > (rest - items) / 2)
    refuse_damage(self);
  enter(self);
  lua_createtable(L, (int)items, (int)pairs);
  if (shared_offset != 0)
    keep_shared(self, shared_offset);
  int table = lua_gettop(L);
  for (uint32_t i = 1; i <= items; i++) {
    unpack_value(self);
    lua_rawseti(L, table, i);
  }
  for (uint32_t i = 0; i < pairs; i++) {
    unpack_value(self);
    unpack_value(self);
    lua_rawset(L, table);
  }
  self->depth--;
}

/* --------------------------------------------------------- modules, by name */

/* Replace the module's name on top of the stack by what package.loaded holds. */
static void require_module(struct unpacker *self) {
  lua_State *L = self->L;
  lids_reserve_stack(L, LUA_MINSTACK);
  int name = lua_gettop(L);
  if (lua_type(L, name) != LUA_TSTRING)
    refuse_damage(self);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  lua_pushvalue(L, name);
  lua_rawget(L, -2);
  if (!lua_toboolean(L, -1)) {
    lua_pushglobaltable(L);
    lua_pushliteral(L, "require");
    lua_rawget(L, -2);
    if (!lua_isfunction(L, -1))
      luaL_error(L, "cannot receive the module '%s': there is no global function 'require' here",
                 lua_tostring(L, name));
    lua_pushvalue(L, name);
    int status = lua_pcall(L, 1, 1, 0);
    if (status == LUA_ERRMEM)
      lua_error(L);
    if (status != LUA_OK)
      luaL_error(L, "cannot receive the module '%s': %s", lua_tostring(L, name),
                 luaL_tolstring(L, -1, NULL));
  }
  lua_replace(L, name);
  lua_settop(L, name);
}

static void unpack_module(struct unpacker *self) {
  lua_State *L = self->L;
  enter(self);
  unpack_value(self);
  lua_pushvalue(L, -1);
  require_module(self);
  if (!lua_istable(L, -1))
    luaL_error(L, "cannot receive the module '%s': a table was sent, but it is a %s here",
               lua_tostring(L, -2), luaL_typename(L, -1));
  lua_remove(L, -2);
  self->depth--;
}

static void unpack_named_function(struct unpacker *self) {
  lua_State *L = self->L;
  enter(self);
  unpack_value(self);
  unpack_value(self);
  int name = lua_gettop(L) - 1;
  lua_pushvalue(L, name);
  require_module(self);
  const char *field = lua_tostring(L, name + 1);
  if (field != NULL && lua_istable(L, -1)) {
    lua_pushvalue(L, name + 1);
    lua_rawget(L, -2);
  }
  if (!lua_isfunction(L, -1))
    luaL_error(L, "cannot receive the C function '%s%s%s': it is a %s value here",
               lua_tostring(L, name), field != NULL ? "." : "", field != NULL ? field : "",
               luaL_typename(L, -1));
  lua_replace(L, name);
  lua_settop(L, name);
  self->depth--;
}

/* --------------------------------------------------------------- functions */

struct code {
  uint64_t hash;
  uint32_t length;
  const unsigned char *bytes;
};

/* Push a new function.  Binary chunks can be made to do anything, and Lua does not
 * check them: this one is what lua_dump() wrote, as the hash says. */
static void load_code(struct unpacker *self, const struct code *code) {
  lua_State *L = self->L;
  if (lids_code_hash(code->bytes, code->length) != code->hash)
    refuse_damage(self);
  if (luaL_loadbufferx(L, (const char *)code->bytes, code->length, "=(message)", "b") != LUA_OK)
    lua_error(L);
}

/* The function below the top of the stack gets the value there as an upvalue. */
static void set_upvalue(struct unpacker *self, int function, int number) {
  if (lua_setupvalue(self->L, function, number) == NULL)
    refuse_damage(self);
}

static void set_globals(struct unpacker *self, int function, int count) {
  for (int number = 1; number <= count; number++) {
    lua_pushglobaltable(self->L);
    set_upvalue(self, function, number);
  }
}

static bool is_kept(const struct lids_code *kept, const struct code *code) {
  return kept != NULL && kept->hash == code->hash && kept->length == code->length &&
         memcmp(kept->bytes, code->bytes, code->length) == 0;
}

/* Push a function whose upvalues are all _ENV: the one that came before, or a new
 * one that is kept for the next time. */
static void push_called_function(struct unpacker *self, const struct code *code) {
  lua_State *L = self->L;
  struct lids_value_cache *cache = lids_value_cache_push(L);
  lua_getiuservalue(L, -1, LIDS_LOADED_FUNCTIONS);
  int functions = lua_gettop(L);
  unsigned place = (unsigned)(code->hash % LIDS_CODES_MAX);
  if (is_kept(cache->loaded.codes[place], code)) {
    lua_rawgeti(L, functions, (lua_Integer)place + 1);
  } else {
    load_code(self, code);
    /* From here on nothing is allocated in the state: no finaliser can come between
     * that uses the cache, too. */
    if (!lids_code_cache_has_room(&cache->loaded, code->length))
      lids_value_cache_clear_loaded(cache, L, functions);
    if (lids_code_cache_keep(&cache->loaded, place, code->hash, code->bytes, code->length)) {
      lua_pushvalue(L, -1);
      lua_rawseti(L, functions, (lua_Integer)place + 1);
    }
  }
  lua_replace(L, functions - 1);
  lua_pop(L, 1);
}

static void unpack_upvalue(struct unpacker *self, int function, int number) {
  lua_State *L = self->L;
  switch (take_byte(self)) {
  case LIDS_UPVALUE_GLOBALS:
    lua_pushglobaltable(L);
    set_upvalue(self, function, number);
    return;
  case LIDS_UPVALUE_OWN:
    unpack_value(self);
    set_upvalue(self, function, number);
    return;
  case LIDS_UPVALUE_JOINED:
    push_shared(self, take_u32(self));
    int owner = lua_gettop(L), owner_number = take_byte(self);
    if (!lua_isfunction(L, owner) || lua_iscfunction(L, owner) ||
        lua_getupvalue(L, owner, owner_number) == NULL ||
        lua_getupvalue(L, function, number) == NULL)
      refuse_damage(self);
    lua_upvaluejoin(L, function, number, owner, owner_number);
    lua_settop(L, owner - 1);
    return;
  default:
    refuse_damage(self);
  }
}

static void unpack_function(struct unpacker *self, bool is_plain, ptrdiff_t shared_offset) {
  lua_State *L = self->L;
  bool is_first = self->at == self->start + offsetof(struct lids_message, bytes) + 1;
  enter(self);
  int count = take_byte(self);
  struct code code;
  memcpy(&code.hash, take(self, sizeof code.hash), sizeof code.hash);
  code.length = take_u32(self);
  code.bytes = take(self, code.length);
  if (is_plain && is_first && self->is_call && shared_offset == 0)
    push_called_function(self, &code);
  else
    load_code(self, &code);
  int function = lua_gettop(L);
  if (shared_offset != 0)
    keep_shared(self, shared_offset);
  /* All of them: Lua has put the globals into the first, whatever that was.  Also
   * in a function that came before, as a job may have assigned to its _ENV. */
  if (is_plain)
    set_globals(self, function, count);
  for (int number = 1; !is_plain && number <= count; number++)
    unpack_upvalue(self, function, number);
  self->depth--;
}

/* ---------------------------------------------------------------- all kinds */

static void unpack_value(struct unpacker *self) {
  lua_State *L = self->L;
  ptrdiff_t offset = self->at - self->start;
  int tag = take_byte(self);
  ptrdiff_t shared_offset = (tag & LIDS_TAG_SHARED) != 0 ? offset : 0;
  switch (tag & ~LIDS_TAG_SHARED) {
  case LIDS_TAG_NIL:
    lua_pushnil(L);
    break;
  case LIDS_TAG_FALSE:
    lua_pushboolean(L, false);
    break;
  case LIDS_TAG_TRUE:
    lua_pushboolean(L, true);
    break;
  case LIDS_TAG_INTEGER8:
    lua_pushinteger(L, (int8_t)take_byte(self));
    break;
  case LIDS_TAG_INTEGER32:
    unpack_integer32(self);
    break;
  case LIDS_TAG_INTEGER64:
    unpack_integer64(self);
    break;
  case LIDS_TAG_FLOAT:
    unpack_float(self);
    break;
  case LIDS_TAG_LIGHT_USERDATA:
    unpack_light_userdata(self);
    break;
  case LIDS_TAG_SHORT_STRING:
    unpack_short_string(self, shared_offset != 0);
    break;
  case LIDS_TAG_RECENT_STRING:
    unpack_recent_string(self);
    break;
  case LIDS_TAG_LONG_STRING:
    unpack_string(self, take_u32(self));
    if (shared_offset != 0)
      keep_shared(self, shared_offset);
    break;
  case LIDS_TAG_TABLE:
    unpack_table(self, shared_offset);
    break;
  case LIDS_TAG_FUNCTION:
    unpack_function(self, false, shared_offset);
    break;
  case LIDS_TAG_PLAIN_FUNCTION:
    unpack_function(self, true, shared_offset);
    break;
  case LIDS_TAG_MODULE:
    unpack_module(self);
    break;
  case LIDS_TAG_NAMED_FUNCTION:
    unpack_named_function(self);
    break;
  case LIDS_TAG_REFERENCE:
    push_shared(self, take_u32(self));
    break;
  default:
    refuse_damage(self);
  }
}

static int unpack(lua_State *L, const struct lids_message *message, bool is_call) {
  struct unpacker self = { .L = L,
                           .start = (const unsigned char *)message,
                           .at = message->bytes,
                           .end = (const unsigned char *)message + message->size,
                           .shared_index = lua_gettop(L) + 1,
                           .recent_index = lua_gettop(L) + 2,
                           .recent_count = message->recent_count,
                           .is_call = is_call };
  size_t rest = (size_t)(self.end - self.at);
  if (message->values_count > rest || message->shared_count > rest ||
      message->recent_count > LIDS_RECENT_COUNT)
    refuse_damage(&self);

  int count = (int)message->values_count, recent_count = (int)message->recent_count;
  lids_reserve_stack(L, count + recent_count + LUA_MINSTACK);
  if (message->shared_count > 0)
    lua_createtable(L, 0, (int)message->shared_count);
  else
    lua_pushnil(L);
  int first = self.recent_index + recent_count;
  lua_settop(L, first - 1);
  for (int i = 0; i < count; i++)
    unpack_value(&self);
  /* Take the place of what is needed no more. */
  for (int i = 0; i < count; i++)
    lua_copy(L, first + i, self.shared_index + i);
  lua_settop(L, self.shared_index + count - 1);
  return count;
}

int lids_value_unpack(lua_State *L, const struct lids_message *message) {
  return unpack(L, message, false);
}

int lids_value_unpack_call(lua_State *L, const struct lids_message *message) {
  return unpack(L, message, true);
}
