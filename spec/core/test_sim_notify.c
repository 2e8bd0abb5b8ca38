/* SPDX-License-Identifier: MIT */
/*
 * test_sim_notify.c - submit, wake, poll, finish: every job runs once, every wake is one
 * poll, and no job waits beside a worker that could take it.
 */
#include "pool_sim.h"

/* ------------------------------------------------------------ the plain case */

struct setting {
  unsigned workers_max, clients, jobs_of_each;
};

static idlesched_pool *pool_of_clients;
static unsigned jobs_of_each;

static void submit_jobs(void *context) {
  unsigned first = (unsigned)(uintptr_t)context * jobs_of_each;
  for (unsigned i = 0; i < jobs_of_each; i++)
    sim_must_submit(pool_of_clients, first + i);
}

static void clients_submit(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[8];
  pool_of_clients = SIM_POOL(.workers_max = setting->workers_max);
  jobs_of_each = setting->jobs_of_each;
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], submit_jobs, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  idlesched_pool_wait(pool_of_clients, IDLESCHED_NEVER);
  idlesched_pool_stats stats = sim_stats(pool_of_clients);
  SIM_CHECK_EQUAL(stats.jobs_done, setting->clients * setting->jobs_of_each);
  SIM_CHECK_RELATION(stats.wakes, <=, stats.jobs_done);
  sim_pool_finish(pool_of_clients);
}

static struct sim_plan plan_of(const char *name, struct setting *setting) {
  return (struct sim_plan){ .name = name, .scenario = clients_submit, .context = setting };
}

SPEC(one_worker_two_clients, "A15 G7 N5 one worker, two clients: all schedules within bound 2") {
  struct setting setting = { .workers_max = 1, .clients = 2, .jobs_of_each = 1 };
  struct sim_plan plan = plan_of("notify 1x2", &setting);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
}

SPEC(two_workers_two_clients, "A15 G7 N5 two workers, two clients: all schedules within bound 1") {
  struct setting setting = { .workers_max = 2, .clients = 2, .jobs_of_each = 1 };
  struct sim_plan plan = plan_of("notify 2x2", &setting);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 1000000);
}
