/* SPDX-License-Identifier: MIT */
/*
 * test_sim_release_all.c - releases of all pools of the process: beside each other, beside pools
 * that are made, closed and destroyed, from jobs, and under guards.
 *
 * What was freed into the workers' heaps before a release is back after it when it says that it
 * missed nobody, as in test_sim_visit.c; here the workers are of two pools.
 */
#include <errno.h>

#include "heap.h"
#include "pool_sim.h"

enum { POOLS = 2 };

#define NEVER IDLESCHED_NEVER

static idlesched_pool *pools[POOLS];

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context)) {
  return (struct sim_plan){ .name = name, .scenario = scenario };
}

/* So many parked workers of each; of the first pool's so many have a state. */
static void make_pools(unsigned first_count, unsigned second_count, unsigned states_count) {
  const unsigned workers_counts[POOLS] = { first_count, second_count };
  sim_states(states_count, 1, 0);
  for (unsigned i = 0; i < POOLS; i++) {
    pools[i] = SIM_POOL(.workers_max = 2, .idle_release_ns = NEVER, .idle_exit_ns = NEVER,
                        .hooks = i == 0 ? sim_state_hooks : (idlesched_worker_hooks){ 0 });
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(pools[i], workers_counts[i]), 0);
    sim_await_parked(pools[i], workers_counts[i]);
  }
}

static void finish(void) {
  for (unsigned i = 0; i < POOLS; i++)
    if (pools[i] != NULL)
      sim_pool_finish(pools[i]);
}

/* ----------------------------------------------------------- what comes back */

struct litter {
  unsigned marks[4 * POOLS], count;
};

/* The calling worker's own heap is collected last, like that of any caller. */
static struct litter strew(void) {
  struct litter litter = { .count = 0 };
  for (unsigned i = 0; i < POOLS; i++) {
    if (pools[i] == NULL)
      continue;
    ids_group_lock(&pools[i]->group);
    for (unsigned j = 0; j < pools[i]->group.workers_count; j++) {
      const struct ids_worker *worker = sim_worker(pools[i], j);
      if (worker->heap != NULL && worker->state != IDS_WORKER_EXITING)
        litter.marks[litter.count++] = sim_heap_free(worker->heap);
    }
    ids_group_unlock(&pools[i]->group);
  }
  return litter;
}

static void check_is_back(const struct litter *litter) {
  for (unsigned i = 0; i < litter->count; i++)
    SIM_CHECK(sim_heap_is_returned(litter->marks[i]));
}

static int release_with(uint64_t timeout_ns, idlesched_release_report *out) {
  int status = idlesched_release(timeout_ns, out);
  SIM_CHECK_EQUAL(status, out->missed_count > 0 ? -ETIMEDOUT : 0);
  SIM_CHECK_EQUAL(out->missed_count, out->missed_running_count + out->missed_starting_count +
                                       out->missed_exiting_count);
  return status;
}

static int release(uint64_t timeout_ns, idlesched_release_report *out) {
  struct litter litter = strew();
  int status = release_with(timeout_ns, out);
  if (status == 0)
    check_is_back(&litter);
  return status;
}

/* ------------------------------------------------------------- parked workers */

static void all_are_visited(void *context) {
  idlesched_release_report report;
  unsigned workers_count = *(unsigned *)context;
  make_pools(workers_count, workers_count, sim_choose(workers_count + 1, "workers with a state"));
  idlesched_pool_stats before[POOLS] = { sim_stats(pools[0]), sim_stats(pools[1]) };
  SIM_CHECK_EQUAL(release(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.pools_count, POOLS);
  SIM_CHECK_EQUAL(report.visited_count, POOLS * workers_count);
  for (unsigned i = 0; i < POOLS; i++) {
    idlesched_pool_stats after = sim_stats(pools[i]);
    SIM_CHECK_EQUAL(after.starts, before[i].starts);
    SIM_CHECK_EQUAL(after.wakes, before[i].wakes);
    SIM_CHECK_EQUAL(after.polls, before[i].polls);
    SIM_CHECK_EQUAL(after.releases, workers_count);
  }
  SIM_CHECK_EQUAL(sim_heap_counts_all().collected + sim_heap_counts_all().abandoned,
                  POOLS * workers_count + 1);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  finish();
}

SPEC(each_worker_of_every_pool,
     "B14 B15 B17 each parked worker of every pool is visited once, without a start or a poll; "
     "with no workers nobody is") {
  unsigned workers_count = 1;
  struct sim_plan plan = plan_of("release all 1", all_are_visited);
  plan.context = &workers_count;
  sim_pool_searches(&plan, 1, 100000);
  workers_count = 0;
  plan.name = "release all 0";
  sim_pool_searches(&plan, 2, 10000);
  workers_count = 2;
  plan.name = "release all 2";
  sim_pool_samples(&plan, 200000);
}

static void release_first_thing(void *context) {
  idlesched_release_report report;
  (void)context;
  SIM_CHECK_EQUAL(release(NEVER, &report), 0);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).collected, 1);
}

