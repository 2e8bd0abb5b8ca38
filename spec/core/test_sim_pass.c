/* SPDX-License-Identifier: MIT */
/*
 * test_sim_pass.c - the pool's one timer: who shares a pass, who makes it when its holder is
 * called away, and what a later pass finds.
 *
 * Method: workers park at chosen moments of a fair clock, on which each pass has its exact
 * time; the holder is called away at each of them, and at every step; crowds do it by chance.
 * That somebody wakes up for the next pass is looked at whenever nothing can run
 * (pool_sim.h).
 */
#include <string.h>

#include "heap.h"
#include "pool_sim.h"

#define DELAY_NS (100 * IDS_MS)
#define WINDOW_NS (50 * IDS_MS)
#define STEP_NS (10 * IDS_MS)
#define WORKERS 3

static idlesched_pool *pool;
static uint64_t begin_ns;

static uint64_t now_ns(void) {
  return ids_now_ns() - begin_ns;
}

/* Until so long after the begin. */
static void sleep_until(uint64_t moment_ns) {
  ids_sleep_until(begin_ns + moment_ns);
}

static void make_pool(unsigned states_count, uint64_t idle_exit_ns) {
  sim_states(states_count, 2, 0);
  pool = SIM_POOL(.workers_max = WORKERS, .idle_exit_ns = idle_exit_ns, .hooks = sim_state_hooks);
  begin_ns = ids_now_ns();
}

/* Worker i parks so long after the begin. */
static void park_at(const uint64_t *moments_ns) {
  for (unsigned i = 0; i < WORKERS; i++) {
    sleep_until(moments_ns[i]);
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, i + 1), 0);
  }
  sim_sleep_ns(1);
}

static uint64_t released_ns(unsigned i) {
  return sim_heap_counts(sim_worker(pool, i)->heap).last_at_ns - begin_ns;
}

static uint64_t purged_ns(void) {
  return sim_heap_purged_at_ns() - begin_ns;
}

/* The promise of A1, of each worker that has a thread and was not woken since. */
static void check_released_in_time(void) {
  for (unsigned i = 0; i < WORKERS; i++) {
    const struct ids_worker *worker = sim_worker(pool, i);
    if (worker->state != IDS_WORKER_PARKED ||
        worker->release_at_ns - begin_ns + WINDOW_NS > now_ns())
      continue;
    SIM_CHECK(worker->is_released);
    SIM_CHECK_RELATION(released_ns(i), <=, worker->release_at_ns - begin_ns + WINDOW_NS);
  }
}

/* An idle pool does nothing but wait for its exits. */
static void check_at_rest(void) {
  SIM_CHECK_EQUAL(ids_pass_at_ns_locked(&pool->group), IDS_NEVER);
  for (unsigned i = 0; i < WORKERS; i++)
    SIM_CHECK_EQUAL(sim_worker(pool, i)->sleeps_until_ns, sim_worker(pool, i)->exit_at_ns);
  uint64_t steps = sim_steps_count();
  sim_sleep_ns(2 * IDS_S);
  SIM_CHECK_EQUAL(sim_steps_count(), steps + 1); /* the scenario's own */
  sim_pool_check(pool);
}

/* ------------------------------------------------------- nobody else is woken */

static bool is_watching;
static bool has_held[WORKERS];

