/* SPDX-License-Identifier: MIT */
/*
 * test_worker.c - what can happen to a worker while it releases or leaves: it stays a
 * wake target, no wake is lost, no lock is held.
 *
 * Method: a worker is held at a named place of its release or exit while others submit,
 * so that "during the release" is a fact; the heap is the fake one, which counts.  What
 * is about time is in test_worker_time.c, about tickets in test_ticket.c.
 */
#include <errno.h>

#include "heap_fake.h"
#include "plat_fault.h"
#include "pool_kit.h"

/* Where a worker can be stopped: in its release before and after the collecting, and
 * in its exit.  The lock is not held at any of them. */
#define IN_RELEASE "worker.collect"
#define LATE_IN_RELEASE "pass.purge"
#define IN_EXIT "worker.stop"

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* A pool whose workers release at once when they park, one of them now held there. */
static idlesched_pool *pool_held_at(const char *place, unsigned workers_max) {
  idlesched_pool *pool = POOL(.workers_max = workers_max, .idle_release_ns = IDLESCHED_AT_ONCE,
                              .idle_exit_ns = IDLESCHED_NEVER, WITH_STATE);
  hold_at(place);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count(place) == 1, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).releasing, 1);
  return pool;
}

/* ------------------------------------------------------------ the release */

SPEC(a_jobless_worker_releases_once, "A5 a worker that was started and had no job releases once") {
  idlesched_pool *pool = POOL(.workers_max = 3, .idle_release_ns = 20 * IDLESCHED_MS,
                              .idle_exit_ns = IDLESCHED_NEVER);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 3), 0);
  WAIT_UNTIL(stats_of(pool).releases == 3, SOON_MS);
  CHECK_EQ_INT(heap_fake_collects_count(), 1); /* of the one that made the pass */
  CHECK_EQ_INT(heap_fake_abandons_count(), 2);
  CHECK_EQ_U64(stats_of(pool).starts, 3);
  CHECK_EQ_INT(stats_of(pool).jobs_submitted, 0);
  destroy(pool);
}

SPEC(every_thread_of_a_worker_releases,
     "A5 so does the next thread of a worker that released before") {
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = 5 * IDLESCHED_MS,
                              .idle_exit_ns = 30 * IDLESCHED_MS);
  for (unsigned thread = 1; thread <= 3; thread++) {
    REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
    WAIT_UNTIL(stats_of(pool).exits == thread, SOON_MS);
    CHECK_EQ_U64(stats_of(pool).releases, thread);
  }
  destroy(pool);
}

SPEC(a_submit_does_not_wait_for_a_release,
     "A6 no lock is held during a release: a submit goes through") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = pool_held_at(IN_RELEASE, 1);
  /* Would never return if the worker that is held here held the lock. */
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 1);
  CHECK_EQ_INT(count, 0);
  hold_open(IN_RELEASE);
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
  destroy(pool);
}

SPEC(a_releasing_worker_can_be_woken, "A7 a releasing worker is a wake target, after all others") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = pool_held_at(IN_RELEASE, 2);
  keep_busy(pool, &door, 1); /* an absent worker comes first */
  CHECK_EQ_U64(stats_of(pool).starts, 2);
  CHECK_EQ_INT(stats_of(pool).releasing, 1);
  CHECK_EQ_INT(idlesched_pool_submit(pool, door_pass, &door), 0);
  CHECK_EQ_INT(stats_of(pool).tickets, 1);
  CHECK(worker_of(pool, 0).has_ticket);
  CHECK_EQ_INT(worker_of(pool, 0).state, IDS_WORKER_RELEASING);
  hold_open(IN_RELEASE);
  WAIT_UNTIL(door_inside_count(&door) == 2, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).starts, 2);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  destroy(pool);
}

/* The worker has no other deadline than the one of this release: a wake that is lost
 * now is lost for ever. */
