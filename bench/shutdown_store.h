/* SPDX-License-Identifier: MIT */
/*
 * shutdown_store.h - the graph that shutdown.c lets a program drop, and the file that it is
 * written to before.
 *
 * Each worker makes a part of it, and frees what it needed meanwhile.  A node's size and
 * content follow from its number, so that what is read back can be compared.  A process has
 * one of these.
 */
#ifndef BENCH_SHUTDOWN_STORE_H
#define BENCH_SHUTDOWN_STORE_H

#include "idlesched.h"

#define STORE_WORKERS_MAX 64
#define STORE_SHARDS_MAX 64

struct store {
  unsigned mib;
  unsigned workers_count; /* who make it */
  unsigned shards_count;  /* in which it is dropped, each with nodes from all over the heap */
};

/* The settings must stay until it is closed.  The file has no name, so none is left over. */
void store_open(const struct store *settings);
void store_close(void);

/* Jobs of the pool, which has so many workers; waits for them. */
void store_build(idlesched_pool *pool);
/* Each node is written, encoded, and then freed. */
void store_persist_and_drop(void);
/* Ends the program if the file has anything else than what was built. */
void store_read_back(void);

#endif
