/* SPDX-License-Identifier: MIT */
/*
 * lua_pressure.h - the watcher of memory pressure, of which the process has one.
 */
#ifndef LIDS_LUA_PRESSURE_H
#define LIDS_LUA_PRESSURE_H

#include <lua.h>

void lids_pressure_open(lua_State *L);

/* idlesched.watch_pressure{stall = 0.1, window = 1, cooldown = 10, timeout = 1, path = nil}
 * -> watcher | nil, "already watched" | nil, message, number */
int lids_pressure_watch(lua_State *L);

#endif
