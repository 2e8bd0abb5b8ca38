/* SPDX-License-Identifier: MIT */
/*
 * test_heap.c - memory really comes back, as the kernel counts it.
 *
 * Method and helpers: rss_kit.h.  test_rss_*.c has the rest.
 *
 * Not under sanitizers, whose allocators keep what was freed; with the C library's
 * malloc only what that one can do.
 */
#include "heap.h"

#include <stdlib.h>
#include <string.h>

#include "eager_purge.h"
#include "rss_kit.h"

enum { WORKERS = 8 };
#define BURST (10 * MIB)

SPEC(bursts_come_back_after_the_delay, "A1 8 workers, 10 MB each: back 500 ms later, to 1 MiB",
     .limit_s = 60) {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(WORKERS, 0, 0); /* the defaults */
  uint64_t jobless = anonymous_bytes();
  for (unsigned round = 1; round <= 3; round++) {
    burst_on_all_workers(pool, BURST);
    CHECK_LE_U64(level_within_ms(jobless + MIB, 500), jobless + MIB);
  }
  CHECK_EQ_INT(stats_of(pool).threads, WORKERS);
  idlesched_pool_destroy(pool);
}

/* Without this one the others could pass on an allocator that keeps nothing. */
SPEC(bursts_stay_without_a_release, "A23 with idle_release never a burst stays until the exit") {
  need_figures_to_the_page();
  uint64_t start = anonymous_bytes();
  idlesched_pool *pool = started_pool(WORKERS, IDLESCHED_NEVER, 1500 * IDLESCHED_MS);
  uint64_t peak = burst_on_all_workers(pool, BURST);
  uint64_t level = level_within_ms(start + peak / 2, 700);
  if (stats_of(pool).exits == 0) /* else this machine was too slow to look before it */
    CHECK_GT_U64(level, start + peak / 2);
  WAIT_UNTIL(stats_of(pool).exits == WORKERS, SOON_MS);
  CHECK_LE_U64(level_within_ms(start + 3 * MIB / 2, 500), start + 3 * MIB / 2);
  idlesched_pool_destroy(pool);
}

SPEC(exits_give_everything_back,
     "A13 what was held comes back when the threads end, by its purge") {
  need_figures_to_the_page();
  uint64_t start = anonymous_bytes();
  idlesched_pool *pool = started_pool(WORKERS, IDLESCHED_NEVER, 50 * IDLESCHED_MS);
  burst_on_all_workers(pool, BURST);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  CHECK_LE_U64(level_within_ms(start + 3 * MIB / 2, 500), start + 3 * MIB / 2);
  idlesched_pool_destroy(pool);
}

SPEC(a_release_gives_back_at_once, "B17 a release on demand gives all back at once, and says so") {
  idlesched_release_report report;
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(WORKERS, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  burst_on_all_workers(pool, BURST);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + MIB);
  CHECK_EQ_INT(report.visited_count, WORKERS);
  CHECK_GE_U64(report.returned_bytes, WORKERS * BURST);
  CHECK_LE_U64(report.anonymous_after_bytes, jobless + MIB);
  idlesched_pool_destroy(pool);
}

/* With the C library's malloc the same calls work, and give back what that one can. */
SPEC(the_systems_allocator_gives_back_what_it_can,
     "A16 system allocator: what comes back is told") {
  idlesched_release_report report;
  need_kernel_figures();
  if (!is_system_allocator())
    SKIP("this build has another allocator: %s", idlesched_allocator());
  idlesched_pool *pool = started_pool(WORKERS, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  uint64_t peak = burst_on_all_workers(pool, BURST);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + peak / 4);
  CHECK_EQ_INT(report.visited_count, WORKERS);
  CHECK_EQ_U64(report.returned_bytes, report.anonymous_before_bytes - report.anonymous_after_bytes);
  idlesched_pool_destroy(pool);
}

/* --------------------------------------------------------- the host's threads */

SPEC(thread_idle_releases_the_caller,
     "A22 thread_idle releases the heap of the host's own thread") {
  need_figures_to_the_page();
  uint64_t start = anonymous_bytes();
  give_blocks(take_blocks(32 * MIB));
  CHECK_GE_U64(anonymous_bytes(), start + 32 * MIB);
  idlesched_thread_idle();
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, start + MIB);
}

