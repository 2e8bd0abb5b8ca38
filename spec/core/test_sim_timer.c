/* SPDX-License-Identifier: MIT */
/*
 * test_sim_timer.c - the pool's one timer: who makes the pass when its holder is called away.
 *
 * Method: the holder is called away at chosen moments of a fair clock, and at every step; crowds
 * do it by chance.  That somebody wakes up for the next pass is looked at whenever nothing can
 * run (pool_sim.h).
 */
#include "pass_sim.h"

#define STEP_NS (10 * IDS_MS)

/* The promise of A1, of each worker that has a thread and was not woken since. */
static void check_released_in_time(void) {
  for (unsigned i = 0; i < PASS_WORKERS; i++) {
    const struct ids_worker *worker = sim_worker(pass_pool, i);
    uint64_t latest_ns = worker->release_at_ns + PASS_WINDOW_NS;
    if (worker->state != IDS_WORKER_PARKED || latest_ns >= ids_now_ns())
      continue;
    SIM_CHECK(worker->is_released);
    SIM_CHECK_RELATION(pass_begin_ns + pass_released_ns(i), <=, latest_ns);
  }
}

/* ----------------------------------------------- one of those who share a window leaves */

/* The holder sleeps until the last of them is due, and need not be woken when that one goes. */
static void one_of_a_window_leaves(void *context) {
  (void)context;
  const uint64_t leaves_ns = PASS_DELAY_NS - STEP_NS + sim_choose(6, "leaves") * STEP_NS;
  pass_make_pool(0, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, STEP_NS, 4 * STEP_NS });
  pass_sleep_until(leaves_ns);
  idlesched_worker_retire(sim_worker(pass_pool, 2));
  pass_sleep_until(PASS_DELAY_NS + PASS_WINDOW_NS + 1);
  check_released_in_time();
  SIM_CHECK_RELATION(pass_released_ns(0), <=, PASS_DELAY_NS + 4 * STEP_NS);
  sim_pool_finish(pass_pool);
}

SPEC(who_shares_a_window_may_leave,
     "A1 N2 C18 one of those who share a pass retires before it: the others have theirs in time") {
  struct sim_plan plan = { .name = "leaves the window",
                           .scenario = one_of_a_window_leaves,
                           .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------- the holder is called away */

static bool is_hostile;

static void grant_to(struct ids_worker *worker) {
  struct ids_wake wake = { .worker = NULL };
  ids_group_lock(&pass_pool->group);
  bool is_idle = worker->state == IDS_WORKER_PARKED || worker->state == IDS_WORKER_RELEASING;
  if (is_idle && !worker->has_ticket)
    wake = ids_worker_grant_locked(worker);
  ids_group_unlock(&pass_pool->group);
  if (wake.worker != NULL)
    SIM_CHECK_EQUAL(ids_wake_deliver(wake), 0);
}

static struct ids_worker *holder(void) {
  ids_group_lock(&pass_pool->group);
  struct ids_worker *holder = pass_pool->group.timer_holder;
  ids_group_unlock(&pass_pool->group);
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
    sim_must_submit(pass_pool, i);
}

/* Its limit may pass at any time when the clock is hostile. */
static void close_pool(void *context) {
  (void)context;
  int status = idlesched_pool_close(pass_pool, IDLESCHED_CLOSE_DRAIN, 0, NULL);
  SIM_CHECK(status == 0 || (is_hostile && status == -ETIMEDOUT));
}

static void (*const calls_away[])(void *context) = { grant_to_holder, retire_holder, submit_some,
                                                     close_pool };

static void holder_goes(void *context) {
  (void)context;
  unsigned call = sim_choose(3, "what comes");
  uint64_t when_ns = (45 + 10 * sim_choose(11, "when")) * IDS_MS;
  pass_make_pool(sim_choose(2, "workers with a state"), IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 20 * IDS_MS, 40 * IDS_MS });
  pass_sleep_until(when_ns);
  calls_away[call](NULL);
  for (unsigned i = 0; i < 40; i++) {
    sim_sleep_ns(STEP_NS / 2);
    check_released_in_time();
  }
  sim_pool_check(pass_pool);
  sim_pool_finish(pass_pool);
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
  pass_make_pool(0, 130 * IDS_MS);
  pass_park_at((const uint64_t[]){ 0, 20 * IDS_MS, 40 * IDS_MS });
  for (unsigned i = 0; i < PASS_WORKERS; i++) {
    const uint64_t exit_ns = (130 + i * 20) * IDS_MS;
    pass_sleep_until(exit_ns + IDS_MS);
    SIM_CHECK_EQUAL(sim_stats(pass_pool).exits, i + 1);
    SIM_CHECK_EQUAL(pass_purged_ns(), exit_ns);
  }
  pass_sleep_until(2 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).threads, 0);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).releases, 0);
  sim_pool_finish(pass_pool);
}

