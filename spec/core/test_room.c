/* SPDX-License-Identifier: MIT */
/*
 * test_room.c - a queue with a limit, on real threads: full, waited for, made room in.  (Who
 * gets in when: test_sim_room.c.)
 */
#include <errno.h>

#include "plat_fault.h"
#include "pool_kit.h"

static int do_nothing(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return 0;
}

static int pass_door(idlesched_job *job, idlesched_worker *worker) {
  return door_pass_job(job, worker);
}

struct submit_call {
  idlesched_pool *pool;
  idlesched_job *job;
  int status;
};

static void *submit(void *context) {
  struct submit_call *self = context;
  self->status = idlesched_pool_submit_job(self->pool, self->job);
  return NULL;
}

/* A submit on a thread of its own that waits for room. */
static pthread_t submit_waiting(struct submit_call *call) {
  unsigned waiting_count = plat_waiting_count();
  call->status = 1;
  pthread_t thread = thread_run(submit, call);
  WAIT_UNTIL(plat_waiting_count() == waiting_count + 1, SOON_MS);
  return thread;
}

static void destroy(idlesched_pool *pool) {
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(full_is_an_error, "G11 without a time to wait a submit into a full queue fails at once") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_job job = { .run = do_nothing };
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 3);
  keep_busy(pool, &door, 1);
  for (unsigned i = 0; i < 3; i++)
    CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), -ENOBUFS);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -ENOBUFS);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_NEW);
  CHECK_EQ_U64(stats_of(pool).jobs_submitted, 4);
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(count, 3);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  destroy(pool);
}

SPEC(the_time_is_waited, "G11 a submit into a full queue waits as long as it should, and fails") {
  struct door door = DOOR_CLOSED;
  idlesched_job job = { .run = do_nothing };
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 1,
                              .queue_timeout_ns = 20 * IDLESCHED_MS);
  keep_busy(pool, &door, 1);
  _Atomic unsigned count = 0;
  CHECK_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  uint64_t before_ns = spec_now_ns();
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -ENOBUFS);
  CHECK_GE_U64(spec_now_ns() - before_ns, 20 * IDLESCHED_MS);
  CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_NEW);
  door_open(&door);
  destroy(pool);
}

SPEC(room_comes, "G11 submits that wait get in in their order, as jobs are begun or cancelled") {
  struct door door = DOOR_CLOSED;
  idlesched_job jobs[4];
  for (unsigned i = 0; i < 4; i++)
    jobs[i] = (idlesched_job){ .run = pass_door, .context = &door };
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 1,
                              .queue_timeout_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &jobs[0]), 0);
  struct submit_call calls[] = { { pool, &jobs[1], 1 },
                                 { pool, &jobs[2], 1 },
                                 { pool, &jobs[3], 1 } };
  pthread_t threads[3];
  for (unsigned i = 0; i < 3; i++)
    threads[i] = submit_waiting(&calls[i]);
  CHECK_EQ_INT(idlesched_job_state_read(&jobs[1]), IDLESCHED_JOB_NEW);

  CHECK_EQ_INT(idlesched_job_cancel(&jobs[0]), 0);
  CHECK_EQ_INT(idlesched_job_state_read(&jobs[1]), IDLESCHED_JOB_QUEUED);
  CHECK_EQ_INT(idlesched_job_state_read(&jobs[2]), IDLESCHED_JOB_NEW);
  thread_result(threads[0]);
  CHECK_EQ_INT(calls[0].status, 0);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 1);
  door_open(&door);
  thread_result(threads[1]);
  thread_result(threads[2]);
  CHECK_EQ_INT(calls[1].status, 0);
  CHECK_EQ_INT(calls[2].status, 0);
  for (unsigned i = 1; i < 4; i++)
    CHECK_EQ_INT(idlesched_job_wait(&jobs[i], IDLESCHED_NEVER), 0);
  destroy(pool);
}

SPEC(a_close_refuses_who_waits, "G11 G3 a close tells those who wait for room, at once") {
  struct door door = DOOR_CLOSED;
  idlesched_job queued = { .run = do_nothing }, waiting = queued;
  idlesched_close_report report;
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 1,
                              .queue_timeout_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &queued), 0);
  struct submit_call call = { pool, &waiting, 1 };
  pthread_t thread = submit_waiting(&call);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, IDLESCHED_MS, &report),
               -ETIMEDOUT);
  CHECK_EQ_INT(report.dropped_count, 1);
  thread_result(thread);
  CHECK_EQ_INT(call.status, -ESHUTDOWN);
  CHECK_EQ_INT(idlesched_job_state_read(&waiting), IDLESCHED_JOB_NEW);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  destroy(pool);
}

