/* SPDX-License-Identifier: MIT */
/*
 * lua_value_name.c - see lua_value_name.h.
 */
#include "lua_value_name.h"

#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

#include "lua_util.h"
#include "lua_value.h"
#include "lua_value_format.h"

/* ------------------------------------------------------------- the best name */

static const char *const standard_modules[] = {
  "coroutine", "debug", "io", "math", "os", "package", "string", "table", "utf8", NULL,
};

/* What the basic library puts into _G.  A script puts other functions there, under
 * names that no other state knows. */
static const char *const standard_globals[] = {
  "assert",   "collectgarbage", "dofile",  "error",  "getmetatable", "ipairs",   "load",
  "loadfile", "next",           "pairs",   "pcall",  "print",        "rawequal", "rawget",
  "rawlen",   "rawset",         "require", "select", "setmetatable", "tonumber", "tostring",
  "type",     "warn",           "xpcall",  NULL,
};

static bool is_among(const char *name, const char *const *names) {
  for (; *names != NULL; names++)
    if (strcmp(name, *names) == 0)
      return true;
  return false;
}

struct name {
  const char *module;
  const char *field; /* NULL: none */
  size_t module_length, field_length;
};

static struct name name_at(lua_State *L, int module, int field) {
  struct name name = { NULL, NULL, 0, 0 };
  name.module = lua_tolstring(L, module, &name.module_length);
  if (lua_type(L, field) == LUA_TSTRING)
    name.field = lua_tolstring(L, field, &name.field_length);
  return name;
}

static bool is_standard(const struct name *name) {
  if (strcmp(name->module, LUA_GNAME) == 0)
    return name->field == NULL || is_among(name->field, standard_globals);
  return is_among(name->module, standard_modules);
}

static int compare_bytes(const char *a, size_t a_length, const char *b, size_t b_length) {
  int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
  return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static bool is_better(const struct name *a, const struct name *b) {
  bool is_a_standard = is_standard(a);
  if (is_a_standard != is_standard(b))
    return is_a_standard;
  size_t a_length = a->module_length + a->field_length;
  size_t b_length = b->module_length + b->field_length;
  if (a_length != b_length)
    return a_length < b_length;
  int order = compare_bytes(a->module, a->module_length, b->module, b->module_length);
  if (order != 0)
    return order < 0;
  /* The same module, so both have a field or they are the same name. */
  return a->field != NULL && b->field != NULL &&
         compare_bytes(a->field, a->field_length, b->field, b->field_length) < 0;
}

/* The stack while a name is searched, counted from its base. */
enum { BEST_MODULE = 1, BEST_FIELD, LOADED, MODULE_KEY, MODULE, FIELD_KEY, FIELD };

/* The value has a name: keep it if there is no better one. */
static void offer(lua_State *L, int base, int field) {
  struct name name = name_at(L, base + MODULE_KEY, field);
  if (!lua_isnil(L, base + BEST_MODULE)) {
    struct name best = name_at(L, base + BEST_MODULE, base + BEST_FIELD);
    if (!is_better(&name, &best))
      return;
  }
  lua_copy(L, base + MODULE_KEY, base + BEST_MODULE);
  lua_copy(L, field, base + BEST_FIELD);
}

static void search_fields(lua_State *L, int base, int index) {
  lua_pushnil(L);
  while (lua_next(L, base + MODULE)) {
    if (lua_type(L, base + FIELD_KEY) == LUA_TSTRING && lua_rawequal(L, base + FIELD, index))
      offer(L, base, base + FIELD_KEY);
    lua_pop(L, 1);
  }
}

/* Push the best name of the value at `index`: module and field, which are nil when
 * there is none. */
static void search(lua_State *L, int index, bool in_fields) {
  int base = lua_gettop(L);
  lids_reserve_stack(L, FIELD + 2);
  lua_pushnil(L);
  lua_pushnil(L);
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  lua_pushnil(L);
  while (lua_istable(L, base + LOADED) && lua_next(L, base + LOADED)) {
    if (lua_type(L, base + MODULE_KEY) == LUA_TSTRING) {
      lua_pushnil(L); /* at FIELD_KEY */
      if (lua_rawequal(L, base + MODULE, index))
        offer(L, base, base + FIELD_KEY);
      lua_settop(L, base + MODULE);
      if (in_fields && lua_istable(L, base + MODULE))
        search_fields(L, base, index);
    }
    lua_settop(L, base + MODULE_KEY);
  }
  lua_settop(L, base + BEST_FIELD);
}

/* ---------------------------------------------------------- names remembered */

static unsigned place_of(lua_State *L, int index) {
  return lids_place_of(lua_topointer(L, index), LIDS_NAMES_MAX);
}

/* Whether the value still goes by the two names on top of the stack. */
static bool is_named_so(lua_State *L, int index) {
  int module = lua_gettop(L) - 1, field = module + 1;
  if (lua_type(L, module) != LUA_TSTRING)
    return false;
  if (lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE) == LUA_TTABLE) {
    lua_pushvalue(L, module);
    lua_rawget(L, -2);
  }
  if (!lua_isnil(L, field) && lua_istable(L, -1)) {
    lua_pushvalue(L, field);
    lua_rawget(L, -2);
  }
  bool is_so = lua_rawequal(L, -1, index);
  lua_settop(L, field);
  return is_so;
}

