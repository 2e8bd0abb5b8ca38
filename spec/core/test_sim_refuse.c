/* SPDX-License-Identifier: MIT */
/*
 * test_sim_refuse.c - the system refuses a thread, or anything else: whoever asked is told
 * and nothing is kept, or there is a worker and the job waits for it.
 *
 * Two methods.  In complete searches the refusal is a choice like any other, so each call
 * that can fail fails in each schedule.  And sweeps in which call number n fails, and all
 * from there on, over scenarios that reach every such call of the core.
 */
#include <errno.h>

#include "heap.h"
#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER

static idlesched_pool *the_pool;

static bool is_refusal(int status) {
  return status == -EAGAIN || status == -ENOMEM;
}

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

/* So many of the calls of a run fail, and which ones is a choice. */
static struct sim_plan with_refusals(struct sim_plan plan, unsigned faults_max) {
  plan.fault_mode = SIM_FAULT_CHOICE;
  plan.faults_max = faults_max;
  return plan;
}

/* ------------------------------------------------------------- the first worker */

/* At most one refusal.  The pool's first thread cannot be had: an error, and no trace. */
static void first_thread(void *context) {
  (void)context;
  the_pool = sim_pool_try_create(&(const idlesched_pool_config){ .workers_max = 2 });
  if (the_pool == NULL)
    return;
  int status = sim_submit(the_pool, 0);
  idlesched_pool_stats stats = sim_stats(the_pool);
  if (status != 0) {
    SIM_CHECK(is_refusal(status));
    SIM_CHECK_EQUAL(stats.jobs_submitted, 0);
    SIM_CHECK_EQUAL(stats.jobs_queued, 0);
    SIM_CHECK_EQUAL(stats.threads, 0);
    SIM_CHECK_EQUAL(stats.active, 0);
    SIM_CHECK_EQUAL(stats.wakes, stats.tickets_lost);
    sim_pool_check(the_pool);
    sim_must_submit(the_pool, 0);
  }
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 1);
  sim_check_jobs_started_at_once();
  sim_pool_finish(the_pool);
}