static void wake_during_release(const char *place, unsigned releases_before_the_job) {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = pool_held_at(place, 1);
  CHECK_EQ_INT(idlesched_pool_submit(pool, door_pass, &door), 0);
  hold_open(place);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).releases, releases_before_the_job);
  CHECK_EQ_U64(stats_of(pool).polls, 2); /* of its start, and of this wake */
  CHECK_EQ_INT(heap_fake_collects_count(), releases_before_the_job);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).releases == releases_before_the_job + 1, SOON_MS);
  destroy(pool);
}

SPEC(a_wake_early_in_a_release_is_served,
     "A8 a wake during the release is served, the rest skipped") {
  wake_during_release(IN_RELEASE, 0);
}

SPEC(a_wake_late_in_a_release_is_served, "A8 a wake at the end of the release is served after it") {
  wake_during_release(LATE_IN_RELEASE, 1);
}

static _Atomic unsigned steps_count;

static bool collect_in_steps(idlesched_worker *worker, void *context) {
  (void)worker;
  unsigned step = atomic_fetch_add(&steps_count, 1) + 1;
  if (step == 3)
    door_pass(context);
  return step < 1000;
}

SPEC(a_wake_ends_a_long_release_at_its_next_step,
     "N3 a wake ends a long release at its next step") {
  struct door in_step = DOOR_CLOSED, in_job = DOOR_CLOSED;
  idlesched_pool *pool =
    POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_AT_ONCE,
         .hooks = { .start = give_data, .collect = collect_in_steps, .context = &in_step });
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(door_inside_count(&in_step) == 1, SOON_MS);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, door_pass, &in_job), 0);
  door_open(&in_step);
  WAIT_UNTIL(door_inside_count(&in_job) == 1, SOON_MS);
  CHECK_EQ_INT(steps_count, 3);
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  door_open(&in_job);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  CHECK_EQ_INT(steps_count, 1000);
  destroy(pool);
}

SPEC(no_wake_no_poll, "A9 a release without a wake is followed by waiting and not by a poll") {
  idlesched_pool *pool = pool_held_at(IN_RELEASE, 1);
  CHECK_EQ_U64(stats_of(pool).polls, 1);
  hold_open(IN_RELEASE);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).releases, 1);
  CHECK_EQ_U64(stats_of(pool).polls, 1);
  CHECK_EQ_INT(stats_of(pool).active, 0);
  destroy(pool);
}

/* ---------------------------------------------------------------- the exit */

SPEC(a_wake_during_the_exit_is_served,
     "A14 a wake while a worker leaves is served by that worker") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_AT_ONCE);
  hold_at(IN_EXIT);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count(IN_EXIT) == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(stats_of(pool).tickets, 1);
  hold_open(IN_EXIT);
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
  CHECK_EQ_INT(count, 1);
  CHECK_EQ_U64(stats_of(pool).starts, 1);
  WAIT_UNTIL(stats_of(pool).exits == 1, SOON_MS);
  destroy(pool);
}

SPEC(no_submit_falls_between_poll_and_exit, "A14 no job falls between the last poll and the exit") {
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_AT_ONCE);
  uint64_t random = 1;
  for (unsigned i = 0; i < 3000; i++) {
    run_one_job(pool); /* hangs if the job was lost */
    if (i % 100 == 0)
      WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
    /* Come back at every moment of the exit, which takes some tens of us. */
    random = random * UINT64_C(6364136223846793005) + 1;
    for (uint64_t spins = (random >> 33) % 3000; spins > 0; spins--)
      atomic_signal_fence(memory_order_seq_cst);
  }
  CHECK_EQ_U64(stats_of(pool).jobs_done, 3000);
  CHECK_GE_U64(stats_of(pool).exits, 30);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  destroy(pool);
}

SPEC(an_exit_waits_for_the_release_of_a_visit, "B14 a visit that meets an exit is answered by it") {
  idlesched_release_report report;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_AT_ONCE);
  hold_at(IN_EXIT);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count(IN_EXIT) == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_release(pool, 20 * IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.missed_count, 1);
  hold_open(IN_EXIT);
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
  CHECK_LE_INT(report.visited_count, 1);
  CHECK_EQ_INT(report.missed_count, 0);
  destroy(pool);
}
