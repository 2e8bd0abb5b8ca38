/* SPDX-License-Identifier: MIT */
/*
 * test_ticket.c - wakes and polls: who gets a ticket, one poll for each, and the counts
 * that must add up whenever the lock is free.
 *
 * Method: snapshots while workers are held where the case wants them; and books that are
 * falsified on purpose, to see that the assertion is there in this build too.
 */
#include "heap_fake.h"
#include "plat_fault.h"
#include "pool_kit.h"

/* In a release and in an exit, the lock not held. */
#define IN_RELEASE "worker.collect"
#define IN_EXIT "worker.stop"

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* ---------------------------------------------------------- active, polls */

SPEC(active_follows_tickets_and_polls,
     "A10 active: +1 for each wake given, -1 for each poll in vain") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 3, .idle_release_ns = 20 * IDLESCHED_MS,
                              .idle_exit_ns = IDLESCHED_NEVER, WITH_STATE);
  CHECK_EQ_INT(stats_of(pool).active, 0);

  keep_busy(pool, &door, 2);
  CHECK_EQ_INT(stats_of(pool).active, 2);
  CHECK_EQ_INT(stats_of(pool).running, 2);

  hold_at(IN_RELEASE);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 3), 0); /* a targeted wake */
  WAIT_UNTIL(hold_count(IN_RELEASE) == 1, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).active, 2);
  CHECK_EQ_INT(idlesched_pool_submit(pool, door_pass, &door), 0); /* during a release */
  CHECK_EQ_INT(stats_of(pool).active, 3);
  CHECK_EQ_INT(stats_of(pool).tickets, 1);
  CHECK_EQ_INT(idlesched_pool_submit(pool, door_pass, &door), 0); /* nobody is left */
  CHECK_EQ_INT(stats_of(pool).active, 3);

  hold_open(IN_RELEASE);
  WAIT_UNTIL(stats_of(pool).running == 3, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).active, 3);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).active == 0, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).threads, 3);
  destroy(pool);
}

static void *start_one(void *pool) {
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  return NULL;
}

SPEC(active_while_a_thread_is_asked_for,
     "A10 active counts a worker whose thread is being started") {
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
  hold_at("worker.thread");
  pthread_t starter = thread_run(start_one, pool);
  WAIT_UNTIL(hold_count("worker.thread") == 1, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).active, 1);
  CHECK_EQ_INT(stats_of(pool).tickets, 1);
  CHECK_EQ_INT(stats_of(pool).starting, 1);
  hold_open("worker.thread");
  thread_result(starter);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).active, 0);
  destroy(pool);
}

SPEC(active_rises_with_the_wakes_of_a_close,
     "A10 a close wakes every waiting worker with a ticket") {
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 3), 0);
  WAIT_UNTIL(stats_of(pool).parked == 3, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), 0);
  idlesched_pool_stats stats = stats_of(pool);
  CHECK_EQ_INT(stats.active, 0);
  CHECK_EQ_INT(stats.threads, 0);
  CHECK_EQ_U64(stats.wakes, 6);
  CHECK_EQ_U64(stats.polls, 6);
  destroy(pool);
}

static idlesched_pool *pool_with_one_parked(void) {
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  ids_group_lock(&pool->group);
  return pool;
}

SPEC(an_unpaired_poll_aborts, "A10 a poll without a wake is an assertion",
     .aborts_with = "assertion failed: self->has_ticket") {
  idlesched_pool *pool = pool_with_one_parked();
  ids_worker_use_ticket_locked(&pool->group.workers[0]);
}

SPEC(a_second_ticket_aborts, "A10 a second wake for one poll is an assertion",
     .aborts_with = "assertion failed: ids_worker_is_wakeable_locked(self)") {
  idlesched_pool *pool = pool_with_one_parked();
  ids_worker_grant_locked(&pool->group.workers[0]);
  ids_worker_grant_locked(&pool->group.workers[0]);
}

SPEC(going_idle_twice_aborts, "A10 going idle twice is an assertion: active is never negative",
     .aborts_with = "assertion failed: self->state == IDS_WORKER_RUNNING") {
  idlesched_pool *pool = pool_with_one_parked();
  ids_worker_set_idle_locked(&pool->group.workers[0], IDS_WORKER_PARKED);
}

SPEC(a_wrong_active_count_aborts, "A10 an active count that does not add up is an assertion",
     .aborts_with = ": 1 against 0") {
  idlesched_pool *pool = pool_with_one_parked();
  pool->group.active_count++;
  ids_group_unlock(&pool->group);
}

SPEC(a_wrong_thread_count_aborts, "A10 a thread count that does not add up is an assertion",
     .aborts_with = ": 2 against 1") {
  idlesched_pool *pool = pool_with_one_parked();
  pool->group.threads_count++;
  ids_group_unlock(&pool->group);
}

