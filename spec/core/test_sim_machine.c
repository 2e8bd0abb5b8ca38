/* SPDX-License-Identifier: MIT */
/*
 * test_sim_machine.c - the simulated machine's rules: misuse of its primitives, what a scenario
 * may ask of each step, its clock, its threads, a fork, and what is done at a chosen step.
 */
#include <string.h>

#include "toy_sim.h"

static struct ids_mutex lock, lock_b;
static struct ids_cond cond;
static uint32_t flag;

/* -------------------------------------------------------------------- misuse */

static void do_nothing(void *context) {
  (void)context;
}

static void unlock_lock(void *context) {
  (void)context;
  ids_mutex_unlock(&lock);
}

static void wait_with_lock_b(void *context) {
  (void)context;
  ids_mutex_lock(&lock_b);
  ids_cond_wait(&cond, &lock_b, IDS_NEVER);
}

static void misuse(void *context) {
  struct ids_thread thread;
  struct ids_mutex *heap_lock;
  toy_init_lock(&lock);
  toy_init_lock(&lock_b);
  toy_init_cond(&cond);
  if (toy_is(context, "unlock by another")) {
    ids_mutex_lock(&lock);
    toy_start(&thread, unlock_lock, NULL, "thief");
    ids_thread_join(&thread);
  }
  if (toy_is(context, "unlock when free"))
    ids_mutex_unlock(&lock);
  if (toy_is(context, "lock twice")) {
    ids_mutex_lock(&lock);
    ids_mutex_lock(&lock);
  }
  if (toy_is(context, "wait without lock"))
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  if (toy_is(context, "deinit locked")) {
    ids_mutex_lock(&lock);
    ids_mutex_deinit(&lock);
  }
  if (toy_is(context, "deinit waited on")) {
    toy_start(&thread, wait_with_lock_b, NULL, "waiter");
    sim_sleep_ns(1);
    ids_cond_deinit(&cond);
  }
  if (toy_is(context, "two mutexes")) {
    toy_start(&thread, wait_with_lock_b, NULL, "waiter");
    sim_sleep_ns(1);
    ids_mutex_lock(&lock);
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  }
  if (toy_is(context, "deinit twice")) {
    ids_mutex_deinit(&lock);
    ids_mutex_deinit(&lock);
  }
  if (toy_is(context, "init twice"))
    toy_init_lock(&lock);
  if (toy_is(context, "no init")) {
    heap_lock = ids_alloc(sizeof *heap_lock, "heap lock");
    memset(heap_lock, 0, sizeof *heap_lock);
    ids_mutex_lock(heap_lock);
  }
  if (toy_is(context, "join twice")) {
    toy_start(&thread, do_nothing, NULL, "thread");
    ids_thread_join(&thread);
    ids_thread_join(&thread);
  }
  if (toy_is(context, "assertion"))
    ids_assert_equal(1 + 1, 3);
}

SPEC(misuse_is_found, "S4 misuse of mutexes, conditions and threads fails the run") {
  toy_must_find(toy_plan(misuse, "unlock by another"),
                "lock is locked by scenario#0, expected the");
  toy_must_find(toy_plan(misuse, "unlock when free"), "lock is locked by nobody");
  toy_must_find(toy_plan(misuse, "lock twice"), "the caller has lock already");
  toy_must_find(toy_plan(misuse, "wait without lock"), "lock is not locked by the caller");
  toy_must_find(toy_plan(misuse, "deinit locked"), "lock is locked by scenario#0");
  toy_must_find(toy_plan(misuse, "deinit waited on"), "waiter#1 waits on cond");
  toy_must_find(toy_plan(misuse, "two mutexes"), "cond is waited on with two mutexes");
  toy_must_find(toy_plan(misuse, "deinit twice"), "was deinitialised before");
  toy_must_find(toy_plan(misuse, "init twice"), "is initialised already");
  toy_must_find(toy_plan(misuse, "no init"), "is not initialised");
  toy_must_find(toy_plan(misuse, "join twice"), "was joined or detached before");
  toy_must_find(toy_plan(misuse, "assertion"), "assertion failed: 1 + 1 == 3: 2 against 3");
}

