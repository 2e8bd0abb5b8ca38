/* SPDX-License-Identifier: MIT */
/*
 * test_cancel.c - which job is begun next, and those that are not wanted any more: one by one,
 * or all that have a token.
 *
 * Method: one worker, busy behind a door, so that what is to be cancelled stays queued.
 */
#include <errno.h>
#include <stdlib.h>

#include "plat_fault.h"
#include "pool_kit.h"

static struct door door = DOOR_CLOSED;

static idlesched_pool *busy_pool(void) {
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 1);
  return pool;
}

static void destroy(idlesched_pool *pool) {
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  check_stats_add_up(pool);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

static int must_not_run(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  FAIL("a cancelled job ran");
}

static int do_nothing(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return 0;
}

static unsigned done_count;
static pthread_t done_thread;

static void count_done(idlesched_job *job) {
  CHECK_EQ_INT(idlesched_job_state_read(job), IDLESCHED_JOB_CANCELLED);
  CHECK_EQ_INT(idlesched_job_status(job), -ECANCELED);
  done_thread = pthread_self();
  done_count++;
}

/* ----------------------------------------------------------------- priorities */

static unsigned order[32], order_count;

static int note_order(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  order[order_count++] = (unsigned)(uintptr_t)job->context;
  return 0;
}

static void note_plain(void *context) {
  order[order_count++] = (unsigned)(uintptr_t)context;
}

SPEC(higher_priorities_first, "G4 jobs of a higher priority are begun before all others") {
  static const int priorities[] = { 0, -7, 7, 1, -7, 7, 0, -1, 1 };
  static const unsigned expected[] = { 2, 5, 3, 8, 0, 9, 6, 7, 1, 4 };
  enum { JOBS = sizeof priorities / sizeof priorities[0] };
  idlesched_job jobs[JOBS];
  idlesched_pool *pool = busy_pool();
  for (unsigned i = 0; i < JOBS; i++) {
    jobs[i] = (idlesched_job){ .run = note_order,
                               .context = (void *)(uintptr_t)i,
                               .priority = priorities[i] };
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &jobs[i]), 0);
    if (i == 4)
      REQUIRE_EQ_INT(idlesched_pool_submit(pool, note_plain, (void *)(uintptr_t)JOBS), 0);
  }
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(order_count, JOBS + 1);
  for (unsigned i = 0; i <= JOBS; i++)
    CHECK_EQ_INT(order[i], expected[i]);
  destroy(pool);
}

SPEC(priorities_have_a_range, "G4 a priority out of range is refused") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = do_nothing, .priority = IDLESCHED_PRIORITY_MOST + 1 };
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -EINVAL);
  job.priority = -IDLESCHED_PRIORITY_MOST - 1;
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -EINVAL);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_NEW);
  job.run = NULL;
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -EINVAL);
  destroy(pool);
}

/* --------------------------------------------------------------------- cancel */

SPEC(a_queued_job_is_cancelled,
     "G4 a queued job that is cancelled ends at once, on this thread, and never runs") {
  idlesched_pool *pool = busy_pool();
  idlesched_job job = { .run = must_not_run, .done = count_done };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_cancel(&job), 0);
  CHECK_EQ_INT(done_count, 1);
  CHECK(pthread_equal(done_thread, pthread_self()));
  CHECK_EQ_INT(idlesched_job_wait(&job, 0), 0);
  CHECK_EQ_INT(idlesched_job_cancel(&job), -EALREADY);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 0);
  CHECK_EQ_U64(stats_of(pool).jobs_cancelled, 1);
  door_open(&door);
  destroy(pool);
  CHECK_EQ_INT(done_count, 1);
}

static void free_when_done(idlesched_job *job) {
  done_count++;
  free(job);
}

SPEC(a_cancelled_job_is_its_owners, "G4 the done callback of a cancelled job may free it") {
  enum { JOBS = 2000 };
  idlesched_pool *pool = busy_pool();
  idlesched_job *jobs[JOBS];
  for (unsigned i = 0; i < JOBS; i++) {
    jobs[i] = malloc(sizeof *jobs[i]);
    *jobs[i] = (idlesched_job){ .run = must_not_run, .done = free_when_done };
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, jobs[i]), 0);
  }
  int64_t blocks = plat_balance().blocks;
  for (unsigned i = 0; i < JOBS; i++)
    CHECK_EQ_INT(idlesched_job_cancel(jobs[(i * 7) % JOBS]), 0);
  CHECK_EQ_INT(done_count, JOBS);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 0);
  CHECK_LE_INT(plat_balance().blocks, blocks - 3); /* the queue's segments are gone, too */
  door_open(&door);
  destroy(pool);
}

