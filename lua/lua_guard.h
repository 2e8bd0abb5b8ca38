/* SPDX-License-Identifier: MIT */
/*
 * lua_guard.h - guards: overrides of the allocator's options, for a scope.
 */
#ifndef LIDS_LUA_GUARD_H
#define LIDS_LUA_GUARD_H

#include <lua.h>

void lids_guard_open(lua_State *L);

/* idlesched.eager_purge() -> guard: freed memory goes back to the system at once
 * until the guard ends */
int lids_guard_eager_purge(lua_State *L);

/* idlesched.option(name, value) -> guard: the allocator's option has that value until the
 * guard ends */
int lids_guard_option(lua_State *L);

/* idlesched.options() -> list of options: see the types for their fields */
int lids_guard_options(lua_State *L);

#endif
