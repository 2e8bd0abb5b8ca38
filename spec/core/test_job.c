/* SPDX-License-Identifier: MIT */
/*
 * test_job.c - a job goes through its states, ends once, and tells everybody.
 *
 * Method: doors keep jobs where they are to be looked at; the waits are made by threads
 * of the case, which are seen in the job's list of waiters before the job may go on.
 */
#include "job.h"

#include <errno.h>
#include <stdlib.h>

#include "plat_fault.h"
#include "pool_kit.h"

static int return_context(idlesched_job *job, idlesched_worker *worker) {
  CHECK_EQ_PTR(worker, idlesched_worker_current());
  return (int)(intptr_t)job->context;
}

static void run_to_the_end(idlesched_pool *pool, idlesched_job *job) {
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, job), 0);
  REQUIRE_EQ_INT(idlesched_job_wait(job, IDLESCHED_NEVER), 0);
  /* Who waits for the job is told before the pool has counted it. */
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
}

/* Waiting threads in the job's list. */
static unsigned waiters_count(idlesched_pool *pool, const idlesched_job *job) {
  unsigned count = 0;
  ids_group_lock(&pool->group);
  /* A waiter begins with its link to the next. */
  for (void **waiter = job->waiters_; waiter != NULL; waiter = *waiter)
    count++;
  ids_group_unlock(&pool->group);
  return count;
}

SPEC(a_job_goes_from_new_to_done, "G4 a job goes from new to queued to running to done") {
  struct door first = DOOR_CLOSED, second = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = door_pass_job, .context = &second };
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_NEW);
  CHECK_EQ_INT(idlesched_job_wait(&job, 0), -EINVAL);

  keep_busy(pool, &first, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_QUEUED);
  CHECK_EQ_INT(idlesched_job_status(&job), 0);

  door_open(&first);
  WAIT_UNTIL(door_inside_count(&second) == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_RUNNING);
  CHECK_EQ_INT(idlesched_job_status(&job), 0);

  door_open(&second);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_DONE);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(what_run_returns_decides, "G4 what run returns decides between done and failed") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  static const int results[] = { 0, 1, INT32_MAX, -1, -EIO, INT32_MIN };
  for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
    idlesched_job job = { .run = return_context, .context = (void *)(intptr_t)results[i] };
    run_to_the_end(pool, &job);
    CHECK_EQ_INT(idlesched_job_state_read(&job),
                 results[i] < 0 ? IDLESCHED_JOB_FAILED : IDLESCHED_JOB_DONE);
    CHECK_EQ_INT(idlesched_job_status(&job), results[i]);
  }
  CHECK_EQ_U64(stats_of(pool).jobs_done, 3);
  CHECK_EQ_U64(stats_of(pool).jobs_failed, 3);
  idlesched_pool_destroy(pool);
}

SPEC(a_job_is_not_queued_twice, "G4 a job that is queued or running is refused, and runs once") {
  struct door first = DOOR_CLOSED, second = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = door_pass_job, .context = &second };
  keep_busy(pool, &first, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -EALREADY);
  door_open(&first);
  WAIT_UNTIL(door_inside_count(&second) == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -EALREADY);
  door_open(&second);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_U64(stats_of(pool).jobs_submitted, 2);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 2);
  idlesched_pool_destroy(pool);
}

SPEC(an_ended_job_can_run_again, "G4 a job that has ended can be submitted again") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = return_context, .context = (void *)(intptr_t)-7 };
  run_to_the_end(pool, &job);
  job.context = (void *)(intptr_t)3;
  run_to_the_end(pool, &job);
  CHECK_EQ_INT(idlesched_job_status(&job), 3);
  CHECK_EQ_U64(stats_of(pool).jobs_failed, 1);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 1);
  idlesched_pool_destroy(pool);
}

SPEC(a_wait_has_a_limit, "G4 a wait that is over leaves the job as it is") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = door_pass_job, .context = &door };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_wait(&job, 0), -ETIMEDOUT);
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_job_wait(&job, 30 * IDLESCHED_MS), -ETIMEDOUT);
  CHECK_GE_U64(spec_now_ns() - before_ns, 30 * IDLESCHED_MS);
  CHECK_EQ_INT(waiters_count(pool, &job), 0);
  door_open(&door);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

