/* SPDX-License-Identifier: MIT */
/*
 * host_interact.h - the interactive mode of the `idlesched` interpreter.
 */
#ifndef IDLESCHED_HOST_INTERACT_H
#define IDLESCHED_HOST_INTERACT_H

#include <lua.h>

/* Reads, runs and prints until standard input ends.  Empties the stack. */
void host_interact(lua_State *L);

#endif
