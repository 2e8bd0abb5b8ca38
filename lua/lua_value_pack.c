/* SPDX-License-Identifier: MIT */
/*
 * lua_value_pack.c - the sender's side: values into a message.
 *
 * The work is done in one protected call, so that the block, which Lua knows
 * nothing of, is freed whatever happens.  A second one is needed when there is
 * something in a table that calls for the modules (lua_value_name.h).
 */
#include "lua_value.h"

#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

#include "idlesched.h"
#include "lua_util.h"
#include "lua_value_block.h"
#include "lua_value_cache.h"
#include "lua_value_format.h"
#include "lua_value_name.h"

/* The longest tag with what follows it, variable parts left out. */
#define TAG_BYTES_MAX 16
/* So many nils are worth less than keys: {1, nil, 3} stays an array. */
#define GAP_MAX 8

struct packer {
  lua_State *L;
  const char *(*label)(lua_State *L, int position);
  struct lids_value_cache *cache;
  int dumped_index; /* its table of functions, on the stack */
  int depth;
  int tables_depth;       /* tables among these */
  bool has_to_note;       /* the modules, before anything else */
  bool has_to_start_over; /* as that should have been done */
  struct lids_names names;
  struct lids_message *message;
  struct lids_block block;
};

static void pack_value(struct packer *self, int index, const struct lids_step *step);

/* ------------------------------------------------------------------ errors */

/* Does not return. */
static void refuse(struct packer *self, const struct lids_step *step, const char *what,
                   const char *remedy) {
  lua_State *L = self->L;
  lids_path_push(L, step, self->label);
  luaL_error(L, "cannot send %s (%s): %s", lua_tostring(L, -1), what, remedy);
}

/* Does not return. */
static void refuse_size(struct packer *self, const struct lids_step *step) {
  lua_State *L = self->L;
  if (self->block.refused_size == 0)
    lids_raise_out_of_memory(L);
  lids_path_push(L, step, self->label);
  luaL_error(L,
             "cannot send %s (with it the message has %I bytes or more, and %I are allowed):"
             " send it in parts, or write it to a file and send the path",
             lua_tostring(L, -1), (LUAI_UACINT)self->block.refused_size,
             (LUAI_UACINT)LIDS_MESSAGE_BYTES_MAX);
}

/* There is something in a table that is no plain data. */
static void need_modules(struct packer *self) {
  if (self->names.are_noted)
    return;
  self->has_to_start_over = true;
  lua_pushnil(self->L);
  lua_error(self->L);
}

/* ----------------------------------------------- the block, raising errors */

static inline void reserve(struct packer *self, size_t more, const struct lids_step *step) {
  if (!lids_block_reserve(&self->block, more))
    refuse_size(self, step);
}

/* These need room that was reserved. */

static inline void put(struct packer *self, const void *bytes, size_t size) {
  lids_block_put(&self->block, bytes, size);
}

static inline void put_byte(struct packer *self, int byte) {
  lids_block_put_byte(&self->block, byte);
}

static inline void put_u32(struct packer *self, uint32_t number) {
  lids_block_put_u32(&self->block, number);
}

/* Whether the value is in the message; then a reference to it now is, too. */
static bool put_seen(struct packer *self, struct lids_seen *seen) {
  return lids_block_put_seen(&self->block, seen);
}

static struct lids_seen *find(struct packer *self, const void *address) {
  struct lids_seen *seen = lids_block_find(&self->block, address);
  if (seen == NULL)
    lids_raise_out_of_memory(self->L);
  return seen;
}

/* -------------------------------------------------- numbers, strings, tables */

static void pack_integer(struct packer *self, lua_Integer integer) {
  if (integer >= INT8_MIN && integer <= INT8_MAX) {
    put_byte(self, LIDS_TAG_INTEGER8);
    put_byte(self, (int)(integer & UINT8_MAX));
  } else if (integer >= INT32_MIN && integer <= INT32_MAX) {
    int32_t narrow = (int32_t)integer;
    put_byte(self, LIDS_TAG_INTEGER32);
    put(self, &narrow, sizeof narrow);
  } else {
    put_byte(self, LIDS_TAG_INTEGER64);
    put(self, &integer, sizeof integer);
  }
}

static void pack_float(struct packer *self, lua_Number number) {
  put_byte(self, LIDS_TAG_FLOAT);
  put(self, &number, sizeof number);
}

