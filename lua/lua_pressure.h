/* SPDX-License-Identifier: MIT */
/*
 * lua_pressure.h - the watcher of memory pressure, of which the process has one.
 */
#ifndef LIDS_LUA_PRESSURE_H
#define LIDS_LUA_PRESSURE_H

#include <lua.h>

void lids_pressure_open(lua_State *L);

/* idlesched.watch_pressure{window = 1, stall = window / 10, cooldown = 10, timeout = 1, path}
 * -> watcher | nil, "already watched" | nil, message, number */
int lids_pressure_watch(lua_State *L);

#endif
