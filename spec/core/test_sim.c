/* SPDX-License-Identifier: MIT */
/*
 * test_sim.c - the simulated machine itself: that its searches are exhaustive, repeatable,
 * and find what they are for.
 *
 * Method: small protocols with a known bug and their correct forms.  Each bug has to be
 * found by every strategy that should find it, with the rule that it breaks, and its
 * schedule has to lead to the same failure again; the correct form has to pass all
 * schedules.  Where the number of schedules is known from a formula, it has to be met.
 */
#include "plat.h"

#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "heap.h"
#include "sim_spec.h"

/* ------------------------------------------------------------------- helpers */

static void start(struct ids_thread *thread, void (*body)(void *context), void *context,
                  const char *name) {
  const struct ids_thread_config config = { .main = body, .context = context, .name = name };
  SIM_CHECK_EQUAL(ids_thread_start(thread, &config, "start"), 0);
}

static void init_lock(struct ids_mutex *lock) {
  SIM_CHECK_EQUAL(ids_mutex_init(lock, "lock"), 0);
}

static void init_cond(struct ids_cond *cond) {
  SIM_CHECK_EQUAL(ids_cond_init(cond, "cond"), 0);
}

/* The plan fails with the text, and its schedule does so again and again. */
static void must_find(struct sim_plan plan, const char *text) {
  struct sim_result found, again;
  sim_search(&plan, &found);
  if (!CHECK(found.failed))
    return;
  CHECK_CONTAINS(found.message, text);
  char schedule[4096];
  REQUIRE(strlen(found.schedule) < sizeof schedule);
  strcpy(schedule, found.schedule);
  plan.replay = schedule;
  for (unsigned i = 0; i < 2; i++) {
    sim_search(&plan, &again);
    CHECK(again.failed);
    CHECK_EQ_STR(again.message, found.message);
    CHECK_EQ_STR(again.schedule, schedule);
    CHECK_EQ_U64(again.steps_last, found.steps_last);
  }
}

/* The same by every strategy. */
static void must_find_by_all(struct sim_plan plan, const char *text) {
  plan.strategy = SIM_DFS;
  plan.bound = plan.bound == 0 ? 2 : plan.bound;
  must_find(plan, text);
  plan.strategy = SIM_DELAY;
  must_find(plan, text);
  plan.runs_max = 100000;
  for (plan.seed = 1; plan.seed <= 5; plan.seed++) {
    plan.strategy = SIM_RANDOM;
    must_find(plan, text);
    plan.strategy = SIM_PCT;
    must_find(plan, text);
  }
}

static uint64_t must_pass(struct sim_plan plan) {
  struct sim_result result;
  sim_search(&plan, &result);
  if (result.failed)
    FAIL("%s: run %llu failed: %s", plan.name, (unsigned long long)result.runs_count,
         result.message);
  CHECK(result.complete);
  return result.runs_count;
}

static const struct sim_plan exhaustive = { .strategy = SIM_DFS, .bound = SIM_UNBOUNDED };

static struct sim_plan plan_of(void (*scenario)(void *context), const char *context) {
  struct sim_plan plan = exhaustive;
  plan.name = context == NULL ? "toy" : context;
  plan.scenario = scenario;
  plan.context = (void *)(uintptr_t)context;
  return plan;
}

/* Toys are told by a word whether to be right. */
static bool is(const void *context, const char *word) {
  return strcmp(context, word) == 0;
}

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
  start(&thread, make_steps, NULL, "thread");
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
      CHECK_EQ_U64(must_pass(plan_of(two_threads, NULL)),
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
    struct sim_plan plan = plan_of(two_threads, NULL);
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
    uint64_t runs_count = must_pass(plan);
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
    start(&threads[i], make_steps, NULL, "thread");
  for (unsigned i = 0; i < steps_main; i++)
    ids_point("main");
  for (unsigned i = 0; i < 2; i++)
    ids_thread_join(&threads[i]);
}

SPEC(three_threads_are_counted, "S1 three threads have as many schedules as words have orders") {
  steps_main = steps_thread = 3;
  /* The join of the first has one more step when that is still running: main is then in
   * two waits, which the others cannot tell, and the search counts once. */
  uint64_t runs_count = must_pass(plan_of(three_threads, NULL));
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
  CHECK_EQ_U64(must_pass(plan_of(choose_data, NULL)), 300);
  CHECK_EQ_U64(seen[0], UINT64_MAX);
  CHECK_EQ_U64(seen[2], UINT64_MAX);
  CHECK_EQ_U64(seen[4], (UINT64_C(1) << 36) - 1);
}

