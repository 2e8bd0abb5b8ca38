/* SPDX-License-Identifier: MIT */
/*
 * test_refused.c - the system refuses a thread: no job is lost, and none is kept of
 * which the submit said that it failed.
 *
 * Method: plat_fault refuses thread starts by number, and holds one until everything
 * else is where the case wants it.  Each case ends with a count of what is left.  What
 * else can be refused is in test_fault.c.
 */
#include <errno.h>

#include "plat_fault.h"
#include "pool_kit.h"

static int do_nothing(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return 0;
}

struct submit_call {
  idlesched_pool *pool;
  idlesched_job job;
  int status;
};

static void *submit(void *context) {
  struct submit_call *self = context;
  self->status = idlesched_pool_submit_job(self->pool, &self->job);
  return NULL;
}

/* A submit on a thread of its own that stands where it asks the system for a thread. */
static pthread_t submit_held(struct submit_call *call) {
  hold_at("worker.thread");
  pthread_t thread = thread_run(submit, call);
  WAIT_UNTIL(hold_count("worker.thread") == 1, SOON_MS);
  return thread;
}

/* Accepted means run, refused means as if never submitted. */
static void check_ran_or_refused(const struct submit_call *call) {
  if (call->status == 0) {
    CHECK_EQ_INT(idlesched_job_wait((idlesched_job *)&call->job, SOON_MS * IDLESCHED_MS), 0);
    CHECK_EQ_INT(idlesched_job_state_read(&call->job), IDLESCHED_JOB_DONE);
  } else {
    CHECK_EQ_INT(call->status, -EAGAIN);
    CHECK_EQ_INT(idlesched_job_state_read(&call->job), IDLESCHED_JOB_NEW);
  }
}

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* ------------------------------------------------------- the first worker */

SPEC(the_first_thread_refused_is_an_error,
     "G2 no thread at all: the submit fails and keeps nothing") {
  idlesched_pool *pool = POOL(.workers_max = 2);
  idlesched_job job = { .run = do_nothing };
  _Atomic unsigned count = 0;
  fault_refuse("worker.thread", 1, 2);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -EAGAIN);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), -EAGAIN);

  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_NEW);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), -EINVAL);
  CHECK_EQ_INT(idlesched_pool_wait(pool, 0), 0);
  idlesched_pool_stats stats = stats_of(pool);
  CHECK_EQ_U64(stats.jobs_submitted, 0);
  CHECK_EQ_U64(stats.jobs_queued, 0);
  CHECK_EQ_INT(stats.threads, 0);
  CHECK_EQ_U64(stats.starts, 0);
  CHECK_EQ_U64(stats.starts_refused, 2);
  check_tickets_add_up(pool);

  /* Retried at the next submit. */
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(count, 0);
  CHECK_EQ_U64(stats_of(pool).starts, 1);
  destroy(pool);
}

/* Both submit at the same moment; the second may not rely on the thread that the
 * first is asking for.  0, 1 or 2 of the requests are refused. */
static void submit_two_with_refusals(unsigned refusals) {
  idlesched_pool *pool = POOL(.workers_max = 2);
  struct submit_call first = { .pool = pool, .job = { .run = do_nothing }, .status = 1 };
  struct submit_call second = first;
  fault_refuse("worker.thread", refusals > 0, refusals);
  pthread_t first_thread = submit_held(&first);
  pthread_t second_thread = thread_run(submit, &second);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  CHECK_EQ_INT(second.status, 1);

  hold_open("worker.thread");
  thread_result(first_thread);
  thread_result(second_thread);
  check_ran_or_refused(&first);
  check_ran_or_refused(&second);
  CHECK_EQ_INT((first.status != 0) + (second.status != 0), refusals);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 2 - refusals);
  destroy(pool);
}

SPEC(two_submit_and_the_thread_comes, "G2 two submit at once, the first thread comes: both run") {
  submit_two_with_refusals(0);
}

SPEC(two_submit_and_one_is_refused,
     "G2 two submit at once, the first thread is refused: one runs") {
  submit_two_with_refusals(1);
}

SPEC(two_submit_and_both_are_refused, "G2 two submit at once, both threads refused: two errors") {
  submit_two_with_refusals(2);
}

static void *wait_for_job(void *context) {
  static int status;
  status = idlesched_job_wait(context, IDLESCHED_NEVER);
  return &status;
}

SPEC(a_waiter_learns_that_the_submit_failed, "G2 who waits for a job that is taken back is told") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct submit_call call = { .pool = pool, .job = { .run = do_nothing } };
  fault_refuse("worker.thread", 1, 1);
  pthread_t submitter = submit_held(&call);
  pthread_t waiter = thread_run(wait_for_job, &call.job);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  hold_open("worker.thread");
  thread_result(submitter);
  CHECK_EQ_INT(*(int *)thread_result(waiter), -EINVAL);
  CHECK_EQ_INT(call.status, -EAGAIN);
  destroy(pool);
}

