/* SPDX-License-Identifier: MIT */
/*
 * test_sim_pass.c - what a pool's passes do: who shares one, who is woken for it, and what a
 * later pass finds.
 *
 * Method: workers park at chosen moments, and each pass has its exact time.  What becomes of the
 * timer when its holder is called away is in test_sim_timer.c.
 */
#include <string.h>

#include "heap.h"
#include "pass_sim.h"

#define STEP_NS (10 * IDS_MS)

/* ------------------------------------------------------- nobody else is woken */

static bool is_watching;
static bool has_held[PASS_WORKERS];

static void check_others_sleep(void *context) {
  (void)context;
  for (unsigned i = 0; is_watching && i < PASS_WORKERS; i++) {
    const struct ids_worker *worker = sim_worker(pass_pool, i);
    has_held[i] |= worker == pass_pool->group.timer_holder;
    if (!has_held[i] && !worker->has_state && worker->wake.waiters == 0)
      sim_fail("worker %u is awake, and never held the timer", i);
  }
}

/* Who gave the timer away may wake up at the moment at which it was to, claimed or not. */
static void watch_sleepers(bool has_states) {
  is_watching = false;
  memset(has_held, 0, sizeof has_held);
  sim_invariant(check_others_sleep, NULL);
  sim_heap_configure(&(struct sim_heap_config){ .must_sleep_on = !has_states });
}

/* ------------------------------------------------------------------ one window */

static void one_window(void *context) {
  (void)context;
  unsigned states_count = sim_choose(PASS_WORKERS + 1, "workers with a state");
  /* Who collects a state at the very end of the window comes too late for the pass. */
  const uint64_t last = states_count == 0 ? PASS_WINDOW_NS : PASS_WINDOW_NS - IDS_MS;
  const uint64_t second = sim_choose(3, "second") * 20 * IDS_MS;
  const uint64_t third = second + sim_choose(3, "third") * (last - second) / 2;
  pass_make_pool(states_count, IDLESCHED_NEVER);
  watch_sleepers(states_count > 0);
  pass_park_at((const uint64_t[]){ 0, second, third });
  is_watching = true;

  pass_sleep_until(PASS_DELAY_NS - 1);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).releases, 0);
  pass_sleep_until(PASS_DELAY_NS + PASS_WINDOW_NS + 1);
  const uint64_t parked_ns[] = { 0, second, third };
  for (unsigned i = 0; i < PASS_WORKERS; i++) {
    SIM_CHECK_RELATION(pass_released_ns(i), >=, parked_ns[i] + PASS_DELAY_NS);
    SIM_CHECK_RELATION(pass_released_ns(i), <=, parked_ns[i] + PASS_DELAY_NS + PASS_WINDOW_NS);
  }
  SIM_CHECK_EQUAL(sim_stats(pass_pool).releases, PASS_WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, 1);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  SIM_CHECK_RELATION(pass_purged_ns(), >=, third + PASS_DELAY_NS);
  SIM_CHECK_RELATION(pass_purged_ns(), <=, PASS_DELAY_NS + PASS_WINDOW_NS);

  pass_sleep_until(2 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, 2);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).releases, PASS_WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).polls, PASS_WORKERS);
  pass_check_at_rest();
  is_watching = false;
  sim_pool_finish(pass_pool);
}

SPEC(one_window_one_pass,
     "N2 A1 A18 workers that park within 50 ms share one pass and one purge, in time, and only "
     "the timer's holder is woken") {
  struct sim_plan plan = { .name = "one window", .scenario = one_window };
  plan.bound = 0;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 100000);
}

static void several_windows(void *context) {
  (void)context;
  const uint64_t apart_ns = (sim_choose(2, "apart") == 0 ? 40 : 60) * IDS_MS;
  pass_make_pool(0, IDLESCHED_NEVER);
  watch_sleepers(false);
  pass_park_at((const uint64_t[]){ 0, apart_ns, 2 * apart_ns });
  is_watching = true;
  pass_sleep_until(PASS_DELAY_NS + 2 * apart_ns + 1);
  bool shares = apart_ns < PASS_WINDOW_NS;
  SIM_CHECK_EQUAL(pass_released_ns(0), PASS_DELAY_NS + (shares ? apart_ns : 0));
  SIM_CHECK_EQUAL(pass_released_ns(1), PASS_DELAY_NS + apart_ns);
  SIM_CHECK_EQUAL(pass_released_ns(2), PASS_DELAY_NS + 2 * apart_ns);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, shares ? 2 : 3);
  pass_sleep_until(3 * IDS_S);
  pass_check_at_rest();
  is_watching = false;
  sim_pool_finish(pass_pool);
}