/* ------------------------------------------------------------ rules of a scenario */

static void never_one(void *context) {
  (void)context;
  if (!sim_is_locked(&lock) && flag == 1)
    sim_fail("the flag is 1 and the lock is free");
}

static void under_lock(void *context) {
  flag = 0;
  toy_init_lock(&lock);
  sim_invariant(never_one, NULL);
  ids_mutex_lock(&lock);
  flag = 1;
  ids_point("in the middle");
  if (toy_is(context, "repaired"))
    flag = 0;
  ids_mutex_unlock(&lock);
  ids_point("afterwards");
  ids_mutex_deinit(&lock);
}

SPEC(invariants_are_asked, "S5 an invariant is asked after every step") {
  toy_must_find(toy_plan(under_lock, "left"), "the flag is 1 and the lock is free");
  toy_must_pass(toy_plan(under_lock, "repaired"));
}

static bool is_flag_set(void *context) {
  (void)context;
  return flag == 1;
}

static void rest(void *context) {
  flag = toy_is(context, "with work");
  sim_on_rest(is_flag_set, NULL);
  sim_sleep_ns(IDS_S);
}

SPEC(rest_is_asked, "S5 rest with work left fails before a timer can hide it") {
  toy_must_find(toy_plan(rest, "with work"), "at rest, although there is something to do");
  toy_must_pass(toy_plan(rest, "without"));
}

/* --------------------------------------------------------------------- clock */

static void sleep_a_second(void *context) {
  (void)context;
  uint64_t begin_ns = ids_now_ns();
  sim_sleep_ns(IDS_S);
  SIM_CHECK_EQUAL(ids_now_ns() - begin_ns, IDS_S);
}

static void fair_time(void *context) {
  struct ids_thread thread;
  uint64_t begin_ns = ids_now_ns();
  toy_start(&thread, sleep_a_second, NULL, "sleeper");
  for (unsigned i = 0; i < 3; i++)
    ids_point("busy");
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns);
  ids_thread_join(&thread);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + IDS_S);
  (void)context;
}

SPEC(fair_time_is_exact, "S6 in fair mode time moves only when nothing can run") {
  toy_must_pass(toy_plan(fair_time, NULL));
}

/* With deadline and signal at once, either may be first, and the signal may be used up by a
 * waiter that was leaving anyway. */
static unsigned outcomes;

static void leave_late(void *context) {
  (void)context;
  ids_mutex_lock(&lock);
  ids_cond_wait(&cond, &lock, ids_now_ns() + IDS_MS);
  outcomes |= flag == 1 ? 1 : 2;
  ids_mutex_unlock(&lock);
}

