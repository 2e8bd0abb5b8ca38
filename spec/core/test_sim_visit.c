/* SPDX-License-Identifier: MIT */
/*
 * test_sim_visit.c - a release on demand: every worker with a thread is visited, nobody is
 * woken up for work, the purge comes last, and nobody waits for longer than the limit.
 */
#include <errno.h>

#include "heap.h"
#include "visit_sim.h"

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context)) {
  return (struct sim_plan){ .name = name, .scenario = scenario };
}

/* ------------------------------------------------------------ parked workers */

static void parked_are_visited(void *context) {
  idlesched_release_report report;
  unsigned threads_count = *(unsigned *)context;
  unsigned states_count = sim_choose(threads_count + 1, "workers with a state");
  visit_make_pool(states_count);
  visit_park(threads_count);
  idlesched_pool_stats before = sim_stats(visit_pool);
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, threads_count);
  for (unsigned i = 0; i < threads_count; i++) {
    SIM_CHECK_EQUAL(visit_count(i), 1);
    SIM_CHECK_EQUAL(sim_state_steps(i), i < states_count);
  }
  idlesched_pool_stats after = sim_stats(visit_pool);
  SIM_CHECK_EQUAL(after.starts, before.starts);
  SIM_CHECK_EQUAL(after.threads, threads_count);
  SIM_CHECK_EQUAL(after.wakes, before.wakes);
  SIM_CHECK_EQUAL(after.polls, before.polls);
  SIM_CHECK_EQUAL(after.releases, threads_count);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  sim_pool_finish(visit_pool);
}

SPEC(each_parked_worker_once, "B14 each parked worker is visited once, without a start or a poll") {
  unsigned threads_count = 1;
  struct sim_plan plan = plan_of("visit parked 1", parked_are_visited);
  plan.context = &threads_count;
  sim_pool_searches(&plan, 2, 100000);
  threads_count = 2;
  plan.name = "visit parked 2";
  sim_pool_searches(&plan, 1, 200000);
  threads_count = 3;
  plan.name = "visit parked 3";
  sim_pool_samples(&plan, 100000);
}

static void nobody_to_visit(void *context) {
  (void)context;
  idlesched_release_report report;
  visit_make_pool(0);
  uint64_t before_ns = ids_now_ns();
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns);
  SIM_CHECK_EQUAL(report.visited_count, 0);
  SIM_CHECK_EQUAL(sim_stats(visit_pool).starts, 0);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).collected, 1);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  sim_pool_finish(visit_pool);
}

SPEC(without_workers_at_once, "B15 without workers a release returns at once and starts nothing") {
  struct sim_plan plan = plan_of("visit nobody", nobody_to_visit);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
}

/* Visits 10 ms each, the caller's own collect 5, the purge 1: nothing overlaps. */
static void visits_come_first(void *context) {
  (void)context;
  idlesched_release_report report;
  visit_make_pool(0);
  visit_park(VISIT_WORKERS);
  sim_heap_configure(&(const struct sim_heap_config){
    .abandon_ns = 10 * IDS_MS, .collect_ns = 5 * IDS_MS, .purge_ns = 1 * IDS_MS });
  uint64_t before_ns = ids_now_ns();
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  for (unsigned i = 0; i < VISIT_WORKERS; i++)
    SIM_CHECK_RELATION(sim_heap_counts(sim_worker_heap(visit_pool, i)).last_at_ns, <=,
                       before_ns + 30 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).last_at_ns, before_ns + 35 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_purged_at_ns(), before_ns + 36 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  SIM_CHECK_EQUAL(report.time_ns, 36 * IDS_MS);
  sim_heap_configure(&(const struct sim_heap_config){ .collect_ns = 0 });
  sim_pool_finish(visit_pool);
}

SPEC(all_visits_then_the_purge, "B17 first all visits, then the caller's collect, then one purge") {
  struct sim_plan plan = plan_of("visit order", visits_come_first);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

static void release_first_thing(void *context) {
  (void)context;
  idlesched_release_report report;
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 2);
  void *heap = ids_heap_own();
  SIM_CHECK_EQUAL(sim_heap_counts(heap).collected, 1);
  unsigned mark = sim_heap_free(heap);
  SIM_CHECK_EQUAL(visit_release(IDLESCHED_NEVER, &report), 0);
  SIM_CHECK(sim_heap_is_returned(mark));
}

