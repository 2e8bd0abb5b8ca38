/* SPDX-License-Identifier: MIT */
/*
 * test_inline.c - a pool without workers: jobs run in the thread that submits them, one at a
 * time.  (Every order of two threads that do, and of one that closes: test_sim_inline.c.)
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plat_fault.h"
#include "pool_kit.h"

#define INLINE(...) POOL(.workers_max = IDLESCHED_NO_WORKERS, ##__VA_ARGS__)

static void destroy(idlesched_pool *pool) {
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  check_stats_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* Where a job ran, and what it saw there. */
struct seen {
  idlesched_pool *pool;
  unsigned number, runs_count;
  uintptr_t thread;
  idlesched_worker *worker;
  unsigned order; /* of those that ran */
};
static _Atomic unsigned ran_count;

static void see(void *context) {
  struct seen *self = context;
  self->thread = ids_thread_number();
  self->worker = idlesched_worker_current();
  self->runs_count++;
  self->order = ran_count++;
}

static int fail(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return -EIO;
}

SPEC(nothing_to_set, "G13 a pool without workers has no size, and nothing to pause") {
  idlesched_pool *pool = POOL(.workers_max = IDLESCHED_NO_WORKERS);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 2, 0), -EINVAL);
  idlesched_pool_pause(pool);
  CHECK(!stats_of(pool).is_paused);
  CHECK_EQ_INT(idlesched_pool_resume(pool), 0);
  run_one_job(pool);
  idlesched_pool_destroy(pool);
}

/* ---------------------------------------------------------- in the own thread */

SPEC(in_the_submitting_thread,
     "G13 without workers a job has run when its submit returns, in the same thread") {
  struct seen seen = { .number = 1 };
  idlesched_job job = { .run = fail };
  idlesched_pool *pool = INLINE();
  CHECK_EQ_INT(idlesched_pool_submit(pool, see, &seen), 0);
  CHECK_EQ_INT(seen.runs_count, 1);
  CHECK_EQ_U64(seen.thread, ids_thread_number());
  CHECK_EQ_INT(idlesched_worker_index(seen.worker), 0);
  CHECK_EQ_PTR(idlesched_worker_current(), NULL);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), 0); /* taken in, however it ended */
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_FAILED);
  CHECK_EQ_INT(idlesched_job_status(&job), -EIO);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  idlesched_worker_retire(seen.worker); /* it has no thread that could */
  CHECK_EQ_INT(idlesched_pool_submit(pool, see, &seen), 0);
  idlesched_pool_stats stats = stats_of(pool);
  CHECK_EQ_INT(stats.workers_max + stats.threads + stats.active, 0);
  CHECK_EQ_U64(stats.wakes + stats.starts + stats.polls, 0);
  CHECK_EQ_U64(stats.jobs_done, 2);
  CHECK_EQ_U64(stats.jobs_failed, 1);
  CHECK_EQ_INT(idlesched_pool_workers_read(pool, NULL, 0), 0);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
  CHECK_EQ_INT(stats_of(pool).threads, 0);
  idlesched_pool_freed(pool);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_submit(pool, see, &seen), -ESHUTDOWN);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 4), -ESHUTDOWN);
  destroy(pool);
}

static struct seen children[3];