SPEC(work_without_a_wake_aborts, "A10 work that nobody is on the way to is an assertion",
     .aborts_with = "I3 work") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = pool_with_one_parked();
  REQUIRE_EQ_INT(ids_queue_push(&pool->queue, (struct ids_cell){ count_up, &count }, 0, NULL), 0);
  ids_group_unlock(&pool->group);
}

SPEC(every_wake_is_one_poll, "A15 N wakes are N polls, however they were given") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 3, .idle_release_ns = 50 * IDLESCHED_US,
                              .idle_exit_ns = 200 * IDLESCHED_US);
  for (unsigned round = 0; round < 300; round++) {
    for (unsigned i = 0; i < 1 + round % 7; i++)
      REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    if (round % 3 == 0)
      REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1 + round % 3), 0);
    if (round % 5 == 0)
      REQUIRE_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
    for (unsigned i = 0; i < 3; i++)
      wake_for_nothing(pool, i);
    check_stats_add_up(pool);
    if (round % 2 == 0)
      REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  }
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  check_tickets_add_up(pool);
  CHECK_GE_U64(stats_of(pool).polls, 100);
  destroy(pool);
}

SPEC(the_counts_balance_over_a_life, "N5 the ledger: wakes, polls, starts and exits balance") {
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_MS);
  for (unsigned i = 0; i < 50; i++) {
    run_one_job(pool);
    if (i % 10 == 0)
      WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  }
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  idlesched_pool_stats stats = stats_of(pool);
  CHECK_EQ_U64(stats.wakes, stats.polls);
  CHECK_EQ_U64(stats.starts, stats.exits);
  CHECK_GE_U64(stats.starts, 5);
  CHECK_LE_U64(stats.wakes, 50); /* G7: one for each job at most */
  CHECK_EQ_U64(stats.jobs_done, 50);
  CHECK_EQ_U64(stats.releases, 0);
  destroy(pool);
}

/* ----------------------------------------------------------- wake economy */

SPEC(no_wake_while_all_are_busy,
     "G7 wakes: none while all workers are busy, never more than jobs") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_exit_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 2);
  CHECK_EQ_U64(stats_of(pool).wakes, 2);
  for (unsigned i = 0; i < 500; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_U64(stats_of(pool).wakes, 2);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(count, 500);
  /* A worker that finds nothing while the other runs the last job is not woken again. */
  CHECK_EQ_U64(stats_of(pool).wakes, 2);
  destroy(pool);
}

struct submission {
  idlesched_pool *pool;
  struct door *door;
};

static void *submit_door(void *context) {
  struct submission *self = context;
  CHECK_EQ_INT(idlesched_pool_submit(self->pool, door_pass, self->door), 0);
  return NULL;
}

/* One worker is leaving, and a second one is being started for a job that came just
 * then.  The first may not leave the job alone before the second is there for certain,
 * and it may not take a wake of its own for it either. */
static void leave_while_another_starts(unsigned refusals) {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_AT_ONCE);
  hold_at(IN_EXIT);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count(IN_EXIT) == 1, SOON_MS);

  struct submission submission = { pool, &door };
  fault_refuse("worker.thread", refusals, refusals);
  hold_at("worker.thread");
  pthread_t submitter = thread_run(submit_door, &submission);
  WAIT_UNTIL(hold_count("worker.thread") == 1, SOON_MS);
  hold_open(IN_EXIT);
  /* It takes the job itself, or waits for what becomes of the other. */
  WAIT_UNTIL(plat_waiting_count() == 1 || door_inside_count(&door) == 1, SOON_MS);
  hold_open("worker.thread");
  thread_result(submitter);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  /* One for start_workers and one for the job; a refused one is given again. */
  CHECK_EQ_U64(stats_of(pool).wakes, 2 + refusals);
  destroy(pool);
}

SPEC(leaving_while_another_starts, "G7 one job is one wake, also when a worker leaves just then") {
  leave_while_another_starts(0);
}

SPEC(leaving_while_another_is_refused, "G2 a worker that leaves stays if the other is refused") {
  leave_while_another_starts(1);
}