struct wait_call {
  idlesched_job *job;
  uint64_t timeout_ns;
  int status;
};

static void *wait_for_job(void *context) {
  struct wait_call *self = context;
  self->status = idlesched_job_wait(self->job, self->timeout_ns);
  return NULL;
}

SPEC(every_waiter_is_told, "G4 every waiter is told; one whose time is over leaves the others") {
  enum { WAITERS = 5 };
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  /* The first to leave it, whoever that is, gives it back: the others must not look. */
  idlesched_job *job = malloc(sizeof *job);
  *job = (idlesched_job){ .run = door_pass_job, .context = &door };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, job), 0);

  struct wait_call calls[WAITERS];
  pthread_t threads[WAITERS];
  for (unsigned i = 0; i < WAITERS; i++) {
    /* One in the middle of the list and one at its end give up. */
    bool gives_up = i == 0 || i == 2;
    calls[i] = (struct wait_call){ job, gives_up ? 1500 * IDLESCHED_MS : IDLESCHED_NEVER, 1 };
    threads[i] = thread_run(wait_for_job, &calls[i]);
    WAIT_UNTIL(waiters_count(pool, job) == i + 1, SOON_MS);
  }
  thread_result(threads[0]);
  thread_result(threads[2]);
  CHECK_EQ_INT(calls[0].status, -ETIMEDOUT);
  CHECK_EQ_INT(calls[2].status, -ETIMEDOUT);
  WAIT_UNTIL(waiters_count(pool, job) == WAITERS - 2, SOON_MS);

  door_open(&door);
  thread_result(threads[3]);
  free(job);
  thread_result(threads[1]);
  thread_result(threads[4]);
  CHECK_EQ_INT(calls[1].status, 0);
  CHECK_EQ_INT(calls[3].status, 0);
  CHECK_EQ_INT(calls[4].status, 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

static void *wait_with_an_old_state(void *context) {
  hold_my_next_load();
  return wait_for_job(context);
}

SPEC(a_wait_that_meets_the_end, "G4 a wait that meets the end of the job is told that it ended") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = door_pass_job, .context = &door };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  struct wait_call call = { &job, IDLESCHED_NEVER, 1 };
  pthread_t waiter = thread_run(wait_with_an_old_state, &call);
  WAIT_UNTIL(hold_count("load") == 1, SOON_MS);
  door_open(&door);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  hold_open("load"); /* it has read "running", and reads on */
  thread_result(waiter);
  CHECK_EQ_INT(call.status, 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* ------------------------------------------------------- the done callback */

struct owned_job {
  idlesched_job job;
  _Atomic unsigned *freed_count;
};

static void free_job(idlesched_job *job) {
  struct owned_job *self = ids_container_of(job, struct owned_job, job);
  CHECK_EQ_INT(idlesched_job_state_read(job), IDLESCHED_JOB_DONE);
  count_up(self->freed_count);
  free(self);
}

SPEC(the_done_callback_may_free_the_job, "G4 the done callback is the last touch: it may free") {
  _Atomic unsigned freed_count = 0;
  idlesched_pool *pool = POOL(.workers_max = 2);
  for (unsigned i = 0; i < 200; i++) {
    struct owned_job *owned = malloc(sizeof *owned);
    *owned = (struct owned_job){ { .run = return_context, .done = free_job }, &freed_count };
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &owned->job), 0);
  }
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(freed_count, 200);
  idlesched_pool_destroy(pool);
}

struct chained_job {
  idlesched_job job;
  idlesched_pool *pool;
  unsigned runs_left;
  _Atomic unsigned done_count;
};

static void submit_again(idlesched_job *job) {
  struct chained_job *self = ids_container_of(job, struct chained_job, job);
  count_up(&self->done_count);
  if (--self->runs_left > 0)
    CHECK_EQ_INT(idlesched_pool_submit_job(self->pool, job), 0);
}