struct wait_call {
  idlesched_job *job;
  int status;
};

static void *wait_for_job(void *context) {
  struct wait_call *self = context;
  self->status = idlesched_job_wait(self->job, IDLESCHED_NEVER);
  return NULL;
}

SPEC(waiters_of_a_cancelled_job, "G4 whoever waits for a job is told when it is cancelled") {
  idlesched_pool *pool = busy_pool();
  idlesched_job job = { .run = must_not_run };
  struct wait_call call = { &job, 1 };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  pthread_t waiter = thread_run(wait_for_job, &call);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_job_cancel(&job), 0);
  thread_result(waiter);
  CHECK_EQ_INT(call.status, 0);
  CHECK_EQ_INT(idlesched_job_status(&job), -ECANCELED);
  door_open(&door);
  destroy(pool);
}

struct submit_call {
  idlesched_pool *pool;
  idlesched_job *job;
  int status;
};

static void *submit_job(void *context) {
  struct submit_call *self = context;
  self->status = idlesched_pool_submit_job(self->pool, self->job);
  return NULL;
}

static void *wait_for_pool(void *pool) {
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  return NULL;
}

/* The submit is held before it starts the first thread. */
static void cancel_before_the_thread(bool is_refused) {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = must_not_run, .done = count_done };
  struct submit_call call = { pool, &job, 1 };
  fault_refuse("worker.thread", is_refused, is_refused);
  hold_at("worker.start");
  pthread_t submitter = thread_run(submit_job, &call);
  WAIT_UNTIL(hold_count("worker.start") == 1, SOON_MS);
  pthread_t waiter = thread_run(wait_for_pool, pool);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_job_cancel(&job), 0);
  thread_result(waiter);
  hold_open("worker.start");
  thread_result(submitter);
  CHECK_EQ_INT(call.status, 0);
  CHECK_EQ_INT(fault_refused_count(), is_refused);
  WAIT_UNTIL(stats_of(pool).active == 0, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).threads, !is_refused);
  CHECK_EQ_U64(stats_of(pool).jobs_cancelled, 1);
  destroy(pool);
}

SPEC(the_last_job_is_cancelled, "G4 who waits for an idle pool is told by the last cancel") {
  cancel_before_the_thread(false);
}

SPEC(cancelled_and_refused,
     "G2 G4 a job cancelled before its thread is refused was taken in, and has ended") {
  cancel_before_the_thread(true);
}

static _Atomic bool has_seen_request;

static int stop_when_asked(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  door_pass(job->context);
  has_seen_request = idlesched_job_is_cancelled(job);
  return 5;
}

SPEC(a_running_job_is_asked, "G4 a running job is asked to stop, once for each time that it runs") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = stop_when_asked, .context = &door };
  CHECK_EQ_INT(idlesched_job_cancel(&job), -EALREADY);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  CHECK(!idlesched_job_is_cancelled(&job));
  CHECK_EQ_INT(idlesched_job_cancel(&job), -EBUSY);
  CHECK_EQ_INT(idlesched_job_cancel(&job), -EBUSY);
  door_open(&door);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK(has_seen_request);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_DONE);
  CHECK_EQ_INT(idlesched_job_status(&job), 5);
  CHECK_EQ_INT(idlesched_job_cancel(&job), -EALREADY);

  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK(!has_seen_request);
  CHECK_EQ_U64(stats_of(pool).jobs_cancelled, 0);
  destroy(pool);
}

static idlesched_job *to_cancel[3];
static int cancel_statuses[3];

static void cancel_the_others(idlesched_job *job) {
  CHECK_EQ_INT(idlesched_pool_audit(job->context, NULL), 0);
  for (unsigned i = 0; i < 3 && to_cancel[i] != NULL; i++)
    cancel_statuses[i] = idlesched_job_cancel(to_cancel[i]);
}

SPEC(cancelled_while_the_pool_drops,
     "G4 G3 what a close is about to drop can be cancelled before, and is dropped once") {
  idlesched_pool *pool = busy_pool();
  idlesched_job first = { .run = must_not_run, .done = cancel_the_others, .context = pool };
  idlesched_job second = { .run = must_not_run, .done = count_done };
  idlesched_job third = { .run = must_not_run };
  idlesched_job last = { .run = must_not_run, .done = count_done };
  idlesched_job *jobs[] = { &first, &second, &third, &last };
  for (unsigned i = 0; i < 4; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, jobs[i]), 0);
  to_cancel[0] = &second;
  to_cancel[1] = &last;
  to_cancel[2] = &third;
  idlesched_close_report report;
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, 1, &report), -ETIMEDOUT);
  for (unsigned i = 0; i < 3; i++)
    CHECK_EQ_INT(cancel_statuses[i], 0);
  CHECK_EQ_INT(done_count, 2);
  CHECK_EQ_U64(report.dropped_count, 1);
  CHECK_EQ_U64(stats_of(pool).jobs_cancelled, 4);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  destroy(pool);
}