static void check_others_sleep(void *context) {
  (void)context;
  for (unsigned i = 0; is_watching && i < WORKERS; i++) {
    const struct ids_worker *worker = sim_worker(pool, i);
    has_held[i] |= worker == pool->group.timer_holder;
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
  unsigned states_count = sim_choose(WORKERS + 1, "workers with a state");
  /* Who collects a state at the very end of the window comes too late for the pass. */
  const uint64_t last = states_count == 0 ? WINDOW_NS : WINDOW_NS - IDS_MS;
  const uint64_t second = sim_choose(3, "second") * 20 * IDS_MS;
  const uint64_t third = second + sim_choose(3, "third") * (last - second) / 2;
  make_pool(states_count, IDLESCHED_NEVER);
  watch_sleepers(states_count > 0);
  park_at((const uint64_t[]){ 0, second, third });
  is_watching = true;

  sleep_until(DELAY_NS - 1);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 0);
  sleep_until(DELAY_NS + WINDOW_NS + 1);
  const uint64_t parked_ns[] = { 0, second, third };
  for (unsigned i = 0; i < WORKERS; i++) {
    SIM_CHECK_RELATION(released_ns(i), >=, parked_ns[i] + DELAY_NS);
    SIM_CHECK_RELATION(released_ns(i), <=, parked_ns[i] + DELAY_NS + WINDOW_NS);
  }
  SIM_CHECK_EQUAL(sim_stats(pool).releases, WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 1);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  SIM_CHECK_RELATION(purged_ns(), >=, third + DELAY_NS);
  if (states_count == 0) /* nobody is waited for longer than needed */
    SIM_CHECK_EQUAL(purged_ns(), third + DELAY_NS);

  sleep_until(2 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 2);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pool).polls, WORKERS);
  check_at_rest();
  is_watching = false;
  sim_pool_finish(pool);
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
  make_pool(0, IDLESCHED_NEVER);
  watch_sleepers(false);
  park_at((const uint64_t[]){ 0, apart_ns, 2 * apart_ns });
  is_watching = true;
  sleep_until(DELAY_NS + 2 * apart_ns + 1);
  bool shares = apart_ns < WINDOW_NS;
  SIM_CHECK_EQUAL(released_ns(0), DELAY_NS + (shares ? apart_ns : 0));
  SIM_CHECK_EQUAL(released_ns(1), DELAY_NS + apart_ns);
  SIM_CHECK_EQUAL(released_ns(2), DELAY_NS + 2 * apart_ns);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, shares ? 2 : 3);
  sleep_until(3 * IDS_S);
  check_at_rest();
  is_watching = false;
  sim_pool_finish(pool);
}

SPEC(several_windows_several_passes, "N2 A1 workers 60 ms apart do not wait for each other") {
  struct sim_plan plan = { .name = "several windows", .scenario = several_windows, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------- the holder is called away */

static bool is_hostile;

static void grant_to(struct ids_worker *worker) {
  struct ids_wake wake = { .worker = NULL };
  ids_group_lock(&pool->group);
  bool is_idle = worker->state == IDS_WORKER_PARKED || worker->state == IDS_WORKER_RELEASING;
  if (is_idle && !worker->has_ticket)
    wake = ids_worker_grant_locked(worker);
  ids_group_unlock(&pool->group);
  if (wake.worker != NULL)
    SIM_CHECK_EQUAL(ids_wake_deliver(wake), 0);
}

static struct ids_worker *holder(void) {
  ids_group_lock(&pool->group);
  struct ids_worker *holder = pool->group.timer_holder;
  ids_group_unlock(&pool->group);
  return holder;
}

/* Tell the holder, if there is one, to do something else. */
static void grant_to_holder(void *context) {
  (void)context;
  struct ids_worker *worker = holder();
  if (worker != NULL)
    grant_to(worker);
}

static void retire_holder(void *context) {
  (void)context;
  struct ids_worker *worker = holder();
  if (worker != NULL)
    idlesched_worker_retire(worker);
}

static void submit_some(void *context) {
  (void)context;
  for (unsigned i = 0; i < 2; i++)
    sim_must_submit(pool, i);
}

/* Its limit may pass at any time when the clock is hostile. */
static void close_pool(void *context) {
  (void)context;
  int status = idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL);
  SIM_CHECK(status == 0 || (is_hostile && status == -ETIMEDOUT));
}

static void (*const calls_away[])(void *context) = { grant_to_holder, retire_holder, submit_some,
                                                     close_pool };

static void holder_goes(void *context) {
  (void)context;
  unsigned call = sim_choose(3, "what comes");
  uint64_t when_ns = (45 + 10 * sim_choose(11, "when")) * IDS_MS;
  make_pool(sim_choose(2, "workers with a state"), IDLESCHED_NEVER);
  park_at((const uint64_t[]){ 0, 20 * IDS_MS, 40 * IDS_MS });
  sleep_until(when_ns);
  calls_away[call](NULL);
  for (unsigned i = 0; i < 40; i++) {
    sim_sleep_ns(STEP_NS / 2);
    check_released_in_time();
  }
  sim_pool_check(pool);
  sim_pool_finish(pool);
}

SPEC(the_timer_is_handed_over,
     "N2 A1 the holder gets a ticket, retires or runs a job: all others are released in time") {
  struct sim_plan plan = { .name = "holder goes", .scenario = holder_goes };
  plan.bound = 0;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  plan.spurious_max = 1;
  sim_spec_sample(&plan, 100000);
}

static void holder_exits(void *context) {
  (void)context;
  make_pool(0, 130 * IDS_MS);
  park_at((const uint64_t[]){ 0, 20 * IDS_MS, 40 * IDS_MS });
  sleep_until(135 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(pool).exits, 1);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 0);
  sleep_until(145 * IDS_MS);
  SIM_CHECK_EQUAL(released_ns(1), 140 * IDS_MS);
  SIM_CHECK_EQUAL(released_ns(2), 140 * IDS_MS);
  SIM_CHECK_EQUAL(purged_ns(), 140 * IDS_MS);
  sleep_until(2 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pool).threads, 0);
  SIM_CHECK_EQUAL(sim_stats(pool).exits, WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 2);
  sim_pool_finish(pool);
}

