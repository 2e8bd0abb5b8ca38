/* SPDX-License-Identifier: MIT */
/*
 * lua_error.h - error objects: what went wrong on a worker, as a value.
 *
 * An error object is a table with a shared metatable:
 *
 *   kind       "error"     the job's code raised it
 *              "transfer"  a value cannot travel between states
 *              "memory"    the worker could not get memory, for its state or the job
 *   message    string, with the position where Lua gave one
 *   value      the original error value, where it can travel and is no string
 *   traceback  string: the worker's stack when it was raised
 *   worker     number of the worker, from 1; like pool not there where not even the
 *   pool       name of the pool              error could be described
 *
 * tostring(err) is the message and the traceback; `..` takes it for that string.
 */
#ifndef LIDS_LUA_ERROR_H
#define LIDS_LUA_ERROR_H

#include <lua.h>

void lids_error_open(lua_State *L);
/* Turn the plain table on top of the stack into an error object. */
void lids_error_bless(lua_State *L);
/* Push an error object of that kind; its message is the value on top of the
 * stack, which it replaces. */
void lids_error_from_message(lua_State *L, const char *kind);
int lids_error_is(lua_State *L, int index);

#endif
