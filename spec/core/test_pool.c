/* SPDX-License-Identifier: MIT */
/*
 * test_pool.c - submit and wait: every job that is taken in runs once, in order, and the
 * pool is idle when the last one has ended.  Closing is in test_close.c.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "plat_fault.h"
#include "pool_kit.h"

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

static int count_in_context(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  count_up(job->context);
  return 0;
}

/* ------------------------------------------------------------------ submit */

SPEC(a_new_pool_costs_no_thread, "G8 a new pool has no thread, and destroying it starts none") {
  idlesched_pool *pool = POOL(.workers_max = 8);
  idlesched_pool_stats stats = stats_of(pool);
  CHECK_EQ_INT(stats.workers_max, 8);
  CHECK_EQ_INT(stats.threads, 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, 0), 0);
  destroy(pool);
}

SPEC(jobs_of_both_forms_run_once, "G4 jobs of both forms run exactly once each") {
  enum { JOBS = 2000 };
  _Atomic unsigned plain_count = 0, job_count = 0;
  idlesched_job *jobs = calloc(JOBS, sizeof *jobs);
  idlesched_pool *pool = POOL(.workers_max = 3);
  for (unsigned i = 0; i < JOBS; i++) {
    jobs[i] = (idlesched_job){ .run = count_in_context, .context = &job_count };
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &jobs[i]), 0);
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &plain_count), 0);
  }
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(plain_count, JOBS);
  CHECK_EQ_INT(job_count, JOBS);
  CHECK_EQ_U64(stats_of(pool).jobs_submitted, 2 * JOBS);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 2 * JOBS);
  for (unsigned i = 0; i < JOBS; i++)
    CHECK_EQ_INT(idlesched_job_state_read(&jobs[i]), IDLESCHED_JOB_DONE);
  destroy(pool);
  free(jobs);
}

struct numbered {
  unsigned *next;
  unsigned number;
};

static void check_number(void *context) {
  struct numbered *self = context;
  CHECK_EQ_INT(*self->next, self->number);
  *self->next = self->number + 1;
}

SPEC(one_worker_runs_jobs_in_order, "G4 one worker runs jobs in the order in which they came") {
  struct numbered jobs[1500];
  struct door door = DOOR_CLOSED;
  unsigned next = 0;
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  for (unsigned i = 0; i < 1500; i++) {
    jobs[i] = (struct numbered){ &next, i };
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, check_number, &jobs[i]), 0);
  }
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(next, 1500);
  destroy(pool);
}

SPEC(workers_run_side_by_side, "G7 jobs run side by side on as many workers as there are") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 5);
  for (unsigned i = 0; i < 8; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, door_pass, &door), 0);
  WAIT_UNTIL(door_inside_count(&door) == 5, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).running, 5);
  CHECK_EQ_U64(stats_of(pool).jobs_running, 5);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 3);
  CHECK_EQ_U64(stats_of(pool).starts, 5);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  destroy(pool);
}

struct tree {
  idlesched_pool *pool;
  unsigned depth;
  _Atomic unsigned *leaves_count;
};

/* A job that submits two more, until the depth is used up. */
static void grow(void *context) {
  struct tree *self = context;
  if (self->depth == 0)
    count_up(self->leaves_count);
  for (unsigned i = 0; self->depth > 0 && i < 2; i++) {
    struct tree *child = malloc(sizeof *child);
    *child = (struct tree){ self->pool, self->depth - 1, self->leaves_count };
    CHECK_EQ_INT(idlesched_pool_submit(self->pool, grow, child), 0);
  }
  free(self);
}

SPEC(jobs_may_submit_jobs, "G4 jobs may submit jobs; the pool is idle after the last of them") {
  _Atomic unsigned leaves_count = 0;
  idlesched_pool *pool = POOL(.workers_max = 3);
  struct tree *root = malloc(sizeof *root);
  *root = (struct tree){ pool, 10, &leaves_count };
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, grow, root), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(leaves_count, 1024);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 2047);
  destroy(pool);
}

SPEC(a_burst_leaves_nothing_behind, "A2 a burst of jobs leaves no memory of the queue behind") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1);
  struct door door = DOOR_CLOSED;
  keep_busy(pool, &door, 1);
  int64_t before = plat_balance().blocks;
  for (unsigned i = 0; i < 100000; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_GE_INT(plat_balance().blocks, before + 190);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(plat_balance().blocks, before);
  destroy(pool);
}

/* -------------------------------------------------------------------- wait */

SPEC(a_wait_for_idle_has_a_limit, "G3 waiting for an idle pool has a limit") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_wait(pool, 0), -ETIMEDOUT);
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_pool_wait(pool, 30 * IDLESCHED_MS), -ETIMEDOUT);
  CHECK_GE_U64(spec_now_ns() - before_ns, 30 * IDLESCHED_MS);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  destroy(pool);
}

static void *wait_for_idle(void *pool) {
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_U64(stats_of(pool).jobs_done, 2);
  return NULL;
}

