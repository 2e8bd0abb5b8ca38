/* SPDX-License-Identifier: MIT */
/*
 * test_release.c - a release on demand visits every worker that has a thread, is bounded
 * in time, and reports.
 *
 * Method: the fake heap and hooks count who tidied what, in which order.  That memory
 * really comes back is in test_heap.c.
 */
#include "release.h"

#include <errno.h>
#include <string.h>

#include "heap_fake.h"
#include "plat_fault.h"
#include "pool_kit.h"

enum { WORKERS = 4 };

static _Atomic unsigned visits_of[WORKERS];

static bool count_visit(idlesched_worker *worker, void *context) {
  (void)context;
  count_up(&visits_of[idlesched_worker_index(worker)]);
  heap_fake_diary_add('k');
  return false;
}

/* Workers that release only when they are visited. */
static idlesched_pool *visited_pool(unsigned workers_count) {
  idlesched_pool *pool = POOL(.workers_max = WORKERS, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_NEVER,
                              .hooks = { .start = give_data, .collect = count_visit });
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, workers_count), 0);
  WAIT_UNTIL(stats_of(pool).parked == workers_count, SOON_MS);
  return pool;
}

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(every_parked_worker_is_visited_once,
     "B14 a release visits each parked worker once, without a poll") {
  idlesched_release_report report;
  idlesched_pool *pool = visited_pool(3);
  idlesched_pool_stats before = stats_of(pool);
  for (unsigned round = 1; round <= 10; round++) {
    CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
    CHECK_EQ_INT(report.visited_count, 3);
    CHECK_EQ_INT(report.missed_count, 0);
    for (unsigned i = 0; i < WORKERS; i++)
      CHECK_EQ_INT(visits_of[i], i < 3 ? round : 0);
  }
  idlesched_pool_stats after = stats_of(pool);
  CHECK_EQ_U64(after.starts, before.starts);
  CHECK_EQ_U64(after.wakes, before.wakes);
  CHECK_EQ_U64(after.polls, before.polls);
  CHECK_EQ_U64(after.releases, 30);
  destroy(pool);
}

SPEC(a_released_worker_is_visited_again, "B14 a worker that has released is visited all the same") {
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_AT_ONCE,
                              .idle_exit_ns = IDLESCHED_NEVER);
  run_one_job(pool);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  CHECK_EQ_U64(stats_of(pool).releases, 2);
  destroy(pool);
}

SPEC(no_worker_nothing_to_visit,
     "B15 without workers a release returns at once and starts nothing") {
  idlesched_release_report report;
  idlesched_pool *pool = visited_pool(0);
  CHECK_EQ_INT(idlesched_pool_release(pool, IDLESCHED_NEVER, &report), 0);
  CHECK_EQ_INT(report.visited_count, 0);
  CHECK_EQ_INT(report.missed_count, 0);
  CHECK_EQ_U64(stats_of(pool).starts, 0);
  CHECK_EQ_STR(heap_fake_diary(), "gcpt"); /* the caller's own */
  destroy(pool);
}

SPEC(a_busy_worker_is_missed,
     "B16 a busy worker is reported as missed, and releases when next idle") {
  struct door door = DOOR_CLOSED;
  idlesched_release_report report;
  idlesched_pool *pool = visited_pool(3);
  keep_busy(pool, &door, 1);
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_pool_release(pool, 500 * IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_GE_U64(spec_now_ns() - before_ns, 500 * IDLESCHED_MS);
  CHECK_EQ_INT(report.visited_count, 2);
  CHECK_EQ_INT(report.missed_count, 1);
  CHECK_EQ_U64(stats_of(pool).releases, 2);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).releases == 3, SOON_MS);
  destroy(pool);
}

SPEC(all_workers_busy_is_no_hang, "B16 with every worker busy a release ends all the same") {
  struct door door = DOOR_CLOSED;
  idlesched_release_report report;
  idlesched_pool *pool = visited_pool(WORKERS);
  keep_busy(pool, &door, WORKERS);
  CHECK_EQ_INT(idlesched_pool_release(pool, IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.visited_count, 0);
  CHECK_EQ_INT(report.missed_count, WORKERS);
  /* The caller's own heap is released even so. */
  CHECK_EQ_STR(heap_fake_diary(), "gcpt");
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).releases == WORKERS, SOON_MS);
  destroy(pool);
}

SPEC(the_default_limit_is_one_second, "B16 without a limit of its own a release takes a second") {
  struct door door = DOOR_CLOSED;
  idlesched_release_report report;
  idlesched_pool *pool = visited_pool(1);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, &report), -ETIMEDOUT);
  CHECK_GE_U64(report.time_ns, IDLESCHED_S);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  destroy(pool);
}

SPEC(a_missed_worker_may_exit_instead, "B16 a missed worker that leaves has released by that") {
  struct door door = DOOR_CLOSED;
  idlesched_release_report report;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_release(pool, IDLESCHED_MS, &report), -ETIMEDOUT);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_release(pool, IDLESCHED_NEVER, &report), 0);
  CHECK_EQ_INT(report.missed_count, 0);
  destroy(pool);
}

