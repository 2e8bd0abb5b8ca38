/* SPDX-License-Identifier: MIT */
/*
 * host_call.h - how the `idlesched` interpreter calls code of the user: errors become
 * messages with traceback, and an interrupt from the keyboard an error.
 */
#ifndef IDLESCHED_HOST_CALL_H
#define IDLESCHED_HOST_CALL_H

#include <lua.h>

#define HOST_NAME "idlesched"

/* The calling thread is the one that runs this state, and all calls are made on it. */
void host_call_open(lua_State *L);

/*
 * lua_pcall() for code of the user: errors become a message with traceback, and
 * an interrupt from the keyboard raises an error inside the call.  Uses the
 * stack as lua_pcall() does.  Only one call at a time, on the main state.
 */
int host_call(lua_State *L, int arguments_count, int results_count);

/* Prints the message on top of the stack to standard error and pops it; `prefix`
 * is "" where the user knows who is talking. */
void host_report(lua_State *L, const char *prefix);

#endif