SPEC(everybody_who_waits_for_idle_is_told, "G4 everybody who waits for an idle pool is told") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 2);
  pthread_t threads[4];
  keep_busy(pool, &door, 2);
  for (unsigned i = 0; i < 4; i++)
    threads[i] = thread_run(wait_for_idle, pool);
  WAIT_UNTIL(plat_waiting_count() == 4, SOON_MS);
  door_open(&door);
  for (unsigned i = 0; i < 4; i++)
    thread_result(threads[i]);
  destroy(pool);
}

static int call_from_a_job(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  idlesched_pool *pool = job->context;
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), -EDEADLK);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), -EDEADLK);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, NULL), -EDEADLK);
  return 0;
}

SPEC(a_job_does_not_wait_for_its_pool, "G9 calls that would wait for the calling job are refused") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_job job = { .run = call_from_a_job, .context = pool };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  destroy(pool);
}

/* ----------------------------------------------------------------- workers */

static int tell_about_thread(idlesched_job *job, idlesched_worker *worker) {
  char name[16] = "";
  size_t stack_size = 0;
  pthread_attr_t attributes;
  sigset_t blocked;

  CHECK_EQ_INT(pthread_getname_np(pthread_self(), name, sizeof name), 0);
  CHECK_EQ_STR(name, job->context);
  CHECK_EQ_INT(pthread_getattr_np(pthread_self(), &attributes), 0);
  CHECK_EQ_INT(pthread_attr_getstacksize(&attributes, &stack_size), 0);
  CHECK_GE_INT(stack_size, 256 * 1024);
  pthread_attr_destroy(&attributes);
  /* The host's own threads get the signals. */
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  CHECK(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGCHLD));
  CHECK_EQ_PTR(idlesched_worker_current(), worker);
  return 0;
}

SPEC(threads_are_as_configured, "pool: threads have the name and stack asked for, and no signals") {
  char shown[] = "a name that is "; /* 15 bytes are */
  idlesched_pool *pool = POOL(.workers_max = 1, .stack_size = 256 * 1024,
                              .name = "a name that is too long");
  idlesched_job job = { .run = tell_about_thread, .context = shown };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK_EQ_PTR(idlesched_worker_current(), NULL);
  destroy(pool);
}

static int count_in_worker_data(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  uintptr_t count = (uintptr_t)idlesched_worker_data(worker) + 1;
  idlesched_worker_set_data(worker, (void *)count);
  return (int)count;
}

static void check_data_at_stop(idlesched_worker *worker, void *context) {
  CHECK_EQ_INT((uintptr_t)idlesched_worker_data(worker), 3);
  count_up(context);
}

SPEC(worker_data_lives_as_long_as_the_thread,
     "A13 worker data lives until stop, which is told once") {
  _Atomic unsigned stops_count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_exit_ns = 100 * IDLESCHED_MS,
                              .hooks = { .stop = check_data_at_stop, .context = &stops_count });
  for (unsigned thread = 1; thread <= 2; thread++) {
    struct door door = DOOR_CLOSED;
    idlesched_job jobs[3];
    keep_busy(pool, &door, 1); /* so that no exit comes between the three */
    for (int i = 0; i < 3; i++) {
      jobs[i] = (idlesched_job){ .run = count_in_worker_data };
      REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &jobs[i]), 0);
    }
    door_open(&door);
    for (int i = 0; i < 3; i++) {
      CHECK_EQ_INT(idlesched_job_wait(&jobs[i], IDLESCHED_NEVER), 0);
      CHECK_EQ_INT(idlesched_job_status(&jobs[i]), i + 1);
    }
    WAIT_UNTIL(stats_of(pool).exits == thread, SOON_MS);
    CHECK_EQ_INT(stops_count, thread);
  }
  destroy(pool);
}

SPEC(started_ahead_and_not_more,
     "G7 start_workers starts what is missing, and no more than the most") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = IDLESCHED_NEVER);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 0), 0);
  CHECK_EQ_INT(stats_of(pool).threads, 0);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 2), 0);
  WAIT_UNTIL(stats_of(pool).parked == 2, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 2), 0);
  CHECK_EQ_INT(stats_of(pool).threads, 2);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 100), 0);
  WAIT_UNTIL(stats_of(pool).parked == 4, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).starts, 4);
  /* They take jobs without a thread being started. */
  keep_busy(pool, &door, 4);
  CHECK_EQ_U64(stats_of(pool).starts, 4);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  destroy(pool);
}

SPEC(started_ahead_once, "G7 start_workers does not replace threads that leave meanwhile") {
  for (unsigned i = 0; i < 50; i++) {
    idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = IDLESCHED_NEVER,
                                .idle_exit_ns = IDLESCHED_AT_ONCE);
    CHECK_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
    WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
    CHECK_EQ_U64(stats_of(pool).starts, 4);
    destroy(pool);
  }
}

SPEC(a_finished_job_is_forgotten, "C13 a worker keeps no reference to a job that it has finished") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  run_one_job(pool);
  /* Idle means that the worker has let go of it, under the lock. */
  CHECK(pool->group.workers[0]->claimed.run == NULL);
  CHECK_EQ_PTR(pool->group.workers[0]->claimed.context, NULL);
  destroy(pool);
}
