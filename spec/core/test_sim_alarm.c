/* SPDX-License-Identifier: MIT */
/*
 * test_sim_alarm.c - delayed jobs begin at their moment, jobs that were not begun in time end at
 * theirs, and some worker watches as long as one of them is there.
 *
 * Method: on the fair clock, where nothing takes time, each moment is met to the nanosecond,
 * whatever comes between; the hostile one and refusals are for what must not be lost.  That
 * somebody wakes up for the next alarm is looked at whenever nothing can run (pool_sim.h), and
 * asserted at each unlock (I9).
 */
#include <errno.h>

#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER
#define DELAY_NS (200 * IDS_MS)

static idlesched_pool *the_pool;

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

static void must_submit_timed(unsigned i, uint64_t delay_ns, uint64_t expire_ns) {
  SIM_CHECK_EQUAL(sim_submit_timed(the_pool, i, delay_ns, expire_ns), 0);
}

/* A delayed job costs a ticket for its watcher at most, and one to run it; and a job that the
 * last idle worker takes, one for another watcher.  Besides, others may have been given. */
static void check_wakes_are_few(unsigned others_count) {
  idlesched_pool_stats stats = sim_stats(the_pool);
  SIM_CHECK_RELATION(stats.wakes - stats.tickets_lost, <=,
                     2 * stats.jobs_submitted + others_count);
}

static void finish(void) {
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  check_wakes_are_few(2);
  sim_pool_finish(the_pool);
}

/* ------------------------------------------------------------- at its moment */

struct setting {
  unsigned workers_max;
  uint64_t idle_release_ns, idle_exit_ns;
  bool is_dedicated;
  unsigned busy_count; /* workers that run a job of 10 s all the time */
  bool is_exact;       /* fair clock */
};

static void make_pool(const struct setting *setting) {
  the_pool = SIM_POOL(.workers_max = setting->workers_max, .is_dedicated = setting->is_dedicated,
                      .idle_release_ns = setting->idle_release_ns,
                      .idle_exit_ns = setting->idle_exit_ns, .dropped = sim_job_dropped,
                      .hooks = sim_state_hooks);
  sim_states(0, 1, 0);
}

static void take_long(struct sim_trace *job) {
  if (job >= &sim_jobs[50])
    sim_sleep_ns(10 * IDS_S);
}

static void keep_busy(unsigned count) {
  sim_jobs_tell(take_long, NULL);
  for (unsigned i = 0; i < count; i++)
    sim_must_submit(the_pool, 50 + i);
}

/* Jobs of equal and other moments, submitted out of order. */
static void begin_at_their_moments(void *context) {
  const struct setting *setting = context;
  make_pool(setting);
  keep_busy(setting->busy_count);
  sim_sleep_ns(1);
  must_submit_timed(0, 2 * DELAY_NS, 0);
  must_submit_timed(1, DELAY_NS, 0);
  must_submit_timed(2, DELAY_NS, 0);
  must_submit_timed(3, 0, 0);
  must_submit_timed(4, 1, 0);
  SIM_CHECK_RELATION(sim_stats(the_pool).jobs_delayed, >=, setting->is_exact ? 4 : 0);
  SIM_CHECK_RELATION(sim_stats(the_pool).jobs_queued, >=, sim_stats(the_pool).jobs_delayed);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  if (setting->is_exact)
    sim_check_jobs_started_at_once();
  if (setting->workers_max == 1)
    SIM_CHECK_RELATION(sim_jobs[1].began, <, sim_jobs[2].began);
  check_wakes_are_few(0);
  finish();
}

static const struct setting settings[] = {
  { .workers_max = 1 },
  { .workers_max = 2 },
  { .workers_max = 2, .busy_count = 1 },
  { .workers_max = 3, .busy_count = 2 },
  { .workers_max = 2, .is_dedicated = true },
  { .workers_max = 2, .is_dedicated = true, .busy_count = 1 },
  { .workers_max = 2, .idle_exit_ns = 1 },
  { .workers_max = 2, .idle_release_ns = 1, .idle_exit_ns = NEVER },
  { .workers_max = 2, .idle_release_ns = NEVER, .idle_exit_ns = NEVER },
  { .workers_max = 2, .idle_release_ns = NEVER, .idle_exit_ns = 50 * IDS_MS },
  { .workers_max = 3, .idle_release_ns = 1, .idle_exit_ns = 1, .busy_count = 1 },
};

SPEC(delayed_jobs_begin_at_their_moment,
     "G6 G7 delayed jobs begin at their moment to the nanosecond, whoever else is busy, and never "
     "before it; those of one moment in the order of their submits") {
  for (unsigned i = 0; i < ids_countof(settings); i++) {
    struct setting setting = settings[i];
    struct sim_plan plan = plan_of("at its moment", begin_at_their_moments, &setting);
    setting.is_exact = true;
    plan.bound = 1;
    sim_spec_exhaust(&plan);
    setting.is_exact = false;
    plan.is_hostile = true;
    plan.strategy = SIM_RANDOM;
    sim_spec_sample(&plan, 40000);
  }
}

/* --------------------------------------------------- who watches is called away */

