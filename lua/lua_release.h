/* SPDX-License-Identifier: MIT */
/*
 * lua_release.h - releases of the whole process.
 */
#ifndef LIDS_LUA_RELEASE_H
#define LIDS_LUA_RELEASE_H

#include <lua.h>

/* idlesched.release{timeout = 1, pools = {...}} -> report */
int lids_release(lua_State *L);

/* idlesched.purge_all() -> report */
int lids_purge_all(lua_State *L);

#endif
