/* SPDX-License-Identifier: MIT */
/*
 * test_purge.c - purges of all threads: one at a time, none forgotten.
 *
 * Method: the fake heap tells when two purges run at once, and whether what was freed
 * before a call has been purged by one that began after it.
 */
#include "heap.h"

#include "heap_fake.h"
#include "plat_fault.h"
#include "pool_kit.h"

/* After the decision to purge, before the allocator's own call. */
#define IN_PURGE "heap.purge"

static void *purge(void *context) {
  (void)context;
  ids_heap_purge();
  return NULL;
}

static void *purge_and_wait(void *context) {
  unsigned freed = heap_fake_free();
  (void)context;
  ids_heap_purge_and_wait();
  CHECK(heap_fake_is_purged(freed));
  return NULL;
}

SPEC(a_purge_purges_once, "B17 a purge alone is one pass of the allocator") {
  ids_heap_purge();
  CHECK_EQ_INT(heap_fake_purges_count(), 1);
  ids_heap_purge_and_wait();
  CHECK_EQ_INT(heap_fake_purges_count(), 2);
  CHECK_EQ_U64(ids_heap_purges_count(), 2);
}

SPEC(a_purge_beside_another_makes_it_go_round,
     "B17 a purge beside another makes that one go round") {
  hold_at(IN_PURGE);
  pthread_t first = thread_run(purge, NULL);
  WAIT_UNTIL(hold_count(IN_PURGE) == 1, SOON_MS);
  unsigned freed = heap_fake_free();
  for (unsigned i = 0; i < 5; i++)
    ids_heap_purge(); /* comes back at once */
  CHECK_EQ_INT(heap_fake_purges_count(), 0);
  hold_open(IN_PURGE);
  thread_result(first);
  /* One more round for all five. */
  CHECK_EQ_INT(heap_fake_purges_count(), 2);
  CHECK(heap_fake_is_purged(freed));
}

SPEC(who_waits_is_told_after_the_next_round,
     "B17 who waits comes back when its own has been purged") {
  pthread_t waiters[3];
  hold_at(IN_PURGE);
  pthread_t first = thread_run(purge, NULL);
  WAIT_UNTIL(hold_count(IN_PURGE) == 1, SOON_MS);
  for (unsigned i = 0; i < 3; i++)
    waiters[i] = thread_run(purge_and_wait, NULL);
  WAIT_UNTIL(plat_waiting_count() == 3, SOON_MS);
  hold_open(IN_PURGE);
  for (unsigned i = 0; i < 3; i++)
    thread_result(waiters[i]);
  thread_result(first);
  CHECK_EQ_INT(heap_fake_purges_count(), 2);
}

enum { THREADS = 8, PURGES_EACH = 100 };

static void *purge_often(void *context) {
  for (unsigned i = 0; i < PURGES_EACH; i++) {
    if (i % 2 == 0)
      purge(context);
    else
      purge_and_wait(context);
  }
  return NULL;
}

SPEC(purges_of_many_threads_are_serialised,
     "B17 purges of many threads: one at a time, none skipped") {
  pthread_t threads[THREADS];
  for (unsigned i = 0; i < THREADS; i++)
    threads[i] = thread_run(purge_often, NULL);
  for (unsigned i = 0; i < THREADS; i++)
    thread_result(threads[i]);
  CHECK_EQ_INT(heap_fake_purges_at_once_max(), 1);
  CHECK_GT_INT(heap_fake_purges_count(), 0);
  CHECK_LE_INT(heap_fake_purges_count(), THREADS * PURGES_EACH);
  CHECK_EQ_U64(ids_heap_purges_count(), heap_fake_purges_count());
}