static void fresh_caller(void *context) {
  struct sim_client client;
  (void)context;
  make_pools(1, 1, 1);
  sim_client_start(&client, release_first_thing, NULL);
  sim_client_join(&client);
  finish();
}

SPEC(a_fresh_caller, "B18 a thread that never allocated collects its heap as well") {
  struct sim_plan plan = plan_of("release all fresh", fresh_caller);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* -------------------------------------------------------------- one deadline */

static void sleep_for(void *context) {
  sim_sleep_ns((uint64_t)(uintptr_t)context);
}

static void submit_sleep(idlesched_pool *pool, uint64_t duration_ns) {
  SIM_CHECK_EQUAL(idlesched_pool_submit(pool, sleep_for, (void *)(uintptr_t)duration_ns), 0);
}

/* In both pools one worker is busy for 10 s, or for a time that is within the limit. */
static void one_deadline_for_all(void *context) {
  idlesched_release_report report;
  (void)context;
  make_pools(2, 2, 0);
  uint64_t first_ns = sim_choose(2, "first job") == 0 ? 10 * IDS_S : 700 * IDS_MS;
  uint64_t second_ns = sim_choose(2, "second job") == 0 ? 10 * IDS_S : 800 * IDS_MS;
  uint64_t limit_ns = sim_choose(2, "limit") == 0 ? 2 * IDS_S : 0; /* 1 s */
  submit_sleep(pools[0], first_ns);
  submit_sleep(pools[1], second_ns);
  sim_sleep_ns(1);
  unsigned missed_count = (first_ns > IDS_S) + (second_ns > IDS_S);
  uint64_t begun_ns = ids_now_ns();
  SIM_CHECK_EQUAL(release(limit_ns, &report), missed_count > 0 ? -ETIMEDOUT : 0);
  SIM_CHECK_EQUAL(report.missed_running_count, missed_count);
  SIM_CHECK_EQUAL(report.visited_count, 2 * POOLS - missed_count);
  uint64_t took_ns = missed_count > 0 ? (limit_ns == 0 ? IDS_S : limit_ns) : 800 * IDS_MS - 1;
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + took_ns);
  SIM_CHECK_EQUAL(report.time_ns, took_ns);
  /* Nobody waited for those who were busy, but the one who released. */
  for (unsigned i = 0; i < POOLS; i++)
    SIM_CHECK_EQUAL(sim_stats(pools[i]).releases + (i == 0 ? first_ns : second_ns) / (10 * IDS_S),
                    2);
  sim_sleep_ns(10 * IDS_S);
  SIM_CHECK_EQUAL(sim_stats(pools[0]).releases + sim_stats(pools[1]).releases, 2 * POOLS);
  finish();
}

SPEC(a_common_deadline, "B16 one limit, by default 1 s, is for all pools; who was missed releases "
                        "when next parked") {
  struct sim_plan plan = plan_of("release all limit", one_deadline_for_all);
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 200000);
}

/* A worker of the second pool, which needs no wake, is given up before the busy one of the
 * first is waited for; states are collected side by side. */
static void slow_collects(void *context) {
  idlesched_release_report report;
  (void)context;
  sim_states(2, 1, 300 * IDS_MS);
  for (unsigned i = 0; i < POOLS; i++) {
    pools[i] = SIM_POOL(.workers_max = 2, .idle_release_ns = NEVER, .idle_exit_ns = NEVER,
                        .hooks = { .start = sim_state_hooks.start,
                                   .collect = sim_state_hooks.collect });
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(pools[i], 1), 0);
    sim_await_parked(pools[i], 1);
  }
  idlesched_pool *plain = SIM_POOL(.workers_max = 1, .idle_release_ns = NEVER,
                                   .idle_exit_ns = NEVER);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(plain, 1), 0);
  sim_await_parked(plain, 1);
  uint64_t begun_ns = ids_now_ns();
  SIM_CHECK_EQUAL(release(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 3);
  SIM_CHECK_RELATION(report.time_ns, <=, 300 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_counts(sim_worker_heap(plain, 0)).last_at_ns, begun_ns);
  sim_pool_finish(plain);
  finish();
}

