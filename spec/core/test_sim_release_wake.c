/* SPDX-License-Identifier: MIT */
/*
 * test_sim_release_wake.c - a wake that meets a release: it is served after the step under way,
 * by another worker before that where one is free, and what was cut short is made up later.
 *
 * Method: each step of a release takes 10 ms of a fair clock; a wake comes at every step of
 * every schedule within the bound, at every moment that matters, and by chance.
 */
#include "pool_sim.h"

#define DELAY_NS (100 * IDS_MS)
#define STEP_NS (10 * IDS_MS)
#define STEPS 3

static idlesched_pool *pool;

/* Workers with a state release on their own thread; the others are claimed by the pass. */
struct setting {
  unsigned workers_max, states_count, clients_count;
  bool is_dedicated;
};

static void make_pool(const struct setting *setting, uint64_t step_ns) {
  sim_states(setting->states_count, STEPS, step_ns);
  pool = SIM_POOL(.workers_max = setting->workers_max, .is_dedicated = setting->is_dedicated,
                  .hooks = sim_state_hooks);
  sim_heap_takes(step_ns);
}

/* ---------------------------------------------------- a wake during a release */

static unsigned last_mark; /* freed into the last worker's heap before the release */

static void start_all(const struct setting *setting) {
  make_pool(setting, STEP_NS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, setting->workers_max), 0);
}

/* Fair clock: all are parked, with something freed into the heap of each.  Since when. */
static uint64_t all_go_idle(const struct setting *setting) {
  start_all(setting);
  uint64_t parked_ns = sim_settle(pool);
  for (unsigned i = 0; i < setting->workers_max; i++)
    last_mark = sim_heap_free(sim_worker(pool, i)->heap);
  return parked_ns;
}

/* Nobody waits for a wake, and whatever was cut short was made up later. */
static void check_all_released(const struct setting *setting) {
  for (unsigned i = 0; i < setting->workers_max; i++) {
    SIM_CHECK(sim_worker(pool, i)->is_released);
    SIM_CHECK_EQUAL(sim_state_steps(i) % STEPS, 0);
    SIM_CHECK(sim_heap_is_returned(last_mark - i));
    SIM_CHECK_EQUAL(sim_worker(pool, i)->sleeps_until_ns, sim_worker(pool, i)->exit_at_ns);
  }
  idlesched_pool_stats stats = sim_stats(pool);
  SIM_CHECK_EQUAL(stats.starts, setting->workers_max); /* the workers that were there */
  SIM_CHECK_EQUAL(stats.wakes, setting->workers_max + stats.jobs_done);
}

static void submit_one(void *context) {
  (void)context;
  sim_must_submit(pool, 0);
}

/* Fair clock: no submit waits for a release. */
static void submit_at_once(void *context) {
  uint64_t now_ns = ids_now_ns();
  submit_one(context);
  SIM_CHECK_EQUAL(ids_now_ns(), now_ns);
}

static void wake_at_step(void *context) {
  const struct setting *setting = context;
  all_go_idle(setting);
  sim_sweep_begin(submit_at_once, NULL);
  sim_sleep_ns(3 * IDS_S);
  sim_sweep_end();
  sim_sleep_ns(3 * IDS_S);
  check_all_released(setting);
  SIM_CHECK_RELATION(sim_jobs[0].started_at_ns, <=, sim_jobs[0].submitted_at_ns + STEP_NS);
  sim_pool_finish(pool);
}

static void wake_at_step_hostile(void *context) {
  start_all(context);
  sim_sweep_begin(submit_one, NULL);
  sim_sleep_ns(3 * IDS_S);
  sim_sweep_end();
  sim_pool_finish(pool);
}

