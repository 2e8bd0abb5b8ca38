/* SPDX-License-Identifier: MIT */
/*
 * test_nested.c - a job waits for another one of its pool: it runs it, or blocks until it has
 * ended; a circle is told, and nothing hangs.
 */
#include <errno.h>

#include "plat_fault.h"
#include "pool_kit.h"

static idlesched_pool *pool;

static void destroy(void) {
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  check_stats_add_up(pool);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

static void run_to_the_end(idlesched_job *job) {
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, job), 0);
  REQUIRE_EQ_INT(idlesched_job_wait(job, IDLESCHED_NEVER), 0);
}

/* ---------------------------------------------------------------------- it helps */

/* Computes a Fibonacci number the slow way: each job submits two others and waits. */
struct fib_job {
  idlesched_job job;
  unsigned n;
  uint64_t result;
};

static int run_fib(idlesched_job *job, idlesched_worker *worker) {
  struct fib_job *self = ids_container_of(job, struct fib_job, job);
  CHECK_EQ_PTR(worker, idlesched_worker_current());
  if (self->n < 2) {
    self->result = self->n;
    return 0;
  }
  struct fib_job parts[2];
  idlesched_job *jobs[2];
  for (unsigned i = 0; i < 2; i++) {
    parts[i] = (struct fib_job){ .job = { .run = run_fib }, .n = self->n - 1 - i };
    jobs[i] = &parts[i].job;
    REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, jobs[i]), 0);
  }
  CHECK_EQ_INT(idlesched_jobs_wait(jobs, 2, IDLESCHED_NEVER), 0);
  self->result = parts[0].result + parts[1].result;
  return 0;
}

SPEC(a_tree_of_jobs, "G9 jobs that submit jobs and wait for them end, with 1 worker, 2 and 4") {
  for (unsigned workers = 1; workers <= 4; workers *= 2) {
    struct fib_job root = { .job = { .run = run_fib }, .n = 15 };
    pool = POOL(.workers_max = workers);
    run_to_the_end(&root.job);
    CHECK_EQ_U64(root.result, 610);
    CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
    CHECK_EQ_U64(stats_of(pool).jobs_done, 1973);
    destroy();
  }
}

SPEC(a_tree_of_dedicated_jobs, "G9 C18 a job that has a worker of its own waits as others do") {
  struct fib_job root = { .job = { .run = run_fib }, .n = 7 };
  pool = POOL(.workers_max = 2, .is_dedicated = true);
  run_to_the_end(&root.job);
  CHECK_EQ_U64(root.result, 13);
  destroy();
}

/* ------------------------------------------------------------ when it waits, and how */

static struct door door = DOOR_CLOSED;
static idlesched_job inner;
static _Atomic int wait_status;
static uint64_t wait_timeout_ns;
static pthread_t outer_thread, inner_thread;
static unsigned running_count;

static int note_thread(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  CHECK_EQ_PTR(worker, idlesched_worker_current());
  inner_thread = pthread_self();
  running_count = (unsigned)stats_of(pool).jobs_running;
  return 0;
}

static int wait_for_inner(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  outer_thread = pthread_self();
  wait_status = idlesched_job_wait(&inner, wait_timeout_ns);
  return 0;
}

static int submit_and_wait(idlesched_job *job, idlesched_worker *worker) {
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &inner), 0);
  return wait_for_inner(job, worker);
}

SPEC(a_queued_job_is_run_inside, "G9 a job that waits for a queued one runs it on its own thread") {
  pool = POOL(.workers_max = 1);
  idlesched_job outer = { .run = submit_and_wait };
  inner = (idlesched_job){ .run = note_thread };
  wait_timeout_ns = IDLESCHED_NEVER;
  run_to_the_end(&outer);
  CHECK_EQ_INT(wait_status, 0);
  CHECK(pthread_equal(outer_thread, inner_thread));
  CHECK_EQ_INT(running_count, 2);
  CHECK_EQ_INT(idlesched_job_state_read(&inner), IDLESCHED_JOB_DONE);
  destroy();
}