static void *wait_for_job_late(void *context) {
  hold_my_next_lock();
  return wait_for_job(context);
}

/* The waiter saw the job queued, and comes to the lock when it has been taken back. */
SPEC(a_late_waiter_learns_that_the_submit_failed, "G2 who comes late to a job taken back is told") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct submit_call call = { .pool = pool, .job = { .run = do_nothing } };
  fault_refuse("worker.thread", 1, 1);
  pthread_t submitter = submit_held(&call);
  pthread_t waiter = thread_run(wait_for_job_late, &call.job);
  WAIT_UNTIL(hold_count("lock") == 1, SOON_MS);
  hold_open("worker.thread");
  thread_result(submitter);
  CHECK_EQ_INT(call.status, -EAGAIN);
  hold_open("lock");
  CHECK_EQ_INT(*(int *)thread_result(waiter), -EINVAL);
  destroy(pool);
}

/* --------------------------------------------------------- a later worker */

SPEC(a_later_thread_refused_is_no_error, "G2 a worker is there: the job waits for it") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 4);
  keep_busy(pool, &door, 1);
  fault_refuse("worker.thread", 1, FAULT_FOR_EVER);
  for (int i = 0; i < 5; i++)
    CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  /* Each submit asks again. */
  CHECK_EQ_INT(fault_refused_count(), 5);
  CHECK_EQ_U64(stats_of(pool).starts_refused, 5);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 5);
  CHECK_EQ_INT(count, 0);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(count, 5);
  CHECK_EQ_U64(stats_of(pool).starts, 1);
  destroy(pool);
}

SPEC(the_next_submit_asks_again, "G2 the next submit asks again, and that worker takes its share") {
  struct door door = DOOR_CLOSED, other_door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 4);
  keep_busy(pool, &door, 1);
  fault_refuse("worker.thread", 1, 1);
  CHECK_EQ_INT(idlesched_pool_submit(pool, door_pass, &other_door), 0);
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  CHECK_EQ_INT(idlesched_pool_submit(pool, door_pass, &other_door), 0);
  WAIT_UNTIL(door_inside_count(&other_door) == 2, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).starts, 3);
  door_open(&door);
  door_open(&other_door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  destroy(pool);
}

/* One worker, held at a place outside its job while a second is refused: the job must
 * come to the first, as a ticket or at its next poll. */
static void refuse_while_worker_is_at(const char *place, const idlesched_pool_config *config) {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = pool_new(config);
  hold_at(place);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count(place) == 1, SOON_MS);
  fault_refuse("worker.thread", 1, FAULT_FOR_EVER);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(fault_refused_count(), 1);
  CHECK_EQ_INT(stats_of(pool).tickets, 1);
  hold_open(place);
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
  CHECK_EQ_INT(count, 1);
  CHECK_EQ_U64(stats_of(pool).starts, 1);
  destroy(pool);
}

SPEC(refused_while_the_worker_releases,
     "G2 refused while the only worker releases: it takes the job") {
  refuse_while_worker_is_at("worker.collect",
                            &(idlesched_pool_config){ .workers_max = 2,
                                                      WITH_STATE,
                                                      .idle_release_ns = IDLESCHED_AT_ONCE,
                                                      .idle_exit_ns = IDLESCHED_NEVER });
}

SPEC(refused_while_the_worker_leaves,
     "G2 refused while the only worker leaves: it stays for the job") {
  refuse_while_worker_is_at("worker.stop",
                            &(idlesched_pool_config){ .workers_max = 2,
                                                      .idle_release_ns = IDLESCHED_NEVER,
                                                      .idle_exit_ns = IDLESCHED_AT_ONCE });
}

/* The worker there was has taken the job while a second thread was asked for, and what
 * it then does is the case's choice; the refusal finds nothing to take back. */
struct late_refusal {
  idlesched_pool *pool;
  struct submit_call call;
  struct door door;
  pthread_t submitter;
};

static void late_refusal_begin(struct late_refusal *self, uint64_t idle_exit_ns) {
  *self = (struct late_refusal){ .door = DOOR_CLOSED,
                                 .pool = POOL(.workers_max = 2, .idle_exit_ns = idle_exit_ns) };
  self->call = (struct submit_call){ .pool = self->pool, .job = { .run = do_nothing } };
  keep_busy(self->pool, &self->door, 1);
  fault_refuse("worker.thread", 1, FAULT_FOR_EVER);
  self->submitter = submit_held(&self->call);
}

static void late_refusal_end(struct late_refusal *self) {
  hold_open("worker.thread");
  thread_result(self->submitter);
  CHECK_EQ_INT(self->call.status, 0);
  CHECK_EQ_INT(fault_refused_count(), 1);
  check_tickets_add_up(self->pool);
  fault_refuse(FAULT_ANY_SITE, 0, 0);
}

SPEC(refused_when_the_worker_has_parked, "G2 refused late: the worker ran the job and has parked") {
  struct late_refusal late;
  late_refusal_begin(&late, IDLESCHED_NEVER);
  door_open(&late.door);
  WAIT_UNTIL(stats_of(late.pool).parked == 1, SOON_MS);
  late_refusal_end(&late);
  check_ran_or_refused(&late.call);
  run_one_job(late.pool);
  destroy(late.pool);
}

