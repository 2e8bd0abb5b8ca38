/* SPDX-License-Identifier: MIT */
/*
 * test_sim_exit.c - a worker that was idle for too long ends its thread: at its deadline, with
 * a purge, without losing a job, and the next wake starts another.
 */
#include "heap.h"
#include "pool_sim.h"

#define RELEASE_NS (100 * IDS_MS)
#define EXIT_NS (10 * IDS_S)

static void exhaust(struct sim_plan plan, unsigned bound) {
  plan.bound = bound;
  plan.is_hostile = false;
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
}

static void sample(struct sim_plan plan, uint64_t runs_count) {
  plan.strategy = SIM_RANDOM;
  plan.is_hostile = false;
  sim_spec_sample(&plan, runs_count / 2);
  plan.is_hostile = true;
  sim_spec_sample(&plan, runs_count / 2);
}

/* --------------------------------------------------------- at the deadline */

struct slowness {
  const char *name;
  uint64_t idle_release_ns, idle_exit_ns;
  struct sim_heap_config heap;
  uint64_t ends_after_ns; /* the purge that follows the exit, since the worker parked */
  unsigned releases_count;
};

static void exit_on_time(void *context) {
  const struct slowness *slow = context;
  uint64_t quiet_steps = sim_steps_of_sleep(IDS_S);
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_release_ns = slow->idle_release_ns,
                                  .idle_exit_ns = slow->idle_exit_ns);
  sim_heap_configure(&slow->heap);
  for (unsigned i = 0; i < 3; i++) {
    uint64_t parked_at_ns = ids_now_ns();
    sim_work(pool, i);
    ids_sleep_until(parked_at_ns + slow->ends_after_ns - 1);
    SIM_CHECK_EQUAL(sim_stats(pool).threads, 1);
    SIM_CHECK_EQUAL(sim_pool_threads_count(), 1);
    sim_pool_check(pool);
    ids_sleep_until(parked_at_ns + slow->ends_after_ns + 1);
    idlesched_pool_stats stats = sim_stats(pool);
    SIM_CHECK_EQUAL(stats.threads, 0);
    SIM_CHECK_EQUAL(stats.active, 0);
    SIM_CHECK_EQUAL(stats.exits, i + 1);
    SIM_CHECK_EQUAL(stats.starts, i + 1);
    SIM_CHECK_EQUAL(stats.releases, (i + 1) * slow->releases_count);
    SIM_CHECK_EQUAL(sim_heap_counts_all().abandoned, 0);
    SIM_CHECK_EQUAL(sim_heap_purged_at_ns(), parked_at_ns + slow->ends_after_ns);
    SIM_CHECK_EQUAL(sim_pool_threads_count(), 0);
    SIM_CHECK_EQUAL(sim_steps_of_sleep(3600 * IDS_S), quiet_steps);
  }
  sim_check_jobs_started_at_once();
  sim_pool_finish(pool);
}

static void check_exits_on_time(struct slowness *slow) {
  struct sim_plan plan = { .name = slow->name, .scenario = exit_on_time, .context = slow };
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan.spurious_max = 1;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
}

SPEC(exit_at_the_deadline,
     "A13 G8 the thread ends idle_exit after it parked, a purge follows, nothing is left that "
     "moves, and the next wake starts a thread") {
  struct slowness plain = { "exit on time", 0, 0, { 0 }, EXIT_NS, 1 };
  check_exits_on_time(&plain);
  struct slowness slow = {
    "slow exit on time",   0, 0, { .collect_ns = 30 * IDS_MS, .purge_ns = 20 * IDS_MS },
    EXIT_NS + 50 * IDS_MS, 1
  };
  check_exits_on_time(&slow);
  /* A release that ends after the deadline: the exit follows it at once. */
  struct slowness late = { "exit after a slow release",
                           RELEASE_NS,
                           120 * IDS_MS,
                           { .collect_ns = 40 * IDS_MS, .purge_ns = 50 * IDS_MS },
                           280 * IDS_MS,
                           1 };
  check_exits_on_time(&late);
}

SPEC(short_exit,
     "A3 A13 with idle_exit <= idle_release there is no release: the exit comes first") {
  const uint64_t exits_ms[] = { 1, 99, 100, 101 };
  for (unsigned i = 0; i < ids_countof(exits_ms); i++) {
    struct slowness slow = { "short exit", RELEASE_NS,           exits_ms[i] * IDS_MS,
                             { 0 },        exits_ms[i] * IDS_MS, exits_ms[i] > 100 };
    check_exits_on_time(&slow);
  }
}

