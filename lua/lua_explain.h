/* SPDX-License-Identifier: MIT */
/*
 * lua_explain.h - why memory is not back.
 */
#ifndef LIDS_LUA_EXPLAIN_H
#define LIDS_LUA_EXPLAIN_H

#include <lua.h>

/* idlesched.explain() -> string, for people | nil, message, number */
int lids_explain(lua_State *L);

#endif
