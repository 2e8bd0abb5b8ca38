/* SPDX-License-Identifier: MIT */
/*
 * test_fork.c - pools of an earlier process, and new ones beside them, after real forks.
 * (Every moment of a fork: test_sim_fork.c.)
 *
 * Nothing stands between the core and its platform here: what did would have locks of
 * its own, which a fork may catch.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork.h"
#include "pool_kit.h"

/* What a child does with what it inherited, and anew.  0: all was well. */
static int live_as_child(idlesched_pool *inherited) {
  _Atomic unsigned count = 0;
  idlesched_pool *pool;
  idlesched_thread self;
  if (idlesched_pool_submit(inherited, count_up, &count) != -ESHUTDOWN)
    return 1;
  if (idlesched_pool_close(inherited, IDLESCHED_CLOSE_DRAIN, 0, NULL) != 0)
    return 2;
  idlesched_worker_row row = { .index = 1, .state = IDLESCHED_WORKER_RUNNING, .dead_bytes = 1 };
  if (idlesched_pool_workers_read(inherited, &row, 1) != 2 || row.index != 0 ||
      row.state != IDLESCHED_WORKER_ABSENT || row.dead_bytes != 0)
    return 6;
  idlesched_pool_destroy(inherited);
  if (idlesched_pool_create(&pool, NULL) != 0 || idlesched_pool_submit(pool, count_up, &count) != 0)
    return 3;
  if (idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS) != 0 || count != 1)
    return 4;
  idlesched_thread_enter(&self);
  idlesched_thread_leave(&self);
  if (idlesched_pool_release(pool, 0, NULL) != 0)
    return 5;
  idlesched_pool_destroy(pool);
  return 0;
}

static int release_as_child(idlesched_pool *inherited) {
  idlesched_release_report report;
  if (idlesched_release(IDLESCHED_NEVER, &report) != 0 || report.pools_count != 0)
    return 1;
  if (idlesched_release_pools(&inherited, 1, IDLESCHED_NEVER, &report) != -ESHUTDOWN)
    return 2;
  return idlesched_pool_release(inherited, IDLESCHED_NEVER, NULL) == -ESHUTDOWN ? 0 : 3;
}

static void keep_purging(void *is_over) {
  while (!atomic_load((_Atomic bool *)is_over))
    idlesched_thread_idle();
}

/* As a program ends: what the libraries do at exit is done.  The address sanitizer would look
 * there for leaks, and take for one what only a thread of the parent's knew. */
static void leave_child(int code) {
#ifdef __SANITIZE_ADDRESS__
  _exit(code);
#endif
  exit(code);
}

/* A child that lives so ends well. */
static void check_child(int (*live)(idlesched_pool *inherited), idlesched_pool *inherited) {
  fflush(NULL);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0)
    leave_child(live(inherited));
  int status;
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  CHECK_EQ_INT(status, 0);
}

static void need_threads_in_children(void) {
#ifdef __SANITIZE_THREAD__
  SKIP("the thread sanitizer allows no threads after a fork of a process that has some");
#endif
}

SPEC(a_child_uses_new_pools,
     "G5 1,000 children of a process with busy workers use new pools, and exit", .limit_s = 120) {
  need_threads_in_children();
  _Atomic bool is_over = false;
  idlesched_pool *pool = POOL(.workers_max = 2);
  for (unsigned i = 0; i < 2; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, keep_purging, &is_over), 0);
  for (unsigned i = 0; i < 1000; i++)
    check_child(live_as_child, pool);
  is_over = true;
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  idlesched_pool_destroy(pool);
}

/* ---- workers in each state ---- */

/* Pools of two workers, of which one is in the state that the hook, or the job, holds it in. */
enum { BUSY, PARKED, STARTING, RELEASING, EXITING, STATES };
static struct door hook_doors[STATES];
static idlesched_pool *in_state[STATES];

static void start_held(idlesched_worker *worker, void *context) {
  give_data(worker, NULL);
  if (context == &hook_doors[STARTING])
    door_pass(context);
}

static bool collect_held(idlesched_worker *worker, void *context) {
  (void)worker;
  if (context == &hook_doors[RELEASING])
    door_pass(context);
  return false;
}

static void stop_held(idlesched_worker *worker, void *context) {
  (void)worker;
  if (context == &hook_doors[EXITING])
    door_pass(context);
}

static void do_nothing(void *context) {
  (void)context;
}

