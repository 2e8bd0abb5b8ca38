/* SPDX-License-Identifier: MIT */
/*
 * test_close.c - a pool is closed: drained or cancelled, in time, once, whatever its
 * workers are doing just then.
 */
#include <errno.h>
#include <stdlib.h>

#include "plat_fault.h"
#include "pool_kit.h"

static const enum idlesched_close_mode DRAIN = IDLESCHED_CLOSE_DRAIN;
static const enum idlesched_close_mode CANCEL = IDLESCHED_CLOSE_CANCEL;

struct close_call {
  idlesched_pool *pool;
  enum idlesched_close_mode mode;
  uint64_t timeout_ns;
  int status;
  idlesched_close_report report;
};

static void *close_pool(void *context) {
  struct close_call *self = context;
  self->status = idlesched_pool_close(self->pool, self->mode, self->timeout_ns, &self->report);
  return NULL;
}

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  CHECK_EQ_INT(stats_of(pool).threads, 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* ------------------------------------------------------- drain and cancel */

SPEC(drain_runs_what_is_queued, "G3 close with drain runs what is queued") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  for (unsigned i = 0; i < 100; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  struct close_call call = { .pool = pool, .mode = DRAIN, .timeout_ns = IDLESCHED_NEVER };
  pthread_t closer = thread_run(close_pool, &call);
  WAIT_UNTIL(idlesched_pool_submit(pool, count_up, &count) == -ESHUTDOWN, SOON_MS);
  unsigned taken = (unsigned)stats_of(pool).jobs_submitted - 1;
  CHECK_EQ_INT(count, 0);
  door_open(&door);
  thread_result(closer);
  CHECK_EQ_INT(call.status, 0);
  CHECK_EQ_INT(call.report.dropped_count, 0);
  CHECK_EQ_INT(call.report.left_behind_count, 0);
  CHECK_EQ_INT(count, taken);
  destroy(pool);
}

static int must_not_run(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  FAIL("a cancelled job ran");
}

static void note_dropped(void (*run)(void *context), void *context) {
  CHECK(run == count_up);
  atomic_fetch_add((_Atomic unsigned *)context, 1000);
}

static _Atomic unsigned done_count;

static void count_done(idlesched_job *job) {
  CHECK_EQ_INT(idlesched_job_state_read(job), IDLESCHED_JOB_CANCELLED);
  CHECK_EQ_INT(idlesched_job_status(job), -ECANCELED);
  count_up(&done_count);
  free(job);
}

SPEC(cancel_drops_what_is_queued,
     "G3 close with cancel drops what is queued, and tells each owner") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .dropped = note_dropped);
  keep_busy(pool, &door, 1);
  for (unsigned i = 0; i < 600; i++) {
    idlesched_job *job = malloc(sizeof *job);
    *job = (idlesched_job){ .run = must_not_run, .done = count_done };
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, job), 0);
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  }
  idlesched_job kept = { .run = must_not_run };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &kept), 0);
  struct close_call call = { .pool = pool, .mode = CANCEL, .timeout_ns = IDLESCHED_NEVER };
  pthread_t closer = thread_run(close_pool, &call);
  /* A waiter is told although nothing ran. */
  CHECK_EQ_INT(idlesched_job_wait(&kept, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_job_state_read(&kept), IDLESCHED_JOB_CANCELLED);
  CHECK_EQ_INT(idlesched_job_status(&kept), -ECANCELED);
  check_stats_add_up(pool);
  door_open(&door); /* what runs is let finish */
  thread_result(closer);
  CHECK_EQ_INT(call.status, 0);
  CHECK_EQ_INT(call.report.dropped_count, 1201);
  CHECK_EQ_INT(done_count, 600);
  CHECK_EQ_INT(count, 600 * 1000);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 1);
  CHECK_EQ_U64(stats_of(pool).jobs_cancelled, 1201);
  destroy(pool);
}

static int close_from_callback_status;

static void close_again(idlesched_job *job) {
  close_from_callback_status = idlesched_pool_close(job->context, CANCEL, IDLESCHED_NEVER, NULL);
}

SPEC(a_close_does_not_wait_for_itself, "G3 a close from a callback of that close is refused") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  idlesched_job job = { .run = must_not_run, .done = close_again, .context = pool };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  struct close_call call = { .pool = pool, .mode = CANCEL, .timeout_ns = IDLESCHED_NEVER };
  pthread_t closer = thread_run(close_pool, &call);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  door_open(&door);
  thread_result(closer);
  CHECK_EQ_INT(call.status, 0);
  CHECK_EQ_INT(close_from_callback_status, -EDEADLK);
  destroy(pool);
}