static struct ids_worker *watcher_of_pool(void) {
  ids_group_lock(&the_pool->group);
  struct ids_worker *watcher = the_pool->group.watcher;
  ids_group_unlock(&the_pool->group);
  return watcher != NULL ? watcher : sim_worker(the_pool, 0);
}

static void submit_one(void *context) {
  (void)context;
  sim_must_submit(the_pool, 10);
}

static void submit_two(void *context) {
  (void)context;
  sim_must_submit(the_pool, 10);
  sim_must_submit(the_pool, 11);
}

static void retire_watcher(void *context) {
  (void)context;
  idlesched_worker_retire(watcher_of_pool());
}

static void release_all(void *context) {
  (void)context;
  int status = idlesched_pool_release(the_pool, NEVER, NULL);
  SIM_CHECK_EQUAL(status, 0);
}

static void start_more(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(the_pool, 2), 0);
}

static void free_some(void *context) {
  (void)context;
  idlesched_pool_freed(the_pool);
}

static void submit_sooner(void *context) {
  (void)context;
  must_submit_timed(12, IDS_MS, 0);
}

static void submit_what_expires(void *context) {
  (void)context;
  must_submit_timed(13, 0, IDS_MS);
}

static void (*const calls_away[])(void *context) = {
  submit_one, submit_two, retire_watcher, release_all,         start_more,
  free_some,  submit_sooner, submit_what_expires
};

static const struct setting short_lives[] = {
  { .workers_max = 1, .idle_release_ns = 50 * IDS_MS, .idle_exit_ns = 120 * IDS_MS },
  { .workers_max = 2, .idle_release_ns = 50 * IDS_MS, .idle_exit_ns = 120 * IDS_MS },
  { .workers_max = 2, .idle_release_ns = 50 * IDS_MS, .idle_exit_ns = 120 * IDS_MS, .busy_count = 1 },
  { .workers_max = 3, .idle_release_ns = NEVER, .idle_exit_ns = 120 * IDS_MS },
  { .workers_max = 2, .idle_release_ns = 50 * IDS_MS, .idle_exit_ns = 1, .is_dedicated = true },
};

/* One job that is delayed, and one that expires before its delay is over. */
static void called_away(void *context) {
  const struct setting *setting = context;
  make_pool(setting);
  uint64_t begin_ns = ids_now_ns();
  sim_states(sim_choose(2, "workers with a state"), 2, 0);
  keep_busy(setting->busy_count);
  must_submit_timed(0, DELAY_NS, 0);
  must_submit_timed(1, 4 * DELAY_NS, 2 * DELAY_NS);
  uint64_t when_ns = sim_choose(8, "when") * DELAY_NS / 4;
  unsigned call = sim_choose(ids_countof(calls_away), "what");
  ids_sleep_until(begin_ns + when_ns);
  calls_away[call](NULL);
  ids_sleep_until(begin_ns + DELAY_NS + 1);
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 1);
  ids_sleep_until(begin_ns + 2 * DELAY_NS + 1);
  SIM_CHECK_EQUAL(sim_jobs[1].drops_count, 1);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  sim_check_jobs_started_at_once();
  sim_sleep_ns(11 * IDS_S); /* all is over, and who stayed to watch is gone */
  if (setting->idle_exit_ns != NEVER)
    SIM_CHECK_EQUAL(sim_stats(the_pool).threads, 0);
  finish();
}

SPEC(whoever_watches_may_be_called_away,
     "G6 G7 the worker that watches is given a job, retires, is released, or another alarm comes "
     "first: what is due happens at its moment, and then threads end in time") {
  for (unsigned i = 0; i < ids_countof(short_lives); i++) {
    struct setting setting = short_lives[i];
    struct sim_plan plan = plan_of("called away", called_away, &setting);
    sim_spec_exhaust(&plan);
    plan.bound = 1;
    plan.strategy = SIM_RANDOM;
    plan.spurious_max = 2;
    sim_spec_sample(&plan, 300000);
  }
}

/* The same at every step, and on the hostile clock: nothing is lost, whatever its moment. */
static void called_away_at_a_step(void *context) {
  const struct setting *setting = context;
  make_pool(setting);
  sim_sweep_begin(calls_away[sim_choose(ids_countof(calls_away), "what")], NULL);
  keep_busy(setting->busy_count);
  must_submit_timed(0, DELAY_NS, 0);
  must_submit_timed(1, 4 * DELAY_NS, 2 * DELAY_NS);
  must_submit_timed(2, DELAY_NS, 2 * DELAY_NS);
  sim_sleep_ns(3 * DELAY_NS);
  sim_sweep_end();
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  if (setting->is_exact)
    sim_check_jobs_started_at_once();
  finish();
}

SPEC(called_away_at_any_step, "G4 G6 the same at every step, in any order of things") {
  for (unsigned i = 0; i < ids_countof(short_lives); i++) {
    struct setting setting = short_lives[i];
    struct sim_plan plan = plan_of("called away at a step", called_away_at_a_step, &setting);
    plan.strategy = SIM_RANDOM;
    plan.runs_max = 100;
    setting.is_exact = true;
    sim_spec_sweep(&plan);
    setting.is_exact = false;
    plan.is_hostile = true;
    plan.spurious_max = 1;
    sim_spec_sweep(&plan);
  }
}
