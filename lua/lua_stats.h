/* SPDX-License-Identifier: MIT */
/*
 * lua_stats.h - a pool in numbers, as Lua values.
 */
#ifndef LIDS_LUA_STATS_H
#define LIDS_LUA_STATS_H

#include <lua.h>

#include "idlesched.h"

/* Each pushes what a method of pools returns, and tells how many values that are; the types
 * file has their fields. */
int lids_stats_push(lua_State *L, idlesched_pool *pool);
int lids_stats_push_workers(lua_State *L, idlesched_pool *pool);
int lids_stats_push_active(lua_State *L, idlesched_pool *pool);
int lids_stats_push_audit(lua_State *L, idlesched_pool *pool);

#endif
