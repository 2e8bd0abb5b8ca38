/* SPDX-License-Identifier: MIT */
/*
 * test_heap.c - memory really comes back, as the kernel counts it.
 *
 * Method: each case is a process of its own.  It measures the anonymous memory of that
 * process before, at the peak and after, and asserts that the peak was one, so that a
 * burst which the compiler took away would not pass.  Times are what the requirements
 * say, with a deadline, and no case sleeps.
 *
 * Not under sanitizers, whose allocators keep what was freed; with the C library's
 * malloc only what that one can do.
 */
#include "heap.h"

#include <stdlib.h>
#include <string.h>

#include "eager_purge.h"
#include "pool_kit.h"

enum { WORKERS = 8 };
#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define BURST (10 * MIB)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

/* As a host does it whose malloc is the allocator: the first thing in main(). */
__attribute__((constructor)) static void set_process_defaults(void) {
  idlesched_process_defaults();
}

static bool is_system_allocator(void) {
  return strcmp(idlesched_allocator(), "system") == 0;
}

static void need_kernel_figures(void) {
  idlesched_memory memory;
  if (is_sanitized)
    SKIP("a sanitizer's allocator keeps freed memory: no figures");
  if (idlesched_memory_read(&memory) != 0)
    SKIP("this system does not tell how much memory a process has");
}

static void need_figures_to_the_page(void) {
  need_kernel_figures();
  if (is_system_allocator())
    SKIP("the C library's malloc cannot give back pages that are used in part");
}

static uint64_t anonymous_bytes(void) {
  idlesched_memory memory;
  REQUIRE_EQ_INT(idlesched_memory_read(&memory), 0);
  return memory.anonymous_bytes;
}

/* The level when it has come down to the limit, or else when the time is up. */
static uint64_t level_within_ms(uint64_t limit_bytes, uint64_t time_ms) {
  uint64_t level = anonymous_bytes();
  uint64_t end_ns = spec_now_ns() + time_ms * IDLESCHED_MS;
  while (level > limit_bytes && spec_now_ns() < end_ns) {
    uint64_t next_ns = spec_now_ns() + IDLESCHED_MS;
    WAIT_UNTIL(spec_now_ns() >= next_ns, SOON_MS);
    level = anonymous_bytes();
  }
  printf("level %.2f MiB, limit %.2f MiB\n", (double)level / MIB, (double)limit_bytes / MIB);
  return level;
}

/* ------------------------------------------------------------------ bursts */

/* Blocks of many sizes, linked through their first word. */
static void *take_blocks(uint64_t bytes) {
  void **last = NULL;
  for (uint64_t taken = 0, i = 0; taken < bytes; i++) {
    size_t size = 16 + (i * 797) % 4000;
    void **block = idlesched_realloc(NULL, size);
    REQUIRE(block != NULL);
    memset(block, 0x5a, size);
    *block = last;
    last = block;
    taken += size;
  }
  return last;
}

static void give_blocks(void *last) {
  while (last != NULL) {
    void *next = *(void **)last;
    idlesched_free(last);
    last = next;
  }
}

struct burst {
  pthread_barrier_t barrier;
  uint64_t peak_bytes;
};

/* All workers have their blocks at the same time. */
static void take_and_give(void *context) {
  struct burst *self = context;
  void *blocks = take_blocks(BURST);
  if (pthread_barrier_wait(&self->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
    self->peak_bytes = anonymous_bytes();
  pthread_barrier_wait(&self->barrier);
  give_blocks(blocks);
}

/* Of all pools at the same time.  The peak, above the level before. */
static uint64_t burst_on_pools(idlesched_pool *const *pools, unsigned pools_count) {
  struct burst burst;
  uint64_t before = anonymous_bytes();
  pthread_barrier_init(&burst.barrier, NULL, pools_count * WORKERS);
  for (unsigned i = 0; i < pools_count * WORKERS; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pools[i / WORKERS], take_and_give, &burst), 0);
  for (unsigned i = 0; i < pools_count; i++)
    REQUIRE_EQ_INT(idlesched_pool_wait(pools[i], IDLESCHED_NEVER), 0);
  pthread_barrier_destroy(&burst.barrier);
  CHECK_GE_U64(burst.peak_bytes - before, pools_count * WORKERS * BURST);
  return burst.peak_bytes - before;
}

static uint64_t burst_on_all_workers(idlesched_pool *pool) {
  return burst_on_pools(&pool, 1);
}

static idlesched_pool *started_pool(uint64_t idle_release_ns, uint64_t idle_exit_ns) {
  idlesched_pool *pool = POOL(.workers_max = WORKERS, .idle_release_ns = idle_release_ns,
                              .idle_exit_ns = idle_exit_ns);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, WORKERS), 0);
  WAIT_UNTIL(stats_of(pool).parked == WORKERS, SOON_MS);
  return pool;
}

SPEC(bursts_come_back_after_the_delay, "A1 8 workers, 10 MB each: back 500 ms later, to 1 MiB",
     .limit_s = 60) {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(0, 0); /* the defaults */
  uint64_t jobless = anonymous_bytes();
  for (unsigned round = 1; round <= 3; round++) {
    burst_on_all_workers(pool);
    CHECK_LE_U64(level_within_ms(jobless + MIB, 500), jobless + MIB);
  }
  CHECK_EQ_INT(stats_of(pool).threads, WORKERS);
  idlesched_pool_destroy(pool);
}

