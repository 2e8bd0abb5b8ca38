/* SPDX-License-Identifier: MIT */
/*
 * test_sim_pause.c - a pool that is paused begins no job, and loses none.
 */
#include <errno.h>

#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER

static idlesched_pool *shared;

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

static bool is_refusal(int status) {
  return status == -EAGAIN || status == -ENOMEM;
}

static void must_resume(void) {
  SIM_CHECK_EQUAL(idlesched_pool_resume(shared), 0);
}

/* ------------------------------------------------------------------- one after another */

static void jobs_wait_for_the_resume(void *context) {
  (void)context;
  shared = SIM_POOL(.workers_max = 2);
  idlesched_pool_pause(shared);
  idlesched_pool_pause(shared);
  for (unsigned i = 0; i < 3; i++)
    sim_must_submit(shared, i);
  uint64_t begin_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, 10 * IDS_MS), -ETIMEDOUT);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + 10 * IDS_MS);
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK(stats.is_paused);
  SIM_CHECK_EQUAL(stats.jobs_queued, 3);
  SIM_CHECK_EQUAL(stats.wakes, 0);
  SIM_CHECK_EQUAL(stats.threads, 0);
  sim_jobs_take(IDS_MS);
  must_resume();
  must_resume();
  SIM_CHECK(!sim_stats(shared).is_paused);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  for (unsigned i = 0; i < 3; i++)
    SIM_CHECK_EQUAL(sim_jobs[i].started_at_ns, begin_ns + (i < 2 ? 10 : 11) * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).wakes, 2);
  sim_pool_finish(shared);
}

/* Two run when it is paused, and more are queued. */
static void running_jobs_go_on(void *context) {
  (void)context;
  shared = SIM_POOL(.workers_max = 2, .idle_exit_ns = IDS_S);
  sim_jobs_take(10 * IDS_MS);
  uint64_t begin_ns = ids_now_ns();
  for (unsigned i = 0; i < 4; i++)
    sim_must_submit(shared, i);
  sim_sleep_ns(IDS_MS);
  idlesched_pool_pause(shared);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDS_S - 1), -ETIMEDOUT);
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK_EQUAL(stats.jobs_done, 2);
  SIM_CHECK_EQUAL(stats.parked, 2);
  SIM_CHECK_EQUAL(stats.releases, 2);
  sim_sleep_ns(10 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 0);
  SIM_CHECK_EQUAL(sim_stats(shared).exits, 2);
  sim_sleep_ns(IDS_S);
  must_resume();
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  for (unsigned i = 2; i < 4; i++)
    SIM_CHECK_RELATION(sim_jobs[i].started_at_ns, >, begin_ns + 2 * IDS_S);
  SIM_CHECK_EQUAL(sim_jobs[2].started_at_ns, sim_jobs[3].started_at_ns);
  sim_pool_finish(shared);
}

SPEC(paused_and_resumed,
     "G7 G8 a paused pool begins no job, wakes and starts nobody; its workers release and end in "
     "time; a resume wakes as many as the queue wants") {
  struct sim_plan plan = plan_of("pause", jobs_wait_for_the_resume, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  plan = plan_of("pause while some run", running_jobs_go_on, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------------------------- its close */

static void close_a_paused_pool(void *context) {
  bool drains = context == NULL;
  shared = SIM_POOL(.workers_max = 2, .dropped = sim_job_dropped);
  sim_work(shared, 0);
  idlesched_pool_pause(shared);
  sim_must_submit(shared, 1);
  sim_must_submit(shared, 2);
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared,
                                       drains ? IDLESCHED_CLOSE_DRAIN : IDLESCHED_CLOSE_CANCEL,
                                       NEVER, &report),
                  0);
  SIM_CHECK_EQUAL(report.dropped_count, drains ? 0 : 2);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_done, drains ? 3 : 1);
  SIM_CHECK(!sim_stats(shared).is_paused);
  idlesched_pool_pause(shared);
  SIM_CHECK(!sim_stats(shared).is_paused);
  must_resume();
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 2, 1), -ESHUTDOWN);
  sim_check_closed(shared);
  sim_pool_finish(shared);
}