static void pack_string(struct packer *self, int index, const struct lids_step *step) {
  size_t length;
  const char *text = lua_tolstring(self->L, index, &length);
  if (length <= UINT8_MAX) {
    reserve(self, TAG_BYTES_MAX + length, step);
    lids_block_put_short_string(&self->block, text, length);
  } else if (!put_seen(self, find(self, text))) {
    reserve(self, TAG_BYTES_MAX + length, step);
    put_byte(self, LIDS_TAG_LONG_STRING);
    put_u32(self, (uint32_t)length);
    put(self, text, length);
  }
}

static void enter(struct packer *self, const struct lids_step *step) {
  if (++self->depth > LIDS_VALUE_DEPTH_MAX)
    refuse(self, step, "a value nested deeper than 200 levels", "send a flatter structure");
  lids_reserve_stack(self->L, 8);
}

_Static_assert(LIDS_VALUE_DEPTH_MAX == 200, "the message says 200");

/* If the pair on top of the stack continues the array, write its value, with nils
 * for a small gap before it, and return the new number of items; else `items`. */
static uint32_t pack_items(struct packer *self, uint32_t items, struct lids_step *step) {
  lua_State *L = self->L;
  if (!lua_isinteger(L, step->index))
    return items;
  lua_Integer key = lua_tointeger(L, step->index);
  if (key <= items || key > (lua_Integer)items + 1 + GAP_MAX)
    return items;
  reserve(self, GAP_MAX, step);
  for (items++; items < key; items++)
    put_byte(self, LIDS_TAG_NIL);
  pack_value(self, step->index + 1, step);
  return items;
}

static void pack_pair(struct packer *self, struct lids_step *step) {
  step->kind = LIDS_STEP_KEY;
  pack_value(self, step->index, step);
  step->kind = LIDS_STEP_FIELD;
  pack_value(self, step->index + 1, step);
}

static void pack_table(struct packer *self, int index, const struct lids_step *step) {
  lua_State *L = self->L;
  if (lids_names_push_table_name(&self->names, index)) {
    put_byte(self, LIDS_TAG_MODULE);
    pack_value(self, lua_gettop(L), step);
    lua_pop(L, 1);
    return;
  }
  if (put_seen(self, find(self, lua_topointer(L, index))))
    return;
  if (lids_has_metatable(L, index)) {
    need_modules(self);
    refuse(self, step, "a table with a metatable", "send its plain fields");
  }
  enter(self, step);
  self->tables_depth++;

  put_byte(self, LIDS_TAG_TABLE);
  size_t counts_at = self->block.size;
  uint32_t counts[2] = { 0, 0 }; /* items, pairs; known at the end */
  put(self, counts, sizeof counts);
  struct lids_step field = { step, LIDS_STEP_FIELD, lua_gettop(L) + 1, 0 };
  lua_pushnil(L);
  while (lua_next(L, index)) {
    uint32_t items = counts[1] == 0 ? pack_items(self, counts[0], &field) : counts[0];
    if (items == counts[0]) {
      pack_pair(self, &field);
      counts[1]++;
    }
    counts[0] = items;
    lua_pop(L, 1);
  }
  memcpy(self->block.bytes + counts_at, counts, sizeof counts);
  self->tables_depth--;
  self->depth--;
}

/* --------------------------------------------------------------- functions */

static void pack_c_function(struct packer *self, int index, const struct lids_step *step) {
  lua_State *L = self->L;
  if (!lids_names_push_function_name(&self->names, index)) {
    refuse(self, step, "a C function that no loaded module has",
           "send a Lua function that gets it and calls it");
  }
  int top = lua_gettop(L);
  put_byte(self, LIDS_TAG_NAMED_FUNCTION);
  pack_value(self, top - 1, step);
  pack_value(self, top, step);
  lua_pop(L, 2);
}

/* A lua_Writer.  May not raise, as Lua is in the middle of something. */
static int write_code(lua_State *L, const void *bytes, size_t size, void *context) {
  (void)L;
  struct packer *self = context;
  if (!lids_block_reserve(&self->block, size))
    return 1;
  if (size > 0)
    put(self, bytes, size);
  return 0;
}