/* --------------------------------------------------------------------- tokens */

SPEC(a_token_cancels_its_jobs,
     "G4 a token cancels the queued jobs that have it, in all pools, and no others") {
  enum { JOBS = 1200 };
  static idlesched_job jobs[2][JOBS];
  static _Atomic unsigned plain_count;
  idlesched_token token = { 0 }, second = { 0 };
  idlesched_pool *pools[2] = { busy_pool(), POOL(.workers_max = 1) };
  struct door other_door = DOOR_CLOSED;
  keep_busy(pools[1], &other_door, 1);
  for (unsigned p = 0; p < 2; p++) {
    for (unsigned i = 0; i < JOBS; i++) {
      bool has_token = i % 3 == 0;
      jobs[p][i] = (idlesched_job){ .run = has_token ? must_not_run : do_nothing,
                                    .done = i % 2 == 0 && has_token ? count_done : NULL,
                                    .token = has_token    ? &token
                                             : i % 3 == 1 ? &second
                                                          : NULL,
                                    .priority = (int)(i % 5) - 2 };
      REQUIRE_EQ_INT(idlesched_pool_submit_job(pools[p], &jobs[p][i]), 0);
    }
    REQUIRE_EQ_INT(idlesched_pool_submit(pools[p], count_up, &plain_count), 0);
  }
  CHECK(!idlesched_token_is_cancelled(&token));
  CHECK_EQ_U64(idlesched_token_cancel(&token), 2 * JOBS / 3);
  CHECK(idlesched_token_is_cancelled(&token));
  CHECK_EQ_INT(done_count, JOBS / 3);
  CHECK(pthread_equal(done_thread, pthread_self()));
  CHECK_EQ_U64(idlesched_token_cancel(&token), 0);
  for (unsigned p = 0; p < 2; p++)
    for (unsigned i = 0; i < JOBS; i += 3)
      CHECK_EQ_INT(idlesched_job_status(&jobs[p][i]), -ECANCELED);

  idlesched_job late = { .run = must_not_run, .token = &token };
  CHECK_EQ_INT(idlesched_pool_submit_job(pools[0], &late), -ECANCELED);
  CHECK_EQ_INT(idlesched_job_state_read(&late), IDLESCHED_JOB_NEW);
  CHECK(idlesched_job_is_cancelled(&late));
  door_open(&door);
  door_open(&other_door);
  for (unsigned p = 0; p < 2; p++) {
    CHECK_EQ_INT(idlesched_pool_wait(pools[p], IDLESCHED_NEVER), 0);
    CHECK_EQ_U64(stats_of(pools[p]).jobs_cancelled, JOBS / 3);
    idlesched_pool_destroy(pools[p]);
  }
  CHECK_EQ_INT(plain_count, 2);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_token_asks_running_jobs, "G4 a job that runs sees that its token is cancelled") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_token token = { 0 };
  idlesched_job job = { .run = stop_when_asked, .context = &door, .token = &token };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  CHECK(!idlesched_job_is_cancelled(&job));
  CHECK_EQ_U64(idlesched_token_cancel(&token), 0);
  door_open(&door);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK(has_seen_request);
  destroy(pool);
}

/* The callback of the first comes while the others are still to be ended. */
SPEC(cancelled_by_a_token_and_once_more,
     "G4 a job that its token has cancelled is not cancelled by another call") {
  idlesched_pool *pool = busy_pool();
  idlesched_token token = { 0 };
  idlesched_job first = {
    .run = must_not_run, .done = cancel_the_others, .context = pool, .token = &token
  };
  idlesched_job second = { .run = must_not_run, .done = count_done, .token = &token };
  idlesched_job third = { .run = must_not_run, .token = &token };
  idlesched_job *jobs[] = { &first, &second, &third };
  for (unsigned i = 0; i < 3; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, jobs[i]), 0);
  to_cancel[0] = &second;
  to_cancel[1] = &third;
  CHECK_EQ_U64(idlesched_token_cancel(&token), 3);
  CHECK_EQ_INT(cancel_statuses[0], -EALREADY);
  CHECK_EQ_INT(cancel_statuses[1], -EALREADY);
  CHECK_EQ_INT(idlesched_job_state_read(&third), IDLESCHED_JOB_CANCELLED);
  CHECK_EQ_INT(done_count, 1);
  door_open(&door);
  destroy(pool);
}
