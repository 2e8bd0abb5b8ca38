/* SPDX-License-Identifier: MIT */
/*
 * lua_memory.h - where a worker's Lua state takes its memory from.
 *
 * A state's blocks live long or briefly, and if both kinds shared pages, the few
 * that stay would pin the many that go, all over the heap:
 *
 *   STARTING   the libraries.  They live as long as the state, and are many small
 *              blocks of many sizes, of which an allocator makes many half-empty
 *              pages: 35 KB of them take 150 KB.  So they lie side by side in one
 *              chunk, which is never given back in parts.
 *   GROWING    for the string table: large blocks as STARTING, the rest as PASSING.
 *   PASSING    what jobs make: in the heap of the worker's thread, which is what a
 *              release gives back.
 *
 * The string table grows out of the chunk and shrinks again, as often as jobs come
 * and go.  What it leaves there is remembered as the hole, and taken again by a
 * block that shrinks to that size.
 *
 * Measured on compiling workers, above one that never had a job: all in one heap
 * 0.35 MB each, this way 0.1; bench/idle_cost.lua has today's figure.
 */
#ifndef LIDS_LUA_MEMORY_H
#define LIDS_LUA_MEMORY_H

#include <lua.h>
#include <stddef.h>

enum lids_memory_kind { LIDS_MEMORY_STARTING, LIDS_MEMORY_GROWING, LIDS_MEMORY_PASSING };

/* All of it is the worker's own thread's. */
struct lids_memory {
  enum lids_memory_kind kind; /* of what is allocated from now on */
  size_t live_bytes;          /* as Lua counts its blocks */
  char *chunk, *chunk_end;    /* lent by the owner of the struct */
  char *chunk_next;           /* the first byte that was not handed out */
  char *hole;                 /* a large block of the chunk that was freed; NULL: none */
  size_t hole_size;
};

void lids_memory_init(struct lids_memory *self, void *chunk, size_t chunk_size);

/* A lua_Alloc; its context is the struct. */
void *lids_memory_allocate(void *self, void *block, size_t old_size, size_t new_size);

/* Say what is allocated from now on, in a state with this allocator. */
void lids_memory_set_kind(lua_State *L, enum lids_memory_kind kind);

#endif
