/* SPDX-License-Identifier: MIT */
/*
 * test_sim_heap.c - the simulated machine's memory: calls that fail by turns, what a run has to
 * give back at its end, and the allocator's rules of who may tidy whose heap.
 */
#include "heap.h"
#include "toy_sim.h"

static struct ids_mutex lock, lock_b;
static struct ids_cond cond;

/* --------------------------------------------------------- faults and balance */

static void two_blocks(void *context) {
  void *first = ids_alloc(10, "first");
  if (first == NULL) {
    if (toy_is(context, "sure"))
      sim_fail("it did not expect that");
    return;
  }
  void *second = ids_alloc(20, "second");
  if (second == NULL && toy_is(context, "leaky"))
    return;
  ids_free(second);
  ids_free(first);
}

SPEC(a_fault_is_found, "S3 each allocation is refused in turn, and what is then lost is found") {
  struct sim_plan plan = toy_plan(two_blocks, "sure");
  toy_must_pass(plan);
  plan.faults_max = 1;
  toy_must_find_by_all(plan, "it did not expect that");
  plan = toy_plan(two_blocks, "leaky");
  plan.faults_max = 1;
  toy_must_find_by_all(plan,
                       "1 blocks were not freed; the first has 10 bytes and was made at 'first'");
  plan = toy_plan(two_blocks, "careful");
  plan.faults_max = 1;
  CHECK_EQ_U64(toy_must_pass(plan), 3); /* none, the first, the second */
}

SPEC(faults_are_swept, "S3 call number n is refused, and all from n on") {
  struct sim_plan plan = toy_plan(two_blocks, "leaky");
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
  toy_must_find(plan, "not freed");
}

SPEC(the_sweep_covers_all_sites, "S3 the fault sweep passes what handles every fault") {
  struct sim_plan plan = toy_plan(two_blocks, "careful");
  sim_spec_faults(&plan);
}

static void do_nothing(void *context) {
  (void)context;
}

static void forgets(void *context) {
  static struct ids_thread thread;
  if (toy_is(context, "thread"))
    toy_start(&thread, do_nothing, NULL, "forgotten");
  if (toy_is(context, "mutex"))
    toy_init_lock(&lock);
  if (toy_is(context, "cond"))
    toy_init_cond(&cond);
  if (toy_is(context, "locked"))
    ids_mutex_lock(&lock_b);
  if (toy_is(context, "freed twice")) {
    void *block = ids_alloc(1, "site");
    ids_free(block);
    ids_free(block);
  }
}

SPEC(what_is_forgotten_is_found, "S3 threads, mutexes and conditions are given back") {
  toy_must_find(toy_plan(forgets, "thread"), "forgotten#1 was neither joined nor detached");
  toy_must_find(toy_plan(forgets, "mutex"), "a mutex was not deinitialised: 'lock'");
  toy_must_find(toy_plan(forgets, "cond"), "a condition was not deinitialised: 'cond'");
  toy_must_find(toy_plan(forgets, "locked"), "ends with 1 mutexes locked");
  toy_must_pass(toy_plan(forgets, "nothing"));
#ifndef __SANITIZE_ADDRESS__
  toy_must_find(toy_plan(forgets, "freed twice"), "freed before; it was made at site 'site'");
#endif
}

/* ------------------------------------------------------ who tidies whose heap */

static void *heap;
static bool is_awake;

static void own_heap(void *context) {
  void *block = ids_heap_resize(NULL, 100);
  unsigned number = sim_heap_free(ids_heap_own());
  ids_mutex_lock(&lock);
  heap = ids_heap_own();
  while (!is_awake)
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  if (toy_is(context, "early"))
    ids_heap_free(block);
  while (heap != NULL)
    ids_cond_wait(&cond, &lock, IDS_NEVER);
  ids_mutex_unlock(&lock);
  if (!toy_is(context, "early"))
    ids_heap_free(block);
  if (toy_is(context, "right"))
    SIM_CHECK(sim_heap_is_returned(number));
}

static void abandon(void *context) {
  heap = NULL;
  is_awake = false;
  toy_init_lock(&lock);
  toy_init_cond(&cond);
  struct ids_thread thread;
  toy_start(&thread, own_heap, context, "owner");
  sim_sleep_ns(1); /* the owner sleeps, too */
  ids_mutex_lock(&lock);
  void *theirs = heap;
  ids_mutex_unlock(&lock);
  if (toy_is(context, "early")) {
    ids_mutex_lock(&lock);
    is_awake = true;
    ids_cond_signal(&cond);
    ids_mutex_unlock(&lock);
  }
  if (toy_is(context, "own"))
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
  if (toy_is(context, "late"))
    ids_heap_abandon(theirs);
  ids_cond_deinit(&cond);
  ids_mutex_deinit(&lock);
}

SPEC(a_heap_of_who_is_awake_is_not_abandoned, "S9 only a sleeping thread's heap is abandoned") {
  toy_must_find(toy_plan(abandon, "early"), "owner#1 frees while another thread abandons its heap");
  toy_must_find(toy_plan(abandon, "late"), "the heap's thread has ended");
  toy_must_find(toy_plan(abandon, "own"), "the heap is the caller's own");
  toy_must_pass(toy_plan(abandon, "right"));
}

static void purge_now(void *context) {
  if (toy_is(context, "guarded"))
    ids_heap_purge_and_wait();
  else
    ids_heap_ops.purge();
}

static void two_purges(void *context) {
  struct ids_thread thread;
  toy_start(&thread, purge_now, context, "purger");
  purge_now(context);
  ids_thread_join(&thread);
}

SPEC(two_purges_at_once_are_found, "S9 purges come one at a time") {
  toy_must_find_by_all(toy_plan(two_purges, "bare"), "another purge is under way");
  toy_must_pass(toy_plan(two_purges, "guarded"));
}