/* Dump the function to the end of the block, and keep a copy. */
static void dump(struct packer *self, int index, unsigned place, const struct lids_step *step) {
  lua_State *L = self->L;
  size_t header_at = self->block.size;
  uint64_t hash = 0;
  uint32_t length = 0;
  put(self, &hash, sizeof hash);
  put(self, &length, sizeof length);
  lua_pushvalue(L, index);
  if (lua_dump(L, write_code, self, false) != 0)
    refuse_size(self, step);
  lua_pop(L, 1);

  unsigned char *header = self->block.bytes + header_at;
  unsigned char *code = header + sizeof hash + sizeof length;
  length = (uint32_t)(self->block.bytes + self->block.size - code);
  hash = lids_code_hash(code, length);
  memcpy(header, &hash, sizeof hash);
  memcpy(header + sizeof hash, &length, sizeof length);

  struct lids_code_cache *cache = &self->cache->dumped;
  if (!lids_code_cache_has_room(cache, length))
    lids_code_cache_clear(cache);
  if (lids_code_cache_keep(cache, place, hash, code, length)) {
    lua_pushvalue(L, index);
    lua_rawseti(L, self->dumped_index, (lua_Integer)place + 1);
  }
}

/* Write hash, length and bytecode. */
static void pack_code(struct packer *self, int index, const struct lids_step *step) {
  lua_State *L = self->L;
  unsigned place = lids_place_of(lua_topointer(L, index), LIDS_CODES_MAX);
  const struct lids_code *code = self->cache->dumped.codes[place];
  lua_rawgeti(L, self->dumped_index, (lua_Integer)place + 1);
  bool is_kept = code != NULL && lua_rawequal(L, -1, index);
  lua_pop(L, 1);
  if (!is_kept) {
    dump(self, index, place, step);
    return;
  }
  reserve(self, sizeof code->hash + sizeof code->length + code->length, step);
  put(self, &code->hash, sizeof code->hash);
  put_u32(self, code->length);
  put(self, code->bytes, code->length);
}

static void pack_upvalue(struct packer *self, uint32_t offset, const struct lids_step *step) {
  lua_State *L = self->L;
  reserve(self, TAG_BYTES_MAX, step);
  const char *name = lua_getupvalue(L, step->index, step->number);
  struct lids_seen *seen;
  if (strcmp(name, "_ENV") == 0) {
    put_byte(self, LIDS_UPVALUE_GLOBALS);
  } else if ((seen = find(self, lua_upvalueid(L, step->index, step->number)))->offset != 0) {
    lids_block_share(&self->block, seen->offset);
    put_byte(self, LIDS_UPVALUE_JOINED);
    put_u32(self, seen->offset);
    put_byte(self, (int)seen->upvalue);
  } else {
    seen->offset = offset;
    seen->upvalue = (uint32_t)step->number;
    put_byte(self, LIDS_UPVALUE_OWN);
    pack_value(self, lua_gettop(L), step);
  }
  lua_pop(L, 1);
}

static void pack_lua_function(struct packer *self, int index, const struct lids_step *step) {
  lua_State *L = self->L;
  uint32_t offset = (uint32_t)self->block.size;
  if (put_seen(self, find(self, lua_topointer(L, index))))
    return;
  enter(self, step);
  int count = 0;
  bool is_plain = true;
  for (const char *name; (name = lua_getupvalue(L, index, count + 1)) != NULL; count++) {
    is_plain = is_plain && strcmp(name, "_ENV") == 0;
    lua_pop(L, 1);
  }
  reserve(self, TAG_BYTES_MAX, step);
  put_byte(self, is_plain ? LIDS_TAG_PLAIN_FUNCTION : LIDS_TAG_FUNCTION);
  put_byte(self, count);
  pack_code(self, index, step);
  struct lids_step upvalue = { step, LIDS_STEP_UPVALUE, index, 1 };
  for (; !is_plain && upvalue.number <= count; upvalue.number++)
    pack_upvalue(self, offset, &upvalue);
  self->depth--;
}

static void pack_function(struct packer *self, int index, const struct lids_step *step) {
  if (self->tables_depth > 0)
    need_modules(self);
  if (lua_iscfunction(self->L, index))
    pack_c_function(self, index, step);
  else
    pack_lua_function(self, index, step);
}

/* ---------------------------------------------------------------- all kinds */