SPEC(the_timer_outlives_its_holder, "N2 A1 the holder exits before the pass that is due") {
  struct sim_plan plan = { .name = "holder exits", .scenario = holder_exits, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* The pass is slow, and its maker gets a ticket in the middle of its first step. */
static void pass_is_left(void *context) {
  (void)context;
  const uint64_t due_ns = PASS_DELAY_NS + IDS_MS;
  pass_make_pool(0, IDLESCHED_NEVER);
  sim_heap_takes(STEP_NS);
  pass_park_at((const uint64_t[]){ 0, IDS_MS, IDS_MS }); /* the first one holds the timer */
  unsigned mark = sim_heap_free(sim_worker(pass_pool, 2)->heap);
  pass_sleep_until(due_ns + STEP_NS / 2);
  const struct ids_worker *maker = sim_worker(pass_pool, 0);
  SIM_CHECK(pass_pool->group.is_passing && pass_pool->group.timer_holder == maker);
  grant_to_holder(NULL);
  pass_sleep_until(due_ns + 4 * STEP_NS + 1);
  SIM_CHECK_EQUAL(maker->used_count, 2);
  SIM_CHECK_EQUAL(maker->parked_at_ns - pass_begin_ns, due_ns + STEP_NS);
  for (unsigned i = 1; i < PASS_WORKERS; i++)
    SIM_CHECK_RELATION(pass_released_ns(i), <=, due_ns + 3 * STEP_NS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).releases, PASS_WORKERS);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).passes, 1);
  SIM_CHECK_EQUAL(pass_purged_ns(), due_ns + 4 * STEP_NS);
  SIM_CHECK(sim_heap_is_returned(mark));
  pass_sleep_until(3 * IDS_S);
  pass_check_at_rest();
  sim_pool_finish(pass_pool);
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
  pass_make_pool(1, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, 0, 0 });
  pass_sleep_until(2 * IDS_S);
  sim_jobs_take(2 * STEP_NS);
  sim_submit_to(pass_pool, 0, sim_worker(pass_pool, 0));
  sim_sleep_ns(STEP_NS);
  grant_to(sim_worker(pass_pool, 1));
  sim_sleep_ns(2 * STEP_NS);
  SIM_CHECK(holder() == sim_worker(pass_pool, 1));
  SIM_CHECK_EQUAL(sim_jobs[0].worker, 0);

  uint64_t due_ns = sim_worker(pass_pool, 0)->release_at_ns - pass_begin_ns;
  sim_heap_configure(&(struct sim_heap_config){ .collect_ns = STEP_NS });
  pass_sleep_until(due_ns + STEP_NS / 2);
  unsigned purges = sim_heap_purges_count();
  sim_jobs_take(5 * IDS_S);
  sim_submit_to(pass_pool, 1, sim_worker(pass_pool, 0));
  pass_sleep_until(due_ns + PASS_WINDOW_NS);
  SIM_CHECK(sim_worker(pass_pool, 0)->state == IDS_WORKER_RUNNING);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), purges + 1);
  SIM_CHECK_EQUAL(pass_purged_ns(), due_ns + STEP_NS);
  sim_pool_finish(pass_pool);
}