/* ---------------------------------------------------------------- known bugs */

static uint32_t balance;

static void pay_in(void *context) {
  static struct ids_mutex lock = IDS_MUTEX_STATIC;
  if (is(context, "locked"))
    ids_mutex_lock(&lock);
  ids_store_release(&balance, ids_load_acquire(&balance) + 10);
  if (is(context, "locked"))
    ids_mutex_unlock(&lock);
}

static void bank(void *context) {
  balance = 0;
  struct ids_thread thread;
  start(&thread, pay_in, context, "payer");
  pay_in(context);
  ids_thread_join(&thread);
  SIM_CHECK_EQUAL(balance, 20);
}

SPEC(a_race_is_found, "S2 two threads that pay into an account without a lock are found") {
  must_find_by_all(plan_of(bank, "unlocked"), "they are 10 and 20");
  must_pass(plan_of(bank, "locked"));
}

static struct ids_mutex lock;
static struct ids_cond cond;
static uint32_t flag;

static void set_flag(void *context) {
  bool is_locked = !is(context, "unlocked");
  if (is_locked)
    ids_mutex_lock(&lock);
  ids_store_release(&flag, 1);
  ids_cond_signal(&cond);
  if (is_locked)
    ids_mutex_unlock(&lock);
}

static void wait_for_flag(void *context) {
  flag = 0;
  init_lock(&lock);
  init_cond(&cond);
  struct ids_thread thread;
  start(&thread, set_flag, context, "setter");
  ids_mutex_lock(&lock);
  while (ids_load_acquire(&flag) == 0) {
    ids_cond_wait(&cond, &lock, IDS_NEVER);
    if (is(context, "hasty"))
      break;
  }
  SIM_CHECK_EQUAL(flag, 1);
  ids_mutex_unlock(&lock);
  ids_thread_join(&thread);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(a_lost_wakeup_is_found, "S2 a signal between look and wait is found as a deadlock") {
  must_find_by_all(plan_of(wait_for_flag, "unlocked"), "deadlock");
  must_find_by_all(plan_of(wait_for_flag, "unlocked"), "waits on cond");
  must_pass(plan_of(wait_for_flag, "locked"));
  struct sim_plan plan = plan_of(wait_for_flag, "locked");
  plan.signals_are_locked = true;
  must_pass(plan);
  plan.context = (void *)(uintptr_t) "unlocked";
  must_find_by_all(plan, "cond is signalled without the mutex of its waiters");
}

SPEC(a_spurious_wake_is_found, "S2 a wait that trusts its return is found by a spurious wake") {
  must_pass(plan_of(wait_for_flag, "hasty"));
  struct sim_plan plan = plan_of(wait_for_flag, "hasty");
  plan.spurious_max = 1;
  must_find_by_all(plan, "they are 0 and 1");
  plan = plan_of(wait_for_flag, "locked");
  plan.spurious_max = 2;
  must_pass(plan);
}

static struct ids_mutex lock_b;

static void lock_both(void *context) {
  struct ids_mutex *first = is(context, "crossed") ? &lock_b : &lock;
  struct ids_mutex *second = first == &lock ? &lock_b : &lock;
  ids_mutex_lock(first);
  ids_mutex_lock(second);
  ids_mutex_unlock(second);
  ids_mutex_unlock(first);
}

static void two_locks(void *context) {
  init_lock(&lock);
  SIM_CHECK_EQUAL(ids_mutex_init(&lock_b, "lock b"), 0);
  struct ids_thread thread;
  start(&thread, lock_both, context, "other");
  lock_both((void *)(uintptr_t) "straight");
  ids_thread_join(&thread);
  ids_mutex_deinit(&lock_b);
  ids_mutex_deinit(&lock);
}

SPEC(a_deadlock_is_found, "S2 two locks in crossed order are found, with who holds what") {
  must_find_by_all(plan_of(two_locks, "crossed"), "deadlock");
  must_find_by_all(plan_of(two_locks, "crossed"), "wants lock b, which other#1 has, has lock");
  must_pass(plan_of(two_locks, "straight"));
}

static uint32_t turns[2];

static void greet(void *context) {
  ids_store_release(&turns[1], 1);
  while (ids_load_acquire(&turns[0]) == 0)
    ids_relax();
  if (is(context, "deaf"))
    ids_store_release(&turns[1], 0);
}

/* Two that spin for each other; in the wrong form one takes its word back. */
static void spin(void *context) {
  turns[0] = turns[1] = 0;
  struct ids_thread thread;
  start(&thread, greet, context, "greeter");
  ids_store_release(&turns[0], 1);
  while (ids_load_acquire(&turns[1]) == 0)
    ids_relax();
  ids_thread_join(&thread);
}

SPEC(a_livelock_is_found, "S2 threads that spin for what never comes are found") {
  struct sim_plan plan = plan_of(spin, "deaf");
  plan.steps_max = 500;
  must_find_by_all(plan, "livelock");
  must_pass(plan_of(spin, "polite"));
}

/* A spinner must not keep the third thread, whom it waits for, from running. */
static void spin_for_third(void *context) {
  (void)context;
  while (ids_load_acquire(&turns[1]) == 0)
    ids_relax();
}

static void late_store(void *context) {
  (void)context;
  ids_store_release(&turns[1], 1);
}

static void two_spinners(void *context) {
  turns[1] = 0;
  struct ids_thread threads[2];
  start(&threads[0], spin_for_third, context, "spinner");
  start(&threads[1], late_store, context, "storer");
  spin_for_third(context);
  ids_thread_join(&threads[0]);
  ids_thread_join(&threads[1]);
}

SPEC(relax_lets_others_run, "S2 spinners let everybody else go on, and time pass") {
  struct sim_plan plan = plan_of(two_spinners, NULL);
  plan.bound = 3;
  must_pass(plan);
}

static unsigned wanted;

static void take_token(void *context) {
  unsigned mine = context == NULL ? 1 : 2;
  ids_mutex_lock(&lock);
  while (wanted != mine)
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  wanted = 0;
  ids_mutex_unlock(&lock);
}

static void two_waiters(void *context) {
  wanted = 0;
  init_lock(&lock);
  init_cond(&cond);
  struct ids_thread threads[2];
  start(&threads[0], take_token, NULL, "one");
  start(&threads[1], take_token, context, "two");
  for (unsigned token = 1; token <= 2; token++) {
    ids_mutex_lock(&lock);
    wanted = token;
    if (is(context, "signal"))
      ids_cond_signal(&cond);
    else
      ids_cond_broadcast(&cond);
    ids_mutex_unlock(&lock);
    ids_thread_join(&threads[token - 1]);
  }
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(the_wrong_waiter_is_found, "S2 a signal that any of two waiters may get is found") {
  must_find_by_all(plan_of(two_waiters, "signal"), "deadlock");
  must_pass(plan_of(two_waiters, "broadcast"));
}

static uint32_t mail;

static void send(void *context) {
  if (is(context, "wake first"))
    ids_futex_wake(&mail, 1);
  ids_store_release(&mail, 1);
  if (!is(context, "wake first"))
    ids_futex_wake(&mail, 1);
}

static void mailbox(void *context) {
  mail = 0;
  struct ids_thread thread;
  start(&thread, send, context, "sender");
  if (is(context, "trusting"))
    ids_futex_wait(&mail, 0, IDS_NEVER);
  while (!is(context, "trusting") && ids_load_acquire(&mail) == 0)
    ids_futex_wait(&mail, 0, IDS_NEVER);
  SIM_CHECK_EQUAL(ids_load_acquire(&mail), 1);
  ids_thread_join(&thread);
}

SPEC(a_futex_loses_a_wake, "S2 a word that is woken before it changes is found") {
  must_find_by_all(plan_of(mailbox, "wake first"), "sleeps on a word that is 1");
  must_pass(plan_of(mailbox, "store first"));
  must_pass(plan_of(mailbox, "trusting"));
  struct sim_plan plan = plan_of(mailbox, "trusting");
  plan.spurious_max = 1;
  must_find_by_all(plan, "they are 0 and 1");
  plan = plan_of(mailbox, "store first");
  plan.spurious_max = 2;
  must_pass(plan);
}

static void work_100_steps(void *context) {
  (void)context;
  ids_mutex_lock(&lock);
  flag = 1;
  ids_cond_signal(&cond);
  ids_mutex_unlock(&lock);
}

/* Who waits at most 100 ms and takes it for granted that this was enough. */
static void slow(void *context) {
  flag = 0;
  init_lock(&lock);
  init_cond(&cond);
  struct ids_thread thread;
  start(&thread, work_100_steps, NULL, "worker");
  uint64_t begin_ns = ids_now_ns();
  ids_mutex_lock(&lock);
  while (flag == 0 && ids_now_ns() < begin_ns + 100 * IDS_MS)
    ids_cond_wait(&cond, &lock, begin_ns + 100 * IDS_MS);
  if (is(context, "rash"))
    SIM_CHECK_EQUAL(flag, 1);
  ids_mutex_unlock(&lock);
  ids_thread_join(&thread);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(slowness_is_found, "S2 a timeout that is taken for an answer is found by a hostile clock") {
  struct sim_plan plan = plan_of(slow, "rash");
  must_pass(plan);
  plan.is_hostile = true;
  must_find_by_all(plan, "they are 0 and 1");
  plan = plan_of(slow, "careful");
  plan.is_hostile = true;
  must_pass(plan);
}

/* --------------------------------------------------------- faults and balance */

static void two_blocks(void *context) {
  void *first = ids_alloc(10, "first");
  if (first == NULL) {
    if (is(context, "sure"))
      sim_fail("it did not expect that");
    return;
  }
  void *second = ids_alloc(20, "second");
  if (second == NULL && is(context, "leaky"))
    return;
  ids_free(second);
  ids_free(first);
}

SPEC(a_fault_is_found, "S3 each allocation is refused in turn, and what is then lost is found") {
  struct sim_plan plan = plan_of(two_blocks, "sure");
  must_pass(plan);
  plan.faults_max = 1;
  must_find_by_all(plan, "it did not expect that");
  plan = plan_of(two_blocks, "leaky");
  plan.faults_max = 1;
  must_find_by_all(plan, "1 blocks were not freed; the first has 10 bytes and was made at 'first'");
  plan = plan_of(two_blocks, "careful");
  plan.faults_max = 1;
  CHECK_EQ_U64(must_pass(plan), 3); /* none, the first, the second */
}

SPEC(faults_are_swept, "S3 call number n is refused, and all from n on") {
  struct sim_plan plan = plan_of(two_blocks, "leaky");
  struct sim_result result;
  plan.fault_mode = SIM_FAULT_NTH;
  for (plan.fault_nth = 0; plan.fault_nth <= 3; plan.fault_nth++) {
    sim_search(&plan, &result);
    CHECK_EQ_INT(result.failed, plan.fault_nth == 2);
    CHECK_EQ_U64(result.faults_count, plan.fault_nth == 1 || plan.fault_nth == 2);
  }
  plan.fault_mode = SIM_FAULT_FROM;
  plan.fault_nth = 1;
  sim_search(&plan, &result);
  CHECK(!result.failed);
  plan.fault_nth = 0;
  sim_search(&plan, &result);
  CHECK_EQ_U64(result.faults_count, 0);
  REQUIRE_EQ_INT(result.sites_count, 2);
  CHECK_EQ_STR(result.sites[0].name, "first");
  CHECK_EQ_U64(result.sites[1].calls_count, 1);
  plan.fault_mode = SIM_FAULT_TENTH;
  plan.strategy = SIM_RANDOM;
  must_find(plan, "not freed");
}

SPEC(the_sweep_covers_all_sites, "S3 the fault sweep passes what handles every fault") {
  struct sim_plan plan = plan_of(two_blocks, "careful");
  sim_spec_faults(&plan);
}

static void forgets(void *context) {
  static struct ids_thread thread;
  if (is(context, "thread"))
    start(&thread, make_steps, NULL, "forgotten");
  if (is(context, "mutex"))
    init_lock(&lock);
  if (is(context, "cond"))
    init_cond(&cond);
  if (is(context, "locked"))
    ids_mutex_lock(&lock_b);
  if (is(context, "freed twice")) {
    void *block = ids_alloc(1, "site");
    ids_free(block);
    ids_free(block);
  }
}

SPEC(what_is_forgotten_is_found, "S3 threads, mutexes and conditions are given back") {
  must_find(plan_of(forgets, "thread"), "forgotten#1 was neither joined nor detached");
  must_find(plan_of(forgets, "mutex"), "a mutex was not deinitialised: 'lock'");
  must_find(plan_of(forgets, "cond"), "a condition was not deinitialised: 'cond'");
  must_find(plan_of(forgets, "locked"), "ends with 1 mutexes locked");
  must_pass(plan_of(forgets, "nothing"));
#ifndef __SANITIZE_ADDRESS__
  must_find(plan_of(forgets, "freed twice"), "freed before; it was made at site 'site'");
#endif
}

/* -------------------------------------------------------------------- misuse */

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
  init_lock(&lock);
  init_lock(&lock_b);
  init_cond(&cond);
  if (is(context, "unlock by another")) {
    ids_mutex_lock(&lock);
    start(&thread, unlock_lock, NULL, "thief");
    ids_thread_join(&thread);
  }
  if (is(context, "unlock when free"))
    ids_mutex_unlock(&lock);
  if (is(context, "lock twice")) {
    ids_mutex_lock(&lock);
    ids_mutex_lock(&lock);
  }
  if (is(context, "wait without lock"))
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  if (is(context, "deinit locked")) {
    ids_mutex_lock(&lock);
    ids_mutex_deinit(&lock);
  }
  if (is(context, "deinit waited on")) {
    start(&thread, wait_with_lock_b, NULL, "waiter");
    sim_sleep_ns(1);
    ids_cond_deinit(&cond);
  }
  if (is(context, "two mutexes")) {
    start(&thread, wait_with_lock_b, NULL, "waiter");
    sim_sleep_ns(1);
    ids_mutex_lock(&lock);
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  }
  if (is(context, "deinit twice")) {
    ids_mutex_deinit(&lock);
    ids_mutex_deinit(&lock);
  }
  if (is(context, "init twice"))
    init_lock(&lock);
  if (is(context, "no init")) {
    heap_lock = ids_alloc(sizeof *heap_lock, "heap lock");
    memset(heap_lock, 0, sizeof *heap_lock);
    ids_mutex_lock(heap_lock);
  }
  if (is(context, "join twice")) {
    start(&thread, make_steps, NULL, "thread");
    ids_thread_join(&thread);
    ids_thread_join(&thread);
  }
  if (is(context, "assertion"))
    ids_assert_equal(1 + 1, 3);
}

SPEC(misuse_is_found, "S4 misuse of mutexes, conditions and threads fails the run") {
  must_find(plan_of(misuse, "unlock by another"), "lock is locked by scenario#0, expected the");
  must_find(plan_of(misuse, "unlock when free"), "lock is locked by nobody");
  must_find(plan_of(misuse, "lock twice"), "the caller has lock already");
  must_find(plan_of(misuse, "wait without lock"), "lock is not locked by the caller");
  must_find(plan_of(misuse, "deinit locked"), "lock is locked by scenario#0");
  must_find(plan_of(misuse, "deinit waited on"), "waiter#1 waits on cond");
  must_find(plan_of(misuse, "two mutexes"), "cond is waited on with two mutexes");
  must_find(plan_of(misuse, "deinit twice"), "was deinitialised before");
  must_find(plan_of(misuse, "init twice"), "is initialised already");
  must_find(plan_of(misuse, "no init"), "is not initialised");
  must_find(plan_of(misuse, "join twice"), "was joined or detached before");
  must_find(plan_of(misuse, "assertion"), "assertion failed: 1 + 1 == 3: 2 against 3");
}

/* ------------------------------------------------------------ rules of a scenario */

static void never_one(void *context) {
  (void)context;
  if (!sim_is_locked(&lock) && flag == 1)
    sim_fail("the flag is 1 and the lock is free");
}

static void under_lock(void *context) {
  flag = 0;
  init_lock(&lock);
  sim_invariant(never_one, NULL);
  ids_mutex_lock(&lock);
  flag = 1;
  ids_point("in the middle");
  if (is(context, "repaired"))
    flag = 0;
  ids_mutex_unlock(&lock);
  ids_point("afterwards");
  ids_mutex_deinit(&lock);
}

SPEC(invariants_are_asked, "S5 an invariant is asked after every step") {
  must_find(plan_of(under_lock, "left"), "the flag is 1 and the lock is free");
  must_pass(plan_of(under_lock, "repaired"));
}

static bool is_flag_set(void *context) {
  (void)context;
  return flag == 1;
}

static void rest(void *context) {
  flag = is(context, "with work");
  sim_on_rest(is_flag_set, NULL);
  sim_sleep_ns(IDS_S);
}

SPEC(rest_is_asked, "S5 rest with work left fails before a timer can hide it") {
  must_find(plan_of(rest, "with work"), "at rest, although there is something to do");
  must_pass(plan_of(rest, "without"));
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
  start(&thread, sleep_a_second, NULL, "sleeper");
  for (unsigned i = 0; i < 3; i++)
    ids_point("busy");
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns);
  ids_thread_join(&thread);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + IDS_S);
  (void)context;
}

