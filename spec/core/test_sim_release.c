/* SPDX-License-Identifier: MIT */
/*
 * test_sim_release.c - a worker's release: when it comes in an idle period, what brings another
 * about, and what does not.  Workers with a state release on their own thread, in steps; the
 * others are claimed by the pass.
 *
 * Method: on a fair clock everything has its exact moment.  Wakes during a release are in
 * test_sim_release_wake.c.
 */
#include "pool_sim.h"

#define DELAY_NS (100 * IDS_MS)
#define STEPS 3

static idlesched_pool *pool;

enum kind { PLAIN, STATE, DEDICATED, DEDICATED_STATE, KINDS };

static bool has_states(enum kind kind) {
  return kind == STATE || kind == DEDICATED_STATE;
}

static void make_pool(enum kind kind, uint64_t step_ns, uint64_t idle_release_ns) {
  sim_states(has_states(kind) ? 1 : 0, STEPS, step_ns);
  pool = SIM_POOL(.workers_max = 1, .idle_release_ns = idle_release_ns,
                  .is_dedicated = kind == DEDICATED || kind == DEDICATED_STATE,
                  .hooks = sim_state_hooks);
  sim_heap_takes(step_ns);
}

static void sleep_until(uint64_t moment_ns) {
  if (moment_ns > ids_now_ns())
    ids_sleep_until(moment_ns);
}

/* ------------------------------------------------------------ an idle period */

static void nudge(void) {
  ids_group_lock(&pool->group);
  ids_cond_signal(&sim_worker(pool, 0)->wake);
  ids_group_unlock(&pool->group);
}

/* With or without wakes for no reason, the worker sleeps till that moment at least. */
static void idle_until(uint64_t moment_ns, bool is_nudged) {
  uint64_t now_ns = ids_now_ns();
  if (is_nudged && moment_ns > now_ns) {
    sleep_until(now_ns + (moment_ns - now_ns) / 2);
    nudge();
  }
  sleep_until(moment_ns);
}

/* The worker has parked now: what happens to it until its thread ends, and when. */
static void live_idle_period(enum kind kind, uint64_t step_ns, bool is_nudged) {
  const uint64_t parked_ns = sim_settle(pool);
  const struct sim_heap_counts heap = sim_heap_counts_all();
  const unsigned purges = sim_heap_purges_count();
  const idlesched_pool_stats before = sim_stats(pool);
  uint64_t released_ns = parked_ns + DELAY_NS + (has_states(kind) ? STEPS + 1 : 1) * step_ns;

  idle_until(parked_ns + DELAY_NS - 1, is_nudged);
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected, heap.collected);
  SIM_CHECK_EQUAL(sim_state_steps(0) % STEPS, 0);
  idle_until(released_ns + step_ns + 1, is_nudged);
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected, heap.collected + 1);
  SIM_CHECK_EQUAL(sim_heap_counts_all().last_at_ns, released_ns);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), purges + 1);
  SIM_CHECK_EQUAL(sim_heap_purged_at_ns(), released_ns + step_ns);

  idle_until(parked_ns + 10 * IDS_S - 1, is_nudged);
  idlesched_pool_stats after = sim_stats(pool);
  SIM_CHECK_EQUAL(after.releases, before.releases + 1);
  SIM_CHECK_EQUAL(after.passes, before.passes + 2); /* and the later one */
  SIM_CHECK_EQUAL(after.polls, before.polls);
  SIM_CHECK_EQUAL(after.wakes, before.wakes);
  SIM_CHECK_EQUAL(after.parked, 1);
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected, heap.collected + 1);
  SIM_CHECK_EQUAL(sim_worker(pool, 0)->sleeps_until_ns, parked_ns + 10 * IDS_S);
  sim_pool_check(pool);

  sleep_until(parked_ns + 10 * IDS_S + 1);
  SIM_CHECK_EQUAL(sim_stats(pool).parked, 0);
  sleep_until(parked_ns + 10 * IDS_S + 2 * step_ns + 1);
  after = sim_stats(pool);
  SIM_CHECK_EQUAL(after.threads, 0);
  SIM_CHECK_EQUAL(after.exits, before.exits + 1);
  SIM_CHECK_EQUAL(sim_heap_purged_at_ns(), parked_ns + 10 * IDS_S + 2 * step_ns);
}

static void idle_periods(void *context) {
  (void)context;
  enum kind kind = sim_choose(KINDS, "kind of pool");
  uint64_t step_ns = sim_choose(2, "slow release") * IDS_S;
  bool is_nudged = sim_choose(2, "wakes for no reason") == 1;
  make_pool(kind, step_ns, DELAY_NS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), 0);
  live_idle_period(kind, step_ns, is_nudged);

  sim_work(pool, 0);
  sim_check_jobs_started_at_once();
  if (kind == PLAIN || kind == STATE)
    live_idle_period(kind, step_ns, is_nudged);
  sim_pool_finish(pool);
}