SPEC(a_purge_is_not_left_lying,
     "N2 A1 A8 a worker releases and gets a job: a sleeping holder makes the purge it owes (it "
     "slept on)") {
  struct sim_plan plan = { .name = "purge left", .scenario = purge_is_left };
  sim_spec_exhaust(&plan);
}

/* Worker 2 is busy, so the visitor waits on; worker 0 holds the timer, and gets a long job while
 * the visitor has worker 1 in hand: nobody is left to make the later pass but that one. */
static void visit_everybody(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pool_release(pass_pool, IDLESCHED_NEVER, NULL), 0);
}

static void given_back_in_time(void *context) {
  (void)context;
  struct sim_client visitor;
  const uint64_t visit_ns = 500 * IDS_MS;
  const uint64_t later_ns = PASS_DELAY_NS + 901 * IDS_MS;
  pass_make_pool(0, IDLESCHED_NEVER);
  pass_park_at((const uint64_t[]){ 0, IDS_MS, IDS_MS }); /* the first one holds the timer */
  sim_jobs_take(3 * IDS_S);
  pass_sleep_until(visit_ns - STEP_NS);
  SIM_CHECK(holder() == sim_worker(pass_pool, 0));
  sim_submit_to(pass_pool, 0, sim_worker(pass_pool, 2));
  sim_heap_configure(&(struct sim_heap_config){ .abandon_ns = STEP_NS });
  pass_sleep_until(visit_ns);
  sim_client_start(&visitor, visit_everybody, NULL);
  pass_sleep_until(visit_ns + STEP_NS + STEP_NS / 2);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).releasing, 1);
  sim_submit_to(pass_pool, 1, sim_worker(pass_pool, 0));
  pass_sleep_until(later_ns + 1);
  SIM_CHECK_EQUAL(pass_purged_ns(), later_ns);
  SIM_CHECK_EQUAL(sim_stats(pass_pool).running, 2);
  sim_client_join(&visitor);
  sim_pool_finish(pass_pool);
}

SPEC(given_back_and_appointed,
     "N1 N2 the holder is called away while the last parked worker is visited: that one makes the "
     "later pass") {
  struct sim_plan plan = { .name = "given back", .scenario = given_back_in_time };
  sim_spec_exhaust(&plan);
}

/* ----------------------------------------------------- at every step of it all */

static void anything_at_step(void *context) {
  is_hostile = context != NULL;
  unsigned call = sim_choose(ids_countof(calls_away), "what comes");
  pass_make_pool(1, 2 * IDS_S);
  sim_heap_takes(STEP_NS);
  sim_sweep_begin(calls_away[call], NULL);
  SIM_CHECK_RELATION(idlesched_pool_start_workers(pass_pool, PASS_WORKERS), >=, -ESHUTDOWN);
  sim_sleep_ns(3 * IDS_S);
  sim_sweep_end();
  sim_pool_finish(pass_pool);
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

/* ------------------------------------------------------------------- by chance */

static void be_a_crowd(void *context) {
  static const uint64_t pauses_ns[] = { 0, 50 * IDS_MS, 100 * IDS_MS, 120 * IDS_MS, 950 * IDS_MS };
  unsigned first = (unsigned)(uintptr_t)context * 2;
  for (unsigned i = first; i < first + 2; i++) {
    sim_sleep_ns(pauses_ns[sim_choose(ids_countof(pauses_ns), "pause")]);
    if (sim_choose(3, "what") == 0)
      calls_away[sim_choose(2, "call")](NULL);
    sim_must_submit(pass_pool, i);
  }
}

static void crowd(void *context) {
  unsigned clients_count = (unsigned)(uintptr_t)context;
  struct sim_client clients[4];
  pass_make_pool(1, 2 * IDS_S);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_start(&clients[i], be_a_crowd, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_join(&clients[i]);
  sim_sleep_ns(sim_choose(3, "rest") * IDS_S);
  sim_pool_finish(pass_pool);
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