SPEC(drain_drops_the_rest_when_time_is_up, "G3 drain drops the rest when its time is up") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_close_report report;
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  for (unsigned i = 0; i < 10; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_pool_close(pool, DRAIN, 30 * IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_GE_U64(spec_now_ns() - before_ns, 30 * IDLESCHED_MS);
  CHECK_EQ_INT(report.dropped_count, 10);
  CHECK_EQ_INT(report.left_behind_count, 1);
  CHECK_EQ_INT(count, 0);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS); /* leaves when its job has ended */
  CHECK_EQ_U64(stats_of(pool).jobs_done, 1);
  destroy(pool);
}

/* --------------------------------------------------- the time limit, left behind */

SPEC(only_running_jobs_are_left_behind,
     "G3 left behind are threads with a job, not those that leave") {
  struct door door = DOOR_CLOSED;
  idlesched_close_report report;
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
  WAIT_UNTIL(stats_of(pool).parked == 4, SOON_MS);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_close(pool, CANCEL, 300 * IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.left_behind_count, 1);
  /* A second close tells what is left now. */
  CHECK_EQ_INT(idlesched_pool_close(pool, CANCEL, IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.left_behind_count, 1);
  idlesched_worker_row rows[4];
  CHECK_EQ_INT(idlesched_pool_workers_read(pool, rows, 4), 4);
  unsigned behind_count = 0;
  for (unsigned i = 0; i < 4; i++) {
    behind_count += rows[i].state != IDLESCHED_WORKER_ABSENT;
    if (rows[i].state == IDLESCHED_WORKER_RUNNING) /* for longer than the close took */
      CHECK_GE_U64(rows[i].running_ns, 300 * IDLESCHED_MS);
    else
      CHECK_EQ_U64(rows[i].running_ns, 0);
  }
  CHECK_EQ_INT(behind_count, 1);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  destroy(pool);
}

SPEC(the_default_limit_is_two_seconds, "G3 without a limit of its own a close takes two seconds") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_pool_close(pool, DRAIN, 0, NULL), -ETIMEDOUT);
  CHECK_GE_U64(spec_now_ns() - before_ns, 2 * IDLESCHED_S);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  destroy(pool);
}

static void note_stop(idlesched_worker *worker, void *context) {
  (void)worker;
  count_up(context);
}

SPEC(what_is_left_behind_frees_the_pool,
     "G3 what is left behind keeps the pool, and frees it at last") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned stops_count = 0;
  idlesched_pool *pool = POOL(.workers_max = 3, .idle_release_ns = IDLESCHED_NEVER,
                              .hooks = { .stop = note_stop, .context = &stops_count });
  keep_busy(pool, &door, 3);
  CHECK_EQ_INT(idlesched_pool_close(pool, CANCEL, 10 * IDLESCHED_MS, NULL), -ETIMEDOUT);
  idlesched_pool_destroy(pool);
  CHECK_GT_INT(plat_balance().blocks, 0);
  door_open(&door);
  WAIT_UNTIL(plat_balance().threads == 0 && plat_balance().blocks == 0, SOON_MS);
  CHECK_EQ_INT(stops_count, 3);
  CHECK_NOTHING_IS_LEFT();
}

/* ------------------------------------------------------------ after a close */

SPEC(a_closed_pool_refuses_jobs, "G3 a closed pool refuses jobs and starts no thread") {
  _Atomic unsigned count = 0;
  idlesched_job job = { .run = must_not_run };
  idlesched_pool *pool = POOL(.workers_max = 2);
  run_one_job(pool);
  CHECK_EQ_INT(idlesched_pool_close(pool, DRAIN, 0, NULL), 0);
  uint64_t starts = stats_of(pool).starts;
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), -ESHUTDOWN);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -ESHUTDOWN);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_NEW);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 1), -ESHUTDOWN);
  CHECK_EQ_INT(idlesched_pool_wait(pool, 0), 0);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, NULL), 0);
  CHECK_EQ_U64(stats_of(pool).starts, starts);
  CHECK_EQ_INT(count, 0);
  destroy(pool);
}

SPEC(a_second_close_is_harmless, "G3 a second close is harmless, after the first and beside it") {
  enum { CLOSERS = 4 };
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  struct close_call calls[CLOSERS];
  pthread_t threads[CLOSERS];
  for (unsigned i = 0; i < CLOSERS; i++) {
    calls[i] =
      (struct close_call){ pool, i % 2 == 0 ? DRAIN : CANCEL, IDLESCHED_NEVER, 1, { 7, 7 } };
    threads[i] = thread_run(close_pool, &calls[i]);
  }
  WAIT_UNTIL(plat_waiting_count() == CLOSERS, SOON_MS);
  /* Who does not close itself waits, as long as it was told to. */
  CHECK_EQ_INT(idlesched_pool_close(pool, DRAIN, 10 * IDLESCHED_MS, NULL), -ETIMEDOUT);
  door_open(&door);
  for (unsigned i = 0; i < CLOSERS; i++) {
    thread_result(threads[i]);
    CHECK_EQ_INT(calls[i].status, 0);
    CHECK_EQ_INT(calls[i].report.dropped_count, 0);
    CHECK_EQ_INT(calls[i].report.left_behind_count, 0);
  }
  CHECK_EQ_INT(idlesched_pool_close(pool, CANCEL, 0, NULL), 0);
  destroy(pool);
}

