/* SPDX-License-Identifier: MIT */
/*
 * test_sim_ticket.c - tickets that are not given for a job: each is one poll, whoever gave it.
 */
#include "pool_sim.h"

struct setting {
  unsigned workers_max, clients;
  bool is_slow; /* releases and leaving take time, and workers exit soon */
};

static idlesched_pool *shared;

static bool open_shared(const struct setting *setting) {
  sim_states(setting->is_slow ? 1 : 0, 2, IDS_MS);
  shared = sim_pool_try_create(&(idlesched_pool_config){
    .workers_max = setting->workers_max,
    .idle_release_ns = setting->is_slow ? 5 * IDS_MS : 0,
    .idle_exit_ns = setting->is_slow ? 20 * IDS_MS : 0,
    .hooks = sim_state_hooks,
  });
  sim_heap_takes(setting->is_slow ? IDS_MS : 0);
  return shared != NULL;
}

/* Each gives some, and says how many. */
static unsigned wake_one_locked(struct ids_group *group, struct ids_wake *out) {
  *out = ids_group_grant_locked(group);
  return out->worker != NULL;
}

static unsigned wake_targeted_locked(struct ids_group *group, struct ids_wake *out) {
  unsigned target = sim_choose(group->config.workers_max, "target");
  struct ids_worker *worker = target < group->workers_count ? group->workers[target] : NULL;
  if (worker == NULL)
    worker = ids_group_first_wakeable_locked(group, IDS_WORKER_ABSENT);
  if (worker != NULL && ids_worker_is_wakeable_locked(worker))
    *out = ids_worker_grant_locked(worker);
  return out->worker != NULL;
}

static unsigned wake_all_locked(struct ids_group *group, struct ids_wake *out) {
  unsigned count = 0;
  (void)out;
  for (unsigned i = 0; i < group->workers_count; i++)
    count += group->workers[i]->state != IDS_WORKER_ABSENT &&
             ids_worker_is_wakeable_locked(group->workers[i]);
  ids_group_wake_all_locked(group);
  return count;
}

static void give_tickets(void *context) {
  static unsigned (*const gifts[])(struct ids_group *, struct ids_wake *) = { wake_one_locked,
                                                                              wake_targeted_locked,
                                                                              wake_all_locked };
  struct ids_group *group = &shared->group;
  (void)context;
  unsigned choice = sim_choose(ids_countof(gifts) + 1, "gift");
  if (choice == ids_countof(gifts)) {
    (void)idlesched_pool_start_workers(shared, 2);
    return;
  }
  struct ids_wake wake = { .worker = NULL };
  ids_group_lock(group);
  unsigned active_count = group->active_count, tickets_count = group->tickets_count;
  uint64_t wakes_count = group->counters.wakes;
  unsigned given_count = gifts[choice](group, &wake);
  SIM_CHECK_EQUAL(group->active_count, active_count + given_count);
  SIM_CHECK_EQUAL(group->tickets_count, tickets_count + given_count);
  SIM_CHECK_EQUAL(group->counters.wakes, wakes_count + given_count);
  ids_group_unlock(group);
  if (wake.worker == NULL || ids_wake_deliver(wake) == 0)
    return;
  ids_group_lock(group);
  ids_worker_launch_failed_locked(wake.worker);
  ids_group_unlock(group);
}

/* Each ticket is used, by one poll, and active is back at nothing. */
static void await_tickets(void) {
  idlesched_pool_stats stats = sim_stats(shared);
  while (stats.active > 0) {
    sim_sleep_ns(IDS_MS);
    stats = sim_stats(shared);
  }
  SIM_CHECK_EQUAL(stats.tickets, 0);
  SIM_CHECK_EQUAL(stats.wakes, stats.polls + stats.tickets_lost);
}

static void tickets(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[4];
  if (!open_shared(setting))
    return;
  (void)idlesched_pool_start_workers(shared, setting->workers_max - 1);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], give_tickets, NULL);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  await_tickets();
  uint64_t polls = sim_stats(shared).polls;
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_done, 0);

  ids_group_lock(&shared->group);
  const unsigned *in_state = shared->group.in_state_count;
  unsigned waiting_count = in_state[IDS_WORKER_PARKED] + in_state[IDS_WORKER_RELEASING];
  ids_group_stop_locked(&shared->group);
  SIM_CHECK_EQUAL(shared->group.tickets_count, waiting_count);
  SIM_CHECK_EQUAL(shared->group.active_count, waiting_count);
  ids_group_unlock(&shared->group);
  await_tickets();
  SIM_CHECK_EQUAL(sim_stats(shared).polls, polls + waiting_count);
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, NULL), 0);
  sim_check_closed(shared);
  sim_pool_finish(shared);
}

static struct sim_plan plan_of(const char *name, struct setting *setting) {
  return (struct sim_plan){ .name = name, .scenario = tickets, .context = setting };
}

SPEC(tickets_without_a_job,
     "A10 active rises by one for each ticket of wake-one, wake-all, a targeted wake, a start and "
     "a stop, and falls by one with the poll that it leads to") {
  struct setting one = { .workers_max = 1, .clients = 2 };
  struct sim_plan plan = plan_of("tickets 1x2", &one);
  sim_pool_searches(&plan, 1, 400000);
  struct setting two = { .workers_max = 2, .clients = 2, .is_slow = true };
  plan = plan_of("tickets 2x2", &two);
  sim_pool_samples(&plan, 400000);
  struct setting many = { .workers_max = 3, .clients = 4, .is_slow = true };
  plan = plan_of("tickets 3x4", &many);
  sim_pool_samples(&plan, 200000);
  struct setting refused = { .workers_max = 3, .clients = 3 };
  plan = plan_of("tickets, refusals", &refused);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 50;
  sim_spec_faults(&plan);
}