/* 5 ms into each step there is, and around them. */
static void wake_at_time(void *context) {
  const struct setting *setting = context;
  uint64_t parked_ns = all_go_idle(setting);
  ids_sleep_until(parked_ns + (5 + 10 * sim_choose(25, "when")) * IDS_MS);
  bool all_release = pool->group.in_state_count[IDS_WORKER_RELEASING] == setting->workers_max;
  submit_at_once(NULL);
  SIM_CHECK_EQUAL(pool->group.in_state_count[IDS_WORKER_RELEASING] == setting->workers_max,
                  all_release);
  sim_sleep_ns(STEP_NS);
  SIM_CHECK_EQUAL(sim_jobs[0].started_at_ns,
                  sim_jobs[0].submitted_at_ns + (all_release ? STEP_NS / 2 : 0));
  sim_sleep_ns(3 * IDS_S);
  check_all_released(setting);
  sim_pool_finish(pool);
}

static void show_wakes(const char *name, struct setting setting, unsigned bound) {
  struct sim_plan plan = { .name = name, .scenario = wake_at_time, .context = &setting };
  plan.bound = bound;
  sim_spec_exhaust(&plan);
  plan.scenario = wake_at_step;
  sim_spec_sweep(&plan);
  plan.spurious_max = 1;
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 1 + (uint64_t)(1000 * sim_spec_scale());
  sim_spec_sweep(&plan);
  plan.scenario = wake_at_step_hostile;
  plan.is_hostile = true;
  sim_spec_sweep(&plan);
}

SPEC(a_wake_during_a_collect,
     "A6 A7 A8 N3 a state is collected in steps: a wake is served 0 ms after the step under way") {
  show_wakes("wake and collect", (struct setting){ .workers_max = 1, .states_count = 1 }, 2);
}

SPEC(a_wake_while_all_collect, "A8 N3 all workers collect at once, and a job comes") {
  show_wakes("wake and collects", (struct setting){ .workers_max = 2, .states_count = 2 }, 0);
}

SPEC(a_wake_during_a_pass,
     "A6 A7 A8 N3 a pass has claimed a worker: a wake is served 0 ms after the step under way") {
  show_wakes("wake and pass", (struct setting){ .workers_max = 2 }, 1);
}

SPEC(a_wake_during_the_only_worker_s_pass, "A8 N3 the only worker makes a pass, and a job comes") {
  show_wakes("wake and own pass", (struct setting){ .workers_max = 1 }, 2);
}

SPEC(a_wake_in_a_dedicated_pool, "A8 A18 a dedicated worker is woken during its release") {
  struct setting setting = { .workers_max = 1, .states_count = 1, .is_dedicated = true };
  struct sim_plan plan = { .name = "wake dedicated", .context = &setting };
  plan.scenario = wake_at_step_hostile;
  plan.bound = 1;
  sim_spec_sweep(&plan);
  plan.is_hostile = true;
  sim_spec_sweep(&plan);
}

/* ------------------------------------------------------------------ half way */

/* A ticket comes during a step of the collect, the last one included: the heap's own is not
 * begun then. */
static void half_way(void *context) {
  (void)context;
  uint64_t parked_ns = all_go_idle(&(struct setting){ .workers_max = 1, .states_count = 1 });
  unsigned made_count = 1 + sim_choose(STEPS, "step");
  ids_sleep_until(parked_ns + DELAY_NS + made_count * STEP_NS - STEP_NS / 2);
  sim_must_submit(pool, 0);
  sim_sleep_ns(STEP_NS);
  SIM_CHECK_EQUAL(sim_state_steps(0), made_count);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 0);
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected, 0);
  SIM_CHECK_EQUAL(sim_worker(pool, 0)->parked_at_ns, sim_jobs[0].started_at_ns);
  unsigned missing_count = made_count == STEPS ? STEPS : STEPS - made_count;
  uint64_t made_up_ns = sim_jobs[0].started_at_ns + DELAY_NS + (missing_count + 1) * STEP_NS;
  ids_sleep_until(made_up_ns + STEP_NS + 1);
  SIM_CHECK_EQUAL(sim_state_steps(0), made_count + missing_count);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 1);
  SIM_CHECK_EQUAL(sim_heap_counts_all().last_at_ns, made_up_ns);
  SIM_CHECK_EQUAL(sim_stats(pool).passes, 1);
  SIM_CHECK(sim_heap_is_returned(last_mark));
  sim_pool_finish(pool);
}