static void *release_pool(void *context) {
  static _Thread_local idlesched_release_report report;
  CHECK_EQ_INT(idlesched_pool_release(context, SOON_MS * IDLESCHED_MS, &report), 0);
  return (void *)(uintptr_t)report.visited_count;
}

SPEC(a_job_ends_while_the_release_waits, "B16 a job that ends in time is waited for") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = visited_pool(2);
  keep_busy(pool, &door, 1);
  pthread_t releaser = thread_run(release_pool, pool);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  door_open(&door);
  CHECK_EQ_INT((uintptr_t)thread_result(releaser), 2);
  destroy(pool);
}

SPEC(all_visits_come_before_the_purge,
     "B17 all visits first, then the caller's collect and one purge") {
  idlesched_pool *pool = visited_pool(WORKERS);
  heap_fake_diary_clear();
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  const char *diary = heap_fake_diary();
  size_t length = strlen(diary);
  unsigned visits = 0, collects = 0;
  for (size_t i = 0; i + 3 < length; i++) {
    visits += diary[i] == 'k';
    collects += diary[i] == 'c';
  }
  CHECK_EQ_INT(visits, WORKERS);
  CHECK_EQ_INT(collects, WORKERS);
  CHECK_EQ_STR(diary + length - 3, "cpt");
  CHECK_EQ_INT(heap_fake_purges_at_once_max(), 1);
  destroy(pool);
}

SPEC(releases_of_several_threads,
     "B17 releases of several threads at once: each visits everybody") {
  pthread_t threads[6];
  idlesched_pool *pool = visited_pool(WORKERS);
  for (unsigned round = 0; round < 10; round++) {
    for (unsigned i = 0; i < 6; i++)
      threads[i] = thread_run(release_pool, pool);
    for (unsigned i = 0; i < 6; i++)
      CHECK_EQ_INT((uintptr_t)thread_result(threads[i]), WORKERS);
  }
  CHECK_EQ_INT(heap_fake_purges_at_once_max(), 1);
  destroy(pool);
}

/* The visit finds the worker in a release that began before: that one does not count. */
SPEC(a_release_under_way_does_not_count,
     "B14 a release that had begun before the visit is repeated") {
  idlesched_pool *pool = visited_pool(1);
  hold_at("worker.collect");
  pthread_t first = thread_run(release_pool, pool);
  WAIT_UNTIL(hold_count("worker.collect") == 1, SOON_MS);
  pthread_t second = thread_run(release_pool, pool);
  WAIT_UNTIL(plat_waiting_count() == 2, SOON_MS);
  hold_open("worker.collect");
  CHECK_EQ_INT((uintptr_t)thread_result(first), 1);
  CHECK_EQ_INT((uintptr_t)thread_result(second), 1);
  CHECK_EQ_INT(visits_of[0], 2);
  destroy(pool);
}

SPEC(a_wake_comes_before_a_visit,
     "B14 a job that comes during a visit runs first, the visit is made up") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER, WITH_STATE);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  hold_at("worker.collect");
  pthread_t releaser = thread_run(release_pool, pool);
  WAIT_UNTIL(hold_count("worker.collect") == 1, SOON_MS);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, door_pass, &door), 0);
  hold_open("worker.collect");
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  door_open(&door);
  CHECK_EQ_INT((uintptr_t)thread_result(releaser), 1);
  CHECK_EQ_U64(stats_of(pool).releases, 1);
  destroy(pool);
}

SPEC(the_owner_goes_on_beside_a_release, "B24 jobs are submitted and run beside a release") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = visited_pool(2);
  keep_busy(pool, &door, 1);
  pthread_t releaser = thread_run(release_pool, pool);
  WAIT_UNTIL(plat_waiting_count() == 2, SOON_MS); /* the parked worker and the releaser */
  _Atomic unsigned count = 0;
  for (unsigned i = 0; i < 50; i++) {
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    WAIT_UNTIL(count == i + 1, SOON_MS);
  }
  door_open(&door);
  CHECK_EQ_INT((uintptr_t)thread_result(releaser), 2);
  destroy(pool);
}

/* ------------------------------------------------------------------ report */

SPEC(the_report_says_what_was_measured, "N4 the report: bytes by the kernel, workers, time") {
  idlesched_release_report report;
  memset(&report, 0xff, sizeof report);
  idlesched_pool *pool = visited_pool(2);
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
  uint64_t took_ns = spec_now_ns() - before_ns;
  CHECK_EQ_INT(report.visited_count, 2);
  CHECK_EQ_INT(report.missed_count, 0);
  CHECK_GT_U64(report.time_ns, 0);
  CHECK_LE_U64(report.time_ns, took_ns);

  idlesched_memory memory;
  if (idlesched_memory_read(&memory) == 0) {
    CHECK_GT_U64(report.anonymous_before_bytes, 0);
    CHECK_GT_U64(report.anonymous_after_bytes, 0);
    CHECK_LE_U64(report.anonymous_after_bytes, memory.resident_bytes + (64 << 20));
  }
  uint64_t fallen = report.anonymous_before_bytes > report.anonymous_after_bytes
                      ? report.anonymous_before_bytes - report.anonymous_after_bytes
                      : 0;
  CHECK_EQ_U64(report.returned_bytes, fallen);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
  destroy(pool);
}