static void *destroy_pool(void *pool) {
  idlesched_pool_destroy(pool);
  return NULL;
}

SPEC(destroy_closes, "G3 destroying a pool that was not closed cancels what is queued") {
  struct door door = DOOR_CLOSED;
  idlesched_job job = { .run = must_not_run };
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  pthread_t destroyer = thread_run(destroy_pool, pool);
  WAIT_UNTIL(idlesched_job_state_read(&job) == IDLESCHED_JOB_CANCELLED, SOON_MS);
  door_open(&door);
  thread_result(destroyer);
  CHECK_NOTHING_IS_LEFT();
  idlesched_pool_destroy(NULL);
}

/* --------------------------------------- a close that meets something else */

struct submitting {
  idlesched_pool *pool;
  unsigned accepted_count;
  _Atomic unsigned ran_count;
};

static void *submit_until_closed(void *context) {
  struct submitting *self = context;
  while (idlesched_pool_submit(self->pool, count_up, &self->ran_count) == 0)
    self->accepted_count++;
  return NULL;
}

SPEC(a_close_beside_submits, "G3 a close beside submits: what was accepted runs") {
  for (unsigned round = 0; round < 50; round++) {
    struct submitting self = { .pool = POOL(.workers_max = 2) };
    pthread_t submitter = thread_run(submit_until_closed, &self);
    WAIT_UNTIL(stats_of(self.pool).jobs_done > 10, SOON_MS);
    CHECK_EQ_INT(idlesched_pool_close(self.pool, DRAIN, IDLESCHED_NEVER, NULL), 0);
    thread_result(submitter);
    CHECK_EQ_INT(self.ran_count, self.accepted_count);
    destroy(self.pool);
  }
}

/* A worker that is just doing something else when the pool closes is gone in time. */
static void close_while_worker_is_at(const char *place, const idlesched_pool_config *config) {
  idlesched_pool *pool = pool_new(config);
  hold_at(place);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(hold_count(place) == 1, SOON_MS);
  struct close_call call = { .pool = pool, .mode = DRAIN, .timeout_ns = IDLESCHED_NEVER };
  pthread_t closer = thread_run(close_pool, &call);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  hold_open(place);
  thread_result(closer);
  CHECK_EQ_INT(call.status, 0);
  CHECK_EQ_INT(call.report.left_behind_count, 0);
  destroy(pool);
}

SPEC(a_close_meets_an_exit, "C3 a worker that leaves by itself while close runs counts as gone") {
  close_while_worker_is_at("worker.stop",
                           &(idlesched_pool_config){ .workers_max = 2,
                                                     .idle_release_ns = IDLESCHED_NEVER,
                                                     .idle_exit_ns = IDLESCHED_AT_ONCE });
}

SPEC(a_close_meets_a_release, "C3 a worker that releases while close runs is gone right after") {
  close_while_worker_is_at("worker.collect",
                           &(idlesched_pool_config){ .workers_max = 2,
                                                     WITH_STATE,
                                                     .idle_release_ns = IDLESCHED_AT_ONCE,
                                                     .idle_exit_ns = IDLESCHED_NEVER });
}

SPEC(a_close_has_no_grace_time,
     "C3 closing idle workers takes what their leaving takes, no grace") {
  uint64_t best_ns = IDLESCHED_NEVER;
  for (unsigned i = 0; i < 30; i++) {
    idlesched_pool *pool = POOL(.workers_max = 4);
    REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
    WAIT_UNTIL(stats_of(pool).parked == 4, SOON_MS);
    uint64_t before_ns = spec_now_ns();
    CHECK_EQ_INT(idlesched_pool_close(pool, DRAIN, IDLESCHED_NEVER, NULL), 0);
    best_ns = ids_earlier_ns(best_ns, spec_now_ns() - before_ns);
    destroy(pool);
  }
  /* The best of many: the others tell about the machine's other work. */
  printf("the quickest of 30 closes took %.3f ms\n", best_ns / 1e6);
  CHECK_LT_U64(best_ns, 4 * IDLESCHED_MS);
}

SPEC(close_wakes_everybody, "G3 close wakes everybody, who waits for the pool as well") {
  struct door door = DOOR_CLOSED;
  idlesched_job job = { .run = must_not_run };
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  struct close_call call = { .pool = pool, .mode = CANCEL, .timeout_ns = IDLESCHED_NEVER };
  pthread_t closer = thread_run(close_pool, &call);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  thread_result(closer);
  destroy(pool);
}