static void *be_idle_first_thing(void *context) {
  (void)context;
  idlesched_thread_idle();
  idlesched_thread_idle();
  return NULL;
}

SPEC(thread_idle_on_a_fresh_thread,
     "A22 thread_idle on a thread that never allocated does no harm") {
  need_kernel_figures();
  uint64_t start = anonymous_bytes();
  for (unsigned i = 0; i < 50; i++)
    thread_result(thread_run(be_idle_first_thing, NULL));
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, start + MIB);
}

/* ------------------------------------------------------------------ the guard */

SPEC(a_release_under_a_guard, "B27 a release under a guard gives the memory back as well") {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(WORKERS, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  burst_on_all_workers(pool, BURST);
  idlesched_eager_purge_enter(); /* what was freed before is not purged by itself now */
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + MIB);
  idlesched_eager_purge_leave();
  idlesched_pool_destroy(pool);
}

SPEC(a_release_of_all_pools_under_a_guard,
     "B14 B17 B27 a release of all pools gives back what their workers have, under a guard, "
     "and says that it lifted it") {
  idlesched_release_report report;
  need_figures_to_the_page();
  idlesched_pool *pools[2];
  for (unsigned i = 0; i < 2; i++)
    pools[i] = started_pool(WORKERS, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  burst_on_all_workers(pools[0], BURST);
  idlesched_eager_purge_enter();
  CHECK_EQ_INT(idlesched_release(SOON_MS * IDLESCHED_MS, &report), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + MIB);
  CHECK_EQ_INT(report.pools_count, 2);
  CHECK_EQ_INT(report.visited_count, 2 * WORKERS);
  CHECK_GT_U64(report.returned_bytes, 0); /* the guard has purged what was free before it */
  CHECK(report.lifted_guards);
  CHECK_GT_INT(report.purge_delay_ms, 0);
  idlesched_eager_purge_leave();
  for (unsigned i = 0; i < 2; i++)
    idlesched_pool_destroy(pools[i]);
}

SPEC(the_allocators_own_delay_is_overridden, "B1 the guard reaches the allocator's own option") {
  if (!ids_heap_ops.has_options)
    SKIP("this build's allocator has no such option: %s", idlesched_allocator());
  long before = ids_heap_ops.option_get(IDS_HEAP_PURGE_DELAY_MS);
  CHECK_GT_INT(before, 0);
  idlesched_eager_purge_enter();
  CHECK_EQ_INT(ids_heap_ops.option_get(IDS_HEAP_PURGE_DELAY_MS), 0);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(ids_heap_ops.option_get(IDS_HEAP_PURGE_DELAY_MS), before);
}

SPEC(an_unset_delay_is_respected, "B6 a delay that was set to below 0 stays in the allocator") {
  if (!ids_heap_ops.has_options)
    SKIP("this build's allocator has no such option: %s", idlesched_allocator());
  ids_heap_ops.option_set(IDS_HEAP_PURGE_DELAY_MS, -1);
  idlesched_eager_purge_enter();
  CHECK_EQ_INT(ids_heap_ops.option_get(IDS_HEAP_PURGE_DELAY_MS), -1);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(ids_heap_ops.option_get(IDS_HEAP_PURGE_DELAY_MS), -1);
}

SPEC(a_guard_does_nothing_without_mimalloc,
     "B7 without mimalloc a guard succeeds and does nothing") {
  if (ids_heap_ops.has_options)
    SKIP("this build's allocator has the option: %s", idlesched_allocator());
  idlesched_eager_purge_enter();
  CHECK_EQ_INT(ids_eager_purge_holders(), 1);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(ids_eager_purge_holders(), 0);
}

/* ----------------------------------------------------------------- blocks */

static void *free_on_a_thread(void *blocks) {
  give_blocks(blocks);
  return NULL;
}

SPEC(blocks_grow_and_are_freed_anywhere,
     "public: blocks keep their bytes, and any thread frees them") {
  char *block = idlesched_realloc(NULL, 10);
  REQUIRE(block != NULL);
  memcpy(block, "012345678", 10);
  block = idlesched_realloc(block, 100 * KIB);
  REQUIRE(block != NULL);
  CHECK_EQ_STR(block, "012345678");
  *(void **)(void *)block = NULL;
  thread_result(thread_run(free_on_a_thread, block));
  idlesched_free(NULL);
}