SPEC(fair_time_is_exact, "S6 in fair mode time moves only when nothing can run") {
  must_pass(plan_of(fair_time, NULL));
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
  init_lock(&lock);
  init_cond(&cond);
  struct ids_thread thread;
  start(&thread, leave_late, NULL, "waiter");
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
  must_pass(plan_of(signal_at_deadline, NULL));
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
      start(&threads[i], own_values, &threads[i], "thread");
    for (unsigned i = 0; i < 3; i++)
      ids_thread_join(&threads[i]);
  }
  start(&detached, detach, &detached, "detached");
}

SPEC(threads_have_values_of_their_own,
     "S7 thread values, numbers and slots are each thread's own") {
  struct sim_plan plan = plan_of(many_threads, NULL);
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
  init_lock(&lock);
  struct ids_thread thread;
  void *block = ids_alloc(8, "before");
  start(&thread, hold_lock, NULL, "holder");
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(ids_fork_generation(), 0);
  sim_fork();
  SIM_CHECK_EQUAL(ids_fork_generation(), 1);
  SIM_CHECK(!ids_mutex_is_mine(&lock));
  if (is(context, "wait")) {
    ids_mutex_lock(&lock);
    ids_mutex_unlock(&lock);
  }
  ids_free(block);
  init_lock(&lock); /* of the generation before */
  ids_mutex_deinit(&lock);
  if (is(context, "leak"))
    block = ids_alloc(8, "after");
}