SPEC(all_are_asked_first,
     "B16 B17 all pools are asked first: slow collects go on side by side, and "
     "nobody waits for them to be given up") {
  struct sim_plan plan = plan_of("release all slow", slow_collects);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

static void slow_start(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  sim_sleep_ns(5 * IDS_S);
}

static void missed_kinds(void *context) {
  idlesched_release_report report;
  (void)context;
  make_pools(1, 1, 0);
  idlesched_pool *starting = SIM_POOL(.workers_max = 1, .hooks = { .start = slow_start });
  idlesched_pool *ending = SIM_POOL(.workers_max = 1, .hooks = { .stop = slow_start },
                                    .idle_release_ns = NEVER, .idle_exit_ns = IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(ending, 1), 0);
  sim_sleep_ns(2 * IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(starting, 1), 0);
  submit_sleep(pools[1], 5 * IDS_S);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(release(0, &report), -ETIMEDOUT);
  SIM_CHECK_EQUAL(report.missed_running_count, 1);
  SIM_CHECK_EQUAL(report.missed_starting_count, 1);
  SIM_CHECK_EQUAL(report.missed_exiting_count, 1);
  SIM_CHECK_EQUAL(report.visited_count, 1);
  sim_pool_finish(starting);
  sim_pool_finish(ending);
  finish();
}

SPEC(kinds_of_missed, "B16 N4 the missed are told apart: running, starting, ending") {
  struct sim_plan plan = plan_of("release all missed", missed_kinds);
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------- pools that come and go */

static void destroy_pool(unsigned i) {
  idlesched_pool *pool = pools[i];
  pools[i] = NULL;
  sim_pool_unwatch(pool);
  idlesched_pool_destroy(pool);
}

static void destroy_first(void *context) {
  (void)context;
  destroy_pool(0);
}

static void destroy_second(void *context) {
  (void)context;
  destroy_pool(1);
}

static void destroy_both(void *context) {
  (void)context;
  destroy_pool(1);
  destroy_pool(0);
}

static void close_both(void *context) {
  (void)context;
  for (unsigned i = 0; i < POOLS; i++)
    SIM_CHECK_EQUAL(idlesched_pool_close(pools[i], IDLESCHED_CLOSE_DRAIN, NEVER, NULL), 0);
}

static void make_another(void *context) {
  (void)context;
  idlesched_pool *pool;
  SIM_CHECK_EQUAL(idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 1 }), 0);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), 0);
  idlesched_pool_destroy(pool);
}

struct change {
  const char *name;
  void (*make)(void *context);
};

/* The pools that are left are visited like any other. */
static void change_at_a_step(void *context) {
  const struct change *change = context;
  idlesched_release_report report;
  make_pools(1, 1, 1);
  submit_sleep(pools[0], IDS_MS);
  sim_sweep_begin(change->make, NULL);
  int status = release_with(NEVER, &report);
  SIM_CHECK_EQUAL(status, 0);
  SIM_CHECK_RELATION(report.visited_count, <=, POOLS + 1);
  sim_sweep_end();
  if (pools[0] != NULL && pools[1] != NULL)
    SIM_CHECK_EQUAL(release(NEVER, &report), 0);
  finish();
  do /* on a hostile clock a destroy leaves threads behind */
    SIM_CHECK_EQUAL(release_with(NEVER, &report), 0);
  while (report.pools_count > 0);
}

SPEC(pools_change_at_every_step,
     "B14 B24 a pool that is destroyed, closed or made at any step of a release: it ends, and "
     "visits the others") {
  struct change changes[] = { { "release all, destroy first", destroy_first },
                              { "release all, destroy second", destroy_second },
                              { "release all, destroy both", destroy_both },
                              { "release all, close both", close_both },
                              { "release all, make another", make_another } };
  for (unsigned i = 0; i < ids_countof(changes); i++) {
    struct sim_plan plan = plan_of(changes[i].name, change_at_a_step);
    plan.context = &changes[i];
    sim_spec_sweep(&plan);
    plan.strategy = SIM_RANDOM;
    plan.runs_max = 1 + (uint64_t)(200 * sim_spec_scale());
    sim_spec_sweep(&plan);
    plan.is_hostile = true;
    sim_spec_sweep(&plan);
  }
}