static bool push_remembered(struct lids_names *self, int index) {
  lua_State *L = self->L;
  int place = (int)place_of(L, index);
  lids_reserve_stack(L, 8);
  lua_rawgeti(L, self->names_index, 2 * place + 1);
  lua_rawgeti(L, self->names_index, 2 * place + 2);
  if (is_named_so(L, index))
    return true;
  lua_pop(L, 2);
  return false;
}

static bool search_and_remember(struct lids_names *self, int index, bool in_fields) {
  lua_State *L = self->L;
  search(L, index, in_fields);
  if (lua_isnil(L, -2)) {
    lua_pop(L, 2);
    return false;
  }
  int place = (int)place_of(L, index);
  lua_pushvalue(L, -2);
  lua_rawseti(L, self->names_index, 2 * place + 1);
  lua_pushvalue(L, -1);
  lua_rawseti(L, self->names_index, 2 * place + 2);
  return true;
}

bool lids_names_push_function_name(struct lids_names *self, int index) {
  return push_remembered(self, index) || search_and_remember(self, index, true);
}

/* ----------------------------------------------------------- modules' tables */

/* Two more entries for a table in what was seen, at addresses inside the object:
 * that it is a module's, and in which walk it was visited. */

static struct lids_seen *find(struct lids_names *self, const void *table, int which) {
  struct lids_seen *seen = lids_block_find(self->block, (const char *)table + which);
  if (seen == NULL)
    lids_raise_out_of_memory(self->L);
  return seen;
}

static struct lids_seen *find_mark(struct lids_names *self, const void *table) {
  return find(self, table, 1);
}

static struct lids_seen *find_visit(struct lids_names *self, const void *table) {
  return find(self, table, 2);
}

void lids_names_note(struct lids_names *self) {
  lua_State *L = self->L;
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  int loaded = lua_gettop(L);
  lua_pushnil(L);
  while (lua_istable(L, loaded) && lua_next(L, loaded)) {
    if (lua_type(L, -2) == LUA_TSTRING && lua_istable(L, -1))
      find_mark(self, lua_topointer(L, -1))->offset = 1;
    lua_pop(L, 1);
  }
  lua_settop(L, loaded - 1);
  self->are_noted = true;
}

static bool is_plain(struct lids_names *self, int index, int depth);

static bool is_plain_value(struct lids_names *self, int index, int depth) {
  switch (lua_type(self->L, index)) {
  case LUA_TTABLE:
    return is_plain(self, index, depth);
  case LUA_TFUNCTION:
  case LUA_TUSERDATA:
  case LUA_TTHREAD:
    return false;
  default:
    return true;
  }
}

/* Whether a table is plain data, all the way down. */
static bool is_plain(struct lids_names *self, int index, int depth) {
  lua_State *L = self->L;
  lids_reserve_stack(L, 8);
  if (lids_has_metatable(L, index))
    return false;
  struct lids_seen *visit = find_visit(self, lua_topointer(L, index));
  if (visit->offset == self->walks_count || depth > LIDS_VALUE_DEPTH_MAX)
    return true; /* it is being looked at; or it will be refused anyway */
  visit->offset = self->walks_count;
  bool result = true;
  int key = lua_gettop(L) + 1;
  lua_pushnil(L);
  while (result && lua_next(L, index)) {
    result = is_plain_value(self, key, depth + 1) && is_plain_value(self, key + 1, depth + 1);
    lua_settop(L, key);
  }
  lua_settop(L, key - 1);
  return result;
}

bool lids_names_push_table_name(struct lids_names *self, int index) {
  lua_State *L = self->L;
  const void *table = lua_topointer(L, index);
  const void **known = &self->cache->known_modules[place_of(L, index)];
  bool is_candidate = *known == table || (self->are_noted && find_mark(self, table)->offset != 0);
  if (!is_candidate)
    return false;
  self->walks_count++;
  if (is_plain(self, index, 0))
    return false;
  if (!push_remembered(self, index) &&
      !(self->are_noted && search_and_remember(self, index, false)))
    return false;
  bool is_whole_module = lua_isnil(L, -1);
  lua_pop(L, is_whole_module ? 1 : 2);
  if (is_whole_module)
    *known = table;
  return is_whole_module;
}

