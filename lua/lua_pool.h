/* SPDX-License-Identifier: MIT */
/*
 * lua_pool.h - the pool object.
 */
#ifndef LIDS_LUA_POOL_H
#define LIDS_LUA_POOL_H

#include <lua.h>

void lids_pool_open(lua_State *L);

/* idlesched.pool(options?) -> pool | nil, message, number */
int lids_pool_new(lua_State *L);

#endif
