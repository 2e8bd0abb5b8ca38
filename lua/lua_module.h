/* SPDX-License-Identifier: MIT */
/*
 * lua_module.h - what `require "idlesched"` calls, in any state, as often as it
 * likes.
 */
#ifndef LIDS_LUA_MODULE_H
#define LIDS_LUA_MODULE_H

#include <lua.h>

int luaopen_idlesched(lua_State *L);

#endif
