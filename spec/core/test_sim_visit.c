/* SPDX-License-Identifier: MIT */
/*
 * test_sim_visit.c - a release on demand: every worker with a thread is visited, nobody is
 * woken up for work, the purge comes last, and nobody waits for longer than the limit.
 *
 * What is freed into a worker's heap before the call is back when the call says that it
 * missed nobody: that is asked in every scenario, whoever else releases, works or leaves.
 */
#include <errno.h>

#include "heap.h"
#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER
enum { WORKERS = 3 };

/* What the clients of a run share. */
static idlesched_pool *the_pool;

/* --------------------------------------------------------------------- helpers */

/* Workers that release when they are visited, and only then. */
static void make_quiet_pool(unsigned states_count) {
  sim_states(states_count, 1, 0);
  the_pool = SIM_POOL(.workers_max = WORKERS, .idle_release_ns = NEVER, .idle_exit_ns = NEVER,
                      .hooks = sim_state_hooks);
}

static void park(unsigned workers_count) {
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(the_pool, workers_count), 0);
  sim_await_parked(the_pool, workers_count);
}

/* Visits that worker has had so far, by whoever: each tidies the heap once. */
static unsigned visits_of(unsigned index) {
  struct sim_heap_counts counts = sim_heap_counts(sim_worker_heap(the_pool, index));
  return counts.abandoned + counts.collected;
}

/* Something is freed into each worker's heap; is it back?  What a thread leaves to its end,
 * the allocator takes over: that is no matter of visits. */
struct litter {
  unsigned marks[WORKERS];
  unsigned count;
};

static void strew(struct litter *self) {
  *self = (struct litter){ .count = 0 };
  ids_group_lock(&the_pool->group);
  for (unsigned i = 0; i < the_pool->group.config.workers_max; i++) {
    const struct ids_worker *worker = sim_worker(the_pool, i);
    if (worker->heap != NULL && worker->state != IDS_WORKER_EXITING)
      self->marks[self->count++] = sim_heap_free(worker->heap);
  }
  ids_group_unlock(&the_pool->group);
}

static void check_is_back(const struct litter *self) {
  for (unsigned i = 0; i < self->count; i++)
    SIM_CHECK(sim_heap_is_returned(self->marks[i]));
}

/* Release with that limit; what was freed before is back when nobody was missed. */
static int release_and_look(uint64_t timeout_ns, idlesched_release_report *out) {
  struct litter litter;
  strew(&litter);
  int status = idlesched_pool_release(the_pool, timeout_ns, out);
  SIM_CHECK(status == 0 || status == -ETIMEDOUT);
  SIM_CHECK_EQUAL(status == -ETIMEDOUT, out->missed_count > 0);
  if (status == 0)
    check_is_back(&litter);
  return status;
}

/* The moment at which the_pool's worker ends what it does in such a job. */
static void work_for(void *context) {
  sim_sleep_ns((uint64_t)(uintptr_t)context);
}

static void submit_for(uint64_t duration_ns) {
  SIM_CHECK_EQUAL(idlesched_pool_submit(the_pool, work_for, (void *)(uintptr_t)duration_ns), 0);
}

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context)) {
  return (struct sim_plan){ .name = name, .scenario = scenario };
}

/* ------------------------------------------------------------ parked workers */