SPEC(the_timer_outlives_its_holder, "N2 A1 the holder exits before the pass that is due") {
  struct sim_plan plan = { .name = "holder exits", .scenario = holder_exits, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* The pass is slow, and its maker gets a ticket in the middle of its first step. */
static void pass_is_left(void *context) {
  (void)context;
  const uint64_t due_ns = DELAY_NS + IDS_MS;
  make_pool(0, IDLESCHED_NEVER);
  sim_heap_configure(
    &(struct sim_heap_config){ .collect_ns = STEP_NS, .abandon_ns = STEP_NS, .purge_ns = STEP_NS });
  park_at((const uint64_t[]){ 0, IDS_MS, IDS_MS }); /* the first one holds the timer */
  unsigned mark = sim_heap_free(sim_worker(pool, 2)->heap);
  sleep_until(due_ns + STEP_NS / 2);
  const struct ids_worker *maker = sim_worker(pool, 0);
  SIM_CHECK(pool->group.is_passing && pool->group.timer_holder == maker);
  grant_to_holder(NULL);
  sleep_until(due_ns + 4 * STEP_NS + 1);
  SIM_CHECK_EQUAL(maker->used_count, 2);
  SIM_CHECK_EQUAL(maker->parked_at_ns - begin_ns, due_ns + STEP_NS);
  for (unsigned i = 1; i < WORKERS; i++)
    SIM_CHECK_RELATION(released_ns(i), <=, due_ns + 3 * STEP_NS);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 1);
  SIM_CHECK_EQUAL(purged_ns(), due_ns + 4 * STEP_NS);
  SIM_CHECK(sim_heap_is_returned(mark));
  sleep_until(3 * IDS_S);
  check_at_rest();
  sim_pool_finish(pool);
}

SPEC(
  a_pass_left_half_way_goes_on,
  "N2 N3 the maker of a pass is woken: it polls at the next step, and the rest is made at once") {
  struct sim_plan plan = { .name = "pass left", .scenario = pass_is_left, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* Worker 1 holds the timer.  Worker 0 collects its state, gets a ticket at the end of it, and
 * runs a long job. */
static void purge_is_left(void *context) {
  (void)context;
  make_pool(1, IDLESCHED_NEVER);
  park_at((const uint64_t[]){ 0, 0, 0 });
  sleep_until(2 * IDS_S);
  sim_jobs_take(2 * STEP_NS);
  grant_to(sim_worker(pool, 0));
  sim_must_submit(pool, 0);
  sim_sleep_ns(STEP_NS);
  grant_to(sim_worker(pool, 1));
  sim_sleep_ns(2 * STEP_NS);
  SIM_CHECK(holder() == sim_worker(pool, 1));
  SIM_CHECK_EQUAL(sim_jobs[0].worker, 0);

  uint64_t due_ns = sim_worker(pool, 0)->release_at_ns - begin_ns;
  sim_heap_configure(&(struct sim_heap_config){ .collect_ns = STEP_NS });
  sleep_until(due_ns + STEP_NS / 2);
  unsigned purges = sim_heap_purges_count();
  sim_jobs_take(5 * IDS_S);
  grant_to(sim_worker(pool, 0));
  sim_must_submit(pool, 1);
  sleep_until(due_ns + WINDOW_NS);
  SIM_CHECK(sim_worker(pool, 0)->state == IDS_WORKER_RUNNING);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), purges + 1);
  SIM_CHECK_EQUAL(purged_ns(), due_ns + STEP_NS);
  sim_pool_finish(pool);
}

SPEC(a_purge_is_not_left_lying,
     "N2 A1 A8 a worker releases and gets a job: a sleeping holder makes the purge it owes (it "
     "slept on)") {
  struct sim_plan plan = { .name = "purge left", .scenario = purge_is_left };
  sim_spec_exhaust(&plan);
}

/* ----------------------------------------------------- at every step of it all */

static void anything_at_step(void *context) {
  is_hostile = context != NULL;
  unsigned call = sim_choose(ids_countof(calls_away), "what comes");
  make_pool(1, 2 * IDS_S);
  sim_heap_configure(
    &(struct sim_heap_config){ .collect_ns = STEP_NS, .abandon_ns = STEP_NS, .purge_ns = STEP_NS });
  sim_sweep_begin(calls_away[call], NULL);
  SIM_CHECK_RELATION(idlesched_pool_start_workers(pool, WORKERS), >=, -ESHUTDOWN);
  sim_sleep_ns(3 * IDS_S);
  sim_sweep_end();
  sim_pool_finish(pool);
}

SPEC(anything_at_every_step,
     "N2 N3 A8 ticket, retirement, jobs or close at every step of releases, passes and exits") {
  struct sim_plan plan = { .name = "pass sweep", .scenario = anything_at_step };
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 1 + (uint64_t)(1000 * sim_spec_scale());
  sim_spec_sweep(&plan);
  plan.is_hostile = true;
  plan.context = &plan;
  plan.spurious_max = 1;
  sim_spec_sweep(&plan);
}

/* ------------------------------------------------------------- the later pass */

/*
 * Another thread frees something of an idle worker's.  Once the heap is given up, or about to
 * be, what is freed goes back to the allocator as it would after a collect.
 */
static unsigned free_into(const struct ids_worker *worker) {
  ids_group_lock(&pool->group);
  bool is_given_up = worker->is_released || worker->state == IDS_WORKER_RELEASING;
  ids_group_unlock(&pool->group);
  if (!is_given_up)
    return sim_heap_free(worker->heap);
  unsigned mark = sim_heap_free(ids_heap_own());
  ids_heap_collect();
  return mark;
}

static unsigned free_at(uint64_t moment_ns, unsigned i) {
  sleep_until(moment_ns);
  return free_into(sim_worker(pool, i));
}

static void freed_by_others(void *context) {
  (void)context;
  make_pool(sim_choose(2, "workers with a state") * WORKERS, 10 * IDS_S);
  watch_sleepers(false);
  sim_heap_configure(
    &(struct sim_heap_config){ .abandon_ns = STEP_NS, .purge_ns = STEP_NS, .must_sleep_on = true });
  park_at((const uint64_t[]){ 0, 0, 0 });
  is_watching = true;
  unsigned before = free_at(50 * IDS_MS, 1);
  unsigned marks[5] = { free_at(105 * IDS_MS, 1), free_at(115 * IDS_MS, 2) };
  marks[2] = free_at(125 * IDS_MS, 1);
  sleep_until(DELAY_NS + WINDOW_NS);
  SIM_CHECK(sim_heap_is_returned(before));
  marks[3] = free_at(500 * IDS_MS, 2);
  marks[4] = free_at(DELAY_NS + 890 * IDS_MS, 1);
  sleep_until(DELAY_NS + 1000 * IDS_MS);
  for (unsigned i = 0; i < ids_countof(marks); i++)
    SIM_CHECK(sim_heap_is_returned(marks[i]));
  check_at_rest();

  unsigned late = free_at(5 * IDS_S, 1);
  sleep_until(10 * IDS_S - 1);
  SIM_CHECK(!sim_heap_is_returned(late));
  SIM_CHECK_EQUAL(sim_stats(pool).polls, WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, WORKERS);
  is_watching = false;
  sleep_until(11 * IDS_S);
  SIM_CHECK(sim_heap_is_returned(late));
  sim_pool_finish(pool);
}

SPEC(what_others_free_comes_back,
     "N1 A19 freed before, during or up to 0.9 s after a release: back 1 s after it, and nobody "
     "is woken; later: with the exit") {
  struct sim_plan plan = { .name = "freed by others", .scenario = freed_by_others, .bound = 1 };
  sim_spec_exhaust(&plan);
}

static void releases_in_a_row(void *context) {
  (void)context;
  make_pool(0, IDLESCHED_NEVER);
  park_at((const uint64_t[]){ 0, 500 * IDS_MS, 800 * IDS_MS });
  /* Released at 100, 600 and 900 ms; the later pass for the first is over. */
  sleep_until(1001 * IDS_MS);
  unsigned after_second = free_into(sim_worker(pool, 1));
  sleep_until(1600 * IDS_MS);
  SIM_CHECK(sim_heap_is_returned(after_second));
  sleep_until(1799 * IDS_MS);
  unsigned after_third = free_into(sim_worker(pool, 2));
  sleep_until(1900 * IDS_MS);
  SIM_CHECK(sim_heap_is_returned(after_third));
  check_at_rest();
  sim_pool_finish(pool);
}

SPEC(each_release_has_its_later_pass, "N1 releases that follow each other: each has a later pass") {
  struct sim_plan plan = { .name = "releases in a row", .scenario = releases_in_a_row, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------------------- by chance */

static void be_a_crowd(void *context) {
  static const uint64_t pauses_ns[] = { 0, 50 * IDS_MS, 100 * IDS_MS, 120 * IDS_MS, 950 * IDS_MS };
  unsigned first = (unsigned)(uintptr_t)context * 2;
  for (unsigned i = first; i < first + 2; i++) {
    sim_sleep_ns(pauses_ns[sim_choose(ids_countof(pauses_ns), "pause")]);
    if (sim_choose(3, "what") == 0)
      calls_away[sim_choose(2, "call")](NULL);
    sim_must_submit(pool, i);
  }
}

static void crowd(void *context) {
  unsigned clients_count = (unsigned)(uintptr_t)context;
  struct sim_client clients[4];
  make_pool(1, 2 * IDS_S);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_start(&clients[i], be_a_crowd, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_join(&clients[i]);
  sim_sleep_ns(sim_choose(3, "rest") * IDS_S);
  sim_pool_finish(pool);
}

SPEC(crowds, "N2 N3 A8 A11 A18 jobs, tickets and retirements by chance, among releases and passes",
     .limit_s = 120) {
  for (unsigned clients_count = 2; clients_count <= 4; clients_count += 2) {
    struct sim_plan plan = { .name = clients_count == 2 ? "crowd of 2" : "crowd of 4",
                             .scenario = crowd,
                             .context = (void *)(uintptr_t)clients_count,
                             .strategy = SIM_RANDOM,
                             .spurious_max = 1 };
    uint64_t runs_count = clients_count == 2 ? 400000 : 100000;
    sim_spec_sample(&plan, runs_count);
    plan.is_hostile = true;
    sim_spec_sample(&plan, runs_count);
    plan.strategy = SIM_PCT;
    sim_spec_sample(&plan, runs_count / 10);
  }
}