static void submit_three(void *context) {
  struct seen *self = context;
  for (unsigned i = 0; i < 3; i++) {
    CHECK_EQ_INT(idlesched_pool_submit(self->pool, see, &children[i]), 0);
    CHECK_EQ_INT(children[i].runs_count, 0);
  }
  CHECK_EQ_U64(stats_of(self->pool).jobs_queued, 3);
  CHECK_EQ_INT(idlesched_pool_audit(self->pool, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_wait(self->pool, 0), -EDEADLK);
  CHECK_EQ_INT(idlesched_pool_release(self->pool, 0, NULL), -EDEADLK);
  CHECK_EQ_INT(idlesched_pool_close(self->pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), -EDEADLK);
  see(self);
}

SPEC(jobs_of_jobs_queue,
     "G13 what a job submits runs after it, in turn, and before the outermost submit returns") {
  struct seen outer = { .pool = INLINE() };
  CHECK_EQ_INT(idlesched_pool_submit(outer.pool, submit_three, &outer), 0);
  CHECK_EQ_INT(outer.order, 0);
  for (unsigned i = 0; i < 3; i++) {
    CHECK_EQ_INT(children[i].runs_count, 1);
    CHECK_EQ_INT(children[i].order, 1 + i);
    CHECK_EQ_U64(children[i].thread, ids_thread_number());
  }
  destroy(outer.pool);
}

static int submit_and_wait(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  idlesched_job child = { .run = fail }, dropped = { .run = fail };
  CHECK_EQ_INT(idlesched_pool_submit_job(job->pool_, &child), 0);
  CHECK_EQ_INT(idlesched_pool_submit_job(job->pool_, &dropped), 0);
  CHECK_EQ_INT(idlesched_job_wait(&child, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_job_cancel(&dropped), 0);
  CHECK_EQ_INT(idlesched_job_wait(job, IDLESCHED_NEVER), -EDEADLK);
  return idlesched_job_status(&child);
}

SPEC(jobs_wait_for_jobs, "G13 G9 a job may wait for one that it has submitted, or cancel it") {
  idlesched_job job = { .run = submit_and_wait };
  idlesched_pool *pool = INLINE();
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_EQ_INT(idlesched_job_status(&job), -EIO);
  CHECK_EQ_U64(stats_of(pool).jobs_cancelled, 1);
  destroy(pool);
}

SPEC(a_moment_is_slept_for, "G13 a job with a delay: its submit sleeps until then") {
  idlesched_job job = { .run = fail, .delay_ns = 20 * IDLESCHED_MS };
  idlesched_pool *pool = INLINE();
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  CHECK_GE_U64(spec_now_ns() - before_ns, 20 * IDLESCHED_MS);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_FAILED);
  destroy(pool);
}

/* ------------------------------------------------------------- several threads */

struct submit_call {
  idlesched_pool *pool;
  idlesched_job *job;
  void (*run)(void *context);
  void *context;
  int status;
};

static void *submit(void *context) {
  struct submit_call *self = context;
  self->status = self->job != NULL ? idlesched_pool_submit_job(self->pool, self->job)
                                   : idlesched_pool_submit(self->pool, self->run, self->context);
  return NULL;
}

/* On a thread of its own, which comes so far. */
static pthread_t submit_inside(struct submit_call *call, struct door *door) {
  pthread_t thread = thread_run(submit, call);
  WAIT_UNTIL(door_inside_count(door) == 1, SOON_MS);
  return thread;
}

static pthread_t submit_waiting(struct submit_call *call) {
  unsigned waiting_count = plat_waiting_count();
  pthread_t thread = thread_run(submit, call);
  WAIT_UNTIL(plat_waiting_count() == waiting_count + 1, SOON_MS);
  return thread;
}

SPEC(one_at_a_time, "G13 while one thread runs a job, the others wait, and then run theirs") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = INLINE();
  idlesched_job held = { .run = door_pass_job, .context = &door };
  struct submit_call first = { .pool = pool, .job = &held, .status = 1 };
  pthread_t first_thread = submit_inside(&first, &door);
  struct seen seen[2] = { { .number = 0 }, { .number = 1 } };
  struct submit_call others[2];
  pthread_t threads[2];
  for (unsigned i = 0; i < 2; i++) {
    others[i] = (struct submit_call){ .pool = pool, .run = see, .context = &seen[i], .status = 1 };
    threads[i] = submit_waiting(&others[i]);
  }
  CHECK_EQ_U64(stats_of(pool).jobs_running, 1);
  CHECK_EQ_U64(stats_of(pool).jobs_submitted, 1);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_MS), -ETIMEDOUT);
  CHECK_EQ_INT(idlesched_job_wait(&held, IDLESCHED_MS), -ETIMEDOUT);
  door_open(&door);
  CHECK_EQ_INT(idlesched_job_wait(&held, IDLESCHED_NEVER), 0);
  thread_result(first_thread);
  for (unsigned i = 0; i < 2; i++) {
    thread_result(threads[i]);
    CHECK_EQ_INT(others[i].status, 0);
    CHECK_EQ_INT(seen[i].runs_count, 1);
    CHECK_EQ_INT(seen[i].order, i);
    CHECK_NE_INT(seen[i].thread, ids_thread_number());
  }
  CHECK_NE_INT(seen[0].thread, seen[1].thread);
  destroy(pool);
}

