/* SPDX-License-Identifier: MIT */
/*
 * test_sim_bugs.c - bugs that the simulated machine is there to find, in small protocols: races,
 * lost wake-ups, deadlocks, livelocks, and trust in a timeout.
 *
 * Method: each is found by every strategy, with the rule that it breaks and a schedule that leads
 * there again; the correct form of the protocol passes all schedules.
 */
#include <stdio.h>

#include "toy_sim.h"

/* ---------------------------------------------------------------- known bugs */

static uint32_t balance;

static void pay_in(void *context) {
  static struct ids_mutex lock = IDS_MUTEX_STATIC;
  if (toy_is(context, "locked"))
    ids_mutex_lock(&lock);
  ids_store_release(&balance, ids_load_acquire(&balance) + 10);
  if (toy_is(context, "locked"))
    ids_mutex_unlock(&lock);
}

static void bank(void *context) {
  balance = 0;
  struct ids_thread thread;
  toy_start(&thread, pay_in, context, "payer");
  pay_in(context);
  ids_thread_join(&thread);
  SIM_CHECK_EQUAL(balance, 20);
}

SPEC(a_race_is_found, "S2 two threads that pay into an account without a lock are found") {
  toy_must_find_by_all(toy_plan(bank, "unlocked"), "they are 10 and 20");
  toy_must_pass(toy_plan(bank, "locked"));
}

static struct ids_mutex lock;
static struct ids_cond cond;
static uint32_t flag;

static void set_flag(void *context) {
  bool is_locked = !toy_is(context, "unlocked");
  if (is_locked)
    ids_mutex_lock(&lock);
  ids_store_release(&flag, 1);
  ids_cond_signal(&cond);
  if (is_locked)
    ids_mutex_unlock(&lock);
}

