/* SPDX-License-Identifier: MIT */
/*
 * host.h - what the two files of the `idlesched` interpreter share: host.c runs
 * scripts, host_interact.c runs what a user types.
 */
#ifndef IDLESCHED_HOST_H
#define IDLESCHED_HOST_H

#include <lua.h>

#define HOST_NAME "idlesched"

/*
 * lua_pcall() for code of the user: errors become a message with traceback, and
 * an interrupt from the keyboard raises an error inside the call.  Uses the
 * stack as lua_pcall() does.  Only one call at a time, on the main state.
 */
int host_call(lua_State *L, int arguments_count, int results_count);

/* Prints the message on top of the stack to standard error and pops it; `prefix`
 * is "" where the user knows who is talking. */
void host_report(lua_State *L, const char *prefix);

/* Reads, runs and prints until standard input ends.  Empties the stack. */
void host_interact(lua_State *L);

#endif