/* ------------------------------------------------------------------ refusals */

SPEC(nothing_to_wait_with, "G11 without a condition to wait on, a submit into a full queue fails") {
  struct door door = DOOR_CLOSED;
  idlesched_job queued = { .run = do_nothing }, refused = queued;
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 1,
                              .queue_timeout_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &queued), 0);
  fault_refuse("line.place", 1, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &refused), -ENOMEM);
  CHECK_EQ_INT(fault_refused_count(), 1);
  CHECK_EQ_INT(idlesched_job_state_read(&refused), IDLESCHED_JOB_NEW);
  door_open(&door);
  destroy(pool);
}

/* The queue has one segment, in which another cell is: another priority takes a second one. */
SPEC(no_memory_for_who_waits,
     "G11 room comes, and the memory for the job is refused: its submit says so, the next one "
     "gets in") {
  struct door door = DOOR_CLOSED;
  idlesched_job queued[2] = { { .run = do_nothing }, { .run = do_nothing } };
  idlesched_job refused = { .run = do_nothing, .priority = 1 }, taken = { .run = do_nothing };
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 2,
                              .queue_timeout_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 1);
  for (unsigned i = 0; i < 2; i++)
    CHECK_EQ_INT(idlesched_pool_submit_job(pool, &queued[i]), 0);
  struct submit_call calls[] = { { pool, &refused, 1 }, { pool, &taken, 1 } };
  pthread_t threads[2];
  for (unsigned i = 0; i < 2; i++)
    threads[i] = submit_waiting(&calls[i]);
  fault_refuse("queue.segment", 1, 1);
  CHECK_EQ_INT(idlesched_job_cancel(&queued[0]), 0);
  for (unsigned i = 0; i < 2; i++)
    thread_result(threads[i]);
  CHECK_EQ_INT(fault_refused_count(), 1);
  CHECK_EQ_INT(calls[0].status, -ENOMEM);
  CHECK_EQ_INT(idlesched_job_state_read(&refused), IDLESCHED_JOB_NEW);
  CHECK_EQ_INT(calls[1].status, 0);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 2);
  door_open(&door);
  destroy(pool);
}

/* ------------------------------------------------------------ jobs that submit */

enum { LEAVES = 100 };
struct tree {
  idlesched_pool *pool;
  _Atomic unsigned count;
  int status;
};

static void submit_leaves(void *context) {
  struct tree *tree = context;
  for (unsigned i = 0; i < LEAVES && tree->status == 0; i++)
    tree->status = idlesched_pool_submit(tree->pool, count_up, &tree->count);
}

