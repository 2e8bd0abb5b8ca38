/* SPDX-License-Identifier: MIT */
/*
 * test_thread.c - the host's own threads take part in releases, on the platform and the
 * allocator of the build: what a parked one has cached comes back without it, and claims
 * never meet a thread that runs.  (The order of things: test_sim_thread.c.)
 */
#include "host_thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "pool_kit.h"

enum { THREADS = 3, ROUNDS = 3000, BLOCKS = 200 };
#define MIB UINT64_C(1048576)

__attribute__((constructor)) static void set_process_defaults(void) {
  idlesched_process_defaults();
}

/* -------------------------------------------------------------- one that parks */

struct parked {
  idlesched_thread self;
  struct door door;
  _Atomic bool is_parked;
  uint64_t cached_bytes;
};

/* Cache so much, park until the door opens, and use the heap again. */
static void *cache_and_park(void *context) {
  struct parked *parked = context;
  idlesched_thread_enter(&parked->self);
  size_t count = parked->cached_bytes / 4096;
  void **blocks = calloc(count, sizeof *blocks);
  REQUIRE(blocks != NULL);
  for (size_t i = 0; i < count; i++) {
    blocks[i] = idlesched_realloc(NULL, 4096);
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, 4096);
  }
  for (size_t i = 0; i < count; i++)
    idlesched_free(blocks[i]);
  free(blocks);

  idlesched_thread_park_begin(&parked->self);
  parked->is_parked = true;
  door_pass(&parked->door);
  idlesched_thread_park_end(&parked->self);

  void *block = idlesched_realloc(NULL, 100);
  REQUIRE(block != NULL);
  memset(block, 1, 100);
  idlesched_free(block);
  idlesched_thread_leave(&parked->self);
  return NULL;
}

static uint64_t anonymous_bytes(void) {
  idlesched_memory memory;
  REQUIRE_EQ_INT(idlesched_memory_read(&memory), 0);
  return memory.anonymous_bytes;
}

static void need_figures_to_the_page(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("a sanitizer's allocator keeps freed memory: no figures");
#endif
  if (strcmp(idlesched_allocator(), "system") == 0)
    SKIP("the C library's malloc has no heap of a thread to give up");
}

SPEC(a_parked_thread_gives_memory_back_to_a_release,
     "N12 what a parked thread of the host has cached comes back with pool:release()") {
  need_figures_to_the_page();
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct parked parked = { .door = DOOR_CLOSED, .cached_bytes = 20 * MIB };
  pthread_t thread = thread_run(cache_and_park, &parked);
  WAIT_UNTIL(parked.is_parked, SOON_MS);
  uint64_t before = anonymous_bytes();
  CHECK_GE_U64(before, 20 * MIB);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, NULL), 0);
  CHECK_LT_U64(anonymous_bytes(), before - 18 * MIB);
  door_open(&parked.door);
  thread_result(thread);
  idlesched_pool_destroy(pool);
}

SPEC(a_parked_thread_gives_memory_back_to_a_pass,
     "N12 and with the next pass of a pool, without anybody asking for it") {
  need_figures_to_the_page();
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = 20 * IDLESCHED_MS);
  struct parked parked = { .door = DOOR_CLOSED, .cached_bytes = 20 * MIB };
  pthread_t thread = thread_run(cache_and_park, &parked);
  WAIT_UNTIL(parked.is_parked, SOON_MS);
  uint64_t before = anonymous_bytes();
  run_one_job(pool);
  WAIT_UNTIL(anonymous_bytes() < before - 18 * MIB, SOON_MS);
  door_open(&parked.door);
  thread_result(thread);
  idlesched_pool_destroy(pool);
}

/* ------------------------------------------------------------ claims and wakes */

static _Atomic bool is_over;

/* Blocks live across parks, and what is in them stays. */
static void *allocate_and_park(void *context) {
  unsigned char *blocks[BLOCKS] = { NULL };
  idlesched_thread self;
  unsigned number = (unsigned)(uintptr_t)context;
  idlesched_thread_enter(&self);
  for (unsigned round = 0; round < ROUNDS; round++) {
    for (unsigned i = round % 7; i < BLOCKS; i += 7) {
      size_t size = 16 + (i * 37 + round) % 3000;
      CHECK(blocks[i] == NULL || blocks[i][8] == (unsigned char)(i + number));
      idlesched_free(blocks[i]);
      blocks[i] = idlesched_realloc(NULL, size);
      REQUIRE(blocks[i] != NULL);
      memset(blocks[i], (int)(i + number), size);
    }
    idlesched_thread_park_begin(&self);
    if (round % 4 != 0)
      sched_yield();
    idlesched_thread_park_end(&self);
  }
  for (unsigned i = 0; i < BLOCKS; i++)
    idlesched_free(blocks[i]);
  idlesched_thread_leave(&self);
  return NULL;
}

static void *give_up_all_the_time(void *context) {
  unsigned long count = 0;
  (void)context;
  while (!is_over) {
    count += ids_host_threads_give_up(IDS_NEVER, 0);
    ids_heap_purge();
  }
  return (void *)(uintptr_t)count;
}

SPEC(claims_never_meet_a_thread_that_runs,
     "N12 threads that park and run all the time, and two that give up whoever is parked",
     .limit_s = 60) {
  pthread_t threads[THREADS], claimers[2];
  for (unsigned i = 0; i < 2; i++)
    claimers[i] = thread_run(give_up_all_the_time, NULL);
  for (unsigned i = 0; i < THREADS; i++)
    threads[i] = thread_run(allocate_and_park, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < THREADS; i++)
    thread_result(threads[i]);
  is_over = true;
  for (unsigned i = 0; i < 2; i++)
    printf("%lu heaps given up\n", (unsigned long)(uintptr_t)thread_result(claimers[i]));
}

/* -------------------------------------------------------------------- misuse */

#ifdef IDS_PARANOID
SPEC(an_allocation_while_parked_aborts, "N12 an allocation between park begin and end is told",
     .aborts_with = "assertion failed") {
  idlesched_thread self;
  idlesched_thread_enter(&self);
  idlesched_thread_park_begin(&self);
  idlesched_free(idlesched_realloc(NULL, 1));
}
#endif

SPEC(a_second_park_aborts, "N12 parking twice is an assertion", .aborts_with = "assertion failed") {
  idlesched_thread self;
  idlesched_thread_enter(&self);
  idlesched_thread_park_begin(&self);
  idlesched_thread_park_begin(&self);
}

SPEC(a_park_end_without_begin_aborts, "N12 park end without begin is an assertion",
     .aborts_with = "assertion failed") {
  idlesched_thread self;
  idlesched_thread_enter(&self);
  idlesched_thread_park_end(&self);
}

SPEC(leaving_while_parked_aborts, "N12 leaving while parked is an assertion",
     .aborts_with = "assertion failed") {
  idlesched_thread self;
  idlesched_thread_enter(&self);
  idlesched_thread_park_begin(&self);
  idlesched_thread_leave(&self);
}