/* The same for a worker with something to collect. */
static void short_exit_with_data(void *context) {
  (void)context;
  sim_states(1, 1, 0);
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_release_ns = RELEASE_NS,
                                  .idle_exit_ns = RELEASE_NS, .hooks = sim_state_hooks);
  for (unsigned i = 0; i < 2; i++) {
    sim_work(pool, i);
    sim_sleep_ns(IDS_S);
    SIM_CHECK_EQUAL(sim_stats(pool).threads, 0);
    SIM_CHECK_EQUAL(sim_state_stops(0), i + 1);
    SIM_CHECK_EQUAL(sim_state_steps(0), 0);
    SIM_CHECK_EQUAL(sim_stats(pool).releases, 0);
  }
  sim_pool_finish(pool);
}

SPEC(short_exit_with_state,
     "A3 A13 nor is anything collected: it is stopped, in each thread anew") {
  struct sim_plan plan = { .name = "short exit, state", .scenario = short_exit_with_data };
  plan.bound = 1;
  plan.spurious_max = 1;
  sim_spec_exhaust(&plan);
}

/* --------------------------------------------------------- the same instant */

struct setting {
  unsigned workers_max, clients;
  bool is_slow; /* tidying takes 8 ms */
};

static idlesched_pool *shared;
static uint64_t exit_at_ns;
static const struct setting *shared_setting;

/* Submit around the exit: within it only where that is part of the setting. */
static void submit_at_exit(void *context) {
  static const uint64_t slow_offsets_ns[] = { 0, 1, 3 * IDS_MS, 8 * IDS_MS, 8 * IDS_MS + 1 };
  unsigned i = (unsigned)(uintptr_t)context;
  uint64_t offset_ns = 0;
  if (shared_setting->is_slow)
    offset_ns = slow_offsets_ns[sim_choose(ids_countof(slow_offsets_ns), "offset")];
  ids_sleep_until(exit_at_ns + offset_ns);
  sim_must_submit(shared, i);
}

static void wake_at_exit(void *context) {
  const struct setting *setting = shared_setting = context;
  struct sim_client clients[4];
  shared = SIM_POOL(.workers_max = setting->workers_max, .idle_release_ns = IDLESCHED_NEVER,
                    .idle_exit_ns = 50 * IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, setting->workers_max), 0);
  sim_work(shared, 0);
  if (setting->is_slow)
    sim_heap_configure(
      &(struct sim_heap_config){ .collect_ns = 3 * IDS_MS, .purge_ns = 5 * IDS_MS });
  exit_at_ns = ids_now_ns() + 50 * IDS_MS;
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], submit_at_exit, (void *)(uintptr_t)(i + 1));
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK_RELATION(stats.starts + stats.starting, >=, stats.exits);
  sim_pool_finish(shared);
}

static void wake_at_exit_exactly(void *context) {
  wake_at_exit(context);
  const struct setting *setting = context;
  /* Purges come one after the other, and the ticket may be with the last to leave. */
  uint64_t tidying_ns = setting->is_slow ? (3 + 5 * setting->workers_max) * IDS_MS : 0;
  for (unsigned i = 1; i <= setting->clients; i++)
    SIM_CHECK_RELATION(sim_jobs[i].started_at_ns, <=, sim_jobs[i].submitted_at_ns + tidying_ns);
}

static struct sim_plan plan_at_exit(const char *name, struct setting *setting, bool is_exact) {
  return (struct sim_plan){ .name = name,
                            .scenario = is_exact ? wake_at_exit_exactly : wake_at_exit,
                            .context = setting };
}

SPEC(wake_and_exit_at_once,
     "A14 A13 a wake at the instant of the exit: the job starts 0 ms later, here or on a thread "
     "of its own, and none is lost between the last poll and the exit") {
  struct setting one = { .workers_max = 1, .clients = 2 };
  struct sim_plan plan = plan_at_exit("wake at exit 1x2", &one, true);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  plan.bound = 1;
  plan.spurious_max = 1;
  sim_spec_exhaust(&plan);
  exhaust(plan_at_exit("wake at exit 1x2, any order", &one, false), 1);
  sample(plan_at_exit("wake at exit 1x2, any order", &one, false), 600000);
  struct setting slow = { .workers_max = 1, .clients = 1, .is_slow = true };
  plan = plan_at_exit("wake in a slow exit", &slow, true);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  exhaust(plan_at_exit("wake in a slow exit, any order", &slow, false), 2);
}