static void parked_are_visited(void *context) {
  idlesched_release_report report;
  unsigned threads_count = *(unsigned *)context;
  unsigned states_count = sim_choose(threads_count + 1, "workers with a state");
  make_quiet_pool(states_count);
  park(threads_count);
  idlesched_pool_stats before = sim_stats(the_pool);
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, threads_count);
  for (unsigned i = 0; i < threads_count; i++) {
    SIM_CHECK_EQUAL(visits_of(i), 1);
    SIM_CHECK_EQUAL(sim_state_steps(i), i < states_count);
  }
  idlesched_pool_stats after = sim_stats(the_pool);
  SIM_CHECK_EQUAL(after.starts, before.starts);
  SIM_CHECK_EQUAL(after.threads, threads_count);
  SIM_CHECK_EQUAL(after.wakes, before.wakes);
  SIM_CHECK_EQUAL(after.polls, before.polls);
  SIM_CHECK_EQUAL(after.releases, threads_count);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  sim_pool_finish(the_pool);
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
  make_quiet_pool(0);
  uint64_t before_ns = ids_now_ns();
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns);
  SIM_CHECK_EQUAL(report.visited_count, 0);
  SIM_CHECK_EQUAL(sim_stats(the_pool).starts, 0);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).collected, 1);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  sim_pool_finish(the_pool);
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
  make_quiet_pool(0);
  park(WORKERS);
  sim_heap_configure(&(const struct sim_heap_config){
    .abandon_ns = 10 * IDS_MS, .collect_ns = 5 * IDS_MS, .purge_ns = 1 * IDS_MS });
  uint64_t before_ns = ids_now_ns();
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  for (unsigned i = 0; i < WORKERS; i++)
    SIM_CHECK_RELATION(sim_heap_counts(sim_worker_heap(the_pool, i)).last_at_ns, <=,
                       before_ns + 30 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).last_at_ns, before_ns + 35 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_purged_at_ns(), before_ns + 36 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  SIM_CHECK_EQUAL(report.time_ns, 36 * IDS_MS);
  sim_heap_configure(&(const struct sim_heap_config){ .collect_ns = 0 });
  sim_pool_finish(the_pool);
}

SPEC(all_visits_then_the_purge, "B17 first all visits, then the caller's collect, then one purge") {
  struct sim_plan plan = plan_of("visit order", visits_come_first);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

static void release_first_thing(void *context) {
  (void)context;
  idlesched_release_report report;
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 2);
  void *heap = ids_heap_own();
  SIM_CHECK_EQUAL(sim_heap_counts(heap).collected, 1);
  unsigned mark = sim_heap_free(heap);
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  SIM_CHECK(sim_heap_is_returned(mark));
}

static void fresh_caller(void *context) {
  (void)context;
  struct sim_client client;
  make_quiet_pool(1);
  park(2);
  sim_client_start(&client, release_first_thing, NULL);
  sim_client_join(&client);
  sim_pool_finish(the_pool);
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
  make_quiet_pool(sim_choose(3, "workers with a state"));
  park(2);
  for (unsigned i = 0; i < busy; i++)
    submit_for(3 * IDS_S);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(the_pool).running, busy);
  struct litter litter;
  strew(&litter);

  uint64_t before_ns = ids_now_ns();
  SIM_CHECK_EQUAL(release_and_look(is_default ? 0 : limit_ns, &report), -ETIMEDOUT);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns + limit_ns);
  SIM_CHECK_EQUAL(report.missed_count, busy);
  SIM_CHECK_EQUAL(report.visited_count, 2 - busy);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).collected, 1);
  SIM_CHECK_EQUAL(sim_stats(the_pool).releases, 2 - busy);

  uint64_t end_ns = before_ns - 1 + 3 * IDS_S;
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), end_ns);
  sim_sleep_ns(60 * IDS_MS); /* the purge waits for others that release, for 50 */
  SIM_CHECK_EQUAL(sim_stats(the_pool).releases, 2);
  for (unsigned i = 0; i < 2; i++) {
    SIM_CHECK_EQUAL(visits_of(i), 1);
    SIM_CHECK_RELATION(sim_heap_counts(sim_worker_heap(the_pool, i)).last_at_ns, <=, end_ns);
  }
  check_is_back(&litter);
  sim_pool_finish(the_pool);
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
  make_quiet_pool(sim_choose(2, "workers with a state"));
  park(1);
  submit_for(300 * IDS_MS);
  uint64_t before_ns = ids_now_ns();
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(release_and_look(0, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 1);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns + 300 * IDS_MS);
  SIM_CHECK_EQUAL(visits_of(0), 1);
  sim_pool_finish(the_pool);
}

