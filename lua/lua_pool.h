/* SPDX-License-Identifier: MIT */
/*
 * lua_pool.h - the pool object.
 */
#ifndef LIDS_LUA_POOL_H
#define LIDS_LUA_POOL_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#include "idlesched.h"

void lids_pool_open(lua_State *L);

/* idlesched.pool(options?) -> pool | nil, message, number */
int lids_pool_new(lua_State *L);

/* idlesched.current_pool() -> the pool of the job that runs here | nil */
int lids_pool_current(lua_State *L);

/* Most workers that a pool may have. */
#define LIDS_WORKERS_MOST 1024

/* What others may know of a pool object. */
struct lids_pool_view {
  idlesched_pool *core;
  const char *name; /* as long as the object */
  uint64_t idle_release_ns;
};

/* Whether the value at `index` is a pool that is there. */
bool lids_pool_view(lua_State *L, int index, struct lids_pool_view *out);

/* Push a table whose keys are the pools of this state. */
void lids_pools_push(lua_State *L);

#endif
