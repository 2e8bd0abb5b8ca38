/* SPDX-License-Identifier: MIT */
/*
 * lua_value_cache.c - see lua_value_cache.h.
 */
#include "lua_value_cache.h"

#include <lauxlib.h>
#include <string.h>

#include "idlesched.h"
#include "lua_value.h"

/* Its address is the key in the registry. */
static const char registry_key;

/* Odd, and with bits all over: 2^64 divided by the golden ratio. */
#define MIXER UINT64_C(0x9E3779B97F4A7C15)

/* ------------------------------------------------------------------- codes */

unsigned lids_place_of(const void *address, unsigned count) {
  /* The upper half, as the lowest bits of a product depend on the lowest alone. */
  uint64_t product = (uint64_t)(uintptr_t)address * MIXER;
  return (unsigned)(product >> 32) & (count - 1);
}

uint64_t lids_code_hash(const unsigned char *bytes, size_t length) {
  uint64_t hash = length;
  for (; length >= sizeof hash; bytes += sizeof hash, length -= sizeof hash) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    hash = (hash ^ word) * MIXER;
    hash ^= hash >> 32;
  }
  uint64_t rest = 0;
  memcpy(&rest, bytes, length);
  hash = (hash ^ rest) * MIXER;
  return hash ^ hash >> 32;
}

static void drop(struct lids_code_cache *self, unsigned place) {
  if (self->codes[place] == NULL)
    return;
  self->bytes -= self->codes[place]->length;
  idlesched_free(self->codes[place]);
  self->codes[place] = NULL;
}

bool lids_code_cache_has_room(const struct lids_code_cache *self, size_t length) {
  return self->bytes + length <= LIDS_CODE_BYTES_MAX;
}

void lids_code_cache_clear(struct lids_code_cache *self) {
  for (unsigned place = 0; place < LIDS_CODES_MAX; place++)
    drop(self, place);
}

bool lids_code_cache_keep(struct lids_code_cache *self, unsigned place, uint64_t hash,
                          const unsigned char *bytes, uint32_t length) {
  drop(self, place);
  if (self->is_closed || !lids_code_cache_has_room(self, length))
    return false;
  struct lids_code *code = idlesched_realloc(NULL, sizeof *code + length);
  if (code == NULL)
    return false;
  code->hash = hash;
  code->length = length;
  memcpy(code->bytes, bytes, length);
  self->codes[place] = code;
  self->bytes += length;
  return true;
}

void lids_value_cache_clear_loaded(struct lids_value_cache *self, lua_State *L, int index) {
  lids_code_cache_clear(&self->loaded);
  for (int place = 0; place < LIDS_CODES_MAX; place++) {
    lua_pushnil(L);
    lua_rawseti(L, index, place + 1);
  }
}

/* -------------------------------------------------------------------- life */

static int cache_gc(lua_State *L) {
  struct lids_value_cache *self = lua_touserdata(L, 1);
  lids_code_cache_clear(&self->dumped);
  lids_code_cache_clear(&self->loaded);
  /* Finalisers that run later may still send values. */
  self->dumped.is_closed = true;
  self->loaded.is_closed = true;
  return 0;
}

static void push_weak_table(lua_State *L, int size) {
  lua_createtable(L, size, 0);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

static struct lids_value_cache *push_new_cache(lua_State *L) {
  struct lids_value_cache *self = lua_newuserdatauv(L, sizeof *self, LIDS_CACHE_TABLES);
  *self = (struct lids_value_cache){ 0 };
  push_weak_table(L, LIDS_CODES_MAX);
  lua_setiuservalue(L, -2, LIDS_DUMPED_FUNCTIONS);
  lua_createtable(L, LIDS_CODES_MAX, 0);
  lua_setiuservalue(L, -2, LIDS_LOADED_FUNCTIONS);
  lua_createtable(L, 2 * LIDS_NAMES_MAX, 0);
  lua_setiuservalue(L, -2, LIDS_NAMES);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, cache_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &registry_key);
  return self;
}

struct lids_value_cache *lids_value_cache_push(lua_State *L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &registry_key) == LUA_TUSERDATA)
    return lua_touserdata(L, -1);
  lua_pop(L, 1);
  return push_new_cache(L);
}

void lids_value_forget(lua_State *L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &registry_key) == LUA_TUSERDATA) {
    struct lids_value_cache *self = lua_touserdata(L, -1);
    lids_code_cache_clear(&self->dumped);
    lua_getiuservalue(L, -1, LIDS_LOADED_FUNCTIONS);
    lids_value_cache_clear_loaded(self, L, lua_gettop(L));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

void lids_raise_out_of_memory(lua_State *L) {
  lua_pushliteral(L, "not enough memory"); /* lua_error() knows it by that */
  lua_error(L);
}

void lids_reserve_stack(lua_State *L, int slots_count) {
  /* No stack comes so close to its limit of a million slots but by many values. */
  static const int many = 10000;
  if (lua_checkstack(L, slots_count))
    return;
  if (slots_count > many)
    luaL_error(L, "more values than fit on the stack: send them in a table");
  lids_raise_out_of_memory(L);
}

void lids_value_open(lua_State *L) {
  lids_reserve_stack(L, 8);
  lids_value_cache_push(L);
  lua_pop(L, 1);
}
