/* SPDX-License-Identifier: MIT */
/*
 * test_sim_visits.c - releases on demand side by side, and beside all that a pool does: whoever
 * else releases, works or leaves, what was freed before the call is back after it.
 */
#include <errno.h>

#include "visit_sim.h"

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context)) {
  return (struct sim_plan){ .name = name, .scenario = scenario };
}

/* --------------------------------------------------------- releases side by side */

static void release_once(void *context) {
  idlesched_release_report report;
  unsigned expected = (unsigned)(uintptr_t)context;
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, expected);
}

static void two_releases(void *context) {
  unsigned threads_count = *(unsigned *)context;
  struct sim_client clients[2];
  visit_make_pool(threads_count == 1 ? sim_choose(2, "workers with a state") : 1);
  visit_park(threads_count);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], release_once, (void *)(uintptr_t)threads_count);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; i < threads_count; i++) {
    SIM_CHECK_RELATION(visit_count(i), >=, 1);
    SIM_CHECK_RELATION(visit_count(i), <=, 2);
  }
  SIM_CHECK_EQUAL(sim_stats(visit_pool).polls, threads_count);
  sim_pool_finish(visit_pool);
}

SPEC(two_at_once, "B14 B17 two releases at once: what was freed before each is back after it") {
  unsigned threads_count = 1;
  struct sim_plan plan = plan_of("visit twice 1", two_releases);
  plan.context = &threads_count;
  sim_pool_searches(&plan, 2, 500000);
  threads_count = 2;
  plan.name = "visit twice 2";
  sim_pool_searches(&plan, 1, 300000);
}

static void release_for_first_worker(void *context) {
  (void)context;
  idlesched_release_report report;
  uint64_t before_ns = ids_now_ns();
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 1);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns + 100 * IDS_MS);
}

static void a_later_visit_asks_more(void *context) {
  (void)context;
  idlesched_release_report report;
  struct sim_client client;
  visit_make_pool(0);
  visit_submit(100 * IDS_MS);
  sim_client_start(&client, release_for_first_worker, NULL);
  sim_sleep_ns(1); /* it waits for the first worker */
  visit_submit(700 * IDS_MS);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 2);
  sim_client_join(&client);
  sim_pool_finish(visit_pool);
}

SPEC(whom_it_asked,
     "B16 a release waits for the workers of its begin, not for those of a later one") {
  struct sim_plan plan = plan_of("visit whom it asked", a_later_visit_asks_more);
  sim_spec_exhaust(&plan);
}

static void visited_while_it_leaves(void *context) {
  (void)context;
  visit_pool = SIM_POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                        .idle_exit_ns = 5 * IDS_MS);
  visit_park(1);
  sim_heap_configure(&(const struct sim_heap_config){ .collect_ns = 10 * IDS_MS });
  sim_sleep_ns(9 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(visit_pool).exiting, 1);
  unsigned mark = sim_heap_free(sim_worker_heap(visit_pool, 0));
  SIM_CHECK_EQUAL(idlesched_pool_release(visit_pool, IDLESCHED_NEVER, NULL), 0);
  SIM_CHECK(sim_heap_is_returned(mark));
  SIM_CHECK_EQUAL(sim_stats(visit_pool).exits, 1);
  sim_pool_finish(visit_pool);
}

SPEC(who_leaves_is_visited, "B14 B17 what was freed after a leaving worker's collect is collected, "
                            "if it is visited meanwhile: it was not") {
  struct sim_plan plan = plan_of("visit who leaves", visited_while_it_leaves);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------- beside all that a pool does */

static void submit_two(void *context) {
  unsigned first = (unsigned)(uintptr_t)context;
  for (unsigned i = 0; i < 2; i++) {
    int status = sim_submit(visit_pool, first + i);
    SIM_CHECK(status == 0 || status == -ESHUTDOWN);
  }
}

static void release_twice(void *context) {
  (void)context;
  idlesched_release_report report;
  for (unsigned i = 0; i < 2; i++)
    visit_release(sim_choose(2, "limit") == 0 ? IDLESCHED_NEVER : 3 * IDS_MS, &report);
}

static void close_pool(void *context) {
  (void)context;
  idlesched_pool_close(visit_pool, IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, NULL);
}

struct setting {
  unsigned workers_max, submitters, releasers;
  bool has_closer;
};

static void beside_everything(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[6];
  unsigned count = 0;
  sim_states(1, 1, 0);
  visit_pool = SIM_POOL(.workers_max = setting->workers_max, .idle_release_ns = 2 * IDS_MS,
                        .idle_exit_ns = 5 * IDS_MS, .hooks = sim_state_hooks,
                        .dropped = sim_job_dropped);
  sim_jobs_take(sim_choose(2, "duration") * IDS_MS);
  for (unsigned i = 0; i < setting->submitters; i++)
    sim_client_start(&clients[count++], submit_two, (void *)(uintptr_t)(2 * i));
  for (unsigned i = 0; i < setting->releasers; i++)
    sim_client_start(&clients[count++], release_twice, NULL);
  if (setting->has_closer)
    sim_client_start(&clients[count++], close_pool, NULL);
  sim_sleep_ns(sim_choose(3, "pause") * 2 * IDS_MS);
  sim_pool_check(visit_pool);
  while (count > 0)
    sim_client_join(&clients[--count]);
  sim_pool_finish(visit_pool);
}

SPEC(beside_work, "B14 B16 B17 releases beside submits, passes and exits") {
  struct setting setting = { .workers_max = 1, .submitters = 1, .releasers = 1 };
  struct sim_plan plan = plan_of("visit beside work 1", beside_everything);
  plan.context = &setting;
  sim_pool_searches(&plan, 1, 300000);
  setting = (struct setting){ .workers_max = 2, .submitters = 1, .releasers = 1 };
  plan.name = "visit beside work 2";
  sim_pool_samples(&plan, 300000);
  setting = (struct setting){ .workers_max = 3, .submitters = 2, .releasers = 2 };
  plan.name = "visit beside work 3x4";
  sim_pool_samples(&plan, 200000);
}

SPEC(beside_a_close, "B14 B16 B17 releases beside a close") {
  struct setting setting = {
    .workers_max = 2, .submitters = 1, .releasers = 1, .has_closer = true
  };
  struct sim_plan plan = plan_of("visit beside close", beside_everything);
  plan.context = &setting;
  sim_pool_samples(&plan, 200000);
}

static void retire_one(void *context) {
  (void)context;
  idlesched_worker_retire(sim_worker(visit_pool, 0));
}

static void submit_one(void *context) {
  (void)context;
  visit_submit(0);
}

/* Told to retire, visited and wanted, all at once: it leaves, and its place has a successor. */
static void beside_a_retirement_runs(void *context) {
  struct sim_client clients[3];
  (void)context;
  visit_make_pool(sim_choose(2, "states"));
  visit_park(1);
  sim_client_start(&clients[0], retire_one, NULL);
  sim_client_start(&clients[1], release_twice, NULL);
  sim_client_start(&clients[2], submit_one, NULL);
  for (unsigned i = 0; i < 3; i++)
    sim_client_join(&clients[i]);
  sim_pool_finish(visit_pool);
}

SPEC(beside_a_retirement, "B14 C11 releases beside a worker that retires and is wanted") {
  struct sim_plan plan = plan_of("visit beside retirement", beside_a_retirement_runs);
  sim_pool_samples(&plan, 300000);
}