/* ----------------------------------------------------------------- hooks */

static struct {
  unsigned starts, steps, stops;
  uintptr_t started_on, collected_on, stopped_on;
} hooked;

static void hook_start(idlesched_worker *worker, void *context) {
  CHECK_EQ_PTR(worker, idlesched_worker_current());
  idlesched_worker_set_data(worker, context);
  idlesched_worker_set_memory(worker, 10, 7);
  hooked.starts++;
  hooked.started_on = ids_thread_number();
}

static bool hook_collect(idlesched_worker *worker, void *context) {
  CHECK_EQ_PTR(worker, idlesched_worker_current());
  CHECK_EQ_PTR(idlesched_worker_data(worker), context);
  hooked.collected_on = ids_thread_number();
  return ++hooked.steps % 3 != 0;
}

static void hook_stop(idlesched_worker *worker, void *context) {
  CHECK_EQ_PTR(worker, idlesched_worker_current());
  CHECK_EQ_PTR(idlesched_worker_data(worker), context);
  hooked.stops++;
  hooked.stopped_on = ids_thread_number();
}

static void note_data(void *out_data) {
  *(void **)out_data = idlesched_worker_data(idlesched_worker_current());
}

#define HOOKED .hooks = { hook_start, hook_collect, hook_stop, &hooked }

static uint64_t dead_bytes(void) {
  idlesched_memory memory;
  (void)idlesched_memory_read(&memory);
  return memory.dead_bytes;
}

SPEC(a_host_keeps_something_for_it,
     "G13 the start hook comes before the first job, a release collects, a close stops") {
  void *data = NULL;
  idlesched_release_report report;
  idlesched_pool *pool = INLINE(HOOKED);
  CHECK_EQ_INT(hooked.starts, 0);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, &report), 0);
  CHECK_EQ_INT(report.visited_count, 0); /* there is nothing yet */
  for (unsigned i = 0; i < 2; i++) {
    CHECK_EQ_INT(idlesched_pool_submit(pool, note_data, &data), 0);
    CHECK_EQ_PTR(data, &hooked);
    CHECK_EQ_INT(hooked.starts, 1);
  }
  CHECK_EQ_U64(dead_bytes(), 7);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, &report), 0);
  CHECK_EQ_INT(report.pools_count, 1);
  CHECK_EQ_INT(report.visited_count, 1);
  CHECK_EQ_INT(hooked.steps, 3);
  CHECK_EQ_U64(hooked.collected_on, ids_thread_number());
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, 0, NULL), 0);
  CHECK_EQ_INT(hooked.stops, 1);
  CHECK_EQ_U64(hooked.stopped_on, ids_thread_number());
  CHECK_EQ_U64(dead_bytes(), 0);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, &report), 0);
  CHECK_EQ_INT(report.visited_count, 0);
  destroy(pool);
  CHECK_EQ_INT(hooked.stops, 1);
}