/* The pool that is left is visited, although the other one goes. */
static void release_and_look(void *context) {
  idlesched_release_report report;
  (void)context;
  unsigned mark = sim_heap_free(sim_worker_heap(pools[1], 0));
  SIM_CHECK_EQUAL(release_with(NEVER, &report), 0);
  SIM_CHECK(sim_heap_is_returned(mark));
}

static void destroy_beside(void *context) {
  struct sim_client client;
  (void)context;
  make_pools(1, 1, sim_choose(2, "states"));
  sim_client_start(&client, release_and_look, NULL);
  destroy_pool(0);
  sim_client_join(&client);
  finish();
}

SPEC(a_destroy_beside_a_release, "B24 a destroy beside a release: both end, and the pool that is "
                                 "left is visited") {
  struct sim_plan plan = plan_of("release all beside destroy", destroy_beside);
  sim_pool_searches(&plan, 1, 200000);
}

/* ------------------------------------------------------------ side by side */

static void release_once(void *context) {
  idlesched_release_report report;
  (void)context;
  SIM_CHECK_EQUAL(release(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, POOLS);
}

/* Lists in another order than that of the pools' making. */
static void release_list_once(void *context) {
  idlesched_release_report report;
  idlesched_pool *list[] = { pools[1], pools[0] };
  (void)context;
  struct litter litter = strew();
  SIM_CHECK_EQUAL(idlesched_release_pools(list, 2, NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, POOLS);
  check_is_back(&litter);
}

static void two_releases(void *context) {
  struct sim_client clients[2];
  (void)context;
  make_pools(1, 1, sim_choose(2, "states"));
  sim_client_start(&clients[0], release_once, NULL);
  sim_client_start(&clients[1], release_list_once, NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; i < POOLS; i++)
    SIM_CHECK_RELATION(sim_stats(pools[i]).releases, <=, 2);
  finish();
}

SPEC(two_at_once, "B14 B17 two releases at once: what was freed before each is back after it") {
  struct sim_plan plan = plan_of("release all twice", two_releases);
  sim_pool_searches(&plan, 1, 400000);
}

/* --------------------------------------------------------------- from a job */

static unsigned releases_count, missed_count;

static void release_from_job(void *context) {
  idlesched_release_report report;
  unsigned most_count = (unsigned)(uintptr_t)context;
  unsigned mark = sim_heap_free(ids_heap_own());
  release(NEVER, &report);
  SIM_CHECK(sim_heap_is_returned(mark)); /* the caller's own */
  SIM_CHECK_RELATION(report.visited_count + report.missed_count, <=, most_count);
  SIM_CHECK_EQUAL(report.missed_count, report.missed_running_count);
  missed_count += report.missed_count;
  releases_count++;
}

static void submit_release(idlesched_pool *pool, unsigned most_count) {
  SIM_CHECK_EQUAL(idlesched_pool_submit(pool, release_from_job, (void *)(uintptr_t)most_count), 0);
}

static void one_job_releases(void *context) {
  (void)context;
  releases_count = missed_count = 0;
  make_pools(2, 1, sim_choose(2, "states"));
  submit_release(pools[0], 2);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pools[0], NEVER), 0);
  SIM_CHECK_EQUAL(releases_count, 1);
  SIM_CHECK_EQUAL(missed_count, 0);
  SIM_CHECK_EQUAL(sim_stats(pools[0]).releases, 1);
  SIM_CHECK_EQUAL(sim_stats(pools[1]).releases, 1);
  /* Later it is like any other, and waited for. */
  submit_sleep(pools[0], IDS_S);
  submit_release(pools[0], 2);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pools[0], NEVER), 0);
  SIM_CHECK_EQUAL(releases_count, 2);
  SIM_CHECK_EQUAL(missed_count, 0);
  finish();
}

static void two_jobs_release(void *context) {
  idlesched_release_report report;
  unsigned pool = *(unsigned *)context;
  releases_count = missed_count = 0;
  make_pools(pool == 0 ? 2 : 1, pool, 0);
  unsigned most_count = pool == 0 ? 1 : 2; /* while one worker is visited another may start */
  submit_release(pools[0], most_count);
  submit_release(pools[pool], most_count);
  /* This thread waits for both of them, as nobody can wait for it. */
  if (sim_choose(2, "another release") == 1)
    SIM_CHECK_EQUAL(release(NEVER, &report), 0);
  for (unsigned i = 0; i < POOLS; i++)
    SIM_CHECK_EQUAL(idlesched_pool_wait(pools[i], NEVER), 0);
  SIM_CHECK_EQUAL(releases_count, 2);
  SIM_CHECK_RELATION(missed_count, <=, 1);
  finish();
}