/* Without this one the others could pass on an allocator that keeps nothing. */
SPEC(bursts_stay_without_a_release, "A23 with idle_release never a burst stays until the exit") {
  need_figures_to_the_page();
  uint64_t start = anonymous_bytes();
  idlesched_pool *pool = started_pool(IDLESCHED_NEVER, 1500 * IDLESCHED_MS);
  uint64_t peak = burst_on_all_workers(pool);
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
  idlesched_pool *pool = started_pool(IDLESCHED_NEVER, 50 * IDLESCHED_MS);
  burst_on_all_workers(pool);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  CHECK_LE_U64(level_within_ms(start + 3 * MIB / 2, 500), start + 3 * MIB / 2);
  idlesched_pool_destroy(pool);
}

SPEC(a_release_gives_back_at_once, "B17 a release on demand gives all back at once, and says so") {
  idlesched_release_report report;
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  burst_on_all_workers(pool);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + MIB);
  CHECK_EQ_INT(report.visited_count, WORKERS);
  CHECK_GE_U64(report.returned_bytes, WORKERS * BURST);
  CHECK_LE_U64(report.anonymous_after_bytes, jobless + MIB);
  idlesched_pool_destroy(pool);
}

static void *release_pool(void *context) {
  static idlesched_release_report report;
  CHECK_EQ_INT(idlesched_pool_release(context, SOON_MS * IDLESCHED_MS, &report), 0);
  return &report;
}

SPEC(a_release_works_from_a_fresh_thread,
     "B18 a release works from a thread that never allocated") {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  burst_on_all_workers(pool);
  thread_result(thread_run(release_pool, pool));
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + MIB);
  idlesched_pool_destroy(pool);
}

/* With the C library's malloc the same calls work, and give back what that one can. */
SPEC(the_systems_allocator_gives_back_what_it_can,
     "A16 system allocator: what comes back is told") {
  idlesched_release_report report;
  need_kernel_figures();
  if (!is_system_allocator())
    SKIP("this build has another allocator: %s", idlesched_allocator());
  idlesched_pool *pool = started_pool(IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  uint64_t peak = burst_on_all_workers(pool);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + peak / 4);
  CHECK_EQ_INT(report.visited_count, WORKERS);
  CHECK_EQ_U64(report.returned_bytes, report.anonymous_before_bytes - report.anonymous_after_bytes);
  idlesched_pool_destroy(pool);
}

/* --------------------------------------------------- freed by other threads */

struct owner {
  uint64_t bytes;
  void *kept;
};

/* The worker's pages are left half used. */
static void own_half_used_pages(void *context) {
  struct owner *self = context;
  void **last[2] = { NULL, NULL };
  for (uint64_t i = 0; i < self->bytes / KIB; i++) {
    void **block = idlesched_realloc(NULL, KIB);
    REQUIRE(block != NULL);
    memset(block, 0x5a, KIB);
    *block = last[i % 2];
    last[i % 2] = block;
  }
  give_blocks(last[0]);
  self->kept = last[1];
}

SPEC(freed_by_others_before_the_release,
     "A19 what others free before a release comes back with it") {
  need_figures_to_the_page();
  const uint64_t bytes = 32 * MIB;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_S);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  uint64_t jobless = anonymous_bytes();
  struct owner owner = { .bytes = bytes };
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, own_half_used_pages, &owner), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_GE_U64(anonymous_bytes(), jobless + bytes);
  give_blocks(owner.kept); /* the worker is parked, and stays so */
  uint64_t polls = stats_of(pool).polls;
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  CHECK_LE_U64(level_within_ms(jobless + MIB, 500), jobless + MIB);
  CHECK_EQ_U64(stats_of(pool).polls, polls);
  idlesched_pool_destroy(pool);
}

SPEC(half_used_pages_of_an_idle_worker, "B19 half-used pages of an idle worker, freed by another",
     .limit_s = 60) {
  need_figures_to_the_page();
  const uint64_t bytes = 256 * MIB;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
  uint64_t start = anonymous_bytes();
  struct owner owner = { .bytes = bytes };
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, own_half_used_pages, &owner), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  give_blocks(owner.kept);
  /* Whatever the freeing thread does for itself, it stays: its owner has to be asked. */
  idlesched_thread_idle();
  CHECK_GE_U64(anonymous_bytes(), start + bytes / 2);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, start + 2 * MIB);
  idlesched_pool_destroy(pool);
}

static void *free_on_a_thread(void *blocks) {
  give_blocks(blocks);
  return NULL;
}

static void take_on_a_worker(void *context) {
  struct owner *self = context;
  self->kept = take_blocks(self->bytes);
}

SPEC(freed_on_a_thread_that_is_gone, "B20 what was freed on a thread that has exited comes back",
     .limit_s = 60) {
  need_figures_to_the_page();
  const uint64_t bytes = 512 * MIB;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
  uint64_t start = anonymous_bytes();
  struct owner owner = { .bytes = bytes };
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, take_on_a_worker, &owner), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_GE_U64(anonymous_bytes(), start + bytes);
  thread_result(thread_run(free_on_a_thread, owner.kept));
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, start + 3 * MIB);
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
  idlesched_pool *pool = started_pool(IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  burst_on_all_workers(pool);
  idlesched_eager_purge_enter(); /* what was freed before is not purged by itself now */
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  uint64_t level = anonymous_bytes();
  CHECK_LE_U64(level, jobless + MIB);
  idlesched_eager_purge_leave();
  idlesched_pool_destroy(pool);
}

SPEC(a_release_of_all_pools_under_a_guard,
     "B14 B17 B27 a release of all pools gives back what all of their workers have, under a guard, "
     "and says that it lifted it") {
  idlesched_release_report report;
  need_figures_to_the_page();
  idlesched_pool *pools[2];
  for (unsigned i = 0; i < 2; i++)
    pools[i] = started_pool(IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t jobless = anonymous_bytes();
  burst_on_pools(pools, 2);
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