SPEC(without_hooks, "G13 a pool whose host keeps nothing has nothing to release but the caller's") {
  idlesched_release_report report;
  idlesched_pool *pool = INLINE();
  CHECK_EQ_INT(idlesched_release(0, &report), 0);
  CHECK_EQ_INT(report.pools_count, 1);
  CHECK_EQ_INT(report.visited_count + report.missed_count, 0);
  destroy(pool);
}

static int release_status;
static idlesched_release_report release_report;

static void release_all(void *context) {
  (void)context;
  release_status = idlesched_release(IDLESCHED_NEVER, &release_report);
}

SPEC(a_release_misses_a_job,
     "G13 B17 a release does not wait for a job for longer than it should; what it has missed is "
     "collected when the job has ended.  A job's own release does not miss itself") {
  struct door door = DOOR_CLOSED;
  idlesched_release_report report;
  idlesched_pool *pool = INLINE(HOOKED);
  CHECK_EQ_INT(idlesched_pool_submit(pool, release_all, NULL), 0);
  CHECK_EQ_INT(release_status, 0);
  CHECK_EQ_INT(release_report.visited_count + release_report.missed_count, 0);
  struct submit_call call = { .pool = pool, .run = door_pass, .context = &door };
  pthread_t thread = submit_inside(&call, &door);
  CHECK_EQ_INT(idlesched_pool_release(pool, IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.missed_running_count, 1);
  CHECK_EQ_INT(report.visited_count, 0);
  CHECK_EQ_INT(hooked.steps, 0);
  door_open(&door);
  thread_result(thread);
  CHECK_EQ_INT(hooked.steps, 3);
  CHECK_NE_INT(hooked.collected_on, ids_thread_number());
  destroy(pool);
}

SPEC(two_that_release,
     "G13 B17 a job's release of all pools does not wait for another thread's job") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = INLINE(HOOKED), *other = INLINE();
  struct submit_call call = { .pool = pool, .run = door_pass, .context = &door };
  pthread_t thread = submit_inside(&call, &door);
  CHECK_EQ_INT(idlesched_pool_submit(other, release_all, NULL), 0);
  CHECK_EQ_INT(release_status, -ETIMEDOUT);
  CHECK_EQ_INT(release_report.missed_running_count, 1);
  door_open(&door);
  thread_result(thread);
  idlesched_pool_destroy(other);
  destroy(pool);
}

static void *release_pool(void *pool) {
  release_status = idlesched_pool_release(pool, IDLESCHED_NEVER, &release_report);
  return NULL;
}

SPEC(a_release_waits_for_its_turn, "G13 B17 a release waits for a job that ends in time") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = INLINE(HOOKED);
  struct submit_call call = { .pool = pool, .run = door_pass, .context = &door };
  pthread_t thread = submit_inside(&call, &door);
  pthread_t releaser = thread_run(release_pool, pool);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  door_open(&door);
  thread_result(thread);
  thread_result(releaser);
  CHECK_EQ_INT(release_status, 0);
  CHECK_EQ_INT(release_report.visited_count, 1);
  CHECK_EQ_INT(hooked.steps, 3);
  destroy(pool);
}

/* ----------------------------------------------------------------- the end */

SPEC(closed_while_a_job_runs,
     "G13 G3 a close refuses who waits for a turn, and leaves behind the thread whose job runs, "
     "which stops what the host keeps when that has ended") {
  struct door door = DOOR_CLOSED;
  idlesched_close_report report;
  struct seen seen = { .number = 1 };
  idlesched_pool *pool = INLINE(HOOKED);
  struct submit_call held = { .pool = pool, .run = door_pass, .context = &door, .status = 1 };
  struct submit_call waiting = { .pool = pool, .run = see, .context = &seen, .status = 1 };
  idlesched_job late = { .run = fail, .delay_ns = IDLESCHED_NEVER };
  struct submit_call delayed = { .pool = pool, .job = &late, .status = 1 };
  pthread_t thread = submit_inside(&held, &door);
  pthread_t waiting_thread = submit_waiting(&waiting);
  pthread_t delayed_thread = submit_waiting(&delayed);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, IDLESCHED_MS, &report),
               -ETIMEDOUT);
  CHECK_EQ_INT(report.left_behind_count, 1);
  thread_result(waiting_thread);
  thread_result(delayed_thread);
  CHECK_EQ_INT(waiting.status, -ESHUTDOWN);
  CHECK_EQ_INT(delayed.status, -ESHUTDOWN);
  CHECK_EQ_INT(seen.runs_count, 0);
  CHECK_EQ_INT(hooked.stops, 0);
  door_open(&door);
  thread_result(thread);
  CHECK_EQ_INT(held.status, 0);
  CHECK_EQ_INT(hooked.stops, 1);
  CHECK_NE_INT(hooked.stopped_on, ids_thread_number());
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, &report), 0);
  CHECK_EQ_INT(report.left_behind_count, 0);
  destroy(pool);
}