SPEC(a_release_cut_short_is_made_up,
     "N3 A8 A19 a slow release is left half way for a ticket, and the rest is made up later") {
  struct sim_plan plan = { .name = "half way", .scenario = half_way, .bound = 2 };
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------------- preference */

static void preference(void *context) {
  (void)context;
  make_pool(&(struct setting){ .workers_max = 3, .states_count = 1 }, STEP_NS);
  uint64_t began_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), 0);
  sim_sleep_ns(95 * IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 2), 0);
  sim_sleep_ns(STEP_NS);
  sim_jobs_take(6 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(pool).releasing, 1);
  for (unsigned i = 0; i < 3; i++) {
    sim_must_submit(pool, i);
    sim_sleep_ns(IDS_MS);
  }
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[0].worker, 1);
  SIM_CHECK_EQUAL(sim_jobs[1].worker, 2);
  SIM_CHECK_EQUAL(sim_jobs[1].started_at_ns, sim_jobs[1].submitted_at_ns);
  SIM_CHECK_EQUAL(sim_jobs[2].worker, 0);
  SIM_CHECK_EQUAL(sim_jobs[2].started_at_ns, began_ns + DELAY_NS + STEP_NS);
  sim_pool_finish(pool);
}

SPEC(parked_then_new_then_releasing, "N3 A7 who is woken: parked, not started, releasing") {
  struct sim_plan plan = { .name = "wake preference", .scenario = preference, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ----------------------------------------------------------- all schedules */

/* A job for a worker that releases, or is about to. */
static void submit_later(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  sim_sleep_ns(DELAY_NS + i);
  sim_must_submit(pool, i);
}

/* The scenario is the last of the clients. */
static void clients_meet_releases(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[4];
  make_pool(setting, 1);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, setting->workers_max), 0);
  sim_sleep_ns(1);
  for (unsigned i = 0; i < setting->clients_count - 1; i++)
    sim_client_start(&clients[i], submit_later, (void *)(uintptr_t)i);
  submit_later((void *)(uintptr_t)(setting->clients_count - 1));
  for (unsigned i = 0; i < setting->clients_count - 1; i++)
    sim_client_join(&clients[i]);
  sim_pool_finish(pool);
}

static struct sim_plan plan_of(const char *name, struct setting *setting) {
  return (struct sim_plan){ .name = name, .scenario = clients_meet_releases, .context = setting };
}

static void exhaust(struct sim_plan plan) {
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
}

static void sample(struct sim_plan plan, uint64_t runs_count) {
  plan.strategy = SIM_RANDOM;
  plan.spurious_max = 1;
  sim_spec_sample(&plan, runs_count);
  plan.is_hostile = true;
  sim_spec_sample(&plan, runs_count);
  plan.strategy = SIM_PCT;
  sim_spec_sample(&plan, runs_count / 10);
}

SPEC(one_worker_two_clients, "A8 A11 N3 one worker releases, two clients: all within bound 2") {
  struct setting setting = { .workers_max = 1, .states_count = 1, .clients_count = 2 };
  struct sim_plan plan = plan_of("release 1x2", &setting);
  plan.bound = 2;
  exhaust(plan);
}

SPEC(two_workers_two_clients, "A8 A11 N3 two workers release, two clients: all within bound 1",
     .limit_s = 120) {
  struct setting setting = { .workers_max = 2, .clients_count = 2 };
  struct sim_plan plan = plan_of("release 2x2", &setting);
  plan.bound = 1;
  exhaust(plan);
  sample(plan, 500000);
}

SPEC(three_workers_four_clients, "A8 A11 N3 three workers release, four clients, by chance",
     .limit_s = 120) {
  struct setting setting = { .workers_max = 3, .states_count = 3, .clients_count = 4 };
  sample(plan_of("release 3x4", &setting), 100000);
}