SPEC(wakes_and_exits_at_once, "A14 A13 the same for two workers and more") {
  struct setting two = { .workers_max = 2, .clients = 2 };
  exhaust(plan_at_exit("wake at exit 2x2", &two, false), 0);
  struct setting one_client = { .workers_max = 2, .clients = 1 };
  exhaust(plan_at_exit("wake at exit 2x1", &one_client, false), 1);
  sample(plan_at_exit("wake at exit 2x2", &two, false), 800000);
  struct setting slow = { .workers_max = 2, .clients = 2, .is_slow = true };
  sample(plan_at_exit("wake in a slow exit 2x2", &slow, false), 300000);
  struct sim_plan plan = plan_at_exit("wake in a slow exit 2x2", &slow, true);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 100000);
  struct setting many = { .workers_max = 3, .clients = 4 };
  sample(plan_at_exit("wake at exit 3x4", &many, false), 200000);
  plan = plan_at_exit("wake at exit 3x4", &many, false);
  plan.strategy = SIM_PCT;
  plan.is_hostile = true;
  sim_spec_sample(&plan, 50000);
}

static void restart_with_refusals(void *context) {
  (void)context;
  idlesched_pool *pool = sim_pool_try_create(
    &(idlesched_pool_config){ .workers_max = 2, .idle_exit_ns = IDS_S });
  if (pool == NULL)
    return;
  for (unsigned i = 0; i < 3; i++) {
    idlesched_pool_stats before = sim_stats(pool);
    SIM_CHECK_EQUAL(before.threads, 0);
    int status = sim_submit(pool, i);
    idlesched_pool_stats after = sim_stats(pool);
    SIM_CHECK_EQUAL(after.jobs_submitted, before.jobs_submitted + (status == 0));
    SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
    sim_pool_check(pool);
    sim_sleep_ns(2 * IDS_S);
  }
  idlesched_pool_stats stats = sim_stats(pool);
  SIM_CHECK_EQUAL(stats.exits, stats.starts);
  sim_pool_finish(pool);
}

SPEC(restart_is_refused, "A13 G4 a thread refused for a restart costs that submit, and no more") {
  struct sim_plan plan = { .name = "restart refused", .scenario = restart_with_refusals };
  plan.bound = 1;
  sim_spec_faults(&plan);
}

/* -------------------------------------------------- what an exit gives back */

static unsigned marks[2];

static void free_into_own_heap(void *context) {
  *(unsigned *)context = sim_heap_free(ids_heap_own());
  sim_sleep_ns(IDS_MS);
}

/* Two workers work, then one job each second keeps the warm one: the cold one exits. */
static void cold_one_exits(void *context) {
  (void)context;
  idlesched_pool *pool = SIM_POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER);
  for (unsigned i = 0; i < 2; i++)
    SIM_CHECK_EQUAL(idlesched_pool_submit(pool, free_into_own_heap, &marks[i]), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  uint64_t parked_at_ns = ids_now_ns();
  sim_sleep_ns(1); /* until both have */
  for (unsigned i = 0; i < 15; i++) {
    sim_work(pool, i);
    SIM_CHECK_EQUAL(sim_jobs[i].thread, sim_jobs[0].thread);
    SIM_CHECK_EQUAL(sim_stats(pool).threads, ids_now_ns() < parked_at_ns + EXIT_NS ? 2 : 1);
    unsigned returned_count = sim_heap_is_returned(marks[0]) + sim_heap_is_returned(marks[1]);
    SIM_CHECK_EQUAL(returned_count, ids_now_ns() < parked_at_ns + EXIT_NS ? 0 : 1);
    ids_sleep_until(parked_at_ns + (i + 1) * IDS_S + 1);
  }
  sim_sleep_ns(EXIT_NS);
  SIM_CHECK_EQUAL(sim_stats(pool).exits, 2);
  SIM_CHECK(sim_heap_is_returned(marks[0]) && sim_heap_is_returned(marks[1]));
  sim_check_jobs_started_at_once();
  sim_pool_finish(pool);
}

SPEC(each_exit_is_followed_by_a_purge,
     "A13 the cold worker exits while the warm one serves; what lay in its heap comes back with "
     "its exit") {
  struct sim_plan plan = { .name = "cold one exits", .scenario = cold_one_exits };
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
}