SPEC(a_look_runs_nothing, "G9 a job that only looks at a queued one does not run it") {
  pool = POOL(.workers_max = 1);
  idlesched_job outer = { .run = submit_and_wait };
  inner = (idlesched_job){ .run = note_thread };
  wait_timeout_ns = 0;
  run_to_the_end(&outer);
  CHECK_EQ_INT(wait_status, -ETIMEDOUT);
  CHECK_EQ_INT(idlesched_job_wait(&inner, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(running_count, 1);
  destroy();
}

SPEC(a_running_job_is_waited_for, "G9 a job waits for one that runs on another worker") {
  pool = POOL(.workers_max = 2);
  idlesched_job outer = { .run = wait_for_inner };
  inner = (idlesched_job){ .run = door_pass_job, .context = &door };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &inner), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  wait_timeout_ns = IDLESCHED_MS;
  run_to_the_end(&outer);
  CHECK_EQ_INT(wait_status, -ETIMEDOUT);
  wait_timeout_ns = IDLESCHED_NEVER;
  wait_status = 1;
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, 0), -ETIMEDOUT);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &outer), 0);
  unsigned index = idlesched_worker_index(inner.worker_);
  WAIT_UNTIL(worker_of(pool, 1 - index).awaited == &inner, SOON_MS);
  CHECK_EQ_INT(wait_status, 1);
  door_open(&door);
  REQUIRE_EQ_INT(idlesched_job_wait(&outer, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(wait_status, 0);
  CHECK(worker_of(pool, 0).awaited == NULL && worker_of(pool, 1).awaited == NULL);
  destroy();
}

SPEC(a_wait_without_a_condition, "G9 G2 a wait for a running job may be refused its resources") {
  pool = POOL(.workers_max = 2);
  idlesched_job outer = { .run = wait_for_inner };
  inner = (idlesched_job){ .run = door_pass_job, .context = &door };
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &inner), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  wait_timeout_ns = IDLESCHED_NEVER;
  fault_refuse("job.waiter", 1, 1);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &outer), 0);
  WAIT_UNTIL(ids_job_has_ended(&outer), SOON_MS);
  CHECK_EQ_INT(wait_status, -ENOMEM);
  door_open(&door);
  destroy();
}

static void wait_in_done(idlesched_job *job) {
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &inner), 0);
  (void)wait_for_inner(job, NULL);
  CHECK_EQ_INT(idlesched_job_wait(job, IDLESCHED_NEVER), 0); /* it has ended */
}

static int do_nothing(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return 0;
}

SPEC(a_done_callback_waits, "G9 a done callback may wait for a job that it has submitted") {
  pool = POOL(.workers_max = 1);
  idlesched_job outer = { .run = do_nothing, .done = wait_in_done };
  inner = (idlesched_job){ .run = note_thread };
  wait_timeout_ns = IDLESCHED_NEVER;
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &outer), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(wait_status, 0);
  CHECK(pthread_equal(outer_thread, inner_thread));
  destroy();
}

static void pass_door_when_dropped(idlesched_job *job) {
  CHECK_EQ_INT(idlesched_job_state_read(job), IDLESCHED_JOB_CANCELLED);
  door_pass(job->context);
}

static int pass_and_wait_for_inner(idlesched_job *job, idlesched_worker *worker) {
  door_pass(job->context);
  return wait_for_inner(job, worker);
}

static void *cancel_all(void *context) {
  (void)context;
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, NULL), 0);
  return NULL;
}

SPEC(a_job_that_is_being_dropped, "G9 G3 a job waits for one that a close is about to drop") {
  struct door dropping = DOOR_CLOSED;
  pool = POOL(.workers_max = 1);
  idlesched_job outer = { .run = pass_and_wait_for_inner, .context = &door };
  idlesched_job first = { .run = note_thread,
                          .done = pass_door_when_dropped,
                          .context = &dropping };
  inner = (idlesched_job){ .run = note_thread };
  wait_timeout_ns = IDLESCHED_NEVER;
  wait_status = 1;
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &outer), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &first), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &inner), 0);
  pthread_t closer = thread_run(cancel_all, NULL);
  WAIT_UNTIL(door_inside_count(&dropping) == 1, SOON_MS);
  door_open(&door);
  WAIT_UNTIL(worker_of(pool, 0).awaited == &inner, SOON_MS);
  CHECK_EQ_INT(wait_status, 1);
  door_open(&dropping);
  thread_result(closer);
  CHECK_EQ_INT(wait_status, 0);
  CHECK_EQ_INT(idlesched_job_status(&inner), -ECANCELED);
  destroy();
}

/* --------------------------------------------------------------------------- circles */

struct linked_job {
  idlesched_job job;
  struct linked_job *next;
  int status;
};

static int wait_for_next(idlesched_job *job, idlesched_worker *worker) {
  struct linked_job *self = ids_container_of(job, struct linked_job, job);
  (void)worker;
  self->status = idlesched_job_wait(&self->next->job, IDLESCHED_NEVER);
  return 0;
}

SPEC(circles_are_told, "G9 in a circle of jobs that wait for each other one is told, and all end") {
  for (unsigned workers = 1; workers <= 3; workers++) {
    for (unsigned length = 1; length <= 6; length++) {
      struct linked_job jobs[6];
      struct door gate = DOOR_CLOSED;
      pool = POOL(.workers_max = workers);
      keep_busy(pool, &gate, workers);
      for (unsigned i = 0; i < length; i++) {
        jobs[i] = (struct linked_job){ .job = { .run = wait_for_next },
                                       .next = &jobs[(i + 1) % length] };
        REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &jobs[i].job), 0);
      }
      door_open(&gate);
      REQUIRE_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
      unsigned told_count = 0;
      for (unsigned i = 0; i < length; i++) {
        told_count += jobs[i].status == -EDEADLK;
        CHECK(jobs[i].status == 0 || jobs[i].status == -EDEADLK);
      }
      CHECK_EQ_INT(told_count, 1);
      destroy();
    }
  }
}