SPEC(a_job_makes_room_itself,
     "G11 G9 the one worker's job submits a hundred into a queue of two: it runs them itself") {
  struct tree tree = { .pool = POOL(.workers_max = 1, .queue_max = 2,
                                    .queue_timeout_ns = IDLESCHED_NEVER) };
  CHECK_EQ_INT(idlesched_pool_submit(tree.pool, submit_leaves, &tree), 0);
  CHECK_EQ_INT(idlesched_pool_wait(tree.pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(tree.status, 0);
  CHECK_EQ_INT(tree.count, LEAVES);
  CHECK_EQ_U64(stats_of(tree.pool).jobs_done, LEAVES + 1);
  destroy(tree.pool);
}

SPEC(a_job_may_be_refused_as_well, "G11 without a time to wait a job's submit fails like others") {
  struct tree tree = { .pool = POOL(.workers_max = 1, .queue_max = 2) };
  CHECK_EQ_INT(idlesched_pool_submit(tree.pool, submit_leaves, &tree), 0);
  CHECK_EQ_INT(idlesched_pool_wait(tree.pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(tree.status, -ENOBUFS);
  CHECK_EQ_INT(tree.count, 2);
  destroy(tree.pool);
}

static struct {
  idlesched_pool *pool;
  unsigned depth, depth_most, runs_count, taken_count, refused_count;
} nest;

/* Each submits two, as long as there are few. */
static void submit_two(void *context) {
  (void)context;
  nest.runs_count++;
  nest.depth++;
  if (nest.depth > nest.depth_most)
    nest.depth_most = nest.depth;
  for (unsigned i = 0; i < 2 && nest.taken_count < 200; i++) {
    int status = idlesched_pool_submit(nest.pool, submit_two, NULL);
    CHECK(status == 0 || status == -ENOBUFS);
    nest.taken_count += status == 0;
    nest.refused_count += status != 0;
  }
  nest.depth--;
}

SPEC(not_without_end,
     "G11 jobs that submit jobs that submit jobs are at most 16 deep inside each other: then they "
     "are refused") {
  nest.pool = POOL(.workers_max = 1, .queue_max = 1, .queue_timeout_ns = IDLESCHED_NEVER);
  CHECK_EQ_INT(idlesched_pool_submit(nest.pool, submit_two, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_wait(nest.pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(nest.depth_most, 17);
  CHECK_GT_INT(nest.refused_count, 0);
  CHECK_EQ_INT(nest.runs_count, nest.taken_count + 1);
  destroy(nest.pool);
}

/* ---- in a done callback, where a worker is about to poll ---- */

static struct {
  idlesched_pool *pool;
  idlesched_job first, second, third;
  int statuses[2];
  bool third_began_inside;
} after;

static int note_depth(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  after.third_began_inside = worker->depth > 0;
  WAIT_UNTIL(idlesched_job_state_read(&after.second) == IDLESCHED_JOB_DONE, SOON_MS);
  return -1;
}

static void submit_when_done(idlesched_job *job) {
  (void)job;
  after.statuses[0] = idlesched_pool_submit_job(after.pool, &after.third);
  after.statuses[1] = idlesched_pool_submit_job(after.pool, &after.second);
}

SPEC(in_a_done_callback,
     "G11 a done callback that submits into a full queue makes room as well, and what the worker "
     "was about to take does not wait for it") {
  after.pool = POOL(.workers_max = 2, .queue_max = 1, .queue_timeout_ns = IDLESCHED_NEVER);
  after.first = (idlesched_job){ .run = do_nothing, .done = submit_when_done };
  after.second = (idlesched_job){ .run = do_nothing };
  after.third = (idlesched_job){ .run = note_depth };
  CHECK_EQ_INT(idlesched_pool_submit_job(after.pool, &after.first), 0);
  CHECK_EQ_INT(idlesched_pool_wait(after.pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(after.statuses[0], 0);
  CHECK_EQ_INT(after.statuses[1], 0);
  CHECK(after.third_began_inside);
  CHECK_EQ_INT(idlesched_job_state_read(&after.third), IDLESCHED_JOB_FAILED);
  CHECK_EQ_INT(idlesched_job_state_read(&after.second), IDLESCHED_JOB_DONE);
  destroy(after.pool);
}

/* ---- what cannot be taken in although room was made ---- */

static int submit_oneself(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  return idlesched_pool_submit_job(job->pool_, job);
}

SPEC(room_that_is_not_needed,
     "G11 a job that makes room in vain leaves it to the first of those who wait") {
  struct door door = DOOR_CLOSED;
  idlesched_job oneself = { .run = submit_oneself }, queued = { .run = do_nothing };
  idlesched_job waiting = { .run = do_nothing };
  idlesched_pool *pool = POOL(.workers_max = 1, .queue_max = 2,
                              .queue_timeout_ns = IDLESCHED_NEVER);
  keep_busy(pool, &door, 1);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &oneself), 0);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &queued), 0);
  idlesched_job others[2] = { { .run = do_nothing }, { .run = do_nothing } };
  struct submit_call calls[] = { { pool, &waiting, 1 },
                                 { pool, &others[0], 1 },
                                 { pool, &others[1], 1 } };
  pthread_t threads[3];
  for (unsigned i = 0; i < 3; i++)
    threads[i] = submit_waiting(&calls[i]);
  door_open(&door);
  for (unsigned i = 0; i < 3; i++) {
    thread_result(threads[i]);
    CHECK_EQ_INT(calls[i].status, 0);
  }
  CHECK_EQ_INT(idlesched_job_wait(&oneself, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(idlesched_job_status(&oneself), -EALREADY);
  destroy(pool);
}

/* As it is when all that is queued is not to be begun yet. */
static void submit_into_nothing(void *context) {
  struct tree *tree = context;
  tree->pool->queue_max = 0;
  tree->status = idlesched_pool_submit(tree->pool, count_up, &tree->count);
  tree->pool->queue_max = 1;
}

SPEC(nothing_to_be_run, "G11 a job that finds nothing to run in a full queue is refused") {
  struct tree tree = { .pool = POOL(.workers_max = 1, .queue_max = 1,
                                    .queue_timeout_ns = IDLESCHED_NEVER) };
  CHECK_EQ_INT(idlesched_pool_submit(tree.pool, submit_into_nothing, &tree), 0);
  CHECK_EQ_INT(idlesched_pool_wait(tree.pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(tree.status, -ENOBUFS);
  destroy(tree.pool);
}
