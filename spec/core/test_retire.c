/* SPDX-License-Identifier: MIT */
/*
 * test_retire.c - workers that retire, on real threads.  (The order of things:
 * test_sim_retire.c.)
 */
#include "plat_fault.h"
#include "pool_kit.h"

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

static _Atomic unsigned starts_count, stops_count;

static void note_start(idlesched_worker *worker, void *context) {
  CHECK_EQ_PTR(idlesched_worker_data(worker), NULL);
  atomic_fetch_add(&starts_count, 1);
  give_data(worker, context);
}

static void note_stop(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  atomic_fetch_add(&stops_count, 1);
}

/* ------------------------------------------------------------------ dedicated */

SPEC(five_dedicated_jobs_leave_no_worker, "C1 C2 after 5 dedicated jobs 0 workers are left") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 3, .is_dedicated = true,
                              .hooks = { .start = note_start, .stop = note_stop });
  for (unsigned i = 0; i < 5; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  WAIT_UNTIL(stats_of(pool).retires == 5, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).threads, 0);
  CHECK_EQ_INT(count, 5);
  CHECK_EQ_INT(starts_count, 5);
  CHECK_EQ_INT(stops_count, 5);
  CHECK_EQ_U64(stats_of(pool).exits, 0);
  destroy(pool);
}

SPEC(many_dedicated_jobs, "C1 C10 a thousand dedicated jobs, one after another and at once") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 4, .is_dedicated = true);
  for (unsigned i = 0; i < 1000; i++) {
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    if (i % 3 == 0)
      CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  }
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  WAIT_UNTIL(stats_of(pool).retires == 1000, SOON_MS);
  CHECK_EQ_INT(count, 1000);
  destroy(pool);
}

/* --------------------------------------------------------------------- retire */

static void retire_own_worker(void *count) {
  count_up(count);
  idlesched_worker_retire(idlesched_worker_current());
}

SPEC(a_retiring_worker_meets_more_work,
     "C11 C18 what is queued behind a job that retires its worker is not stranded") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_exit_ns = IDLESCHED_NEVER,
                              .hooks = { .start = note_start, .stop = note_stop });
  for (unsigned i = 0; i < 200; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, i % 2 == 0 ? retire_own_worker : count_up, &count),
                   0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
  CHECK_EQ_INT(count, 200);
  WAIT_UNTIL(stats_of(pool).retires == 100, SOON_MS);
  CHECK_EQ_INT(stops_count, 100);
  destroy(pool);
}

SPEC(a_parked_worker_is_told_to_retire, "C11 a parked worker leaves at once when it is told to") {
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_exit_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 2), 0);
  WAIT_UNTIL(stats_of(pool).parked == 2, SOON_MS);
  idlesched_worker_retire(pool->group.workers[1]);
  WAIT_UNTIL(stats_of(pool).retires == 1, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  idlesched_worker_retire(pool->group.workers[1]); /* nobody is there */
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  destroy(pool);
}

static void retire_at_start(idlesched_worker *worker, void *context) {
  note_start(worker, context);
  idlesched_worker_retire(worker);
}

/* It was asserted that a worker with a ticket does not retire, while it could be told to. */
SPEC(a_worker_retires_while_it_starts,
     "C11 a worker that is only starting does not retire, be its thread new or not") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_exit_ns = IDLESCHED_MS,
                              .hooks = { .start = retire_at_start, .stop = note_stop });
  hold_at("worker.stop");
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count("worker.stop") == 1, SOON_MS);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0); /* it stays, and starts anew */
  hold_open("worker.stop");
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
  CHECK_EQ_INT(count, 1);
  CHECK_EQ_INT(starts_count, 2);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).retires, 0);
  destroy(pool);
}

/* -------------------------------------------- a done callback that submits again */

struct again {
  idlesched_job job;
  idlesched_pool *pool;
  _Atomic unsigned count;
  bool retires;
};

static int run_again(idlesched_job *job, idlesched_worker *worker) {
  struct again *self = job->context;
  if (self->retires)
    idlesched_worker_retire(worker);
  return 0;
}

static void done_again(idlesched_job *job) {
  struct again *self = job->context;
  if (atomic_fetch_add(&self->count, 1) + 1 < 20)
    CHECK_EQ_INT(idlesched_pool_submit_job(self->pool, job), 0);
}

static void run_twenty_times(idlesched_pool *pool, bool retires) {
  struct again again = { .pool = pool, .retires = retires };
  again.job = (idlesched_job){ .run = run_again, .done = done_again, .context = &again };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &again.job), 0);
  WAIT_UNTIL(again.count == 20, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
}

SPEC(a_chain_of_jobs_stays_on_its_worker,
     "C10 a job submitted by the done callback of the last runs on the same worker") {
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_exit_ns = IDLESCHED_NEVER);
  run_twenty_times(pool, false);
  CHECK_EQ_U64(stats_of(pool).wakes, 1);
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  destroy(pool);
}

SPEC(a_chain_of_jobs_changes_workers, "C10 C11 unless that one retires, or the pool is dedicated") {
  for (unsigned i = 0; i < 2; i++) {
    idlesched_pool *pool = POOL(.workers_max = 2, .is_dedicated = i == 1);
    run_twenty_times(pool, i == 0);
    WAIT_UNTIL(stats_of(pool).retires == 20, SOON_MS);
    destroy(pool);
  }
}
