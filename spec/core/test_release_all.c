/* SPDX-License-Identifier: MIT */
/*
 * test_release_all.c - a release of the process: all pools, or those of a list, beside pools
 * that come and go, from jobs, and under guards.
 *
 * Method: as in test_release.c.  What only schedules and an exact clock can show is in
 * test_sim_release_all.c.
 */
#include "release.h"

#include <errno.h>
#include <string.h>

#include "heap_fake.h"
#include "option.h"
#include "plat_fault.h"
#include "pool_kit.h"

#define LONG_NS (SOON_MS * IDLESCHED_MS)

static _Atomic unsigned visits_count;

static bool count_visit(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  count_up(&visits_count);
  return false;
}

/* Workers that release only when they are visited, on their own thread or not. */
static idlesched_pool *parked_pool(unsigned workers_count, bool has_state) {
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_NEVER,
                              .hooks = { .start = has_state ? give_data : NULL,
                                         .collect = has_state ? count_visit : NULL });
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, workers_count), 0);
  WAIT_UNTIL(stats_of(pool).parked == workers_count, SOON_MS);
  return pool;
}

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
}

/* Of a release of all. */
static void *release_all(void *context) {
  static _Thread_local idlesched_release_report report;
  (void)context;
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  return (void *)(uintptr_t)report.visited_count;
}

/* --------------------------------------------------------------- which pools */