static void refuse_userdata(struct packer *self, int index, const struct lids_step *step) {
  lua_State *L = self->L;
  /* Handles of this library are told apart here, once they can be sent. */
  lids_reserve_stack(L, LUA_MINSTACK);
  if (luaL_getmetafield(L, index, "__name") == LUA_TSTRING)
    lua_pushfstring(L, "a userdata '%s'", lua_tostring(L, -1));
  else
    lua_pushliteral(L, "a userdata");
  refuse(self, step, lua_tostring(L, -1),
         "it belongs to the state that made it; send plain values");
}

static void pack_value(struct packer *self, int index, const struct lids_step *step) {
  lua_State *L = self->L;
  reserve(self, TAG_BYTES_MAX, step);
  switch (lua_type(L, index)) {
  case LUA_TNIL:
    put_byte(self, LIDS_TAG_NIL);
    break;
  case LUA_TBOOLEAN:
    put_byte(self, lua_toboolean(L, index) ? LIDS_TAG_TRUE : LIDS_TAG_FALSE);
    break;
  case LUA_TNUMBER:
    if (lua_isinteger(L, index))
      pack_integer(self, lua_tointeger(L, index));
    else
      pack_float(self, lua_tonumber(L, index));
    break;
  case LUA_TSTRING:
    pack_string(self, index, step);
    break;
  case LUA_TLIGHTUSERDATA: {
    const void *address = lua_touserdata(L, index);
    put_byte(self, LIDS_TAG_LIGHT_USERDATA);
    put(self, &address, sizeof address);
    break;
  }
  case LUA_TTABLE:
    pack_table(self, index, step);
    break;
  case LUA_TFUNCTION:
    pack_function(self, index, step);
    break;
  case LUA_TUSERDATA:
    if (self->tables_depth > 0)
      need_modules(self);
    refuse_userdata(self, index, step);
    break;
  default: /* LUA_TTHREAD */
    if (self->tables_depth > 0)
      need_modules(self);
    refuse(self, step, "a coroutine", "send its function, and start the coroutine in the job");
  }
}

/* Protected: the packer, then the values. */
static int pack_protected(lua_State *L) {
  struct packer *self = lua_touserdata(L, 1);
  int top = lua_gettop(L);
  self->L = L;
  self->cache = lids_value_cache_push(L);
  lua_getiuservalue(L, top + 1, LIDS_DUMPED_FUNCTIONS);
  lua_getiuservalue(L, top + 1, LIDS_NAMES);
  self->dumped_index = top + 2;
  self->names = (struct lids_names){
    .L = L, .block = &self->block, .cache = self->cache, .names_index = top + 3
  };
  if (self->has_to_note)
    lids_names_note(&self->names);

  struct lids_step value = { NULL, LIDS_STEP_VALUE, 0, 1 };
  for (; value.number < top; value.number++)
    pack_value(self, value.number + 1, &value);
  self->message = lids_block_finish(&self->block, (uint32_t)top - 1);
  if (self->message == NULL)
    lids_raise_out_of_memory(L);
  return 0;
}

/* Returns what lua_pcall() does; the error is on the stack. */
static int try_to_pack(struct packer *self, lua_State *L, int first, int count) {
  self->depth = self->tables_depth = 0;
  self->has_to_start_over = false;
  lids_block_init(&self->block);
  lua_pushcfunction(L, pack_protected);
  lua_pushlightuserdata(L, self);
  for (int i = 0; i < count; i++)
    lua_pushvalue(L, first + i);
  int status = lua_pcall(L, count + 1, 0, 0);
  lids_block_deinit(&self->block);
  return status;
}

struct lids_message *lids_value_pack(lua_State *L, int first,
                                     const char *(*label)(lua_State *L, int position)) {
  int count = lua_gettop(L) - first + 1;
  lids_reserve_stack(L, count + LUA_MINSTACK);
  struct packer packer; /* its block is large: not all of it needs a value */
  packer.label = label;
  packer.has_to_note = false;
  int status = try_to_pack(&packer, L, first, count);
  if (status != LUA_OK && packer.has_to_start_over) {
    lua_pop(L, 1);
    packer.has_to_note = true;
    status = try_to_pack(&packer, L, first, count);
  }
  if (status != LUA_OK)
    lua_error(L);
  return packer.message;
}

void lids_message_free(struct lids_message *message) {
  idlesched_free(message);
}

size_t lids_message_size(const struct lids_message *message) {
  return message == NULL ? 0 : message->size;
}
