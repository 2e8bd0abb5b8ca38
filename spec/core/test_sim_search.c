/* SPDX-License-Identifier: MIT */
/*
 * test_sim_search.c - searches on the simulated machine: that they are exhaustive within their
 * bound, that a seed and a schedule stand for one run, and how many runs a small pool takes.
 *
 * Method: where the number of schedules is known from a formula, it has to be met.
 */
#include <string.h>

#include "toy_sim.h"

/* ---------------------------------------------------- searches are exhaustive */

static unsigned steps_main, steps_thread;

static void make_steps(void *context) {
  (void)context;
  for (unsigned i = 1; i < steps_thread; i++) /* its begin is one */
    ids_point("thread");
}

static void two_threads(void *context) {
  (void)context;
  struct ids_thread thread;
  toy_start(&thread, make_steps, NULL, "thread");
  for (unsigned i = 0; i < steps_main; i++)
    ids_point("main");
  ids_thread_join(&thread);
}

static uint64_t choose(uint64_t n, uint64_t k) {
  uint64_t result = 1;
  for (uint64_t i = 1; i <= k; i++)
    result = result * (n - k + i) / i;
  return result;
}

SPEC(interleavings_are_counted, "S1 two threads of m and n steps have C(m+n, n) schedules") {
  for (steps_main = 1; steps_main <= 6; steps_main++) {
    for (steps_thread = 1; steps_thread <= 6; steps_thread++)
      CHECK_EQ_U64(toy_must_pass(toy_plan(two_threads, NULL)),
                   choose(steps_main + steps_thread, steps_thread));
  }
}

/* With the first thread's m steps in a row there is one schedule without a preemption.
 * With b preemptions the order is a word of runs of steps. */
SPEC(preemptions_are_counted, "S1 a bound of b preemptions allows the schedules with at most b") {
  steps_main = 5;
  steps_thread = 4;
  uint64_t before = 0;
  for (unsigned bound = 0; bound <= 8; bound++) {
    struct sim_plan plan = toy_plan(two_threads, NULL);
    plan.bound = bound;
    uint64_t expected = 0;
    /* Every order of 5 main steps and 4 others.  A thread is left while it could go on
     * where the letter changes and the one that is left has steps after that. */
    for (unsigned word = 0; word < 1u << 9; word++) {
      if (__builtin_popcount(word) != 4)
        continue;
      unsigned preemptions = word & 1; /* main runs first */
      for (unsigned i = 1; i < 9; i++) {
        unsigned left = word >> (i - 1) & 1, rest = word >> i;
        bool goes_on = left == 1 ? rest != 0 : rest != (1u << (9 - i)) - 1;
        preemptions += left != (rest & 1) && goes_on;
      }
      expected += preemptions <= bound;
    }
    uint64_t runs_count = toy_must_pass(plan);
    CHECK_EQ_U64(runs_count, expected);
    CHECK_GE_INT(runs_count, before);
    before = runs_count;
  }
  CHECK_EQ_U64(before, choose(9, 4));
}

static void three_threads(void *context) {
  (void)context;
  struct ids_thread threads[2];
  for (unsigned i = 0; i < 2; i++)
    toy_start(&threads[i], make_steps, NULL, "thread");
  for (unsigned i = 0; i < steps_main; i++)
    ids_point("main");
  for (unsigned i = 0; i < 2; i++)
    ids_thread_join(&threads[i]);
}

SPEC(three_threads_are_counted, "S1 three threads have as many schedules as words have orders") {
  steps_main = steps_thread = 3;
  /* The join of the first has one more step when that is still running: main is then in
   * two waits, which the others cannot tell, and the search counts once. */
  uint64_t runs_count = toy_must_pass(toy_plan(three_threads, NULL));
  CHECK_GE_INT(runs_count, choose(9, 3) * choose(6, 3));
  CHECK_LE_INT(runs_count, 3 * choose(9, 3) * choose(6, 3));
}

static uint64_t seen[5];

static void choose_data(void *context) {
  (void)context;
  unsigned small = sim_choose(3, "small"), large = sim_choose(100, "large");
  SIM_CHECK(small < 3 && large < 100);
  seen[small] |= UINT64_C(1) << (large % 64);
  seen[3 + large / 64] |= UINT64_C(1) << (large % 64);
}

SPEC(data_is_chosen, "S1 data of a scenario is gone through as the order of threads is") {
  CHECK_EQ_U64(toy_must_pass(toy_plan(choose_data, NULL)), 300);
  CHECK_EQ_U64(seen[0], UINT64_MAX);
  CHECK_EQ_U64(seen[2], UINT64_MAX);
  CHECK_EQ_U64(seen[4], (UINT64_C(1) << 36) - 1);
}