SPEC(first_thread_refused,
     "G2 N5 no worker and no thread: the submit says so and keeps nothing, the "
     "next one starts at once") {
  struct sim_plan plan = with_refusals(plan_of("refuse first", first_thread, NULL), 1);
  plan.bound = 3;
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------------- a later worker */

/* The first worker is busy for a second; another thread cannot be had: the job waits. */
static void later_thread(void *context) {
  (void)context;
  the_pool = sim_pool_try_create(&(const idlesched_pool_config){ .workers_max = 3 });
  if (the_pool == NULL)
    return;
  sim_jobs_take(IDS_S);
  if (sim_submit(the_pool, 0) != 0)
    sim_must_submit(the_pool, 0);
  uint64_t begin_ns = ids_now_ns();
  sim_sleep_ns(1);
  uint64_t refused_before = sim_stats(the_pool).starts_refused;
  sim_must_submit(the_pool, 1);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  bool is_refused = sim_stats(the_pool).starts_refused > refused_before;
  SIM_CHECK_EQUAL(sim_jobs[1].started_at_ns, begin_ns + (is_refused ? IDS_S : 1));
  SIM_CHECK_EQUAL(sim_stats(the_pool).starts, is_refused ? 1 : 2);
  sim_pool_finish(the_pool);
}

SPEC(later_thread_refused,
     "G2 a thread refused beside a busy worker is no error: the job waits for "
     "that worker") {
  struct sim_plan plan = with_refusals(plan_of("refuse later", later_thread, NULL), 1);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* While the first job runs the second waits; the third submit asks for a thread again. */
static void asked_again(void *context) {
  (void)context;
  the_pool = sim_pool_try_create(&(const idlesched_pool_config){ .workers_max = 2 });
  if (the_pool == NULL)
    return;
  sim_jobs_take(IDS_S);
  if (sim_submit(the_pool, 0) != 0)
    sim_must_submit(the_pool, 0);
  sim_sleep_ns(1);
  sim_must_submit(the_pool, 1);
  sim_sleep_ns(1);
  uint64_t begin_ns = ids_now_ns();
  bool is_waiting = sim_stats(the_pool).jobs_queued == 1;
  sim_must_submit(the_pool, 2);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(sim_stats(the_pool).starts, 2);
  if (is_waiting)
    SIM_CHECK_EQUAL(sim_jobs[1].started_at_ns, begin_ns);
  sim_pool_finish(the_pool);
}

SPEC(the_next_submit_asks_again, "G2 the submit after a refusal asks for a thread again") {
  struct sim_plan plan = with_refusals(plan_of("refuse again", asked_again, NULL), 1);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------- clients side by side */

struct setting {
  unsigned workers_max, clients, jobs_of_each;
  uint64_t idle_exit_ns, pause_ns;
  bool is_dedicated;
  bool is_single; /* one refusal in a run: who was refused can have it now */
};
static const struct setting *the_setting;

static void submit_jobs(void *context) {
  unsigned first = (unsigned)(uintptr_t)context * the_setting->jobs_of_each;
  for (unsigned i = 0; i < the_setting->jobs_of_each; i++) {
    int status = sim_submit(the_pool, first + i);
    SIM_CHECK(status == 0 || is_refusal(status));
    if (status != 0 && the_setting->is_single)
      sim_must_submit(the_pool, first + i);
    if (the_setting->pause_ns > 0)
      sim_sleep_ns(the_setting->pause_ns);
  }
}

static void clients_submit(void *context) {
  struct sim_client clients[4];
  the_setting = context;
  the_pool = sim_pool_try_create(
    &(const idlesched_pool_config){ .workers_max = the_setting->workers_max,
                                    .idle_exit_ns = the_setting->idle_exit_ns,
                                    .is_dedicated = the_setting->is_dedicated });
  if (the_pool == NULL)
    return;
  for (unsigned i = 0; i < the_setting->clients; i++)
    sim_client_start(&clients[i], submit_jobs, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < the_setting->clients; i++)
    sim_client_join(&clients[i]);
  sim_pool_check(the_pool);
  sim_pool_finish(the_pool);
}

/* One refusal anywhere, in all schedules; then one call of ten at random. */
static void search_refusals(const char *name, struct setting *setting, unsigned bound,
                            uint64_t runs_count) {
  struct sim_plan plan = with_refusals(plan_of(name, clients_submit, setting), 1);
  setting->is_single = true;
  plan.bound = bound;
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
  setting->is_single = false;
  plan.fault_mode = SIM_FAULT_TENTH;
  sim_pool_samples(&plan, runs_count);
}

SPEC(nothing_is_stranded, "G2 N5 clients and refusals: no job is stranded, the books are right") {
  struct setting setting = { .workers_max = 1, .clients = 2, .jobs_of_each = 1 };
  search_refusals("refuse 1x2", &setting, 2, 300000);
  setting = (struct setting){ .workers_max = 2, .clients = 2, .jobs_of_each = 1 };
  search_refusals("refuse 2x2", &setting, 1, 500000);
  setting = (struct setting){ .workers_max = 3, .clients = 4, .jobs_of_each = 2 };
  struct sim_plan plan = plan_of("refuse 3x4", clients_submit, &setting);
  plan.fault_mode = SIM_FAULT_TENTH;
  sim_pool_samples(&plan, 200000);
}

/* The only worker leaves just as another one is refused. */
SPEC(who_leaves_stays, "G2 the last worker does not leave a job to a thread that is then refused") {
  struct setting setting = {
    .workers_max = 2, .clients = 1, .jobs_of_each = 2, .idle_exit_ns = IDS_MS, .pause_ns = IDS_MS
  };
  search_refusals("refuse exit", &setting, 2, 200000);
  setting.clients = 2;
  struct sim_plan plan = plan_of("refuse exit of two", clients_submit, &setting);
  plan.fault_mode = SIM_FAULT_TENTH;
  sim_pool_samples(&plan, 400000);
}

SPEC(successor_refused, "G2 a retiring worker whose successor is refused goes on itself") {
  struct setting setting = {
    .workers_max = 1, .clients = 2, .jobs_of_each = 1, .is_dedicated = true
  };
  search_refusals("refuse successor 1", &setting, 1, 300000);
  setting.workers_max = 2;
  search_refusals("refuse successor 2", &setting, 1, 300000);
}

static void *heap_of_job;

static void retire_own_worker(void *context) {
  (void)context;
  heap_of_job = ids_heap_own();
  sim_sleep_ns(IDS_MS);
  idlesched_worker_retire(idlesched_worker_current());
}

/* Whoever releases it gives up the heap of the thread that stayed. */
static void stays_with_its_heap(void *context) {
  (void)context;
  the_pool = sim_pool_try_create(
    &(const idlesched_pool_config){ .workers_max = 1, .idle_exit_ns = NEVER });
  if (the_pool == NULL)
    return;
  if (idlesched_pool_submit(the_pool, retire_own_worker, NULL) == 0)
    SIM_CHECK_EQUAL(sim_submit(the_pool, 0), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  idlesched_pool_stats before = sim_stats(the_pool);
  if (before.starts == 1 && before.starts_refused == 1) {
    sim_await_parked(the_pool, 1);
    unsigned mark = sim_heap_free(heap_of_job);
    SIM_CHECK_EQUAL(idlesched_pool_release(the_pool, NEVER, NULL), 0);
    SIM_CHECK(sim_heap_is_returned(mark));
    SIM_CHECK_EQUAL(sim_heap_counts(heap_of_job).abandoned, 1);
    SIM_CHECK_EQUAL(sim_stats(the_pool).wakes, before.wakes);
  }
  sim_pool_finish(the_pool);
}

SPEC(stays_and_is_released,
     "G2 B14 a worker whose successor is refused is released like any other, without a wake") {
  struct sim_plan plan = with_refusals(
    plan_of("refuse successor's heap", stays_with_its_heap, NULL), 1);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------------------- waiters */

static void submit_waitable(void *context) {
  int *status = context;
  *status = sim_submit_waitable(the_pool, 0);
}

/* One client submits, another waits from before the submit on. */
static void waiters_are_told(void *context) {
  (void)context;
  struct sim_client client;
  int submitted = -EAGAIN;
  the_pool = sim_pool_try_create(&(const idlesched_pool_config){ .workers_max = 1 });
  if (the_pool == NULL)
    return;
  sim_client_start(&client, submit_waitable, &submitted);
  int waited = idlesched_job_wait(&sim_jobs[0].job, NEVER);
  sim_client_join(&client);
  if (submitted == 0)
    SIM_CHECK(waited == 0 || waited == -EINVAL || is_refusal(waited));
  else
    SIM_CHECK(waited == -EINVAL || is_refusal(waited));
  if (waited == 0)
    SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 1);
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(the_pool, IDLESCHED_CLOSE_DRAIN, NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.left_behind_count, 0);
  sim_pool_finish(the_pool);
}

SPEC(who_waits_is_told, "C14 who waits for a job that no worker can be had for is told, and close "
                        "returns") {
  struct sim_plan plan = with_refusals(plan_of("refuse waiter", waiters_are_told, NULL), 1);
  sim_pool_searches(&plan, 3, 200000);
}

/* ----------------------------------------------------- every call that can fail */

static void start_ahead(void *context) {
  (void)context;
  the_pool = sim_pool_try_create(&(const idlesched_pool_config){
    .workers_max = 3, .idle_release_ns = NEVER, .idle_exit_ns = NEVER });
  if (the_pool == NULL)
    return;
  int status = idlesched_pool_start_workers(the_pool, 3);
  SIM_CHECK(status == 0 || is_refusal(status));
  idlesched_pool_stats stats = sim_stats(the_pool);
  SIM_CHECK_EQUAL(status != 0, stats.starts_refused > 0);
  SIM_CHECK_EQUAL(stats.threads + stats.starts_refused, status == 0 ? 3 : stats.threads + 1);
  sim_submit(the_pool, 0);
  sim_pool_finish(the_pool);
}

/* More jobs than a segment of the queue has room for. */
static void many_jobs(void *context) {
  (void)context;
  the_pool = sim_pool_try_create(&(const idlesched_pool_config){ .workers_max = 1 });
  if (the_pool == NULL)
    return;
  sim_jobs_take(IDS_MS);
  for (unsigned i = 0; i < 600; i++) {
    int status = sim_submit(the_pool, i % SIM_JOBS_MAX);
    SIM_CHECK(status == 0 || is_refusal(status));
  }
  sim_pool_finish(the_pool);
}

/* Blocks of the host's, a release, and a job that is waited for. */
static void the_rest(void *context) {
  (void)context;
  void *block = idlesched_realloc(NULL, 8);
  void *bigger = idlesched_realloc(block, 64);
  idlesched_free(bigger == NULL ? block : bigger);
  waiters_are_told(NULL);
  the_pool = sim_pool_try_create(NULL);
  if (the_pool == NULL)
    return;
  sim_submit(the_pool, 0);
  idlesched_pool_release(the_pool, NEVER, NULL);
  sim_pool_finish(the_pool);
}

SPEC(each_call_refused, "G2 C14 N5 each call that can fail fails, once, and with all that follow, "
                        "and at random") {
  struct setting setting = { .workers_max = 2, .clients = 2, .jobs_of_each = 2 };
  struct setting dedicated = {
    .workers_max = 2, .clients = 2, .jobs_of_each = 1, .is_dedicated = true
  };
  struct sim_plan plans[] = { plan_of("refuse each: submits", clients_submit, &setting),
                              plan_of("refuse each: dedicated", clients_submit, &dedicated),
                              plan_of("refuse each: starts", start_ahead, NULL),
                              plan_of("refuse each: the rest", the_rest, NULL) };
  for (unsigned i = 0; i < ids_countof(plans); i++) {
    plans[i].bound = 1;
    sim_spec_faults(&plans[i]);
    plans[i].is_hostile = true;
    plans[i].strategy = SIM_RANDOM;
    plans[i].runs_max = 1000;
    sim_spec_faults(&plans[i]);
  }
  struct sim_plan plan = plan_of("refuse each: many jobs", many_jobs, NULL);
  sim_spec_faults(&plan);
}
