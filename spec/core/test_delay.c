/* SPDX-License-Identifier: MIT */
/*
 * test_delay.c - delayed jobs and jobs that expire, on real threads: what callers see.  When
 * and in which order, to the nanosecond, is for test_sim_alarm.c.
 *
 * Method: doors keep workers busy; moments far away stand for never, and no case waits for one
 * but for those of some milliseconds that must come, which are waited for by state.
 */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plat_fault.h"
#include "pool_kit.h"

#define SOON_NS (20 * IDLESCHED_MS)
#define FAR_NS (1000 * IDLESCHED_S)

/* A job with its history. */
struct noted {
  idlesched_job job;
  _Atomic uint64_t began_at_ns;
  _Atomic unsigned order; /* 1 for the first that began */
  _Atomic unsigned dones_count;
  pthread_t done_by;
};
static _Atomic unsigned began_count;

static int note_begin(idlesched_job *job, idlesched_worker *worker) {
  struct noted *self = job->context;
  (void)worker;
  self->began_at_ns = idlesched_now_ns();
  self->order = ++began_count;
  return 0;
}

static void note_done(idlesched_job *job) {
  struct noted *self = job->context;
  self->done_by = pthread_self();
  self->dones_count++;
}

static void set(struct noted *self, uint64_t delay_ns, uint64_t expire_ns) {
  *self = (struct noted){ .job = { .run = note_begin,
                                   .done = note_done,
                                   .context = self,
                                   .delay_ns = delay_ns,
                                   .expire_ns = expire_ns } };
}

static void submit(idlesched_pool *pool, struct noted *self, uint64_t delay_ns,
                   uint64_t expire_ns) {
  set(self, delay_ns, expire_ns);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &self->job), 0);
}

static void check_cancelled(const struct noted *self, int status) {
  CHECK_EQ_INT(idlesched_job_state_read(&self->job), IDLESCHED_JOB_CANCELLED);
  CHECK_EQ_INT(idlesched_job_status(&self->job), status);
  CHECK_EQ_INT(self->dones_count, 1);
  CHECK_EQ_INT(self->order, 0);
}

static void finish(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_delayed_job_begins_after_its_delay,
     "G6 a delayed job is queued, begins after its delay and not before, and wait waits for it") {
  idlesched_pool *pool = POOL(.workers_max = 2);
  struct noted job;
  uint64_t begin_ns = idlesched_now_ns();
  submit(pool, &job, SOON_NS, 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_GE_INT(job.began_at_ns, begin_ns + SOON_NS);
  CHECK_EQ_INT(idlesched_job_state_read(&job.job), IDLESCHED_JOB_DONE);
  /* Again, by itself the job keeps its delay. */
  begin_ns = idlesched_now_ns();
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job.job), 0);
  CHECK_EQ_INT(idlesched_job_wait(&job.job, IDLESCHED_NEVER), 0);
  CHECK_GE_INT(job.began_at_ns, begin_ns + SOON_NS);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  finish(pool);
}

SPEC(delayed_jobs_are_counted_apart,
     "G4 delayed jobs count as queued, and are told apart; a second submit is refused") {
  idlesched_pool *pool = POOL(.workers_max = 2);
  struct noted far, never;
  submit(pool, &far, FAR_NS, 0);
  submit(pool, &never, IDLESCHED_NEVER, IDLESCHED_NEVER);
  CHECK_EQ_U64(stats_of(pool).jobs_delayed, 2);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 2);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &far.job), -EALREADY);
  CHECK_EQ_INT(idlesched_job_state_read(&far.job), IDLESCHED_JOB_QUEUED);
  CHECK_EQ_INT(idlesched_pool_wait(pool, 0), -ETIMEDOUT);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &(_Atomic unsigned){ 0 }), 0);
  WAIT_UNTIL(stats_of(pool).jobs_done == 1, SOON_MS);
  check_stats_add_up(pool);

  CHECK_EQ_INT(idlesched_job_cancel(&far.job), 0);
  CHECK_EQ_U64(stats_of(pool).jobs_delayed, 1);
  check_cancelled(&far, -ECANCELED);
  CHECK_EQ_INT(pthread_equal(far.done_by, pthread_self()), 1);
  CHECK_EQ_INT(idlesched_job_cancel(&far.job), -EALREADY);
  CHECK_EQ_INT(idlesched_job_cancel(&never.job), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  finish(pool);
}

SPEC(due_jobs_queue_by_priority,
     "G6 a job that is due queues behind those of its priority, and before those below it") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct noted delayed, high, low, same;
  keep_busy(pool, &door, 1);
  set(&delayed, 1, 0);
  delayed.job.priority = 1;
  set(&same, 0, 0);
  same.job.priority = 1;
  set(&high, 0, 0);
  high.job.priority = 2;
  set(&low, 0, 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &delayed.job), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &low.job), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &same.job), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &high.job), 0);
  uint64_t now_ns = idlesched_now_ns();
  WAIT_UNTIL(idlesched_now_ns() > now_ns, SOON_MS);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(high.order, 1);
  CHECK_EQ_INT(same.order, 2);
  CHECK_EQ_INT(delayed.order, 3);
  CHECK_EQ_INT(low.order, 4);
  finish(pool);
}