SPEC(freed_by_who_is_left_behind,
     "G13 G3 a pool that is destroyed while a job runs is freed by the thread that runs it") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = INLINE(HOOKED);
  struct submit_call held = { .pool = pool, .run = door_pass, .context = &door, .status = 1 };
  pthread_t thread = submit_inside(&held, &door);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, IDLESCHED_MS, NULL), -ETIMEDOUT);
  idlesched_pool_destroy(pool);
  CHECK_GT_INT(plat_balance().blocks, 0);
  door_open(&door);
  thread_result(thread);
  CHECK_EQ_INT(held.status, 0);
  CHECK_EQ_INT(hooked.stops, 1);
  CHECK_NOTHING_IS_LEFT();
}

static struct door collect_door = DOOR_CLOSED;

static bool collect_in_door(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  door_pass(&collect_door);
  return false;
}

static void *destroy_pool(void *pool) {
  idlesched_pool_destroy(pool);
  return NULL;
}

SPEC(destroyed_while_a_release_collects,
     "G13 G3 a destroy waits for the release that is in the middle of a collect") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = INLINE(.hooks = { .start = give_data, .collect = collect_in_door });
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  pthread_t releaser = thread_run(release_pool, pool);
  WAIT_UNTIL(door_inside_count(&collect_door) == 1, SOON_MS);
  idlesched_close_report report;
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, IDLESCHED_MS, &report),
               -ETIMEDOUT);
  CHECK_EQ_INT(report.left_behind_count, 1);
  pthread_t destroyer = thread_run(destroy_pool, pool);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  door_open(&collect_door);
  thread_result(releaser);
  thread_result(destroyer);
  CHECK_EQ_INT(release_status, 0);
  CHECK_EQ_INT(release_report.visited_count, 1);
  CHECK_NOTHING_IS_LEFT();
}

/* ------------------------------------------------------- limits and refusals */

struct tree {
  idlesched_pool *pool;
  _Atomic unsigned count;
  int status;
};

static void submit_ten(void *context) {
  struct tree *tree = context;
  for (unsigned i = 0; i < 10 && tree->status == 0; i++)
    tree->status = idlesched_pool_submit(tree->pool, count_up, &tree->count);
}

SPEC(a_queue_with_a_limit,
     "G13 G11 a job that fills the queue runs what is queued, or is refused, as with workers") {
  struct tree waits = { .pool = INLINE(.queue_max = 2, .queue_timeout_ns = IDLESCHED_NEVER) };
  struct tree fails = { .pool = INLINE(.queue_max = 2) };
  CHECK_EQ_INT(idlesched_pool_submit(waits.pool, submit_ten, &waits), 0);
  CHECK_EQ_INT(waits.status, 0);
  CHECK_EQ_INT(waits.count, 10);
  CHECK_EQ_INT(idlesched_pool_submit(fails.pool, submit_ten, &fails), 0);
  CHECK_EQ_INT(fails.status, -ENOBUFS);
  CHECK_EQ_INT(fails.count, 2);
  idlesched_pool_destroy(fails.pool);
  destroy(waits.pool);
}