SPEC(several_windows_several_passes, "N2 A1 workers 60 ms apart do not wait for each other") {
  struct sim_plan plan = { .name = "several windows", .scenario = several_windows, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------------- the later pass */

/*
 * Another thread frees something of an idle worker's.  Once the heap is given up, or about to
 * be, what is freed goes back to the allocator as it would after a collect.
 */
static unsigned free_into(const struct ids_worker *worker) {
  ids_group_lock(&pass_pool->group);
  bool is_given_up = worker->is_released || worker->state == IDS_WORKER_RELEASING;
  ids_group_unlock(&pass_pool->group);
  if (!is_given_up)
    return sim_heap_free(worker->heap);
  unsigned mark = sim_heap_free(ids_heap_own());
  ids_heap_collect();
  return mark;
}

static unsigned free_at(uint64_t moment_ns, unsigned i) {
  pass_sleep_until(moment_ns);
  return free_into(sim_worker(pass_pool, i));
}

static void freed_by_others(void *context) {
  (void)context;
  pass_make_pool(sim_choose(2, "workers with a state") * PASS_WORKERS, 10 * IDS_S);
  watch_sleepers(false);
  sim_heap_configure(
    &(struct sim_heap_config){ .abandon_ns = STEP_NS, .purge_ns = STEP_NS, .must_sleep_on = true });
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  is_watching = true;
  unsigned before = free_at(50 * IDS_MS, 1);
  /* Who parks first sleeps to the end of the window, unless it is slow to fall asleep. */
  const uint64_t pass_ns = PASS_DELAY_NS + PASS_WINDOW_NS;
  unsigned marks[5] = { free_at(pass_ns + 5 * IDS_MS, 1), free_at(pass_ns + 15 * IDS_MS, 2) };
  marks[2] = free_at(pass_ns + 25 * IDS_MS, 1);
  pass_sleep_until(pass_ns + PASS_WORKERS * STEP_NS + STEP_NS + 1);
  SIM_CHECK(sim_heap_is_returned(before));
  const uint64_t purged_ns = pass_purged_ns();
  marks[3] = free_at(500 * IDS_MS, 2);
  marks[4] = free_at(purged_ns + 890 * IDS_MS, 1);
  pass_sleep_until(purged_ns + 1000 * IDS_MS);
  for (unsigned i = 0; i < ids_countof(marks); i++)
    SIM_CHECK(sim_heap_is_returned(marks[i]));
  pass_check_at_rest();

  unsigned late = free_at(5 * IDS_S, 1);
  pass_sleep_until(10 * IDS_S - 1);
  SIM_CHECK(!sim_heap_is_returned(late));
  SIM_CHECK_EQUAL(sim_stats(pass_pool).polls, PASS_WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).releases, PASS_WORKERS);
  is_watching = false;
  pass_sleep_until(11 * IDS_S);
  SIM_CHECK(sim_heap_is_returned(late));
  sim_pool_finish(pass_pool);
}

SPEC(what_others_free_comes_back,
     "N1 A19 freed before, during or up to 0.9 s after a release: back 1 s after it, and nobody "
     "is woken; later: with the exit") {
  struct sim_plan plan = { .name = "freed by others", .scenario = freed_by_others, .bound = 1 };
  sim_spec_exhaust(&plan);
}

static void releases_in_a_row(void *context) {
  (void)context;
  pass_make_pool(0, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 500 * IDS_MS, 800 * IDS_MS });
  /* Released at 100, 600 and 900 ms; the later pass for the first is over. */
  pass_sleep_until(1001 * IDS_MS);
  unsigned after_second = free_into(sim_worker(pass_pool, 1));
  pass_sleep_until(1600 * IDS_MS);
  SIM_CHECK(sim_heap_is_returned(after_second));
  pass_sleep_until(1799 * IDS_MS);
  unsigned after_third = free_into(sim_worker(pass_pool, 2));
  pass_sleep_until(1900 * IDS_MS);
  SIM_CHECK(sim_heap_is_returned(after_third));
  pass_check_at_rest();
  sim_pool_finish(pass_pool);
}

