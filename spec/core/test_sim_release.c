/* SPDX-License-Identifier: MIT */
/*
 * test_sim_release.c - a worker's release: when it comes, what a wake does to it, and what
 * it leaves for later.  Workers with a state release on their own thread, in steps; the
 * others are claimed by the pass.
 *
 * Method: on a fair clock everything has its exact moment, and each step of a release takes
 * 10 ms; a wake comes at every step of every schedule within the bound, and by chance.
 */
#include "pool_sim.h"

#define DELAY_NS (100 * IDS_MS)
#define STEP_NS (10 * IDS_MS)
#define STEPS 3

static idlesched_pool *pool;

enum kind { PLAIN, STATE, DEDICATED, DEDICATED_STATE, KINDS };

static idlesched_pool_config config_of(enum kind kind, unsigned workers_max) {
  bool has_states = kind == STATE || kind == DEDICATED_STATE;
  sim_states(has_states ? workers_max : 0, STEPS, 0);
  return (idlesched_pool_config){ .workers_max = workers_max,
                                  .is_dedicated = kind == DEDICATED || kind == DEDICATED_STATE,
                                  .hooks = sim_state_hooks };
}

static void make_pool(enum kind kind, unsigned workers_max) {
  idlesched_pool_config config = config_of(kind, workers_max);
  pool = sim_pool_create(&config);
}

/* Everything that a release does takes as long. */
static void take_time(enum kind kind, unsigned workers_max, uint64_t step_ns) {
  sim_states(kind == STATE || kind == DEDICATED_STATE ? workers_max : 0, STEPS, step_ns);
  sim_heap_configure(
    &(struct sim_heap_config){ .collect_ns = step_ns, .abandon_ns = step_ns, .purge_ns = step_ns });
}

static void sleep_until(uint64_t moment_ns) {
  if (moment_ns > ids_now_ns())
    ids_sleep_until(moment_ns);
}

/* Fair clock: whoever can run has done so.  When the first worker parked. */
static uint64_t settle(void) {
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(pool).parked, sim_stats(pool).threads);
  return sim_worker(pool, 0)->parked_at_ns;
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
  const uint64_t parked_ns = settle();
  const struct sim_heap_counts heap = sim_heap_counts_all();
  const unsigned purges = sim_heap_purges_count();
  const idlesched_pool_stats before = sim_stats(pool);
  bool has_state = kind == STATE || kind == DEDICATED_STATE;
  uint64_t released_ns = parked_ns + DELAY_NS + (has_state ? STEPS + 1 : 1) * step_ns;

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
  make_pool(kind, 1);
  take_time(kind, 1, step_ns);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), 0);
  live_idle_period(kind, step_ns, is_nudged);

  sim_must_submit(pool, 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
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
  make_pool(kind, 1);
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
  idlesched_pool_config config = config_of(kind, 1);
  config.idle_release_ns = idle_release_ns;
  pool = sim_pool_create(&config);
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
  idlesched_pool_config config = config_of(kind, 1);
  config.idle_release_ns = releases ? IDLESCHED_AT_ONCE : IDLESCHED_NEVER;
  pool = sim_pool_create(&config);
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
  idlesched_pool_config config = config_of(PLAIN, 2);
  config.idle_release_ns = IDLESCHED_NEVER;
  pool = sim_pool_create(&config);
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

/* ---------------------------------------------------- a wake during a release */

struct setting {
  enum kind kind;
  unsigned workers_max;
};

static unsigned last_mark; /* freed into the last worker's heap before the release */

static void start_all(const struct setting *setting) {
  make_pool(setting->kind, setting->workers_max);
  take_time(setting->kind, setting->workers_max, STEP_NS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, setting->workers_max), 0);
}