SPEC(a_job_releases, "B14 B16 a job's own worker is the caller; jobs that release at the same time "
                     "do not wait for each other for ever") {
  unsigned pool = 0;
  struct sim_plan plan = plan_of("release all from job", one_job_releases);
  sim_pool_searches(&plan, 1, 100000);
  plan = plan_of("release all from jobs", two_jobs_release);
  plan.context = &pool;
  sim_pool_searches(&plan, 1, 200000);
  pool = 1;
  plan.name = "release all from jobs of two pools";
  sim_pool_searches(&plan, 1, 200000);
}

/* ------------------------------------------------------------------- guards */

static void hold_a_guard(void *context) {
  (void)context;
  idlesched_eager_purge_enter();
  ids_point("holding");
  idlesched_eager_purge_leave();
}

static void release_under_guards(void *context) {
  idlesched_release_report report;
  (void)context;
  SIM_CHECK_EQUAL(release(NEVER, &report), 0);
  SIM_CHECK(report.lifted_guards);
  SIM_CHECK_EQUAL(report.purge_delay_ms, SIM_HEAP_DELAY_DEFAULT_MS);
}

/* Nobody purges for a release while the delay is 0: then the allocator would not look. */
static void guards_and_releases(void *context) {
  struct sim_client clients[3];
  (void)context;
  make_pools(0, 0, 0);
  idlesched_eager_purge_enter();
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], release_under_guards, NULL);
  sim_client_start(&clients[2], hold_a_guard, NULL);
  for (unsigned i = 0; i < 3; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), 0);
  idlesched_eager_purge_leave();
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), SIM_HEAP_DELAY_DEFAULT_MS);
  finish();
}

/* A guard that comes and goes beside a release leaves nothing, whenever it does. */
static void a_guard_beside_a_release(void *context) {
  struct sim_client client;
  idlesched_release_report report;
  (void)context;
  sim_client_start(&client, hold_a_guard, NULL);
  SIM_CHECK_EQUAL(release_with(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.purge_delay_ms, SIM_HEAP_DELAY_DEFAULT_MS);
  sim_client_join(&client);
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), SIM_HEAP_DELAY_DEFAULT_MS);
}

SPEC(guards_are_lifted, "B27 guards beside releases: lifted for the purge, in force after it, and "
                        "the user's delay is back in the end") {
  struct sim_plan plan = plan_of("release all, guards", guards_and_releases);
  sim_pool_samples(&plan, 200000);
  plan = plan_of("release all, a guard", a_guard_beside_a_release);
  pools[0] = pools[1] = NULL;
  sim_pool_searches(&plan, 2, 100000);
}

/* ------------------------------------------------- beside all that pools do */

static void submit_two(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  for (unsigned j = 0; j < 2; j++)
    sim_must_submit(pools[i], 2 * i + j);
}

static void release_at_will(void *context) {
  idlesched_release_report report;
  (void)context;
  release(sim_choose(2, "limit") == 0 ? NEVER : 3 * IDS_MS, &report);
  idlesched_purge_all(&report);
}

static void beside_everything(void *context) {
  struct sim_client clients[4];
  (void)context;
  sim_states(1, 1, 0);
  for (unsigned i = 0; i < POOLS; i++)
    pools[i] = SIM_POOL(.workers_max = 2, .idle_release_ns = 2 * IDS_MS, .idle_exit_ns = 5 * IDS_MS,
                        .is_dedicated = i == 1,
                        .hooks = i == 0 ? sim_state_hooks : (idlesched_worker_hooks){ 0 });
  sim_jobs_take(sim_choose(2, "duration") * IDS_MS);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_two, (void *)(uintptr_t)i);
  for (unsigned i = 2; i < 4; i++)
    sim_client_start(&clients[i], release_at_will, NULL);
  for (unsigned i = 0; i < 4; i++)
    sim_client_join(&clients[i]);
  sim_sleep_ns(sim_choose(3, "pause") * 2 * IDS_MS);
  for (unsigned i = 0; i < POOLS; i++) {
    SIM_CHECK_EQUAL(idlesched_pool_wait(pools[i], NEVER), 0);
    sim_pool_check(pools[i]);
  }
  finish();
}

SPEC(beside_work, "B14 B16 B17 B24 releases beside submits, passes and exits of two pools") {
  struct sim_plan plan = plan_of("release all beside work", beside_everything);
  sim_pool_samples(&plan, 400000);
}