SPEC(refusals, "G13 no memory for the queue, or nothing to wait with: the submit says so") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = INLINE(HOOKED);
  fault_refuse("queue.segment", 1, 1);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), -ENOMEM);
  CHECK_EQ_INT(count, 0);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  struct submit_call call = { .pool = pool, .run = door_pass, .context = &door };
  pthread_t thread = submit_inside(&call, &door);
  fault_refuse("line.place", 1, 2);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), -ENOMEM);
  CHECK_EQ_INT(idlesched_pool_release(pool, IDLESCHED_NEVER, NULL), -ETIMEDOUT);
  CHECK_EQ_INT(count, 0);
  door_open(&door);
  thread_result(thread);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(count, 1);
  destroy(pool);
}

/* ------------------------------------------------------------- among other pools */

/* Jobs of three pools inside each other: one with workers, two without. */
static struct {
  idlesched_pool *with_workers, *first, *second;
  _Atomic unsigned count;
  unsigned inner_count;
} mixed;

static void innermost(void *context) {
  (void)context;
  idlesched_worker *self = idlesched_worker_current();
  CHECK_EQ_PTR(self, mixed.second->group.workers[0]);
  CHECK_EQ_INT(idlesched_pool_wait(mixed.with_workers, 0), -EDEADLK);
  CHECK_EQ_INT(idlesched_pool_wait(mixed.first, 0), -EDEADLK);
  CHECK_EQ_INT(idlesched_pool_wait(mixed.second, 0), -EDEADLK);
  CHECK_EQ_INT(idlesched_release(0, &release_report), 0);
  CHECK_EQ_INT(release_report.pools_count, 3);
  CHECK_EQ_INT(release_report.missed_count, 0);
  /* Both are queued: a turn that this thread has, and a worker that it is. */
  CHECK_EQ_INT(idlesched_pool_submit(mixed.first, count_up, &mixed.count), 0);
  for (unsigned i = 0; i < 3; i++) /* it makes room itself, as it is that worker, too */
    CHECK_EQ_INT(idlesched_pool_submit(mixed.with_workers, count_up, &mixed.count), 0);
  CHECK_EQ_PTR(idlesched_worker_current(), self);
  mixed.inner_count++;
}

static void in_the_middle(void *context) {
  (void)context;
  CHECK_EQ_INT(idlesched_pool_submit(mixed.second, innermost, NULL), 0);
  CHECK_EQ_INT(mixed.inner_count, 1);
  CHECK_EQ_PTR(idlesched_worker_current(), mixed.first->group.workers[0]);
}

static void outermost(void *context) {
  (void)context;
  CHECK_EQ_INT(idlesched_pool_submit(mixed.first, in_the_middle, NULL), 0);
  CHECK_EQ_INT(mixed.count, 3); /* the other one is still queued */
  CHECK_EQ_PTR(idlesched_worker_current(), mixed.with_workers->group.workers[0]);
}

SPEC(inside_jobs_of_other_pools,
     "G13 jobs of several pools inside each other on one thread know what they are in") {
  mixed.with_workers = POOL(.workers_max = 1, .queue_max = 1, .queue_timeout_ns = IDLESCHED_NEVER);
  mixed.first = INLINE();
  mixed.second = INLINE();
  CHECK_EQ_INT(idlesched_pool_submit(mixed.with_workers, outermost, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_wait(mixed.with_workers, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(mixed.count, 4);
  idlesched_pool_destroy(mixed.first);
  idlesched_pool_destroy(mixed.second);
  destroy(mixed.with_workers);
}

/* --------------------------------------------------------------------- forks */

static pid_t forked;

static void fork_here(void *context) {
  (void)context;
  fflush(NULL);
  forked = fork();
}

static void fork_inside(void *context) {
  idlesched_pool *pool = context;
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &mixed.count), 0);
  CHECK_EQ_INT(idlesched_pool_submit(pool, fork_here, NULL), 0);
  for (unsigned i = 0; i < 2; i++) /* makes room, for which it runs the one that forks */
    CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &mixed.count),
                 i == 0 || forked > 0 ? 0 : -ESHUTDOWN);
}

