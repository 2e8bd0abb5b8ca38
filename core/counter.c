/* SPDX-License-Identifier: MIT */
/*
 * counter.c - see counter.h.
 */
#include "counter.h"

#include "fork.h"

#define SHARED_SHARDS 16
#define CACHE_LINE_BYTES 64

struct shard {
  uint64_t bytes;        /* modulo 2^64; first: a thread's slot points to it */
  uint64_t claims_count; /* not 0: somebody has it, or tries */
  char rest[CACHE_LINE_BYTES - 2 * sizeof(uint64_t)];
};
_Static_assert(sizeof(struct shard) == CACHE_LINE_BYTES, "no two shards share a cache line");

/* The shared ones come last. */
static struct shard shards[IDS_COUNTER_OWN_SHARDS + SHARED_SHARDS]
  __attribute__((aligned(CACHE_LINE_BYTES)));

/* Rarely changed: after a job, or a step of a collection. */
static struct {
  struct ids_fork_mark fork;
  uint64_t bytes; /* modulo 2^64 */
} dead;

/* Numbers of threads are addresses that lie evenly apart: what differs is spread over the
 * upper bits. */
static struct shard *shared_shard(void) {
  uint64_t mixed = (uint64_t)ids_thread_number() * UINT64_C(0x9e3779b97f4a7c15);
  return &shards[IDS_COUNTER_OWN_SHARDS + (mixed >> 32) % SHARED_SHARDS];
}

/* Whoever counts the claims from 0 to 1 has the shard, and sees what the last one added. */
static bool try_claim(struct shard *self) {
  if (ids_add(&self->claims_count, 1) == 1) /* [shard] */
    return true;
  ids_add(&self->claims_count, UINT64_MAX);
  return false;
}

void ids_counter_claim(void) {
  ids_assert(ids_tls_get(IDS_TLS_COUNTER) == NULL);
  for (unsigned i = 0; i < IDS_COUNTER_OWN_SHARDS; i++)
    if (try_claim(&shards[i])) {
      ids_tls_set(IDS_TLS_COUNTER, &shards[i]);
      return;
    }
}

void ids_counter_give_back(void) {
  struct shard *shard = ids_tls_get(IDS_TLS_COUNTER);
  if (shard == NULL)
    return;
  ids_tls_set(IDS_TLS_COUNTER, NULL);
  ids_add(&shard->claims_count, UINT64_MAX); /* [shard] */
}

void ids_counter_add_shared(uint64_t difference) {
  ids_add(&shared_shard()->bytes, difference);
}

/* Some shards were read before others: a block may be missing that another one frees. */
static uint64_t at_least_0(uint64_t bytes) {
  return (int64_t)bytes < 0 ? 0 : bytes;
}

uint64_t ids_counter_live_bytes(void) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < ids_countof(shards); i++)
    sum += ids_load_relaxed(&shards[i].bytes);
  return at_least_0(sum);
}

static void look_for_fork(void) {
  if (ids_fork_is_first(&dead.fork)) {
    ids_store_relaxed(&dead.bytes, 0);
    ids_fork_done(&dead.fork);
  }
}

void ids_counter_add_dead(uint64_t difference) {
  look_for_fork();
  ids_add(&dead.bytes, difference);
}

uint64_t ids_counter_dead_bytes(void) {
  look_for_fork();
  return at_least_0(ids_load_relaxed(&dead.bytes));
}