SPEC(one_wake_at_a_time_is_passed_on, "G7 one wake is on its way at a time, and is passed on") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
  WAIT_UNTIL(stats_of(pool).parked == 4, SOON_MS);
  struct ids_wake wake = { .worker = NULL };
  for (unsigned i = 0; i < 3; i++) {
    ids_group_lock(&pool->group);
    REQUIRE_EQ_INT(ids_queue_push(&pool->queue, (struct ids_cell){ door_pass, &door }, 0, NULL), 0);
    pool->submitted_count++;
    CHECK_EQ_INT(ids_group_wants_wake_locked(&pool->group), i == 0);
    if (i == 0)
      wake = ids_group_grant_locked(&pool->group);
    ids_group_unlock(&pool->group);
  }
  CHECK_EQ_INT(stats_of(pool).tickets, 1);
  CHECK_EQ_INT(ids_wake_deliver(wake), 0);
  WAIT_UNTIL(door_inside_count(&door) == 3, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).wakes, 4 + 3);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  destroy(pool);
}

static bool hold_first_worker(idlesched_worker *worker, void *context) {
  if (idlesched_worker_index(worker) == 0)
    door_pass(context);
  return false;
}

SPEC(parked_absent_releasing, "N3 wakes go to parked, then to absent, then to releasing workers") {
  struct door in_release = DOOR_CLOSED, in_job = DOOR_CLOSED;
  idlesched_pool *pool =
    POOL(.workers_max = 3, .idle_release_ns = IDLESCHED_AT_ONCE,
         .hooks = { .start = give_data, .collect = hold_first_worker, .context = &in_release });
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 2), 0);
  WAIT_UNTIL(stats_of(pool).releases == 1 && door_inside_count(&in_release) == 1, SOON_MS);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  keep_busy(pool, &in_job, 1);
  CHECK_EQ_INT(worker_of(pool, 1).state, IDS_WORKER_RUNNING);
  CHECK_EQ_U64(stats_of(pool).starts, 2);
  keep_busy(pool, &in_job, 1);
  CHECK_EQ_INT(worker_of(pool, 2).state, IDS_WORKER_RUNNING);
  CHECK(!worker_of(pool, 0).has_ticket);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, door_pass, &in_job), 0);
  CHECK(worker_of(pool, 0).has_ticket);
  door_open(&in_release);
  WAIT_UNTIL(door_inside_count(&in_job) == 3, SOON_MS);
  door_open(&in_job);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  destroy(pool);
}

static int index_of_worker(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  return (int)idlesched_worker_index(worker);
}

static unsigned run_and_tell_worker(idlesched_pool *pool) {
  idlesched_job job = { .run = index_of_worker };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  REQUIRE_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  return (unsigned)idlesched_job_status(&job);
}

SPEC(the_warmest_worker_is_woken, "G7 the worker that parked last is woken first") {
  struct door doors[3] = { DOOR_CLOSED, DOOR_CLOSED, DOOR_CLOSED };
  idlesched_pool *pool = POOL(.workers_max = 3, .idle_release_ns = IDLESCHED_NEVER);
  for (unsigned i = 0; i < 3; i++)
    keep_busy(pool, &doors[i], 1);
  static const unsigned order[] = { 1, 2, 0 };
  for (unsigned i = 0; i < 3; i++) {
    door_open(&doors[order[i]]);
    WAIT_UNTIL(stats_of(pool).parked == i + 1, SOON_MS);
  }
  for (unsigned i = 0; i < 20; i++) {
    CHECK_EQ_INT(run_and_tell_worker(pool), 0);
    WAIT_UNTIL(stats_of(pool).parked == 3, SOON_MS);
  }
  destroy(pool);
}

SPEC(a_release_does_not_warm_a_worker,
     "G7 a worker that has released is not taken for a warm one") {
  struct door doors[2] = { DOOR_CLOSED, DOOR_CLOSED };
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = 300 * IDLESCHED_MS);
  keep_busy(pool, &doors[0], 1);
  keep_busy(pool, &doors[1], 1);
  door_open(&doors[0]);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  door_open(&doors[1]);
  WAIT_UNTIL(stats_of(pool).parked == 2, SOON_MS);
  CHECK_EQ_INT(run_and_tell_worker(pool), 1);
  WAIT_UNTIL(stats_of(pool).parked == 2, SOON_MS);
  destroy(pool);
}

SPEC(cold_workers_time_out, "G7 workers that are not needed time out while one has work") {
  idlesched_pool *pool = POOL(.workers_max = 3, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_S);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 3), 0);
  WAIT_UNTIL((run_one_job(pool), stats_of(pool).exits == 2), SOON_MS);
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  CHECK_EQ_U64(stats_of(pool).starts, 3);
  destroy(pool);
}

SPEC(a_worker_is_busy_from_its_wake, "C15 a worker counts as busy from the moment it got a job") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_AT_ONCE, WITH_STATE);
  hold_at(IN_RELEASE);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count(IN_RELEASE) == 1, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).active, 0);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(stats_of(pool).active, 1);
  CHECK_EQ_INT(stats_of(pool).running, 0);
  hold_open(IN_RELEASE);
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
  destroy(pool);
}