SPEC(refused_when_the_worker_has_left, "G2 refused late: the worker ran the job and has left") {
  struct late_refusal late;
  late_refusal_begin(&late, IDLESCHED_AT_ONCE);
  door_open(&late.door);
  WAIT_UNTIL(stats_of(late.pool).exits == 1, SOON_MS);
  late_refusal_end(&late);
  check_ran_or_refused(&late.call);
  run_one_job(late.pool);
  destroy(late.pool);
}

SPEC(refused_when_the_pool_was_drained,
     "G2 refused late: the pool was drained and closed meanwhile") {
  struct late_refusal late;
  idlesched_close_report report;
  late_refusal_begin(&late, IDLESCHED_NEVER);
  door_open(&late.door);
  /* The thread that is being asked for is on nobody's way: close does not wait for it. */
  CHECK_EQ_INT(idlesched_pool_close(late.pool, IDLESCHED_CLOSE_DRAIN, 50 * IDLESCHED_MS, &report),
               -ETIMEDOUT);
  CHECK_EQ_INT(report.dropped_count, 0);
  late_refusal_end(&late);
  check_ran_or_refused(&late.call);
  destroy(late.pool);
}

SPEC(refused_when_the_job_was_dropped, "G2 refused late: a close has dropped the job meanwhile") {
  struct late_refusal late;
  late_refusal_begin(&late, IDLESCHED_NEVER);
  idlesched_close_report report;
  CHECK_EQ_INT(idlesched_pool_close(late.pool, IDLESCHED_CLOSE_CANCEL, 50 * IDLESCHED_MS, &report),
               -ETIMEDOUT);
  CHECK_EQ_INT(report.dropped_count, 1);
  door_open(&late.door);
  WAIT_UNTIL(stats_of(late.pool).threads == 1, SOON_MS); /* the one that is asked for */
  late_refusal_end(&late);
  CHECK_EQ_INT(idlesched_job_state_read(&late.call.job), IDLESCHED_JOB_CANCELLED);
  CHECK_EQ_INT(stats_of(late.pool).threads, 0);
  destroy(late.pool);
}

static void *close_draining(void *pool) {
  static int status;
  status = idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL);
  return &status;
}

/* It may not stop the pool while a submit does not know whether it keeps its job. */
static void close_while_the_first_thread_is_asked_for(unsigned refusals) {
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct submit_call call = { .pool = pool, .job = { .run = do_nothing } };
  fault_refuse("worker.thread", refusals, refusals);
  pthread_t submitter = submit_held(&call);
  pthread_t closer = thread_run(close_draining, pool);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  hold_open("worker.thread");
  thread_result(submitter);
  CHECK_EQ_INT(*(int *)thread_result(closer), 0);
  CHECK_EQ_INT(call.status, refusals == 0 ? 0 : -EAGAIN);
  check_ran_or_refused(&call);
  destroy(pool);
}

SPEC(close_while_the_first_thread_comes, "G3 a close while the first thread starts: the job runs") {
  close_while_the_first_thread_is_asked_for(0);
}

SPEC(close_while_the_first_thread_is_refused,
     "G3 a close while the first thread is refused: no job") {
  close_while_the_first_thread_is_asked_for(1);
}

/* ------------------------------------------------- starting ahead, visits */

SPEC(start_workers_refused, "G2 start_workers tells how the system refused, and keeps what came") {
  idlesched_pool *pool = POOL(.workers_max = 4);
  fault_refuse("worker.thread", 3, FAULT_FOR_EVER);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 4), -EAGAIN);
  WAIT_UNTIL(stats_of(pool).parked == 2, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).threads, 2);
  CHECK_EQ_U64(stats_of(pool).starts_refused, 1);
  fault_refuse(FAULT_ANY_SITE, 0, 0);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
  WAIT_UNTIL(stats_of(pool).parked == 4, SOON_MS);
  destroy(pool);
}

static void *release(void *context) {
  static idlesched_release_report report;
  (void)idlesched_pool_release(context, SOON_MS * IDLESCHED_MS, &report);
  return &report;
}

/* The visit was asked of a worker that turned out to have no thread. */
SPEC(a_release_does_not_wait_for_a_refused_thread,
     "G2 a release does not wait for a refused thread") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct submit_call call = { .pool = pool, .job = { .run = do_nothing } };
  fault_refuse("worker.thread", 1, 1);
  pthread_t submitter = submit_held(&call);
  pthread_t releaser = thread_run(release, pool);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  hold_open("worker.thread");
  thread_result(submitter);
  const idlesched_release_report *report = thread_result(releaser);
  CHECK_EQ_INT(report->missed_count, 0);
  CHECK_LT_U64(report->time_ns, SOON_MS * IDLESCHED_MS / 2);
  destroy(pool);
}