SPEC(a_child_is_alone, "S8 after a fork one thread goes on, and the others stand still") {
  struct sim_plan plan = plan_of(fork_scenario, "alone");
  must_pass(plan);
  plan.is_hostile = true;
  plan.bound = 3;
  must_pass(plan);
  must_find(plan_of(fork_scenario, "leak"), "made at 'after'");
  struct sim_result result;
  plan = plan_of(fork_scenario, "wait");
  plan.is_hostile = true;
  plan.bound = 2;
  sim_search(&plan, &result);
  CHECK(result.failed); /* the holder never unlocks */
  CHECK_CONTAINS(result.message, "wants lock, which holder#1 has");
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
  if (is(context, "wrong at 3"))
    SIM_CHECK(at != 3);
}

SPEC(a_verb_is_posted_at_every_step, "S8 something is done at step k, for each k") {
  struct sim_plan plan = plan_of(sweep, "right");
  sim_spec_sweep(&plan);
  plan = plan_of(sweep, "wrong at 3");
  plan.sweep_step = 3;
  must_find(plan, "at != 3");
}

/* ----------------------------------------------------------------- allocator */

static void *heap;
static bool is_awake;

static void own_heap(void *context) {
  void *block = ids_heap_ops.resize(NULL, 100);
  unsigned number = sim_heap_free(ids_heap_own());
  ids_mutex_lock(&lock);
  heap = ids_heap_own();
  while (!is_awake)
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  if (is(context, "early"))
    ids_heap_ops.free(block);
  while (heap != NULL)
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  ids_mutex_unlock(&lock);
  if (!is(context, "early"))
    ids_heap_ops.free(block);
  if (is(context, "right"))
    SIM_CHECK(sim_heap_is_returned(number));
}