/* Fair clock: all are parked, with something freed into the heap of each.  Since when. */
static uint64_t all_go_idle(const struct setting *setting) {
  start_all(setting);
  uint64_t parked_ns = settle();
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
  sleep_until(parked_ns + (5 + 10 * sim_choose(25, "when")) * IDS_MS);
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

static void show_wakes(const char *name, enum kind kind, unsigned workers_max, unsigned bound) {
  struct setting setting = { .kind = kind, .workers_max = workers_max };
  struct sim_plan plan = { .name = name, .context = &setting };
  plan.scenario = wake_at_time;
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
  show_wakes("wake and collect", STATE, 1, 2);
}

SPEC(a_wake_while_all_collect, "A8 N3 all workers collect at once, and a job comes") {
  show_wakes("wake and collects", STATE, 2, 0);
}

SPEC(a_wake_during_a_pass,
     "A6 A7 A8 N3 a pass has claimed a worker: a wake is served 0 ms after the step under way") {
  show_wakes("wake and pass", PLAIN, 2, 1);
}

SPEC(a_wake_during_the_only_worker_s_pass, "A8 N3 the only worker makes a pass, and a job comes") {
  show_wakes("wake and own pass", PLAIN, 1, 2);
}

SPEC(a_wake_in_a_dedicated_pool, "A8 A18 a dedicated worker is woken during its release") {
  struct setting setting = { .kind = DEDICATED_STATE, .workers_max = 1 };
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
  uint64_t parked_ns = all_go_idle(&(struct setting){ .kind = STATE, .workers_max = 1 });
  unsigned made_count = 1 + sim_choose(STEPS, "step");
  sleep_until(parked_ns + DELAY_NS + made_count * STEP_NS - STEP_NS / 2);
  sim_must_submit(pool, 0);
  sim_sleep_ns(STEP_NS);
  SIM_CHECK_EQUAL(sim_state_steps(0), made_count);
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 0);
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected, 0);
  SIM_CHECK_EQUAL(sim_worker(pool, 0)->parked_at_ns, sim_jobs[0].started_at_ns);
  unsigned missing_count = made_count == STEPS ? STEPS : STEPS - made_count;
  uint64_t made_up_ns = sim_jobs[0].started_at_ns + DELAY_NS + (missing_count + 1) * STEP_NS;
  sleep_until(made_up_ns + STEP_NS + 1);
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
  make_pool(STATE, 3);
  take_time(STATE, 1, STEP_NS);
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

struct clients {
  unsigned count, workers_max;
  enum kind kind;
};

/* A job for a worker that releases, or is about to. */
static void submit_later(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  sim_sleep_ns(DELAY_NS + i);
  sim_must_submit(pool, i);
}

/* The scenario is the last of the clients. */
static void clients_meet_releases(void *context) {
  const struct clients *setting = context;
  struct sim_client clients[4];
  make_pool(setting->kind, setting->workers_max);
  take_time(setting->kind, setting->workers_max, 1);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, setting->workers_max), 0);
  sim_sleep_ns(1);
  for (unsigned i = 0; i < setting->count - 1; i++)
    sim_client_start(&clients[i], submit_later, (void *)(uintptr_t)i);
  submit_later((void *)(uintptr_t)(setting->count - 1));
  for (unsigned i = 0; i < setting->count - 1; i++)
    sim_client_join(&clients[i]);
  sim_pool_finish(pool);
}

static struct sim_plan plan_of(const char *name, struct clients *setting) {
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
  struct clients setting = { .count = 2, .workers_max = 1, .kind = STATE };
  struct sim_plan plan = plan_of("release 1x2", &setting);
  plan.bound = 2;
  exhaust(plan);
}

SPEC(two_workers_two_clients, "A8 A11 N3 two workers release, two clients: all within bound 1",
     .limit_s = 120) {
  struct clients setting = { .count = 2, .workers_max = 2 };
  struct sim_plan plan = plan_of("release 2x2", &setting);
  plan.bound = 1;
  exhaust(plan);
  sample(plan, 500000);
}

SPEC(three_workers_four_clients, "A8 A11 N3 three workers release, four clients, by chance",
     .limit_s = 120) {
  struct clients setting = { .count = 4, .workers_max = 3, .kind = STATE };
  sample(plan_of("release 3x4", &setting), 100000);
}