SPEC(served_when_the_job_ends, "B16 B14 a worker that parks within the limit is visited at once") {
  struct sim_plan plan = plan_of("visit in time", busy_ends_in_time);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

static void told_before_the_visit(void *context) {
  (void)context;
  make_quiet_pool(0);
  park(1);
  sim_heap_configure(&(const struct sim_heap_config){ .abandon_ns = 20 * IDS_MS });
  sim_must_submit(the_pool, 0);
  SIM_CHECK_EQUAL(idlesched_pool_release(the_pool, NEVER, NULL), 0);
  sim_check_jobs_started_at_once();
  sim_pool_finish(the_pool);
}

SPEC(a_ticket_comes_first,
     "B14 a worker that has been told to run is not claimed before it has run") {
  struct sim_plan plan = plan_of("visit after a ticket", told_before_the_visit);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* --------------------------------------------------------- releases side by side */

static void release_once(void *context) {
  idlesched_release_report report;
  unsigned expected = (unsigned)(uintptr_t)context;
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, expected);
}

static void two_releases(void *context) {
  unsigned threads_count = *(unsigned *)context;
  struct sim_client clients[2];
  make_quiet_pool(threads_count == 1 ? sim_choose(2, "workers with a state") : 1);
  park(threads_count);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], release_once, (void *)(uintptr_t)threads_count);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; i < threads_count; i++) {
    SIM_CHECK_RELATION(visits_of(i), >=, 1);
    SIM_CHECK_RELATION(visits_of(i), <=, 2);
  }
  SIM_CHECK_EQUAL(sim_stats(the_pool).polls, threads_count);
  sim_pool_finish(the_pool);
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
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 1);
  SIM_CHECK_EQUAL(ids_now_ns(), before_ns + 100 * IDS_MS);
}

static void a_later_visit_asks_more(void *context) {
  (void)context;
  idlesched_release_report report;
  struct sim_client client;
  make_quiet_pool(0);
  submit_for(100 * IDS_MS);
  sim_client_start(&client, release_for_first_worker, NULL);
  sim_sleep_ns(1); /* it waits for the first worker */
  submit_for(700 * IDS_MS);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(release_and_look(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 2);
  sim_client_join(&client);
  sim_pool_finish(the_pool);
}

SPEC(whom_it_asked,
     "B16 a release waits for the workers of its begin, not for those of a later one") {
  struct sim_plan plan = plan_of("visit whom it asked", a_later_visit_asks_more);
  sim_spec_exhaust(&plan);
}

static void visited_while_it_leaves(void *context) {
  (void)context;
  the_pool = SIM_POOL(.workers_max = 1, .idle_release_ns = NEVER, .idle_exit_ns = 5 * IDS_MS);
  park(1);
  sim_heap_configure(&(const struct sim_heap_config){ .collect_ns = 10 * IDS_MS });
  sim_sleep_ns(9 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(the_pool).exiting, 1);
  unsigned mark = sim_heap_free(sim_worker_heap(the_pool, 0));
  SIM_CHECK_EQUAL(idlesched_pool_release(the_pool, NEVER, NULL), 0);
  SIM_CHECK(sim_heap_is_returned(mark));
  SIM_CHECK_EQUAL(sim_stats(the_pool).exits, 1);
  sim_pool_finish(the_pool);
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
    int status = sim_submit(the_pool, first + i);
    SIM_CHECK(status == 0 || status == -ESHUTDOWN);
  }
}

static void release_twice(void *context) {
  (void)context;
  idlesched_release_report report;
  for (unsigned i = 0; i < 2; i++)
    release_and_look(sim_choose(2, "limit") == 0 ? NEVER : 3 * IDS_MS, &report);
}

static void close_pool(void *context) {
  (void)context;
  idlesched_pool_close(the_pool, IDLESCHED_CLOSE_CANCEL, NEVER, NULL);
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
  the_pool = SIM_POOL(.workers_max = setting->workers_max, .idle_release_ns = 2 * IDS_MS,
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
  sim_pool_check(the_pool);
  while (count > 0)
    sim_client_join(&clients[--count]);
  sim_pool_finish(the_pool);
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