static void wait_for_flag(void *context) {
  flag = 0;
  toy_init_lock(&lock);
  toy_init_cond(&cond);
  struct ids_thread thread;
  toy_start(&thread, set_flag, context, "setter");
  ids_mutex_lock(&lock);
  while (ids_load_acquire(&flag) == 0) {
    ids_cond_wait(&cond, &lock, IDS_NEVER);
    if (toy_is(context, "hasty"))
      break;
  }
  SIM_CHECK_EQUAL(flag, 1);
  ids_mutex_unlock(&lock);
  ids_thread_join(&thread);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(a_lost_wakeup_is_found, "S2 a signal between look and wait is found as a deadlock") {
  toy_must_find_by_all(toy_plan(wait_for_flag, "unlocked"), "deadlock");
  toy_must_find_by_all(toy_plan(wait_for_flag, "unlocked"), "waits on cond");
  toy_must_pass(toy_plan(wait_for_flag, "locked"));
  struct sim_plan plan = toy_plan(wait_for_flag, "locked");
  plan.signals_are_locked = true;
  toy_must_pass(plan);
  plan.context = (void *)(uintptr_t) "unlocked";
  toy_must_find_by_all(plan, "cond is signalled without the mutex of its waiters");
}

SPEC(a_spurious_wake_is_found, "S2 a wait that trusts its return is found by a spurious wake") {
  toy_must_pass(toy_plan(wait_for_flag, "hasty"));
  struct sim_plan plan = toy_plan(wait_for_flag, "hasty");
  plan.spurious_max = 1;
  toy_must_find_by_all(plan, "they are 0 and 1");
  plan = toy_plan(wait_for_flag, "locked");
  plan.spurious_max = 2;
  toy_must_pass(plan);
}

static struct ids_mutex lock_b;

static void lock_both(void *context) {
  struct ids_mutex *first = toy_is(context, "crossed") ? &lock_b : &lock;
  struct ids_mutex *second = first == &lock ? &lock_b : &lock;
  ids_mutex_lock(first);
  ids_mutex_lock(second);
  ids_mutex_unlock(second);
  ids_mutex_unlock(first);
}

static void two_locks(void *context) {
  toy_init_lock(&lock);
  SIM_CHECK_EQUAL(ids_mutex_init(&lock_b, "lock b"), 0);
  struct ids_thread thread;
  toy_start(&thread, lock_both, context, "other");
  lock_both((void *)(uintptr_t) "straight");
  ids_thread_join(&thread);
  ids_mutex_deinit(&lock_b);
  ids_mutex_deinit(&lock);
}

SPEC(a_deadlock_is_found, "S2 two locks in crossed order are found, with who holds what") {
  toy_must_find_by_all(toy_plan(two_locks, "crossed"), "deadlock");
  toy_must_find_by_all(toy_plan(two_locks, "crossed"), "wants lock b, which other#1 has, has lock");
  toy_must_pass(toy_plan(two_locks, "straight"));
}

static uint32_t turns[2];

static void greet(void *context) {
  ids_store_release(&turns[1], 1);
  while (ids_load_acquire(&turns[0]) == 0)
    ids_relax();
  if (toy_is(context, "deaf"))
    ids_store_release(&turns[1], 0);
}

/* Two that spin for each other; in the wrong form one takes its word back. */
static void spin(void *context) {
  turns[0] = turns[1] = 0;
  struct ids_thread thread;
  toy_start(&thread, greet, context, "greeter");
  ids_store_release(&turns[0], 1);
  while (ids_load_acquire(&turns[1]) == 0)
    ids_relax();
  ids_thread_join(&thread);
}

SPEC(a_livelock_is_found, "S2 threads that spin for what never comes are found") {
  struct sim_plan plan = toy_plan(spin, "deaf");
  plan.steps_max = 500;
  toy_must_find_by_all(plan, "livelock");
  toy_must_pass(toy_plan(spin, "polite"));
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
  toy_start(&threads[0], spin_for_third, context, "spinner");
  toy_start(&threads[1], late_store, context, "storer");
  spin_for_third(context);
  ids_thread_join(&threads[0]);
  ids_thread_join(&threads[1]);
}

SPEC(relax_lets_others_run, "S2 spinners let everybody else go on, and time pass") {
  struct sim_plan plan = toy_plan(two_spinners, NULL);
  plan.bound = 3;
  toy_must_pass(plan);
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
  toy_init_lock(&lock);
  toy_init_cond(&cond);
  struct ids_thread threads[2];
  toy_start(&threads[0], take_token, NULL, "one");
  toy_start(&threads[1], take_token, context, "two");
  for (unsigned token = 1; token <= 2; token++) {
    ids_mutex_lock(&lock);
    wanted = token;
    if (toy_is(context, "signal"))
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
  toy_must_find_by_all(toy_plan(two_waiters, "signal"), "deadlock");
  toy_must_pass(toy_plan(two_waiters, "broadcast"));
}

static uint32_t mail;

static void send(void *context) {
  if (toy_is(context, "wake first"))
    ids_futex_wake(&mail, 1);
  ids_store_release(&mail, 1);
  if (!toy_is(context, "wake first"))
    ids_futex_wake(&mail, 1);
}

static void mailbox(void *context) {
  mail = 0;
  struct ids_thread thread;
  toy_start(&thread, send, context, "sender");
  if (toy_is(context, "trusting"))
    ids_futex_wait(&mail, 0, IDS_NEVER);
  while (!toy_is(context, "trusting") && ids_load_acquire(&mail) == 0)
    ids_futex_wait(&mail, 0, IDS_NEVER);
  SIM_CHECK_EQUAL(ids_load_acquire(&mail), 1);
  ids_thread_join(&thread);
}

SPEC(a_futex_loses_a_wake, "S2 a word that is woken before it changes is found") {
  toy_must_find_by_all(toy_plan(mailbox, "wake first"), "sleeps on a word that is 1");
  toy_must_pass(toy_plan(mailbox, "store first"));
  toy_must_pass(toy_plan(mailbox, "trusting"));
  struct sim_plan plan = toy_plan(mailbox, "trusting");
  plan.spurious_max = 1;
  toy_must_find_by_all(plan, "they are 0 and 1");
  plan = toy_plan(mailbox, "store first");
  plan.spurious_max = 2;
  toy_must_pass(plan);
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
  toy_init_lock(&lock);
  toy_init_cond(&cond);
  struct ids_thread thread;
  toy_start(&thread, work_100_steps, NULL, "worker");
  uint64_t begin_ns = ids_now_ns();
  ids_mutex_lock(&lock);
  while (flag == 0 && ids_now_ns() < begin_ns + 100 * IDS_MS)
    ids_cond_wait(&cond, &lock, begin_ns + 100 * IDS_MS);
  if (toy_is(context, "rash"))
    SIM_CHECK_EQUAL(flag, 1);
  ids_mutex_unlock(&lock);
  ids_thread_join(&thread);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(slowness_is_found, "S2 a timeout that is taken for an answer is found by a hostile clock") {
  struct sim_plan plan = toy_plan(slow, "rash");
  toy_must_pass(plan);
  plan.is_hostile = true;
  toy_must_find_by_all(plan, "they are 0 and 1");
  plan = toy_plan(slow, "careful");
  plan.is_hostile = true;
  toy_must_pass(plan);
}

/* ----------------------------------------------------------- what is printed */

static void search_the_bank(void) {
  struct sim_plan plan = toy_plan(bank, "unlocked");
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
