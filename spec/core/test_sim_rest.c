/* SPDX-License-Identifier: MIT */
/*
 * test_sim_rest.c - when nothing happens, nothing moves: neither at rest, nor through calls that
 * bring no work; and what waits, waits on the one monotonic clock.
 */
#include <errno.h>

#include "pool_sim.h"

#define RELEASE_NS (100 * IDS_MS)

/* ----------------------------------------------------------------- at rest */

static void rest_after_release(void *context) {
  const bool *has_state = context;
  sim_states(*has_state ? 3 : 0, 1, 0);
  uint64_t quiet_steps = sim_steps_of_sleep(IDS_S);
  idlesched_pool *pool = SIM_POOL(.workers_max = 3, .idle_exit_ns = IDLESCHED_NEVER,
                                  .hooks = sim_state_hooks);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 3), 0);
  sim_work(pool, 0);
  sim_sleep_ns(2 * IDS_S); /* the release, and the later pass that follows it */
  SIM_CHECK_EQUAL(sim_stats(pool).releases, 3);
  SIM_CHECK_EQUAL(sim_steps_of_sleep(24 * 3600 * IDS_S), quiet_steps);
  SIM_CHECK_EQUAL(sim_stats(pool).parked, 3);
  sim_pool_finish(pool);
}

SPEC(nothing_moves_at_rest, "G8 a pool that has released makes no step for a day, with threads") {
  for (unsigned i = 0; i < 2; i++) {
    bool has_state = i == 1;
    struct sim_plan plan = { .name = has_state ? "rest, states" : "rest",
                             .scenario = rest_after_release,
                             .context = &has_state };
    plan.strategy = SIM_RANDOM;
    sim_spec_sample(&plan, 20000);
    plan.strategy = SIM_DFS;
    sim_spec_exhaust(&plan);
  }
}

/* What does not run a job: looks, waits that time out, refused calls. */
static void look_around(idlesched_pool *pool) {
  idlesched_job never_submitted = { .run = NULL };
  sim_pool_check(pool);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDS_MS), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&never_submitted, IDS_MS), -EINVAL);
  SIM_CHECK_EQUAL(idlesched_pool_submit_job(pool, &never_submitted), -EINVAL);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), 0);
}

static void messages_move_nothing(void *context) {
  (void)context;
  sim_states(1, 1, 0);
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_exit_ns = IDS_S,
                                  .hooks = sim_state_hooks);
  sim_jobs_take(300 * IDS_MS); /* a job that waits is no idle worker */
  sim_work(pool, 0);
  SIM_CHECK_EQUAL(sim_state_steps(0), 0);
  uint64_t parked_at_ns = ids_now_ns();
  while (ids_now_ns() < parked_at_ns + IDS_S) { /* later it would be started anew */
    look_around(pool);
    if (ids_now_ns() != parked_at_ns + RELEASE_NS)
      SIM_CHECK_EQUAL(sim_state_steps(0), ids_now_ns() > parked_at_ns + RELEASE_NS);
    SIM_CHECK_EQUAL(sim_state_stops(0), 0);
    sim_sleep_ns(7 * IDS_MS);
  }
  ids_sleep_until(parked_at_ns + IDS_S + 1);
  SIM_CHECK_EQUAL(sim_state_stops(0), 1);
  SIM_CHECK_EQUAL(sim_stats(pool).polls, 1);
  sim_pool_finish(pool);
}

SPEC(messages_are_no_work,
     "C7 A13 a job that waits, looks, waits and refused calls neither bring a release or an exit "
     "about nor put it off") {
  struct sim_plan plan = { .name = "messages", .scenario = messages_move_nothing };
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
}

/* ------------------------------------------------------------- one clock */

static uint64_t took_ns(uint64_t *since_ns) {
  uint64_t now_ns = ids_now_ns(), before_ns = *since_ns;
  *since_ns = now_ns;
  return now_ns - before_ns;
}

static void every_limit_on_one_clock(void *context) {
  const uint64_t limit_ns = *(uint64_t *)context;
  uint64_t since_ns = ids_now_ns();
  idlesched_release_report report;
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_exit_ns = limit_ns);
  sim_jobs_take(6 * limit_ns);
  SIM_CHECK_EQUAL(sim_submit_waitable(pool, 0), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, limit_ns), -ETIMEDOUT);
  SIM_CHECK_EQUAL(took_ns(&since_ns), limit_ns);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, limit_ns), -ETIMEDOUT);
  SIM_CHECK_EQUAL(took_ns(&since_ns), limit_ns);
  SIM_CHECK_EQUAL(idlesched_pool_release(pool, limit_ns, &report), -ETIMEDOUT);
  SIM_CHECK_EQUAL(took_ns(&since_ns), limit_ns);
  SIM_CHECK_EQUAL(report.time_ns, limit_ns);
  idlesched_sleep(limit_ns);
  SIM_CHECK_EQUAL(took_ns(&since_ns), limit_ns);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, IDLESCHED_NEVER), 0);
  SIM_CHECK_EQUAL(took_ns(&since_ns), 2 * limit_ns);
  sim_sleep_ns(limit_ns + 1);
  SIM_CHECK_EQUAL(sim_stats(pool).threads, 0);
  sim_must_submit(pool, 1);
  since_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, limit_ns, NULL), -ETIMEDOUT);
  SIM_CHECK_EQUAL(took_ns(&since_ns), limit_ns);
  sim_pool_finish(pool);
}

SPEC(one_clock,
     "G6 every time limit and deadline moves with the monotonic clock alone: months of it pass in "
     "no time of the wall clock") {
  uint64_t limit_ns = 3600 * 24 * IDS_S;
  struct sim_plan plan = { .name = "one clock",
                           .scenario = every_limit_on_one_clock,
                           .context = &limit_ns };
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
}