SPEC(the_done_callback_may_submit_again, "G4 the done callback may submit the job again") {
  struct chained_job chained = {
    { .run = return_context, .done = submit_again }, POOL(.workers_max = 2), 100, 0
  };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(chained.pool, &chained.job), 0);
  /* The pool is not idle between two runs: one ends after the next was queued. */
  CHECK_EQ_INT(idlesched_pool_wait(chained.pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(chained.done_count, 100);
  CHECK_EQ_U64(stats_of(chained.pool).jobs_done, 100);
  idlesched_pool_destroy(chained.pool);
}

static int do_nothing(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return 0;
}

static void pass_door_when_done(idlesched_job *job) {
  door_pass(job->context);
}

SPEC(stats_add_up_while_a_done_callback_runs, "N5 the counts of jobs add up during a callback") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = do_nothing, .done = pass_door_when_done, .context = &door };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);

  /* Waiters have been told, and the pool is not idle yet. */
  CHECK_EQ_INT(idlesched_job_wait(&job, 0), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, 0), -ETIMEDOUT);
  check_stats_add_up(pool);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  check_stats_add_up(pool);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 1);
  idlesched_pool_destroy(pool);
}

/* ------------------------------------------------------------- wrong calls */

static int wait_for_itself(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  return idlesched_job_wait(job, IDLESCHED_NEVER);
}

SPEC(a_job_does_not_wait_for_itself, "G9 a job's wait for itself is refused") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = wait_for_itself };
  run_to_the_end(pool, &job);
  CHECK_EQ_INT(idlesched_job_status(&job), -EDEADLK);
  idlesched_pool_destroy(pool);
}

static int wait_for_context(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  return idlesched_job_wait(job->context, IDLESCHED_NEVER);
}

SPEC(a_job_may_wait_for_another_pool, "G9 a wait from a job of another pool is none of it") {
  idlesched_pool *pool = POOL(.workers_max = 1), *other = POOL(.workers_max = 1);
  idlesched_job inner = { .run = return_context, .context = (void *)(intptr_t)5 };
  idlesched_job outer = { .run = wait_for_context, .context = &inner };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(other, &inner), 0);
  run_to_the_end(pool, &outer);
  CHECK_EQ_INT(idlesched_job_status(&outer), 0);
  CHECK_EQ_INT(idlesched_job_status(&inner), 5);
  idlesched_pool_destroy(pool);
  idlesched_pool_destroy(other);
}

static _Atomic unsigned runs_count;
static pthread_barrier_t both_submit;

static int count_run(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  runs_count++;
  return 0;
}

struct rival {
  idlesched_pool *pool;
  idlesched_job *job;
  unsigned accepted_count;
};

enum { ROUNDS = 3000 };

static void *submit_beside_a_rival(void *context) {
  struct rival *self = context;
  for (unsigned i = 0; i < ROUNDS; i++) {
    pthread_barrier_wait(&both_submit);
    int status = idlesched_pool_submit_job(self->pool, self->job);
    self->accepted_count += status == 0;
    REQUIRE(status == 0 || status == -EALREADY);
    pthread_barrier_wait(&both_submit);
    WAIT_UNTIL(ids_job_has_ended(self->job), SOON_MS);
  }
  return NULL;
}

SPEC(two_pools_do_not_take_the_same_job, "G4 of two pools that are given one job, one takes it") {
  idlesched_job job = { .run = count_run };
  pthread_barrier_init(&both_submit, NULL, 2);
  struct rival rivals[2];
  pthread_t threads[2];
  for (unsigned i = 0; i < 2; i++) {
    rivals[i] = (struct rival){ .pool = POOL(.workers_max = 1), .job = &job };
    threads[i] = thread_run(submit_beside_a_rival, &rivals[i]);
  }
  for (unsigned i = 0; i < 2; i++)
    thread_result(threads[i]);
  CHECK_EQ_INT(runs_count, rivals[0].accepted_count + rivals[1].accepted_count);
  CHECK_GE_INT(runs_count, ROUNDS);
  idlesched_pool_destroy(rivals[0].pool);
  idlesched_pool_destroy(rivals[1].pool);
}

SPEC(a_job_ends_once, "G4 a second end of a job is an assertion",
     .aborts_with = "IDLESCHED_JOB_QUEUED || ids_job_state(self) == IDLESCHED_JOB_RUNNING") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = return_context };
  run_to_the_end(pool, &job);
  ids_group_lock(&pool->group);
  ids_job_end_locked(&job, IDLESCHED_JOB_DONE, 0);
}