SPEC(a_token_cancels_delayed_jobs, "G4 a token cancels delayed jobs that have it, and no others") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_token token = { 0 };
  struct noted jobs[6], queued;
  keep_busy(pool, &door, 1);
  submit(pool, &queued, 0, FAR_NS); /* the only one that is not delayed, and has an alarm */
  for (unsigned i = 0; i < 6; i++) {
    set(&jobs[i], FAR_NS + i % 3, i == 5 ? FAR_NS : 0);
    jobs[i].job.token = i % 2 == 1 ? &token : NULL;
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &jobs[i].job), 0);
  }
  CHECK_EQ_U64(idlesched_token_cancel(&token), 3);
  CHECK_EQ_U64(stats_of(pool).jobs_delayed, 3);
  CHECK_EQ_U64(idlesched_token_cancel(&token), 0);
  for (unsigned i = 1; i < 6; i += 2)
    check_cancelled(&jobs[i], -ECANCELED);
  door_open(&door);
  CHECK_EQ_INT(idlesched_job_wait(&queued.job, IDLESCHED_NEVER), 0);
  idlesched_close_report report;
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, SOON_NS, &report), 0);
  CHECK_EQ_U64(report.dropped_count, 3);
  for (unsigned i = 0; i < 6; i += 2)
    check_cancelled(&jobs[i], -ECANCELED);
  finish(pool);
}

SPEC(an_expired_job_ends_on_a_worker,
     "G4 a job that expires is cancelled with -ETIMEDOUT: its done callback runs on a worker") {
  idlesched_pool *pool = POOL(.workers_max = 2);
  struct noted job;
  submit(pool, &job, FAR_NS, SOON_NS);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  check_cancelled(&job, -ETIMEDOUT);
  CHECK_EQ_INT(pthread_equal(job.done_by, pthread_self()), 0);
  CHECK_EQ_U64(stats_of(pool).jobs_cancelled, 1);
  finish(pool);
}

static void *wait_for_job(void *job) {
  int status = idlesched_job_wait(job, IDLESCHED_NEVER);
  return (void *)(intptr_t)status;
}

SPEC(who_waits_ends_an_expired_job,
     "G4 while all workers are busy those who wait for a job that expires are told, and one of "
     "them calls its done callback") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct noted job;
  keep_busy(pool, &door, 1);
  submit(pool, &job, 0, SOON_NS);
  pthread_t waiters[2];
  for (unsigned i = 0; i < 2; i++)
    waiters[i] = thread_run(wait_for_job, &job.job);
  for (unsigned i = 0; i < 2; i++)
    CHECK_EQ_INT((intptr_t)thread_result(waiters[i]), 0);
  check_cancelled(&job, -ETIMEDOUT);
  CHECK(pthread_equal(job.done_by, waiters[0]) || pthread_equal(job.done_by, waiters[1]));
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 0);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  finish(pool);
}

SPEC(one_that_is_begun_in_time_does_not_expire,
     "G4 a job that was begun in time does not expire, however long it takes") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = door_pass_job, .context = &door, .expire_ns = 1000 * IDLESCHED_S };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  ids_group_lock(&pool->group);
  CHECK_EQ_U64(ids_alarms_at_ns(&pool->alarms), IDS_NEVER);
  ids_group_unlock(&pool->group);
  door_open(&door);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_DONE);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  finish(pool);
}

SPEC(no_memory_when_it_is_due,
     "G2 G4 a job that is due while there is no memory for the queue begins when there is") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct noted job;
  fault_refuse("queue.segment", 1, 3);
  submit(pool, &job, 1, 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(fault_refused_count(), 3);
  CHECK_EQ_INT(job.dones_count, 1);
  finish(pool);
}

SPEC(no_thread_for_a_delayed_job,
     "G2 a delayed job for which no thread can be had is refused, and nothing of it is kept") {
  idlesched_pool *pool = POOL(.workers_max = 2);
  struct noted job;
  set(&job, SOON_NS, FAR_NS);
  fault_refuse("worker.thread", 1, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job.job), -EAGAIN);
  CHECK_EQ_INT(idlesched_job_state_read(&job.job), IDLESCHED_JOB_NEW);
  CHECK_EQ_U64(stats_of(pool).jobs_submitted, 0);
  CHECK_EQ_U64(stats_of(pool).jobs_delayed, 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job.job), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(job.dones_count, 1);
  finish(pool);
}

SPEC(no_thread_to_watch,
     "G2 beside a busy worker a thread refused to one that is to watch is no error: the busy one "
     "begins the job when it comes to that") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 2);
  struct noted job;
  keep_busy(pool, &door, 1);
  fault_refuse("worker.thread", 1, FAULT_FOR_EVER);
  submit(pool, &job, 1, 0);
  CHECK_EQ_INT(fault_refused_count(), 1);
  CHECK_EQ_U64(stats_of(pool).jobs_delayed, 1);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(job.dones_count, 1);
  finish(pool);
}

SPEC(alarms_of_a_parent, "G5 in a child process a delayed job of the parent's is not waited for, "
                         "and the pool takes none") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct noted far, other;
  submit(pool, &far, FAR_NS, 2 * FAR_NS);
  pid_t child = fork();
  if (child == 0) {
    set(&other, 1, 0);
    bool is_closed = idlesched_job_wait(&far.job, IDLESCHED_NEVER) == -ESHUTDOWN &&
                     idlesched_pool_submit_job(pool, &other.job) == -ESHUTDOWN &&
                     stats_of(pool).jobs_delayed == 0;
    idlesched_pool_destroy(pool);
    _exit(is_closed ? 0 : 1);
  }
  int status = -1;
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  CHECK_EQ_INT(status, 0);
  CHECK_EQ_INT(idlesched_job_cancel(&far.job), 0);
  finish(pool);
}