SPEC(every_pool_is_visited, "B14 N4 a release visits the parked workers of every pool once each") {
  idlesched_release_report report;
  idlesched_pool *pools[] = { parked_pool(2, true), parked_pool(0, true), parked_pool(3, false) };
  idlesched_pool_stats before = stats_of(pools[0]);
  heap_fake_diary_clear();
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  CHECK_EQ_INT(report.pools_count, 3);
  CHECK_EQ_INT(report.visited_count, 5);
  CHECK_EQ_INT(report.missed_count, 0);
  CHECK_EQ_INT(visits_count, 2);
  CHECK_EQ_INT(heap_fake_abandons_count(), 3);
  CHECK_EQ_INT(heap_fake_purges_count(), 1);
  const char *diary = heap_fake_diary();
  CHECK_EQ_STR(diary + strlen(diary) - 4, "gcpt"); /* all visits come before it */
  CHECK_EQ_U64(stats_of(pools[0]).wakes, before.wakes);
  CHECK_EQ_U64(stats_of(pools[0]).polls, before.polls);
  CHECK_EQ_U64(stats_of(pools[1]).starts, 0);
  for (unsigned i = 0; i < 3; i++)
    destroy(pools[i]);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(no_pool_nothing_to_visit, "B15 without a pool a release is of the caller's heap alone") {
  idlesched_release_report report;
  CHECK_EQ_INT(idlesched_release(IDLESCHED_NEVER, &report), 0);
  CHECK_EQ_INT(report.pools_count, 0);
  CHECK_EQ_INT(report.visited_count, 0);
  CHECK_EQ_STR(heap_fake_diary(), "gcpt");
  CHECK_EQ_INT(idlesched_release(0, NULL), 0);
}

SPEC(a_list_names_pools,
     "B14 a release of a list visits its pools, once where one is there twice") {
  idlesched_release_report report;
  idlesched_pool *first = parked_pool(1, true), *other = parked_pool(1, true),
                 *last = parked_pool(2, false);
  idlesched_pool *list[] = { last, first, last, last, first };
  CHECK_EQ_INT(idlesched_release_pools(list, 5, LONG_NS, &report), 0);
  CHECK_EQ_INT(report.pools_count, 2);
  CHECK_EQ_INT(report.visited_count, 3);
  CHECK_EQ_U64(stats_of(other).releases, 0);
  CHECK_EQ_U64(stats_of(last).releases, 2);
  CHECK_EQ_INT(idlesched_release_pools(NULL, 0, LONG_NS, NULL), 0);
  CHECK_EQ_U64(stats_of(first).releases, 1);
  CHECK_EQ_INT(idlesched_pool_release(other, LONG_NS, &report), 0);
  CHECK_EQ_INT(report.pools_count, 1);
  CHECK_EQ_U64(stats_of(first).releases, 1);
  destroy(first);
  destroy(other);
  destroy(last);
}

SPEC(a_list_has_no_null, "B14 NULL in a list of pools aborts", .aborts_with = "self != NULL") {
  idlesched_pool *list[] = { parked_pool(0, false), NULL };
  idlesched_release_pools(list, 2, LONG_NS, NULL);
}

SPEC(a_list_is_there, "B14 a list of pools that is NULL aborts", .aborts_with = "pools != NULL") {
  idlesched_release_pools(NULL, 1, LONG_NS, NULL);
}

/* ---------------------------------------------------------- who is not visited */

SPEC(the_missed_are_told_apart, "B16 N4 who is missed runs, starts or ends: the report tells") {
  struct door door = DOOR_CLOSED;
  idlesched_release_report report;
  idlesched_pool *running = parked_pool(3, true), *ending = parked_pool(2, true),
                 *parked = parked_pool(1, false);
  keep_busy(running, &door, 2);
  hold_at("worker.stop");
  idlesched_worker_retire(ending->group.workers[1]);
  WAIT_UNTIL(hold_count("worker.stop") == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_release(IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.visited_count + report.missed_count, 6);
  CHECK_GE_INT(report.missed_running_count, 2); /* and who is slow to wake up */
  CHECK_EQ_INT(report.missed_exiting_count, 1);
  CHECK_EQ_INT(report.missed_starting_count, 0);
  CHECK_EQ_INT(report.missed_count, report.missed_running_count + 1);
  CHECK_EQ_U64(stats_of(parked).releases, 1); /* nobody waits for others to be given up */
  hold_open("worker.stop");
  door_open(&door);
  WAIT_UNTIL(stats_of(running).releases == 3, SOON_MS);
  WAIT_UNTIL(stats_of(ending).threads == 1 && stats_of(ending).releases == 1, SOON_MS);
  destroy(running);
  destroy(ending);
  destroy(parked);
}

static void *start_one(void *pool) {
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  return NULL;
}

SPEC(a_starting_thread_is_missed, "B16 N4 who is missed may be a thread that is being started") {
  idlesched_release_report report;
  idlesched_pool *pool = parked_pool(0, true);
  hold_at("worker.thread");
  pthread_t starter = thread_run(start_one, pool);
  WAIT_UNTIL(hold_count("worker.thread") == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_release(IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.missed_count, 1);
  CHECK_EQ_INT(report.missed_starting_count, 1);
  CHECK_EQ_INT(report.visited_count, 0);
  hold_open("worker.thread");
  thread_result(starter);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  destroy(pool);
}

/* --------------------------------------------------------------- from a job */

static idlesched_release_report from_job;

static void release_from_job(void *pool) {
  CHECK_EQ_INT(idlesched_pool_release(pool, LONG_NS, NULL), -EDEADLK);
  CHECK_EQ_INT(idlesched_pool_release(pool, LONG_NS, &from_job), -EDEADLK);
  CHECK_EQ_INT(idlesched_release(IDLESCHED_NEVER, &from_job), 0);
}

SPEC(a_job_releases, "B14 a job's own worker is the caller of its release: neither visited nor "
                     "missed, and its heap is collected") {
  idlesched_pool *own = parked_pool(3, true), *other = parked_pool(2, false);
  REQUIRE_EQ_INT(idlesched_pool_submit(own, release_from_job, own), 0);
  CHECK_EQ_INT(idlesched_pool_wait(own, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(from_job.pools_count, 2);
  CHECK_EQ_INT(from_job.visited_count, 4);
  CHECK_EQ_INT(from_job.missed_count, 0);
  CHECK_EQ_INT(visits_count, 2);
  CHECK_EQ_INT(heap_fake_collects_count(), 3);
  CHECK_EQ_U64(stats_of(own).releases, 2); /* it owes none when it parks, either */
  destroy(own);
  destroy(other);
}

static bool release_from_hook(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  CHECK_EQ_INT(idlesched_release(IDLESCHED_NEVER, &from_job), 0);
  return false;
}

SPEC(a_hook_releases, "B14 a worker that is visited may release all pools from its hook") {
  idlesched_release_report report;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_NEVER,
                              .hooks = { .start = give_data, .collect = release_from_hook });
  idlesched_pool *other = parked_pool(1, true);
  run_one_job(pool);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  CHECK_EQ_INT(report.visited_count, 2);
  CHECK_EQ_U64(stats_of(pool).releases, 1);
  CHECK_EQ_INT(from_job.visited_count, 1);
  destroy(pool);
  destroy(other);
}

/* ------------------------------------------------- pools that come and go */

SPEC(others_come_and_go, "B24 pools are made, used and destroyed beside a slow visit of another") {
  idlesched_pool *slow = parked_pool(1, true), *early = parked_pool(1, false);
  hold_at("worker.collect");
  pthread_t releaser = thread_run(release_all, NULL);
  WAIT_UNTIL(hold_count("worker.collect") == 1, SOON_MS);
  WAIT_UNTIL(stats_of(early).releases == 1, SOON_MS);
  idlesched_pool *late = POOL(.workers_max = 1);
  run_one_job(late);
  destroy(late);
  destroy(early);
  run_one_job(slow);
  hold_open("worker.collect");
  CHECK_EQ_INT((uintptr_t)thread_result(releaser), 2);
  destroy(slow);
  CHECK_NOTHING_IS_LEFT();
}

static void *destroy_pool(void *pool) {
  idlesched_pool_destroy(pool);
  return NULL;
}

SPEC(a_visited_pool_is_destroyed, "B24 the destroy of a pool ends the visit that waits for it") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = parked_pool(2, true);
  keep_busy(pool, &door, 1);
  pthread_t releaser = thread_run(release_all, NULL);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  pthread_t destroyer = thread_run(destroy_pool, pool);
  WAIT_UNTIL(idlesched_pool_start_workers(pool, 0) == -ESHUTDOWN, SOON_MS);
  door_open(&door);
  thread_result(destroyer);
  CHECK_EQ_INT((uintptr_t)thread_result(releaser), 2);
  CHECK_NOTHING_IS_LEFT();
}

/* The destroyer is the only one left, and the visitor stands just before it lets go. */
static void *release_and_stop_before_letting_go(void *pool) {
  ids_pools_lock();
  struct ids_pools_walk walk = { .is_for_all = true, .round = ids_pools_begin_round_locked() };
  ids_pools_unlock();
  struct ids_pools_entry *entry = ids_pools_next(&walk, NULL);
  CHECK_EQ_PTR(entry->pool, pool);
  ids_point("held");
  CHECK_EQ_PTR(ids_pools_next(&walk, entry), NULL);
  return NULL;
}

SPEC(a_held_pool_is_not_freed, "B24 a pool that a release is at is freed when that lets go of it") {
  idlesched_pool *pool = parked_pool(0, false);
  hold_at("held");
  pthread_t visitor = thread_run(release_and_stop_before_letting_go, pool);
  WAIT_UNTIL(hold_count("held") == 1, SOON_MS);
  pthread_t destroyer = thread_run(destroy_pool, pool);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  idlesched_pool *another = parked_pool(1, false); /* it does not matter to others */
  CHECK_EQ_INT(pool->entry.holders_count, 1);
  hold_open("held");
  thread_result(visitor);
  thread_result(destroyer);
  destroy(another);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(threads_left_behind_count, "B16 a thread that a destroy left behind is missed like others, "
                                "until it ends") {
  struct door door = DOOR_CLOSED;
  idlesched_release_report report;
  idlesched_pool *pool = parked_pool(1, true);
  keep_busy(pool, &door, 1);
  idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, IDLESCHED_MS, NULL);
  idlesched_pool_destroy(pool);
  CHECK_EQ_INT(idlesched_release(IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.pools_count, 1);
  CHECK_EQ_INT(report.missed_running_count, 1);
  door_open(&door);
  WAIT_UNTIL(plat_balance().blocks == 0, SOON_MS);
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  CHECK_EQ_INT(report.pools_count, 0);
}

SPEC(a_refused_pool_is_none, "B14 G2 a pool whose create was refused is not among those visited") {
  static const char *const sites[] = { "pool", "group.lock", "group.table", "group.workers" };
  for (unsigned i = 0; i < ids_countof(sites); i++) {
    idlesched_release_report report;
    idlesched_pool *pool;
    fault_refuse(sites[i], 1, FAULT_FOR_EVER);
    CHECK_LT_INT(idlesched_pool_create(&pool, NULL), 0);
    CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
    CHECK_EQ_INT(report.pools_count, 0);
    fault_refuse(FAULT_ANY_SITE, 0, 0);
  }
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_release_takes_no_memory, "B14 G2 a release takes nothing from the system, so it cannot be "
                                "refused") {
  idlesched_release_report report;
  idlesched_pool *pools[] = { parked_pool(2, true), parked_pool(1, false) };
  fault_refuse(FAULT_ANY_SITE, 1, FAULT_FOR_EVER);
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  CHECK_EQ_INT(report.visited_count, 3);
  CHECK_EQ_INT(idlesched_release_pools(pools, 2, LONG_NS, &report), 0);
  CHECK_EQ_INT(fault_calls_count(), 0);
  fault_refuse(FAULT_ANY_SITE, 0, 0);
  destroy(pools[0]);
  destroy(pools[1]);
}

/* -------------------------------------------------------------------- guards */

static void check_lifts(int (*release)(idlesched_release_report *out)) {
  idlesched_release_report report;
  heap_fake_diary_clear();
  CHECK_EQ_INT(release(&report), 0);
  CHECK(!report.lifted_guards);
  CHECK_EQ_INT(report.purge_delay_ms, HEAP_FAKE_DELAY_DEFAULT_MS);
  CHECK_EQ_STR(heap_fake_diary(), "gcpt");

  idlesched_eager_purge_enter();
  idlesched_eager_purge_enter();
  heap_fake_diary_clear();
  CHECK_EQ_INT(release(&report), 0);
  CHECK(report.lifted_guards);
  CHECK_EQ_INT(report.purge_delay_ms, HEAP_FAKE_DELAY_DEFAULT_MS);
  /* Before the delay is 0 again, what is due is purged. */
  CHECK_EQ_STR(heap_fake_diary(), "sgcpgpggst");
  CHECK_EQ_INT(heap_fake_delay_ms(), 0);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(heap_fake_delay_ms(), 0);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
}

static int release_all_now(idlesched_release_report *out) {
  return idlesched_release(LONG_NS, out);
}

static int release_none_now(idlesched_release_report *out) {
  return idlesched_release_pools(NULL, 0, LONG_NS, out);
}

static int purge_all_now(idlesched_release_report *out) {
  idlesched_purge_all(out);
  return 0;
}

SPEC(guards_are_lifted, "B27 a release under guards lifts the override for its purge, puts it "
                        "back, and says so") {
  check_lifts(release_all_now);
  check_lifts(release_none_now);
  check_lifts(purge_all_now);
}

static void check_left_alone(long delay_ms) {
  idlesched_release_report report;
  heap_fake_set_delay_ms(delay_ms);
  idlesched_eager_purge_enter();
  heap_fake_diary_clear();
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  CHECK_EQ_STR(heap_fake_diary(), "gcpt");
  CHECK(!report.lifted_guards);
  CHECK_EQ_INT(report.purge_delay_ms, delay_ms);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(heap_fake_delay_ms(), delay_ms);
}

SPEC(the_users_delay_stays, "B28 a user's delay of 0 or below is not overridden, and reported") {
  check_left_alone(0);
  check_left_alone(-1);
}

SPEC(an_allocator_without_options, "B28 A16 an allocator without options reports no delay") {
  idlesched_release_report report;
  heap_fake_set_has_options(false);
  idlesched_eager_purge_enter();
  heap_fake_diary_clear();
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  CHECK_EQ_STR(heap_fake_diary(), "cpt");
  CHECK(!report.lifted_guards);
  CHECK_EQ_INT(report.purge_delay_ms, 0);
  idlesched_eager_purge_leave();
}

SPEC(a_guard_ends_meanwhile, "B27 a guard that ends while it is lifted is over") {
  idlesched_eager_purge_enter();
  hold_at("heap.purge");
  pthread_t releaser = thread_run(release_all, NULL);
  WAIT_UNTIL(hold_count("heap.purge") == 1, SOON_MS);
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
  idlesched_eager_purge_leave();
  unsigned writes_count = heap_fake_writes_count();
  hold_open("heap.purge");
  thread_result(releaser);
  CHECK_EQ_INT(heap_fake_writes_count(), writes_count);
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
}

static void *enter_guard(void *context) {
  (void)context;
  idlesched_eager_purge_enter();
  return NULL;
}

SPEC(a_guard_begins_meanwhile, "B27 a guard that begins while guards are lifted is in force when "
                               "the last release has put them back") {
  CHECK(!ids_options_lift());
  enter_guard(NULL);
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
  CHECK(!ids_options_lift()); /* it has not come into force yet */
  ids_options_unlift();
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
  ids_options_unlift();
  CHECK_EQ_INT(heap_fake_delay_ms(), 0);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
}

SPEC(an_unlift_without_its_lift, "B27 an unlift without its lift aborts",
     .aborts_with = "lifts_count > 0") {
  ids_options_unlift();
}

/* ------------------------------------------------------------------ purge_all */

SPEC(purge_all_visits_nobody, "B21 N4 purge_all purges, reports, and visits nobody") {
  idlesched_release_report report;
  idlesched_pool *pool = parked_pool(2, true);
  memset(&report, 0xff, sizeof report);
  heap_fake_diary_clear();
  unsigned mark = heap_fake_free();
  idlesched_purge_all(&report);
  CHECK(heap_fake_is_purged(mark));
  CHECK_EQ_STR(heap_fake_diary(), "gcpt");
  CHECK_EQ_INT(report.pools_count + report.visited_count + report.missed_count, 0);
  CHECK_EQ_INT(visits_count, 0);
  CHECK_GT_U64(report.time_ns, 0);
  idlesched_purge_all(NULL);
  CHECK_EQ_INT(heap_fake_purges_count(), 2);
  destroy(pool);
}

/* --------------------------------------------------------------------- report */

static void check_report_adds_up(const idlesched_release_report *report) {
  uint64_t live_bytes = 0, free_bytes = 0;
  for (unsigned i = 0; i < IDLESCHED_HEAPS_MAX; i++) {
    live_bytes += report->after[i].live_bytes;
    free_bytes += report->after[i].free_bytes;
  }
  CHECK_EQ_U64(report->kept_live_bytes, live_bytes);
  CHECK_EQ_U64(report->kept_free_bytes, free_bytes);
  CHECK_GE_U64(live_bytes + free_bytes + report->kept_other_bytes, report->anonymous_after_bytes);
  if (report->kept_other_bytes > 0)
    CHECK_EQ_U64(live_bytes + free_bytes + report->kept_other_bytes, report->anonymous_after_bytes);
  uint64_t fallen_bytes = 0;
  if (report->anonymous_before_bytes > report->anonymous_after_bytes)
    fallen_bytes = report->anonymous_before_bytes - report->anonymous_after_bytes;
  CHECK_EQ_U64(report->returned_bytes, fallen_bytes);
}

SPEC(what_is_kept_adds_up, "N4 A16 B30 what is kept is live, free or of others, and adds up to "
                           "what is there") {
  idlesched_release_report report;
  idlesched_memory memory;
  if (idlesched_memory_read(&memory) != 0)
    SKIP("the system does not tell what the process has in memory");
  CHECK_EQ_INT(idlesched_release(LONG_NS, &report), 0);
  CHECK_GT_U64(report.anonymous_after_bytes, 0);
  check_report_adds_up(&report);
  idlesched_purge_all(&report);
  CHECK_GT_U64(report.anonymous_after_bytes, 0);
  check_report_adds_up(&report);
}