/* ------------------------------------------------------------- repeatability */

static char *trail;

static void leave_trail(void *context) {
  for (unsigned i = 0; i < 4; i++) {
    ids_point("trail");
    *__atomic_fetch_add(&trail, 1, __ATOMIC_ACQ_REL) = *(const char *)context;
  }
}

static void trails(void *context) {
  struct ids_thread threads[2];
  toy_start(&threads[0], leave_trail, (void *)(uintptr_t) "a", "a");
  toy_start(&threads[1], leave_trail, (void *)(uintptr_t) "b", "b");
  leave_trail((void *)(uintptr_t) "c");
  ids_thread_join(&threads[0]);
  ids_thread_join(&threads[1]);
  (void)context;
}

SPEC(a_seed_is_a_schedule, "S10 the same seed makes the same runs, another seed others") {
  char texts[3][13 * 50 + 1];
  struct sim_result result;
  struct sim_plan plan = toy_plan(trails, NULL);
  const enum sim_strategy strategies[] = { SIM_RANDOM, SIM_PCT };
  for (unsigned s = 0; s < 2; s++) {
    plan.strategy = strategies[s];
    plan.runs_max = 50;
    memset(texts, 0, sizeof texts);
    for (unsigned i = 0; i < 3; i++) {
      plan.seed = i / 2;
      trail = texts[i];
      sim_search(&plan, &result);
      CHECK(!result.failed);
    }
    CHECK_EQ_STR(texts[0], texts[1]);
    CHECK_NE_STR(texts[0], texts[2]);
  }
  /* A schedule of a run that did not fail is one, too. */
  char schedule[256], again[64] = "";
  plan.runs_max = 1;
  trail = texts[0];
  sim_search(&plan, &result);
  strcpy(schedule, result.schedule);
  plan.replay = schedule;
  trail = again;
  sim_search(&plan, &result);
  CHECK_EQ_INT(memcmp(texts[0], again, 12), 0);
}

SPEC(a_schedule_that_does_not_fit, "S10 a replay string of another scenario says so") {
  struct sim_plan plan = toy_plan(trails, NULL);
  char text[64] = "";
  trail = text;
  plan.replay = "Z";
  struct sim_result result;
  sim_search(&plan, &result);
  CHECK(result.failed);
  CHECK_CONTAINS(result.message, "does not fit the scenario: its character 1 is 'Z'");
}

/* --------------------------------------------------------------------- speed */

static struct ids_mutex lock;
static struct ids_cond cond;

/* Two workers that two clients hand jobs to: about what the core does for a job. */
static unsigned queued, done;
static bool is_over;

static void hot_worker(void *context) {
  (void)context;
  ids_mutex_lock(&lock);
  for (;;) {
    while (queued == 0 && !is_over)
      ids_cond_wait(&cond, &lock, ids_now_ns() + 100 * IDS_MS);
    if (queued == 0)
      break;
    queued--;
    ids_mutex_unlock(&lock);
    ids_point("job");
    ids_mutex_lock(&lock);
    done++;
  }
  ids_mutex_unlock(&lock);
}

static void hot_client(void *context) {
  (void)context;
  ids_mutex_lock(&lock);
  queued++;
  ids_cond_signal(&cond);
  ids_mutex_unlock(&lock);
}

static void hot(void *context) {
  (void)context;
  queued = done = 0;
  is_over = false;
  toy_init_lock(&lock);
  toy_init_cond(&cond);
  struct ids_thread threads[3];
  toy_start(&threads[0], hot_worker, NULL, "worker");
  toy_start(&threads[1], hot_worker, NULL, "worker");
  toy_start(&threads[2], hot_client, NULL, "client");
  hot_client(NULL);
  ids_thread_join(&threads[2]);
  ids_mutex_lock(&lock);
  is_over = true;
  ids_cond_broadcast(&cond);
  ids_mutex_unlock(&lock);
  ids_thread_join(&threads[0]);
  ids_thread_join(&threads[1]);
  SIM_CHECK_EQUAL(done, 2);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(a_small_pool_is_searched, "S11 two workers and two clients: all schedules, and samples",
     .limit_s = 60) {
  struct sim_plan plan = { .name = "small pool", .scenario = hot, .bound = 2 };
  plan.signals_are_locked = true;
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_DELAY;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 1000000);
  plan.strategy = SIM_PCT;
  plan.depth = 3;
  sim_spec_sample(&plan, 200000);
}
