/* SPDX-License-Identifier: MIT */
/*
 * test_counter.c - live bytes are counted exactly, whoever makes and frees the blocks.
 *
 * Method: real threads and blocks of the build's allocator; and shards claimed by hand,
 * until there is none.
 */
#include "counter.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_kit.h"

enum { WORKERS = 4, BLOCKS = 1000, SIZE = 100 };

static uint64_t live_bytes(void) {
  return ids_counter_live_bytes();
}

SPEC(blocks_count_by_their_size, "C4 live bytes grow and fall with each block, by what it has") {
  uint64_t before = live_bytes();
  char *block = idlesched_realloc(NULL, SIZE);
  REQUIRE(block != NULL);
  CHECK_GE_U64(live_bytes() - before, SIZE);
  CHECK_LE_U64(live_bytes() - before, 2 * SIZE);
  block = idlesched_realloc(block, 100 * SIZE);
  REQUIRE(block != NULL);
  CHECK_GE_U64(live_bytes() - before, 100 * SIZE);
  CHECK_LE_U64(live_bytes() - before, 125 * SIZE);
  block = idlesched_realloc(block, 1);
  CHECK_LE_U64(live_bytes() - before, 2 * SIZE);
  idlesched_free(block);
  CHECK_EQ_U64(live_bytes(), before);
  idlesched_free(NULL);
  CHECK_EQ_U64(live_bytes(), before);
}

SPEC(a_refused_block_counts_nothing, "C4 D1 a block that there is no memory for is not counted") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("a sanitizer's allocator ends the process instead");
#endif
  void *block = idlesched_realloc(NULL, SIZE);
  uint64_t before = live_bytes();
  CHECK_EQ_PTR(idlesched_realloc(NULL, SIZE_MAX / 4), NULL);
  CHECK_EQ_PTR(idlesched_realloc(block, SIZE_MAX / 4), NULL);
  CHECK_EQ_U64(live_bytes(), before);
  idlesched_free(block);
}

/* ---------------------------------------------------------------- many threads */

/* Threads put blocks of many sizes in, and take others' out. */
static _Atomic(void *) slots[64];

static void exchange_blocks(void *seed) {
  uint32_t random = (uint32_t)(uintptr_t)seed * 2654435761u + 1;
  for (unsigned i = 0; i < 20000; i++) {
    random = random * 1664525u + 1013904223u;
    void *block = idlesched_realloc(NULL, 1 + random % 3000);
    if (i % 3 == 0)
      block = idlesched_realloc(block, 1 + (random >> 12) % 3000);
    idlesched_free(atomic_exchange(&slots[(random >> 26) % 64], block));
  }
}

static void *exchange_on_a_thread(void *seed) {
  exchange_blocks(seed);
  return NULL;
}

SPEC(the_sum_is_exact, "C4 live bytes are exact when blocks went between workers and threads",
     .limit_s = 60) {
  uint64_t before = live_bytes();
  idlesched_pool *pool = POOL(.workers_max = WORKERS);
  pthread_t threads[WORKERS];
  for (unsigned i = 0; i < WORKERS; i++) {
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, exchange_blocks, (void *)(uintptr_t)(i + 1)), 0);
    threads[i] = thread_run(exchange_on_a_thread, (void *)(uintptr_t)(i + 101));
  }
  for (unsigned i = 0; i < 100; i++)
    CHECK_LE_U64(live_bytes(), INT64_MAX); /* whatever is under way, not below 0 */
  for (unsigned i = 0; i < WORKERS; i++)
    thread_result(threads[i]);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_GT_U64(live_bytes(), before);
  for (unsigned i = 0; i < 64; i++)
    idlesched_free(slots[i]);
  CHECK_EQ_U64(live_bytes(), before);
  idlesched_pool_destroy(pool);
  CHECK_EQ_U64(live_bytes(), before);
}

SPEC(workers_come_and_go, "C4 live bytes stay exact over more threads than there are shards",
     .limit_s = 60) {
  enum { ROUNDS = 2 * IDS_COUNTER_OWN_SHARDS };
  static void *blocks[ROUNDS];
  uint64_t before = live_bytes();
  idlesched_pool *pool = POOL(.workers_max = 2, .is_dedicated = true);
  struct door open = DOOR_OPEN;
  for (unsigned i = 0; i < ROUNDS; i++) {
    blocks[i] = idlesched_realloc(NULL, SIZE);
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, idlesched_free, blocks[i]), 0);
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, door_pass, &open), 0);
  }
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  idlesched_pool_destroy(pool);
  CHECK_EQ_U64(live_bytes(), before);
  ids_counter_claim(); /* those threads have given back what they had */
  CHECK(ids_tls_get(IDS_TLS_COUNTER) != NULL);
  ids_counter_give_back();
}

/* --------------------------------------------------------------------- shards */

SPEC(a_shard_is_one_threads, "C4 a shard has one owner, and without one a thread still counts") {
  void *taken[IDS_COUNTER_OWN_SHARDS];
  for (unsigned i = 0; i < IDS_COUNTER_OWN_SHARDS; i++) {
    ids_counter_claim();
    taken[i] = ids_tls_get(IDS_TLS_COUNTER);
    REQUIRE(taken[i] != NULL);
    for (unsigned k = 0; k < i; k++)
      CHECK_NE_PTR(taken[i], taken[k]);
    ids_tls_set(IDS_TLS_COUNTER, NULL); /* as another thread would be */
  }
  uint64_t before = live_bytes();
  ids_counter_claim();
  CHECK_EQ_PTR(ids_tls_get(IDS_TLS_COUNTER), NULL);
  ids_counter_add_live(10);
  ids_counter_give_back();
  CHECK_EQ_U64(live_bytes(), before + 10);

  ids_tls_set(IDS_TLS_COUNTER, taken[7]);
  ids_counter_add_live(10);
  CHECK_EQ_U64(live_bytes(), before + 20);
  ids_counter_give_back();
  CHECK_EQ_PTR(ids_tls_get(IDS_TLS_COUNTER), NULL);
  CHECK_EQ_U64(live_bytes(), before + 20); /* what it counted stays */
  ids_counter_claim();
  CHECK_EQ_PTR(ids_tls_get(IDS_TLS_COUNTER), taken[7]);
}

SPEC(a_sum_is_never_negative,
     "C4 a sum that is read while a block is on its way is never below 0") {
  ids_counter_add_live(-live_bytes() - 1); /* freed, by a shard that was read after */
  CHECK_EQ_U64(live_bytes(), 0);
  ids_counter_add_live(3);
  CHECK_EQ_U64(live_bytes(), 2);
}

/* ----------------------------------------------------------------------- fork */

SPEC(a_child_goes_on_counting,
     "G5 a child has its parent's live bytes, and none of its dead ones") {
  void *block = idlesched_realloc(NULL, SIZE);
  uint64_t before = live_bytes();
  ids_counter_add_dead(500);
  CHECK_EQ_U64(ids_counter_dead_bytes(), 500);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool is_same = live_bytes() == before && ids_counter_dead_bytes() == 0;
    ids_counter_add_dead(7);
    idlesched_free(block);
    bool is_less = live_bytes() <= before - SIZE && ids_counter_dead_bytes() == 7;
    _exit(is_same && is_less ? 0 : 1);
  }
  int status;
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  CHECK_EQ_INT(status, 0);
  CHECK_EQ_U64(ids_counter_dead_bytes(), 500);
  idlesched_free(block);
}