SPEC(each_release_has_its_later_pass, "N1 releases that follow each other: each has a later pass") {
  struct sim_plan plan = { .name = "releases in a row", .scenario = releases_in_a_row, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------ nobody is parked for long */

static void retires_own_worker(void *context) {
  (void)context;
  idlesched_worker_retire(idlesched_worker_current());
}

/* One worker has a long job, the other's threads come and go: each end wants a later pass,
 * and there is nobody to make any. */
static void many_ends(void *context) {
  (void)context;
  idlesched_pool *pool = SIM_POOL(.workers_max = 2, .idle_exit_ns = IDLESCHED_NEVER);
  sim_jobs_take(3 * IDS_S);
  sim_must_submit(pool, 0);
  for (unsigned i = 0; i < IDS_LATER_MAX + 2; i++) {
    SIM_CHECK_EQUAL(idlesched_pool_submit(pool, retires_own_worker, NULL), 0);
    sim_sleep_ns(PASS_WINDOW_NS + IDS_MS);
  }
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 0);
  sim_sleep_ns(5 * IDS_S);
  idlesched_pool_stats stats = sim_stats(pool);
  SIM_CHECK_EQUAL(stats.retires, IDS_LATER_MAX + 2);
  SIM_CHECK_RELATION(stats.passes, >=, 2); /* those that were late, its own, and its later one */
  ids_group_lock(&pool->group);
  SIM_CHECK_EQUAL(ids_pass_at_ns_locked(&pool->group), IDLESCHED_NEVER);
  ids_group_unlock(&pool->group);
  sim_pool_finish(pool);
}

SPEC(more_later_passes_than_there_is_room_for,
     "N1 later passes that nobody can make for long are made together, and none is left") {
  struct sim_plan plan = { .name = "many ends", .scenario = many_ends };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------- what follows an exit, or a release on demand */

/* Released at 100 and 1600 ms, so that no other later pass comes after 2.5 s. */
static void freed_after_an_exit(void *context) {
  (void)context;
  const uint64_t exit_ns = 2 * IDS_S;
  pass_make_pool(0, exit_ns);
  pass_park_at((const uint64_t[]){ 0, 1500 * IDS_MS, 1500 * IDS_MS });
  unsigned early = free_at(exit_ns + 600 * IDS_MS, 1);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).exits, 1);
  unsigned late = free_at(exit_ns + 890 * IDS_MS, 2);
  SIM_CHECK(!sim_heap_is_returned(early));
  pass_sleep_until(exit_ns + IDS_S);
  SIM_CHECK(sim_heap_is_returned(early));
  SIM_CHECK(sim_heap_is_returned(late));
  SIM_CHECK_EQUAL(sim_stats(pass_pool).exits, 1);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).polls, PASS_WORKERS);
  sim_pool_finish(pass_pool);
}

SPEC(an_exit_has_its_later_pass,
     "N1 freed up to 0.9 s after a thread has left: back 1 s after it, by one that is parked") {
  struct sim_plan plan = { .name = "after an exit", .scenario = freed_after_an_exit, .bound = 1 };
  sim_spec_exhaust(&plan);
}

