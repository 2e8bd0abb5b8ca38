/* SPDX-License-Identifier: MIT */
/*
 * test_rss_release.c - what a release on demand gives back, as the kernel counts it, and
 * what the threads that freed it could not.
 */
#include "rss_kit.h"

static void check_released(idlesched_pool *pool, uint64_t start_bytes, uint64_t limit_bytes) {
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  uint64_t level = anonymous_bytes();
  print_level("after the release", level, start_bytes);
  CHECK_LE_U64(level, start_bytes + limit_bytes);
}

/* ----------------------------------------------------------- from any thread */

enum { WORKERS = 8 };
#define BURST (10 * MIB)

struct caller {
  idlesched_pool *pool;
  uint64_t start_bytes;
};

/* Its own forced collect is as good as none: it has nothing. */
static void *collect_and_release(void *context) {
  struct caller *self = context;
  forced_collect();
  uint64_t level = anonymous_bytes();
  print_level("after the caller's own collect", level, self->start_bytes);
  CHECK_GE_U64(level, self->start_bytes + WORKERS * BURST / 2);
  check_released(self->pool, self->start_bytes, MIB);
  return NULL;
}

SPEC(a_fresh_thread_releases, "B18 a release works from a thread that never allocated") {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(WORKERS, IDLESCHED_NEVER, IDLESCHED_NEVER);
  struct caller caller = { .pool = pool, .start_bytes = anonymous_bytes() };
  burst_on_all_workers(pool, BURST);
  thread_result(thread_run(collect_and_release, &caller));
  idlesched_pool_destroy(pool);
}

/* --------------------------------------------------- what only its owner can free */

/* Half of the blocks are freed by their owner, the others by this thread: then no thread
 * needs any of the pages, and whatever the freeing one does for itself, they stay. */
SPEC(half_used_pages_of_an_idle_worker,
     "B19 256 MB of half-used pages of an idle worker, freed by another: back at the release",
     .limit_s = 60) {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(1, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t start = anonymous_bytes();
  struct fragments fragments = { .bytes = 256 * MIB, .run_count = 2 };
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, fragment, &fragments), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  give_blocks(fragments.kept);
  forced_collect();
  CHECK_GE_U64(anonymous_bytes(), start + 200 * MIB);
  idlesched_thread_idle();
  uint64_t level = anonymous_bytes();
  print_level("after a collect on the freeing thread", level, start);
  CHECK_GE_U64(level, start + 200 * MIB);
  check_released(pool, start, 2 * MIB);
  idlesched_pool_destroy(pool);
}

/* ------------------------------------------------------------ by those who are gone */

#define MUCH (512 * MIB)

static void take_much(void *blocks) {
  *(void **)blocks = take_blocks(MUCH);
}

static void *give_much(void *blocks) {
  give_blocks(blocks);
  return NULL;
}

static void *take_and_give_much(void *context) {
  (void)context;
  give_blocks(take_blocks(MUCH));
  return NULL;
}

SPEC(freed_on_a_thread_that_is_gone,
     "B20 512 MB of a worker's, freed on a thread that has exited, come back at the release",
     .limit_s = 60) {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(1, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t start = anonymous_bytes();
  void *blocks = NULL;
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, take_much, &blocks), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  thread_result(thread_run(give_much, blocks));
  uint64_t level = anonymous_bytes();
  print_level("freed", level, start);
  CHECK_GE_U64(level, start + MUCH / 2);
  check_released(pool, start, 3 * MIB);
  idlesched_pool_destroy(pool);
}

SPEC(taken_and_freed_on_a_thread_that_is_gone,
     "B20 512 MB taken and freed on a thread that has exited come back at the release",
     .limit_s = 60) {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(1, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t start = anonymous_bytes();
  thread_result(thread_run(take_and_give_much, NULL));
  uint64_t level = anonymous_bytes();
  print_level("freed", level, start);
  CHECK_GE_U64(level, start + MUCH / 2);
  check_released(pool, start, 3 * MIB);
  idlesched_pool_destroy(pool);
}