SPEC(workers_that_release_together_are_serialised,
     "B17 so are those of workers that release together") {
  idlesched_pool *pool = POOL(.workers_max = 8, .idle_release_ns = IDLESCHED_AT_ONCE,
                              .idle_exit_ns = IDLESCHED_NEVER);
  for (unsigned round = 1; round <= 20; round++) {
    struct door door = DOOR_CLOSED;
    keep_busy(pool, &door, 8);
    unsigned freed = heap_fake_free();
    door_open(&door);
    WAIT_UNTIL(stats_of(pool).releases == 8 * round, SOON_MS);
    /* The last of them may be promised by another one that is still at it. */
    WAIT_UNTIL(heap_fake_is_purged(freed), SOON_MS);
  }
  CHECK_EQ_INT(heap_fake_purges_at_once_max(), 1);
  CHECK_GE_U64(stats_of(pool).purges, 20);
  idlesched_pool_destroy(pool);
}

static void *be_idle(void *context) {
  unsigned freed = heap_fake_free();
  (void)context;
  idlesched_thread_idle();
  CHECK(heap_fake_is_purged(freed));
  return NULL;
}

SPEC(an_idle_thread_collects_and_purges,
     "A22 thread_idle collects the caller's heap, then purges") {
  be_idle(NULL);
  CHECK_EQ_STR(heap_fake_diary(), "cp");
  thread_result(thread_run(be_idle, NULL)); /* on any thread */
  CHECK_EQ_STR(heap_fake_diary(), "cpcp");
}

static void be_idle_in_a_job(void *context) {
  be_idle(context);
}

SPEC(a_job_may_say_that_it_is_idle, "A22 thread_idle is safe in a job, on a worker's thread") {
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, be_idle_in_a_job, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_STR(heap_fake_diary(), "cp");
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  idlesched_pool_destroy(pool);
}

/* ------------------------------------------------- the C library's heap beside it */

#define TRIM_LEAST_BYTES (UINT64_C(4) << 20)
#define TRIM_APART_NS (500 * IDLESCHED_MS)

SPEC(a_little_is_not_trimmed, "N9 the C library's heap is trimmed when more than 4 MiB are free") {
  heap_fake_set_c_heap(0, 0, TRIM_LEAST_BYTES);
  ids_heap_trim_c(false);
  CHECK_EQ_INT(heap_fake_trims_count(), 0);
  heap_fake_set_c_heap(0, 0, TRIM_LEAST_BYTES + 1);
  ids_heap_trim_c(false);
  CHECK_EQ_INT(heap_fake_trims_count(), 1);
}

SPEC(trims_are_apart, "N9 trims are half a second apart, and the one after that is made") {
  heap_fake_set_c_heap(0, 0, TRIM_LEAST_BYTES + 1);
  uint64_t before_ns = spec_now_ns();
  ids_heap_trim_c(false);
  CHECK_EQ_INT(heap_fake_trims_count(), 1);
  WAIT_UNTIL((ids_heap_trim_c(false), heap_fake_trims_count() == 2), SOON_MS);
  CHECK_GE_U64(spec_now_ns() - before_ns, TRIM_APART_NS);
}

SPEC(a_trim_may_be_demanded, "N9 a release trims whatever is free and however soon") {
  ids_heap_trim_c(true);
  ids_heap_trim_c(true);
  CHECK_EQ_INT(heap_fake_trims_count(), 2);
  uint64_t before_ns = spec_now_ns();
  heap_fake_set_c_heap(0, 0, TRIM_LEAST_BYTES + 1);
  WAIT_UNTIL((ids_heap_trim_c(false), heap_fake_trims_count() == 3), SOON_MS);
  CHECK_GE_U64(spec_now_ns() - before_ns + 100 * IDLESCHED_MS, TRIM_APART_NS);
}

SPEC(nothing_to_trim,
     "N9 A16 nothing is trimmed where there is no such heap, or the purge does it") {
  heap_fake_set_no_c_heap();
  ids_heap_trim_c(false);
  CHECK_EQ_INT(heap_fake_trims_count(), 0);
  heap_fake_be_the_c_heap();
  ids_heap_trim_c(true);
  CHECK_EQ_INT(heap_fake_trims_count(), 0);
}