static void freed_after_a_visit(void *context) {
  (void)context;
  const uint64_t visit_ns = 5 * IDS_S;
  pass_make_pool(sim_choose(2, "workers with a state") * PASS_WORKERS, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  pass_sleep_until(visit_ns);
  SIM_CHECK_EQUAL(idlesched_pool_release(pass_pool, IDLESCHED_NEVER, NULL), 0);
  unsigned early = free_at(visit_ns + 100 * IDS_MS, 1);
  unsigned late = free_at(visit_ns + 890 * IDS_MS, 2);
  SIM_CHECK(!sim_heap_is_returned(early));
  pass_sleep_until(visit_ns + IDS_S);
  SIM_CHECK(sim_heap_is_returned(early));
  SIM_CHECK(sim_heap_is_returned(late));
  SIM_CHECK_EQUAL(sim_stats(pass_pool).polls, PASS_WORKERS);
  pass_check_at_rest();
  sim_pool_finish(pass_pool);
}

SPEC(a_visit_has_its_later_pass,
     "N1 B14 freed up to 0.9 s after a release on demand: back 1 s after it, and nobody polls") {
  struct sim_plan plan = { .name = "after a visit", .scenario = freed_after_a_visit };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------- what is freed long after a release */

/* Every pass that would come by itself is over by then. */
#define LONG_AFTER_NS (5 * IDS_S)

static void freed_long_after(void *context) {
  (void)context;
  pass_make_pool(sim_choose(2, "workers with a state") * PASS_WORKERS, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  pass_sleep_until(LONG_AFTER_NS);
  uint64_t passes_count = sim_stats(pass_pool).passes;
  unsigned early = free_at(LONG_AFTER_NS, 1);
  idlesched_pool_freed(pass_pool);
  unsigned late = free_at(LONG_AFTER_NS + 890 * IDS_MS, 2);
  idlesched_pool_freed(pass_pool);
  SIM_CHECK(!sim_heap_is_returned(early));
  pass_sleep_until(LONG_AFTER_NS + IDS_S);
  SIM_CHECK(sim_heap_is_returned(early));
  SIM_CHECK(sim_heap_is_returned(late));
  pass_sleep_until(2 * LONG_AFTER_NS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, passes_count + 2);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).polls, PASS_WORKERS);
  pass_check_at_rest();
  sim_pool_finish(pass_pool);
}

SPEC(freed_long_after_a_release,
     "N1 who frees long after a release asks for a pass: back within 1 s, and nobody polls") {
  struct sim_plan plan = { .name = "long after", .scenario = freed_long_after, .bound = 1 };
  sim_spec_exhaust(&plan);
}

static void freed_without_a_thread(void *context) {
  (void)context;
  pass_make_pool(0, IDS_S);
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  pass_sleep_until(LONG_AFTER_NS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).threads, 0);
  uint64_t purges_count = ids_heap_purges_count();
  idlesched_pool_freed(pass_pool);
  SIM_CHECK_EQUAL(ids_heap_purges_count(), purges_count + 1);
  pass_sleep_until(LONG_AFTER_NS + 890 * IDS_MS);
  idlesched_pool_freed(pass_pool);
  SIM_CHECK_EQUAL(ids_heap_purges_count(), purges_count + 1);
  pass_sleep_until(LONG_AFTER_NS + 900 * IDS_MS);
  idlesched_pool_freed(pass_pool);
  SIM_CHECK_EQUAL(ids_heap_purges_count(), purges_count + 2);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).starts, PASS_WORKERS);
  sim_pool_finish(pass_pool);
}

SPEC(freed_when_no_thread_is_left,
     "N1 without a thread who frees purges by itself, once in 0.9 s, and starts none") {
  struct sim_plan plan = { .name = "no thread left", .scenario = freed_without_a_thread };
  sim_spec_exhaust(&plan);
}

/* The purge of the only thread's exit takes long, and is past what is freed meanwhile. */
static void freed_as_the_last_one_leaves(void *context) {
  (void)context;
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_exit_ns = IDS_S);
  sim_work(pool, 0);
  sim_sleep_ns(950 * IDS_MS);
  sim_heap_configure(&(struct sim_heap_config){ .purge_ns = 100 * IDS_MS });
  sim_sleep_ns(100 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(pool).exiting, 1);
  unsigned mark = sim_heap_free(ids_heap_own());
  ids_heap_collect();
  idlesched_pool_freed(pool);
  sim_sleep_ns(IDS_S);
  SIM_CHECK(sim_heap_is_returned(mark));
  SIM_CHECK_EQUAL(sim_stats(pool).threads, 0);
  sim_pool_finish(pool);
}

SPEC(freed_as_the_last_thread_leaves,
     "N1 A13 what is freed while the last thread is on its way out: who freed it purges") {
  struct sim_plan plan = { .name = "last leaves", .scenario = freed_as_the_last_one_leaves };
  sim_spec_exhaust(&plan);
}

static void freed_and_never_released(void *context) {
  (void)context;
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                                  .idle_exit_ns = IDLESCHED_NEVER);
  uint64_t purges_count = ids_heap_purges_count();
  idlesched_pool_freed(pool);
  sim_work(pool, 0);
  idlesched_pool_freed(pool);
  sim_sleep_ns(5 * IDS_S);
  SIM_CHECK_EQUAL(ids_heap_purges_count(), purges_count);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 0);
  sim_pool_finish(pool);
}

SPEC(freed_in_a_pool_that_never_releases, "A23 N1 with idle_release never nobody is asked") {
  struct sim_plan plan = { .name = "never", .scenario = freed_and_never_released };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------- the C library's heap */

/* The core remembers the last trim from run to run.  So that all of them begin alike, each ends
 * with one, at the same moment, which then lies in the future. */
static void end_with_a_trim(void) {
  pass_sleep_until(30 * IDS_S);
  ids_heap_trim_c(true);
}

static void trims_of_passes(void *context) {
  (void)context;
  bool is_worth_it = sim_choose(2, "worth a trim") == 1;
  uint64_t free_bytes = (UINT64_C(4) << 20) + is_worth_it;
  sim_heap_configure(&(struct sim_heap_config){ .c_free_bytes = free_bytes });
  pass_make_pool(sim_choose(2, "workers with a state") * PASS_WORKERS, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 10 * IDS_MS, 20 * IDS_MS });
  pass_sleep_until(PASS_DELAY_NS + PASS_WINDOW_NS + 1);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, 1);
  SIM_CHECK_EQUAL(sim_heap_trims_count(), is_worth_it ? 1 : 0);
  pass_sleep_until(2 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, 2);
  SIM_CHECK_EQUAL(sim_heap_trims_count(), is_worth_it ? 2 : 0);
  pass_sleep_until(10 * IDS_S);
  SIM_CHECK_EQUAL(sim_heap_trims_count(), is_worth_it ? 2 : 0);
  end_with_a_trim();
  sim_pool_finish(pass_pool);
}