SPEC(closed_while_paused, "C11 a close resumes: what is queued runs, or is dropped, as it says; a "
                          "closed pool is neither paused nor resumed") {
  static char cancels;
  struct sim_plan plan = plan_of("paused, drain", close_a_paused_pool, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  plan = plan_of("paused, cancel", close_a_paused_pool, &cancels);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* --------------------------------------------------------------------- at any moment */

struct setting {
  unsigned workers_max, clients, jobs_of_each, pauses_count;
  bool starts_ahead;
  bool is_slow;
};

static unsigned jobs_of_each;

static void submit_some(void *context) {
  unsigned first = (unsigned)(uintptr_t)context * jobs_of_each;
  for (unsigned i = 0; i < jobs_of_each; i++) {
    int status = sim_submit(shared, first + i);
    SIM_CHECK(status == 0 || is_refusal(status) || status == -ESHUTDOWN);
  }
}

static void pause_and_resume(void *context) {
  const struct setting *setting = context;
  for (unsigned i = 0; i < setting->pauses_count; i++) {
    idlesched_pool_pause(shared);
    if (setting->is_slow)
      sim_sleep_ns(IDS_MS);
    int status = idlesched_pool_resume(shared);
    SIM_CHECK(status == 0 || is_refusal(status));
  }
}

static void start_ahead(void *context) {
  const struct setting *setting = context;
  (void)idlesched_pool_start_workers(shared, setting->workers_max);
}

static void pause_among_submits(void *context) {
  struct setting *setting = context;
  struct sim_client pauser, starter, clients[3];
  shared = sim_pool_try_create(
    &(const idlesched_pool_config){ .workers_max = setting->workers_max,
                                    .blocking_max = IDLESCHED_NO_WORKERS,
                                    .idle_release_ns = NEVER,
                                    .idle_exit_ns = setting->is_slow ? IDS_MS / 2 : NEVER });
  if (shared == NULL)
    return;
  jobs_of_each = setting->jobs_of_each;
  if (setting->is_slow)
    sim_jobs_take(IDS_MS);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], submit_some, (void *)(uintptr_t)i);
  if (setting->starts_ahead)
    sim_client_start(&starter, start_ahead, setting);
  sim_client_start(&pauser, pause_and_resume, setting);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  if (setting->starts_ahead)
    sim_client_join(&starter);
  sim_client_join(&pauser);
  /* One that was refused has left it paused, and says so. */
  for (unsigned tries = 0; sim_stats(shared).is_paused; tries++) {
    int status = idlesched_pool_resume(shared);
    SIM_CHECK_EQUAL(sim_stats(shared).is_paused, status != 0);
    SIM_CHECK(status == 0 || is_refusal(status));
    if (status != 0) {
      SIM_CHECK_RELATION(sim_stats(shared).jobs_queued, >, 0);
      if (tries == 3 || sim_choose(2, "give up") == 1) {
        /* Whether the close gets a thread decides what becomes of the jobs. */
        SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, NEVER, NULL), 0);
        idlesched_pool_stats stats = sim_stats(shared);
        SIM_CHECK_EQUAL(stats.jobs_submitted, stats.jobs_done + stats.jobs_cancelled);
        SIM_CHECK_EQUAL(stats.threads + stats.jobs_queued, 0);
        sim_pool_unwatch(shared);
        idlesched_pool_destroy(shared);
        return;
      }
    }
  }
  sim_pool_finish(shared);
}

SPEC(paused_at_any_moment,
     "G7 C10 a pause and a resume at any moment lose no job, and leave none behind") {
  struct setting one = { .workers_max = 1, .clients = 1, .jobs_of_each = 2, .pauses_count = 1 };
  struct sim_plan plan = plan_of("pause 1x2", pause_among_submits, &one);
  sim_pool_searches(&plan, 2, 200000);
  struct setting two = { .workers_max = 2, .clients = 2, .jobs_of_each = 1, .pauses_count = 2 };
  plan = plan_of("pause 2x2", pause_among_submits, &two);
  sim_pool_searches(&plan, 1, 200000);
  struct setting many = {
    .workers_max = 3, .clients = 3, .jobs_of_each = 3, .pauses_count = 3, .is_slow = true
  };
  plan = plan_of("pause 3x9", pause_among_submits, &many);
  sim_pool_samples(&plan, 300000);
}

SPEC(a_resume_is_refused,
     "G2 C14 a resume that needs a thread and is refused says so, and the pool is still paused; "
     "what was queued runs after the next, or is dropped by a close") {
  struct setting one = {
    .workers_max = 2, .clients = 1, .jobs_of_each = 2, .pauses_count = 1, .starts_ahead = true
  };
  struct sim_plan plan = plan_of("resume refused 1x2", pause_among_submits, &one);
  plan.fault_mode = SIM_FAULT_CHOICE;
  plan.faults_max = 1;
  sim_pool_searches(&plan, 0, 400000);
  one.starts_ahead = false;
  sim_pool_searches(&plan, 1, 100000);
  one.starts_ahead = true;
  plan.faults_max = 2;
  sim_pool_samples(&plan, 200000);
  struct setting slow = {
    .workers_max = 2, .clients = 2, .jobs_of_each = 2, .pauses_count = 2, .is_slow = true
  };
  plan = plan_of("resume refused 2x4", pause_among_submits, &slow);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 300;
  sim_spec_faults(&plan);
  plan.fault_mode = SIM_FAULT_TENTH;
  sim_pool_samples(&plan, 400000);
}