SPEC(idle_periods_have_exact_times,
     "A1 A4 A5 A9 A11 A12 A18 one release, one pass, a later one, one exit, each in time, in "
     "every kind of pool, slow or nudged") {
  struct sim_plan plan = { .name = "idle periods", .scenario = idle_periods };
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan.spurious_max = 2;
  plan.bound = 0;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  plan.spurious_max = 8;
  sim_spec_sample(&plan, 100000);
}

/* -------------------------------------------------------- a mark and a policy */

static void fruitless_wake(void *context) {
  (void)context;
  enum kind kind = sim_choose(2, "kind of pool");
  make_pool(kind, 0, DELAY_NS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), 0);
  sim_sleep_ns(50 * IDS_MS);
  for (unsigned i = 0; i < 2; i++) { /* before the release, and after it */
    ids_group_lock(&pool->group);
    ids_group_wake_all_locked(&pool->group);
    ids_group_unlock(&pool->group);
    sim_sleep_ns(DELAY_NS - 1);
    SIM_CHECK_EQUAL(sim_stats(pool).releases, i);
    sim_sleep_ns(2);
    SIM_CHECK_EQUAL(sim_stats(pool).releases, 1);
    sim_sleep_ns(2 * IDS_S);
    SIM_CHECK_EQUAL(sim_stats(pool).polls, i + 2);
  }
  sim_must_submit(pool, 0);
  sim_sleep_ns(2 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 2);
  sim_pool_finish(pool);
}

SPEC(the_mark_goes_with_a_job, "A4 a wake that finds no job: no second release; a job: another") {
  struct sim_plan plan = { .name = "release mark", .scenario = fruitless_wake, .bound = 2 };
  sim_spec_exhaust(&plan);
}

/* Jobs come a little before the release would. */
static uint64_t steps_of_prompt_jobs(enum kind kind, uint64_t idle_release_ns) {
  make_pool(kind, 0, idle_release_ns);
  uint64_t begin = sim_steps_count();
  for (unsigned i = 0; i < 8; i++) {
    sim_must_submit(pool, i);
    sim_sleep_ns(DELAY_NS - 1);
  }
  uint64_t steps = sim_steps_count() - begin;
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 0);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 0);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 0);
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected, 0);
  SIM_CHECK_EQUAL(sim_state_steps(0), 0);
  sim_check_jobs_started_at_once();
  sim_pool_finish(pool);
  return steps;
}

static void prompt_jobs(void *context) {
  (void)context;
  enum kind kind = sim_choose(2, "kind of pool");
  uint64_t idle_release_ns = sim_choose(2, "policy") == 0 ? DELAY_NS : IDLESCHED_NEVER;
  static uint64_t steps_of_first[2];
  uint64_t steps = steps_of_prompt_jobs(kind, idle_release_ns);
  if (idle_release_ns == DELAY_NS)
    steps_of_first[kind] = steps;
  else
    SIM_CHECK_EQUAL(steps, steps_of_first[kind]);
}

SPEC(prompt_work_is_free, "A2 woken within idle_release: no release, and not one step more") {
  struct sim_plan plan = { .name = "prompt jobs", .scenario = prompt_jobs };
  sim_spec_exhaust(&plan);
}

static void policies(void *context) {
  (void)context;
  enum kind kind = sim_choose(2, "kind of pool");
  bool releases = sim_choose(2, "policy") == 0;
  make_pool(kind, 0, releases ? IDLESCHED_AT_ONCE : IDLESCHED_NEVER);
  for (unsigned i = 1; i <= 5; i++) {
    uint64_t parked_ns = ids_now_ns();
    sim_must_submit(pool, i);
    sim_sleep_ns(IDS_MS);
    SIM_CHECK_EQUAL(sim_stats(pool).releases, releases ? i : 0);
    SIM_CHECK_EQUAL(sim_stats(pool).passes, releases ? i : 0);
    if (releases)
      SIM_CHECK_EQUAL(sim_heap_counts_all().last_at_ns, parked_ns + 1);
  }
  sim_sleep_ns(9 * IDS_S);
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected, releases ? 5 : 0);
  SIM_CHECK_EQUAL(sim_worker(pool, 0)->sleeps_until_ns, sim_worker(pool, 0)->exit_at_ns);
  sim_pool_finish(pool);
}

/* One exits while another is parked: no later pass follows. */
static void never_is_never(void *context) {
  (void)context;
  pool = SIM_POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER);
  for (unsigned i = 1; i <= 2; i++) {
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, i), 0);
    sim_sleep_ns(6 * IDS_S);
  }
  SIM_CHECK_EQUAL(sim_stats(pool).exits, 1);
  SIM_CHECK_EQUAL(ids_pass_at_ns_locked(&pool->group), IDS_NEVER);
  sim_sleep_ns(3 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 0);
  sim_pool_finish(pool);
}

SPEC(policies_from_each_park_to_never, "A23 A18 released at every park, or never") {
  struct sim_plan plan = { .name = "release policies", .scenario = policies, .bound = 1 };
  sim_spec_exhaust(&plan);
  plan.name = "release never";
  plan.scenario = never_is_never;
  sim_spec_exhaust(&plan);
}
