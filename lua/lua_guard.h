/* SPDX-License-Identifier: MIT */
/*
 * lua_guard.h - guards: what holds for a scope.
 */
#ifndef LIDS_LUA_GUARD_H
#define LIDS_LUA_GUARD_H

#include <lua.h>

void lids_guard_open(lua_State *L);

/* idlesched.eager_purge() -> guard: freed memory goes back to the system at once
 * until the guard ends */
int lids_guard_eager_purge(lua_State *L);

#endif