static void abandon(void *context) {
  heap = NULL;
  is_awake = false;
  init_lock(&lock);
  init_cond(&cond);
  struct ids_thread thread;
  start(&thread, own_heap, context, "owner");
  sim_sleep_ns(1); /* the owner sleeps, too */
  ids_mutex_lock(&lock);
  void *theirs = heap;
  ids_mutex_unlock(&lock);
  if (is(context, "early")) {
    ids_mutex_lock(&lock);
    is_awake = true;
    ids_cond_signal(&cond);
    ids_mutex_unlock(&lock);
  }
  if (is(context, "own"))
    ids_heap_abandon(ids_heap_own());
  sim_heap_configure(&(struct sim_heap_config){ .abandon_ns = IDS_MS, .purge_ns = IDS_MS });
  uint64_t begin_ns = ids_now_ns();
  ids_heap_abandon(theirs);
  ids_heap_purge();
  SIM_CHECK_EQUAL(ids_now_ns() - begin_ns, 2 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_counts(theirs).abandoned, 1);
  ids_mutex_lock(&lock);
  is_awake = true;
  heap = NULL;
  ids_cond_broadcast(&cond);
  ids_mutex_unlock(&lock);
  ids_thread_join(&thread);
  if (is(context, "late"))
    ids_heap_abandon(theirs);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(a_heap_of_who_is_awake_is_not_abandoned, "S9 only a sleeping thread's heap is abandoned") {
  must_find(plan_of(abandon, "early"), "owner#1 frees while another thread abandons its heap");
  must_find(plan_of(abandon, "late"), "the heap's thread has ended");
  must_find(plan_of(abandon, "own"), "the heap is the caller's own");
  must_pass(plan_of(abandon, "right"));
}

static void purge_now(void *context) {
  if (is(context, "guarded"))
    ids_heap_purge_and_wait();
  else
    ids_heap_ops.purge();
}

static void two_purges(void *context) {
  struct ids_thread thread;
  start(&thread, purge_now, context, "purger");
  purge_now(context);
  ids_thread_join(&thread);
}

SPEC(two_purges_at_once_are_found, "S9 purges come one at a time") {
  must_find_by_all(plan_of(two_purges, "bare"), "another purge is under way");
  must_pass(plan_of(two_purges, "guarded"));
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
  start(&threads[0], leave_trail, (void *)(uintptr_t) "a", "a");
  start(&threads[1], leave_trail, (void *)(uintptr_t) "b", "b");
  leave_trail((void *)(uintptr_t) "c");
  ids_thread_join(&threads[0]);
  ids_thread_join(&threads[1]);
  (void)context;
}

SPEC(a_seed_is_a_schedule, "S10 the same seed makes the same runs, another seed others") {
  char texts[3][13 * 50 + 1];
  struct sim_result result;
  struct sim_plan plan = plan_of(trails, NULL);
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
  struct sim_plan plan = plan_of(trails, NULL);
  char text[64] = "";
  trail = text;
  plan.replay = "Z";
  struct sim_result result;
  sim_search(&plan, &result);
  CHECK(result.failed);
  CHECK_CONTAINS(result.message, "does not fit the scenario: its character 1 is 'Z'");
}

static void search_the_bank(void) {
  struct sim_plan plan = plan_of(bank, "unlocked");
  sim_spec_exhaust(&plan);
}

SPEC(a_failure_tells_how_to_repeat_it, "S10 a failed search prints its schedule and its steps") {
  const struct spec_case failing = { .sentence = "a case that fails",
                                     .run = search_the_bank,
                                     .name = "search_the_bank",
                                     .file = __FILE__ };
  FILE *out = tmpfile();
  REQUIRE(out != NULL);
  CHECK_EQ_INT(spec_case_run(&failing, 1, out), SPEC_FAILED);
  char text[8192];
  rewind(out);
  text[fread(text, 1, sizeof text - 1, out)] = '\0';
  fclose(out);
  CHECK_CONTAINS(text, "they are 10 and 20");
  CHECK_CONTAINS(text, "IDLESCHED_SIM_REPLAY='unlocked;0,0,0,0,0,0;01'");
  CHECK_CONTAINS(text, "payer#1            load");
  CHECK_CONTAINS(text, "FAILED: ");
}

/* --------------------------------------------------------------------- speed */

/* Two workers that two clients hand jobs to: about what the core does for a job. */
static unsigned queued, done;

static void hot_worker(void *context) {
  (void)context;
  ids_mutex_lock(&lock);
  for (;;) {
    while (queued == 0 && flag == 0)
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
  queued = done = flag = 0;
  init_lock(&lock);
  init_cond(&cond);
  struct ids_thread threads[3];
  start(&threads[0], hot_worker, NULL, "worker");
  start(&threads[1], hot_worker, NULL, "worker");
  start(&threads[2], hot_client, NULL, "client");
  hot_client(NULL);
  ids_thread_join(&threads[2]);
  ids_mutex_lock(&lock);
  flag = 1;
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