/* ------------------------------------------------------------------- paths */

/* Of a path that is longer, so many steps are shown at each end. */
#define STEPS_SHOWN 8
/* Of a key that is longer, so many bytes. */
#define KEY_BYTES_SHOWN 40

static bool is_identifier(const char *text, size_t length) {
  if (length == 0 || length > KEY_BYTES_SHOWN || isdigit((unsigned char)text[0]))
    return false;
  for (size_t i = 0; i < length; i++)
    if (text[i] != '_' && !isalnum((unsigned char)text[i]))
      return false;
  return true;
}

static void add_quoted(luaL_Buffer *path, const char *text, size_t length) {
  luaL_addstring(path, "[\"");
  for (size_t i = 0; i < length && i < KEY_BYTES_SHOWN; i++) {
    unsigned char byte = (unsigned char)text[i];
    if (byte < ' ' || byte == 0x7F) {
      const char decimal[] = { '\\', (char)('0' + byte / 100), (char)('0' + byte / 10 % 10),
                               (char)('0' + byte % 10) };
      luaL_addlstring(path, decimal, sizeof decimal);
      continue;
    }
    if (byte == '"' || byte == '\\')
      luaL_addchar(path, '\\');
    luaL_addchar(path, text[i]);
  }
  luaL_addstring(path, length > KEY_BYTES_SHOWN ? "...\"]" : "\"]");
}

static void add_key(lua_State *L, luaL_Buffer *path, int index) {
  size_t length;
  const char *text;
  switch (lua_type(L, index)) {
  case LUA_TSTRING:
    text = lua_tolstring(L, index, &length);
    if (!is_identifier(text, length)) {
      add_quoted(path, text, length);
      return;
    }
    lua_pushfstring(L, ".%s", text);
    break;
  case LUA_TNUMBER:
    if (lua_isinteger(L, index))
      lua_pushfstring(L, "[%I]", (LUAI_UACINT)lua_tointeger(L, index));
    else
      lua_pushfstring(L, "[%f]", (LUAI_UACNUMBER)lua_tonumber(L, index));
    break;
  case LUA_TBOOLEAN:
    lua_pushstring(L, lua_toboolean(L, index) ? "[true]" : "[false]");
    break;
  default:
    lua_pushfstring(L, "[<%s>]", luaL_typename(L, index));
  }
  luaL_addvalue(path);
}

static void add_upvalue_begin(lua_State *L, luaL_Buffer *path, const struct lids_step *step) {
  const char *name = lua_getupvalue(L, step->index, step->number);
  lua_pop(L, 1);
  lua_pushfstring(L, ", upvalue '%s", name);
  luaL_addvalue(path);
}

/* The keys that follow an upvalue stand inside its quotes, as in the code that
 * uses it. */
static void add_upvalue_end(lua_State *L, luaL_Buffer *path, const struct lids_step *step) {
  if (step == NULL)
    return;
  lua_Debug function;
  lua_pushvalue(L, step->index);
  lua_getinfo(L, ">S", &function);
  lua_pushfstring(L, "' of function <%s:%d>", function.short_src, function.linedefined);
  luaL_addvalue(path);
}

void lids_path_push(lua_State *L, const struct lids_step *last,
                    const char *(*label)(lua_State *L, int position)) {
  const struct lids_step *steps[LIDS_VALUE_DEPTH_MAX + 2];
  int count = 0;
  for (const struct lids_step *step = last; step->up != NULL; step = step->up)
    steps[count++] = last = step;
  int position = count > 0 ? last->up->number : last->number;

  lids_reserve_stack(L, LUA_MINSTACK);
  const char *root = label != NULL ? label(L, position) : lua_pushfstring(L, "value %d", position);
  luaL_Buffer path;
  luaL_buffinit(L, &path);
  luaL_addstring(&path, root);
  const struct lids_step *upvalue = NULL; /* whose quotes are open */
  for (int i = count - 1; i >= 0; i--) {
    if (i == count - 1 - STEPS_SHOWN && count > 2 * STEPS_SHOWN) {
      add_upvalue_end(L, &path, upvalue);
      upvalue = NULL;
      luaL_addstring(&path, " ... ");
      i = STEPS_SHOWN - 1;
    }
    if (steps[i]->kind == LIDS_STEP_UPVALUE) {
      add_upvalue_end(L, &path, upvalue);
      upvalue = steps[i];
      add_upvalue_begin(L, &path, upvalue);
    } else {
      add_key(L, &path, steps[i]->index);
    }
  }
  add_upvalue_end(L, &path, upvalue);
  luaL_pushresult(&path);
}