static int fork_and_be_awaited(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  fflush(NULL);
  forked = fork();
  return 0;
}

static int wait_for_a_fork(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  idlesched_job child = { .run = fork_and_be_awaited };
  CHECK_EQ_INT(idlesched_pool_submit_job(job->pool_, &child), 0);
  CHECK_EQ_INT(idlesched_job_wait(&child, IDLESCHED_NEVER), 0);
  return 0;
}

/* Counters of what was reached are written at exit; and leaks are looked for, where only a
 * thread of the parent's may know of something. */
static void leave_child(bool is_well) {
#ifdef __SANITIZE_ADDRESS__
  _exit(is_well ? 0 : 1);
#endif
  exit(is_well ? 0 : 1);
}

/* The child is out of all jobs: the pool is closed there, and a new one works. */
static void live_as_child(idlesched_pool *inherited) {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = NULL;
  bool is_well = inherited->is_taken && /* as the fork found it */
                 idlesched_worker_current() == NULL &&
                 idlesched_pool_submit(inherited, count_up, &count) == -ESHUTDOWN &&
                 idlesched_pool_wait(inherited, 0) == -ESHUTDOWN &&
                 idlesched_pool_close(inherited, IDLESCHED_CLOSE_DRAIN, 0, NULL) == 0 &&
                 idlesched_pool_create(
                   &pool, &(idlesched_pool_config){ .workers_max = IDLESCHED_NO_WORKERS }) == 0 &&
                 idlesched_pool_submit(pool, count_up, &count) == 0 && count == 1;
  idlesched_pool_destroy(inherited);
  idlesched_pool_destroy(pool);
  leave_child(is_well);
}

static void check_parent(void) {
  int status = -1;
  REQUIRE(forked > 0);
  REQUIRE_EQ_INT(waitpid(forked, &status, 0), forked);
  CHECK_EQ_INT(status, 0);
}

SPEC(a_job_that_forks,
     "G13 G5 a child of a job returns from it, and from the submits around it, and lives on") {
  idlesched_job waits = { .run = wait_for_a_fork };
  idlesched_pool *pool = INLINE(.queue_max = 1, .queue_timeout_ns = IDLESCHED_NEVER);
  CHECK_EQ_INT(idlesched_pool_submit(pool, fork_here, NULL), 0);
  if (forked == 0)
    live_as_child(pool);
  check_parent();
  CHECK_EQ_INT(idlesched_pool_submit(pool, fork_inside, pool), 0);
  if (forked == 0)
    live_as_child(pool);
  check_parent();
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &waits), 0);
  if (forked == 0)
    live_as_child(pool);
  check_parent();
  CHECK_EQ_INT(mixed.count, 3);
  destroy(pool);
}

/* On a worker: as far as the outermost job, which has to end the child. */
static void fork_for_room(void *context) {
  idlesched_pool *pool = context;
  CHECK_EQ_INT(idlesched_pool_submit(pool, fork_here, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &mixed.count), 0);
  if (forked == 0)
    leave_child(pool->jobs_inside_count == 1 && /* as the fork found it */
                idlesched_pool_submit(pool, count_up, &mixed.count) == -ESHUTDOWN);
}

SPEC(a_job_inside_another_that_forks,
     "G5 G11 a child of a job that was run to make room returns to the job that submitted") {
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 1,
                              .queue_timeout_ns = IDLESCHED_NEVER);
  CHECK_EQ_INT(idlesched_pool_submit(pool, fork_for_room, pool), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  check_parent();
  CHECK_EQ_INT(mixed.count, 1);
  destroy(pool);
}