static void signal_at_deadline(void *context) {
  (void)context;
  flag = 0;
  toy_init_lock(&lock);
  toy_init_cond(&cond);
  struct ids_thread thread;
  toy_start(&thread, leave_late, NULL, "waiter");
  sim_sleep_ns(IDS_MS);
  ids_mutex_lock(&lock);
  flag = 1;
  ids_cond_signal(&cond);
  ids_mutex_unlock(&lock);
  ids_thread_join(&thread);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(deadline_and_signal_meet, "S6 a signal at the deadline may come before and after it") {
  outcomes = 0;
  toy_must_pass(toy_plan(signal_at_deadline, NULL));
  CHECK_EQ_INT(outcomes, 3);
}

/* ------------------------------------------------------------------- threads */

static void own_values(void *context) {
  SIM_CHECK(ids_tls_get(IDS_TLS_WORKER) == NULL);
  ids_tls_set(IDS_TLS_WORKER, context);
  ids_point("others");
  SIM_CHECK(ids_tls_get(IDS_TLS_WORKER) == context);
}

/* More than there are slots, one after the other; and one that nobody joins. */
static void detach(void *context) {
  own_values(context);
  ids_thread_detach_self();
}

static void many_threads(void *context) {
  (void)context;
  ids_tls_set(IDS_TLS_WORKER, NULL);
  struct ids_thread threads[3], detached;
  for (unsigned round = 0; round < 100; round++) {
    for (unsigned i = 0; i < 3; i++)
      toy_start(&threads[i], own_values, &threads[i], "thread");
    for (unsigned i = 0; i < 3; i++)
      ids_thread_join(&threads[i]);
  }
  toy_start(&detached, detach, &detached, "detached");
}

SPEC(threads_have_values_of_their_own,
     "S7 thread values, numbers and slots are each thread's own") {
  struct sim_plan plan = toy_plan(many_threads, NULL);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 200;
  struct sim_result result;
  sim_search(&plan, &result);
  CHECK_EQ_STR(result.message, "");
  CHECK_EQ_U64(result.runs_count, 200);
}

/* ------------------------------------------------------- fork, posts, sweeps */

static void hold_lock(void *context) {
  (void)context;
  ids_mutex_lock(&lock);
  ids_point("forked here");
  ids_mutex_unlock(&lock);
  for (;;)
    sim_sleep_ns(IDS_S);
}

static void fork_scenario(void *context) {
  toy_init_lock(&lock);
  struct ids_thread thread;
  void *block = ids_alloc(8, "before");
  toy_start(&thread, hold_lock, NULL, "holder");
  sim_sleep_ns(1);
  uint32_t generation = ids_fork_generation();
  sim_fork();
  SIM_CHECK_EQUAL(ids_fork_generation(), generation + 1);
  SIM_CHECK(!ids_mutex_is_mine(&lock));
  if (toy_is(context, "wait")) {
    ids_mutex_lock(&lock);
    ids_mutex_unlock(&lock);
  }
  ids_free(block);
  toy_init_lock(&lock); /* of the generation before */
  ids_mutex_deinit(&lock);
  if (toy_is(context, "leak"))
    block = ids_alloc(8, "after");
}

static struct sim_plan fork_plan(const char *what) {
  struct sim_plan plan = toy_plan(fork_scenario, what);
  plan.forks = true;
  return plan;
}

SPEC(a_child_is_alone, "S8 after a fork one thread goes on, and the others stand still") {
  struct sim_plan plan = fork_plan("alone");
  toy_must_pass(plan);
  plan.is_hostile = true;
  plan.bound = 3;
  toy_must_pass(plan);
  toy_must_find(fork_plan("leak"), "made at 'after'");
  struct sim_result result;
  plan = fork_plan("wait");
  plan.is_hostile = true;
  plan.bound = 2;
  sim_search(&plan, &result);
  CHECK(result.failed); /* the holder never unlocks */
  CHECK_CONTAINS(result.message, "wants lock, which holder#1 has");
  plan.forks = false;
  sim_search(&plan, &result);
  CHECK(result.failed);
  CHECK_CONTAINS(result.message, "sim_fork: the plan does not say that it forks");
}

static uint64_t posted_at;

static void post(void *context) {
  (void)context;
  __atomic_store_n(&posted_at, sim_steps_count(), __ATOMIC_RELEASE);
  ids_point("posted");
}

static void sweep(void *context) {
  posted_at = 0;
  sim_post_at_step(sim_sweep_step(), post, NULL);
  for (unsigned i = 0; i < 5; i++)
    ids_point("step");
  uint64_t at = __atomic_load_n(&posted_at, __ATOMIC_ACQUIRE);
  SIM_CHECK_EQUAL(at, sim_sweep_step() <= 5 ? sim_sweep_step() : 0);
  if (toy_is(context, "wrong at 3"))
    SIM_CHECK(at != 3);
}

SPEC(a_verb_is_posted_at_every_step, "S8 something is done at step k, for each k") {
  struct sim_plan plan = toy_plan(sweep, "right");
  sim_spec_sweep(&plan);
  plan = toy_plan(sweep, "wrong at 3");
  plan.sweep_step = 3;
  toy_must_find(plan, "at != 3");
}
