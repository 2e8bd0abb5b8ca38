/* SPDX-License-Identifier: MIT */
/*
 * lua_memory.h - where a worker's Lua state takes its memory from.
 *
 * A state's blocks are of three kinds, and if they shared pages, the few that
 * stay would pin the many that go, all over the heap:
 *
 *   STARTING   the libraries.  They live as long as the state, and are many small
 *              blocks of many sizes, of which an allocator makes many half-empty
 *              pages: 25 KB of them take 150 KB.  So they lie side by side in one
 *              chunk, which is never given back in parts.
 *   LASTING    what has stayed once a collection moved it, and the functions that
 *              are kept for later jobs: in a heap apart, shared by all workers.
 *   PASSING    what jobs make: in the heap of the worker's thread, which is what a
 *              release gives back.
 *
 * Measured with 15 workers after two bursts: all of it in one heap 6.5 MB,
 * starting blocks in a heap apart 2.0 MB; bench/idle_cost.lua has today's figure.
 */
#ifndef LIDS_LUA_MEMORY_H
#define LIDS_LUA_MEMORY_H

#include <stddef.h>

enum lids_memory_kind { LIDS_MEMORY_STARTING, LIDS_MEMORY_LASTING, LIDS_MEMORY_PASSING };

/* All of it is the worker's own thread's. */
struct lids_memory {
  enum lids_memory_kind kind; /* of what is allocated from now on */
  size_t live_bytes;          /* as Lua counts its blocks */
  char *chunk, *chunk_next;   /* starting blocks: where they begin, and the first free byte */
};

/* 0 or -ENOMEM. */
int lids_memory_init(struct lids_memory *self);
/* Every block was freed. */
void lids_memory_deinit(struct lids_memory *self);

/* A lua_Alloc; its context is the struct. */
void *lids_memory_allocate(void *self, void *block, size_t old_size, size_t new_size);

#endif