static void open_pools(void) {
  for (int state = 0; state < STATES; state++) {
    hook_doors[state] = (struct door)DOOR_CLOSED;
    in_state[state] = POOL(.workers_max = 2,
                           .idle_release_ns = state == RELEASING ? IDLESCHED_AT_ONCE
                                                                 : IDLESCHED_NEVER,
                           .idle_exit_ns = state == EXITING ? IDLESCHED_AT_ONCE : IDLESCHED_NEVER,
                           .hooks = { start_held, collect_held, stop_held, &hook_doors[state] });
    if (state == BUSY)
      keep_busy(in_state[state], &hook_doors[state], 1);
    else
      REQUIRE_EQ_INT(idlesched_pool_submit(in_state[state], do_nothing, NULL), 0);
  }
  for (int state = 0; state < STATES; state++)
    if (state != PARKED)
      WAIT_UNTIL(door_inside_count(&hook_doors[state]) == 1, SOON_MS);
  WAIT_UNTIL(stats_of(in_state[PARKED]).parked == 1, SOON_MS);
  REQUIRE_EQ_INT(stats_of(in_state[BUSY]).running, 1);
  REQUIRE_EQ_INT(stats_of(in_state[STARTING]).starting, 1);
  REQUIRE_EQ_INT(stats_of(in_state[RELEASING]).releasing, 1);
  REQUIRE_EQ_INT(stats_of(in_state[EXITING]).exiting, 1);
}

static int live_without_the_others(idlesched_pool *inherited) {
  for (int state = 0; state < STATES; state++) {
    if (idlesched_pool_wait(in_state[state], IDLESCHED_NEVER) != -ESHUTDOWN)
      return 10 + state;
    idlesched_pool_destroy(in_state[state]);
  }
  return live_as_child(inherited);
}

SPEC(a_child_of_workers_in_each_state,
     "G5 1,000 children of a process with workers that run, are parked, start, release and exit "
     "use new pools, and exit",
     .limit_s = 120) {
  need_threads_in_children();
  open_pools();
  for (unsigned i = 0; i < 1000; i++)
    check_child(live_without_the_others, in_state[i % STATES]);
  for (int state = 0; state < STATES; state++) {
    door_open(&hook_doors[state]);
    CHECK_EQ_INT(idlesched_pool_wait(in_state[state], IDLESCHED_NEVER), 0);
    check_stats_add_up(in_state[state]);
    idlesched_pool_destroy(in_state[state]);
  }
}

/* Its parent had begun to put things in order, and forked before it was done. */
static int is_first_again(idlesched_pool *inherited) {
  (void)inherited;
  struct ids_fork_mark mark = { .claimed = ids_fork_generation() };
  pid_t grandchild = fork();
  if (grandchild < 0)
    return 1;
  if (grandchild == 0)
    _exit(ids_fork_is_first(&mark) ? 0 : 2);
  int status;
  return waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 3;
}

SPEC(a_fork_while_things_are_put_in_order,
     "G5 a fork while a child puts in order what it inherited: the grandchild does it") {
  check_child(is_first_again, NULL);
}

/* Threads that end all the time: the allocator's end of a thread holds locks of its own. */
SPEC(a_child_of_a_process_whose_threads_end, "G5 children of a process whose workers come and go",
     .limit_s = 60) {
#ifdef __SANITIZE_ADDRESS__
  SKIP("the address sanitizer's own locks are not made for a fork while threads begin or end");
#endif
  need_threads_in_children();
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 2, .is_dedicated = true);
  for (unsigned i = 0; i < 200; i++) {
    for (unsigned j = 0; j < 5; j++)
      REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    check_child(live_as_child, pool);
  }
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  idlesched_pool_destroy(pool);
}

static void fork_and_release(void *pool) {
  check_child(release_as_child, pool);
}

SPEC(a_child_has_none_of_the_pools,
     "G5 B14 a release in a child visits none of its parent's pools, also in a job that forked") {
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER);
  fork_and_release(pool);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, fork_and_release, pool), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  idlesched_pool_destroy(pool);
}

/* ----------------------------------------------------------- a worker that forks */

/* In the child it is a worker of nobody's. */
static void fork_and_tell_memory(void *out_status) {
  idlesched_worker *self = idlesched_worker_current();
  idlesched_worker_set_memory(self, 900, 500);
  pid_t child = fork();
  if (child == 0) {
    idlesched_memory memory;
    idlesched_worker_set_memory(self, 2, 1);
    (void)idlesched_memory_read(&memory);
    _exit(memory.dead_bytes == 0 ? 0 : 1);
  }
  if (child < 0 || waitpid(child, out_status, 0) != child)
    *(int *)out_status = -1;
}

SPEC(a_worker_that_forks, "G5 C4 what a worker's child says of its memory counts for nobody") {
  int status = -1;
  idlesched_memory memory;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_exit_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, fork_and_tell_memory, &status), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(status, 0);
  (void)idlesched_memory_read(&memory);
  CHECK_EQ_U64(memory.dead_bytes, 500);
  idlesched_pool_destroy(pool);
}