static void fresh_caller(void *context) {
  (void)context;
  struct sim_client client;
  visit_make_pool(1);
  visit_park(2);
  sim_client_start(&client, release_first_thing, NULL);
  sim_client_join(&client);
  sim_pool_finish(visit_pool);
}

SPEC(from_a_fresh_thread, "B18 a thread that never allocated releases as well as any other") {
  struct sim_plan plan = plan_of("visit fresh", fresh_caller);
  sim_pool_searches(&plan, 1, 100000);
}

/* ---------------------------------------------------------------- busy workers */

/* `busy` of two workers, none of which ends its job within the limit. */
static void busy_are_missed(void *context) {
  idlesched_release_report report;
  unsigned busy = *(unsigned *)context;
  bool is_default = sim_choose(2, "limit") == 0;
  uint64_t limit_ns = is_default ? 1 * IDS_S : 250 * IDS_MS;
  visit_make_pool(sim_choose(3, "workers with a state"));
  visit_park(2);
  for (unsigned i = 0; i < busy; i++)
    visit_submit(3 * IDS_S);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(visit_pool).running, busy);
  struct visit_litter litter;
  visit_strew(&litter);

  uint64_t before_ns = ids_now_ns();
  SIM_CHECK_EQUAL(visit_release(is_default ? 0 : limit_ns, &report), -ETIMEDOUT);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns + limit_ns);
  SIM_CHECK_EQUAL(report.missed_count, busy);
  SIM_CHECK_EQUAL(report.visited_count, 2 - busy);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).collected, 1);
  SIM_CHECK_EQUAL(sim_stats(visit_pool).releases, 2 - busy);

  uint64_t end_ns = before_ns - 1 + 3 * IDS_S;
  SIM_CHECK_EQUAL(idlesched_pool_wait(visit_pool, IDLESCHED_NEVER), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), end_ns);
  sim_sleep_ns(60 * IDS_MS); /* the purge waits for others that release, for 50 */
  SIM_CHECK_EQUAL(sim_stats(visit_pool).releases, 2);
  for (unsigned i = 0; i < 2; i++) {
    SIM_CHECK_EQUAL(visit_count(i), 1);
    SIM_CHECK_RELATION(sim_heap_counts(sim_worker_heap(visit_pool, i)).last_at_ns, <=, end_ns);
  }
  visit_check_is_back(&litter);
  sim_pool_finish(visit_pool);
}

SPEC(missed_at_the_limit,
     "B16 who is busy beyond the limit is missed, and releases when it parks") {
  static const char *names[] = { "visit one busy", "visit all busy" };
  for (unsigned busy = 1; busy <= 2; busy++) {
    struct sim_plan plan = plan_of(names[busy - 1], busy_are_missed);
    plan.context = &busy;
    plan.bound = 1;
    sim_spec_exhaust(&plan);
    plan.strategy = SIM_RANDOM;
    sim_spec_sample(&plan, 50000);
  }
}

static void busy_ends_in_time(void *context) {
  (void)context;
  idlesched_release_report report;
  visit_make_pool(sim_choose(2, "workers with a state"));
  visit_park(1);
  visit_submit(300 * IDS_MS);
  uint64_t before_ns = ids_now_ns();
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(visit_release(0, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 1);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns + 300 * IDS_MS);
  SIM_CHECK_EQUAL(visit_count(0), 1);
  sim_pool_finish(visit_pool);
}

SPEC(served_when_the_job_ends, "B16 B14 a worker that parks within the limit is visited at once") {
  struct sim_plan plan = plan_of("visit in time", busy_ends_in_time);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

static void told_before_the_visit(void *context) {
  (void)context;
  visit_make_pool(0);
  visit_park(1);
  sim_heap_configure(&(const struct sim_heap_config){ .abandon_ns = 20 * IDS_MS });
  sim_must_submit(visit_pool, 0);
  SIM_CHECK_EQUAL(idlesched_pool_release(visit_pool, IDLESCHED_NEVER, NULL), 0);
  sim_check_jobs_started_at_once();
  sim_pool_finish(visit_pool);
}

SPEC(a_ticket_comes_first,
     "B14 a worker that has been told to run is not claimed before it has run") {
  struct sim_plan plan = plan_of("visit after a ticket", told_before_the_visit);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}