SPEC(a_pass_trims_once,
     "N9 each pass, and the later one, trims the C library's heap once, if that is worth it") {
  struct sim_plan plan = { .name = "trims", .scenario = trims_of_passes, .bound = 1 };
  sim_spec_exhaust(&plan);
}

static void exits_before_any_pass(void *context) {
  (void)context;
  sim_heap_configure(&(struct sim_heap_config){ .c_free_bytes = UINT64_C(5) << 20 });
  pass_make_pool(0, PASS_DELAY_NS / 2);
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  pass_sleep_until(PASS_DELAY_NS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).exits, PASS_WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, 0);
  SIM_CHECK_EQUAL(sim_heap_trims_count(), 1);
  end_with_a_trim();
  sim_pool_finish(pass_pool);
}

SPEC(threads_that_end_trim_once,
     "N9 threads that end trim the C library's heap, together once: no pass may follow") {
  struct sim_plan plan = { .name = "exits trim", .scenario = exits_before_any_pass, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* A second burst within half a second of the first one's trim. */
static void trim_left_to_the_later_pass(void *context) {
  (void)context;
  const uint64_t again_ns = 300 * IDS_MS;
  sim_heap_configure(&(struct sim_heap_config){ .c_free_bytes = UINT64_C(5) << 20 });
  pass_make_pool(0, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  pass_sleep_until(PASS_DELAY_NS + PASS_WINDOW_NS + 1);
  SIM_CHECK_EQUAL(sim_heap_trims_count(), 1);
  pass_sleep_until(again_ns);
  sim_must_submit(pass_pool, 0);
  pass_sleep_until(again_ns + PASS_DELAY_NS + 1);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, 2);
  SIM_CHECK_EQUAL(sim_heap_trims_count(), 1);
  pass_sleep_until(again_ns + PASS_DELAY_NS + 950 * IDS_MS);
  SIM_CHECK_RELATION(sim_heap_trims_count(), >=, 2);
  end_with_a_trim();
  sim_pool_finish(pass_pool);
}

SPEC(a_trim_that_came_too_soon,
     "N9 a pass that comes too soon after a trim leaves its own to the later pass") {
  struct sim_plan plan = { .name = "trim later", .scenario = trim_left_to_the_later_pass };
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------- a debt made during a purge */

/* Worker 0, which has a state, releases while the purge for the others is under way. */
static void released_during_a_purge(void *context) {
  (void)context;
  pass_make_pool(1, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  pass_sleep_until(60 * IDS_MS);
  sim_submit_to(pass_pool, 0, sim_worker(pass_pool, 0));
  sim_heap_configure(&(struct sim_heap_config){ .purge_ns = 100 * IDS_MS });
  unsigned mark = free_at(155 * IDS_MS, 0);
  SIM_CHECK(pass_pool->group.is_passing);
  pass_sleep_until(165 * IDS_MS);
  SIM_CHECK_EQUAL(pass_released_ns(0), 160 * IDS_MS);
  const uint64_t pass_ns = PASS_DELAY_NS + PASS_WINDOW_NS;
  pass_sleep_until(pass_ns + 2 * 100 * IDS_MS + 1);
  SIM_CHECK_RELATION(pass_purged_ns(), <=, pass_ns + 2 * 100 * IDS_MS);
  SIM_CHECK_RELATION(pass_purged_ns(), >=, PASS_DELAY_NS + 2 * 100 * IDS_MS);
  SIM_CHECK(sim_heap_is_returned(mark));
  sim_pool_finish(pass_pool);
}

SPEC(a_debt_of_the_middle_of_a_purge,
     "A1 A8 a worker releases while a purge is under way: its own purge follows at once") {
  struct sim_plan plan = { .name = "debt", .scenario = released_during_a_purge, .bound = 1 };
  sim_spec_exhaust(&plan);
}
