/* SPDX-License-Identifier: MIT */
/*
 * lua_process.h - what the process has in memory: as a table, and in words.
 *
 * In the host the script's own state takes its blocks from the same allocator as the workers,
 * by malloc(), where the core does not count them.  So here they are counted as live, as far
 * as Lua says, when it is the state that asks.
 */
#ifndef LIDS_LUA_PROCESS_H
#define LIDS_LUA_PROCESS_H

#include <lauxlib.h>
#include <lua.h>

#include "idlesched.h"

void lids_process_open(lua_State *L);

/* As idlesched_memory_read(), with the calling state's own blocks. */
int lids_process_read(lua_State *L, idlesched_memory *out);

/* Count them in what was read of the allocators elsewhere: how many bytes are live, and not
 * free. */
uint64_t lids_process_count_own(lua_State *L, idlesched_heap_memory *heaps);

/* idlesched.memory() -> table | nil, message, number: see the types for its fields */
int lids_process_memory(lua_State *L);

/* Lines of words: the memory of all the process, by allocator, and what a release can do. */
void lids_process_add(luaL_Buffer *text, const idlesched_memory *memory);

/* Those of them that are by allocator, and of what is elsewhere. */
void lids_process_add_heaps(luaL_Buffer *text, const idlesched_heap_memory *heaps,
                            uint64_t elsewhere_bytes);

/*
 * Read the allocators back from the field `heaps` of the table at `index`, whose rows have their
 * bytes in memory as `resident`.  What is not there is 0.  Leaves on the stack what keeps the
 * names.
 */
void lids_process_get_heaps(lua_State *L, int index, const char *resident,
                            idlesched_heap_memory *out);

#endif
