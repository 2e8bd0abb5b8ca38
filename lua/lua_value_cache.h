/* SPDX-License-Identifier: MIT */
/*
 * lua_value_cache.h - what a state remembers about functions that it sent or got.
 *
 * A function that is submitted often is dumped once.  One that is called often is
 * loaded once, if the globals are its only upvalue and it is the job's own.  Others
 * are loaded afresh each time, or jobs would share upvalues by accident; and who is
 * given a function may keep it, compare it, and set its _ENV.
 *
 * Both caches have LIDS_CODES_MAX places and LIDS_CODE_BYTES_MAX bytes.  What
 * belongs to a place that is taken replaces what is there, and a cache that is
 * full is emptied.
 *
 *   dumped  the place is decided by the function's address.  An address comes back
 *           when its function is gone, so the place also holds the function,
 *           weakly, to compare with.
 *   loaded  the place is decided by the bytecode's hash, and the bytes are compared.
 *
 * Places are filled without an allocation in the state: the bytecode is a block of
 * our own, and the tables have their size from the beginning.  So no finaliser runs
 * meanwhile, which could change what is being packed, or use the cache itself.  The
 * same holds for a third table, of the names of C functions and modules.
 */
#ifndef LIDS_LUA_VALUE_CACHE_H
#define LIDS_LUA_VALUE_CACHE_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIDS_CODES_MAX 128
#define LIDS_CODE_BYTES_MAX ((size_t)1024 * 1024)
#define LIDS_NAMES_MAX 32

struct lids_code {
  uint64_t hash;
  uint32_t length;
  unsigned char bytes[];
};

struct lids_code_cache {
  bool is_closed; /* the state ends: nothing is kept any more */
  size_t bytes;
  struct lids_code *codes[LIDS_CODES_MAX]; /* NULL: a free place */
};

/* A userdata of the state's registry. */
struct lids_value_cache {
  struct lids_code_cache dumped;
  struct lids_code_cache loaded;
  /* By place: a table whose name is in LIDS_NAMES.  An address only, so
   * the name must be checked. */
  const void *known_modules[LIDS_NAMES_MAX];
};

/* Its user values: tables. */
enum {
  LIDS_DUMPED_FUNCTIONS = 1, /* place + 1: the function, weakly */
  LIDS_LOADED_FUNCTIONS,     /* place + 1: the function */
  LIDS_NAMES,                /* 2 * place + 1: module; 2 * place + 2: field */
  LIDS_CACHE_TABLES = LIDS_NAMES
};

_Static_assert((LIDS_CODES_MAX & (LIDS_CODES_MAX - 1)) == 0, "a power of 2");
_Static_assert((LIDS_NAMES_MAX & (LIDS_NAMES_MAX - 1)) == 0, "a power of 2");

/* Push the state's cache; made if lids_value_open() was not called. */
struct lids_value_cache *lids_value_cache_push(lua_State *L);

/* Does not return.  As when Lua itself gets no memory, LUA_ERRMEM included. */
void lids_raise_out_of_memory(lua_State *L);

/* Make room on the stack, or raise.  luaL_checkstack() takes every failure for an
 * overflow, and mostly it is memory that is missing. */
void lids_reserve_stack(lua_State *L, int slots_count);

/* A place below `count`, a power of 2, for an address. */
unsigned lids_place_of(const void *address, unsigned count);

/* Any single change of the bytes changes it, which tells a damaged message. */
uint64_t lids_code_hash(const unsigned char *bytes, size_t length);

/* Whether a code can be added, to whatever place. */
bool lids_code_cache_has_room(const struct lids_code_cache *self, size_t length);
void lids_code_cache_clear(struct lids_code_cache *self);
/* The same for `loaded`, and its table of functions at `index`. */
void lids_value_cache_clear_loaded(struct lids_value_cache *self, lua_State *L, int index);
/* Keep a copy.  Returns false when there is no memory for it; then the place is free. */
bool lids_code_cache_keep(struct lids_code_cache *self, unsigned place, uint64_t hash,
                          const unsigned char *bytes, uint32_t length);

#endif