/* ----------------------------------------------------------------------------- lists */

SPEC(a_list_is_waited_for,
     "G9 a list of jobs is waited for with one time limit, to the first error") {
  pool = POOL(.workers_max = 1);
  idlesched_job first = { .run = do_nothing }, second = { .run = door_pass_job, .context = &door };
  idlesched_job never = { .run = do_nothing };
  idlesched_job *jobs[] = { &first, &second, &never };
  CHECK_EQ_INT(idlesched_jobs_wait(NULL, 0, IDLESCHED_NEVER), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &first), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &second), 0);
  uint64_t begun_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_jobs_wait(jobs, 3, 20 * IDLESCHED_MS), -ETIMEDOUT);
  CHECK_GE_U64(spec_now_ns() - begun_ns, 20 * IDLESCHED_MS);
  door_open(&door);
  CHECK_EQ_INT(idlesched_jobs_wait(jobs, 2, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_jobs_wait(jobs, 3, IDLESCHED_NEVER), -EINVAL);
  destroy();
}

/* --------------------------------------------------------------- all of it, at random */

enum { TREES = 4, TREE_JOBS = 400, ROUNDS = 8 };

struct tree_job {
  idlesched_job job;
  uint64_t random;
  _Atomic unsigned ends_count;
};
static struct tree_job trees[TREES][TREE_JOBS];
static _Atomic unsigned next_free[TREES];
static idlesched_token tokens[TREES];

static void count_end(idlesched_job *job) {
  ids_container_of(job, struct tree_job, job)->ends_count++;
}

static int run_tree(idlesched_job *job, idlesched_worker *worker);

/* A job of this tree that nobody has used yet, or NULL. */
static struct tree_job *submit_one(unsigned tree, uint64_t random) {
  unsigned i = atomic_fetch_add(&next_free[tree], 1);
  if (i >= TREE_JOBS)
    return NULL;
  struct tree_job *self = &trees[tree][i];
  self->random = random * UINT64_C(6364136223846793005) + i;
  self->job = (idlesched_job){ .run = run_tree,
                               .done = random >> 40 & 1 ? count_end : NULL,
                               .priority = (int)(random >> 50) % 3 - 1,
                               .token = random >> 33 & 1 ? &tokens[tree] : NULL };
  int status = idlesched_pool_submit_job(pool, &self->job);
  CHECK(status == 0 || status == -ECANCELED);
  return status == 0 ? self : NULL;
}

static int run_tree(idlesched_job *job, idlesched_worker *worker) {
  struct tree_job *self = ids_container_of(job, struct tree_job, job);
  struct tree_job *parts[3];
  unsigned tree = (unsigned)((self - &trees[0][0]) / TREE_JOBS);
  (void)worker;
  for (unsigned i = 0; i < 3; i++)
    parts[i] = submit_one(tree, self->random + i);
  if (parts[0] != NULL && self->random >> 35 & 1)
    (void)idlesched_job_cancel(&parts[0]->job);
  for (unsigned i = 0; i < 3; i++) {
    if (parts[i] == NULL)
      continue;
    int status = idlesched_job_wait(&parts[i]->job, IDLESCHED_NEVER);
    CHECK_EQ_INT(status, 0);
  }
  return idlesched_job_is_cancelled(job) ? -EINTR : 0;
}

static void *grow_a_tree(void *context) {
  unsigned tree = (unsigned)(uintptr_t)context;
  struct tree_job *root = submit_one(tree, tree * 977);
  REQUIRE(root != NULL);
  if (tree % 2 == 0)
    (void)idlesched_token_cancel(&tokens[tree]);
  CHECK_EQ_INT(idlesched_job_wait(&root->job, IDLESCHED_NEVER), 0);
  return NULL;
}

SPEC(trees_with_cancels, "G9 G4 trees of jobs, cancelled by name and by token at random, end") {
  for (unsigned round = 0; round < ROUNDS; round++) {
    pthread_t threads[TREES];
    pool = POOL(.workers_max = 1 + round % 4);
    for (unsigned i = 0; i < TREES; i++) {
      next_free[i] = 0;
      tokens[i] = (idlesched_token){ 0 };
    }
    for (unsigned i = 0; i < TREES; i++)
      threads[i] = thread_run(grow_a_tree, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < TREES; i++)
      thread_result(threads[i]);
    destroy();
  }
}
