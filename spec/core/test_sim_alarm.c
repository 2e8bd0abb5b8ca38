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

/* Each delayed job costs a ticket for its watcher at most, one to run it, and each job that the last
 * idle worker takes one for another watcher. */
static void check_wakes_are_few(void) {
  idlesched_pool_stats stats = sim_stats(the_pool);
  SIM_CHECK_RELATION(stats.wakes - stats.tickets_lost, <=, 2 * stats.jobs_submitted);
}

static void finish(void) {
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  check_wakes_are_few();
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
