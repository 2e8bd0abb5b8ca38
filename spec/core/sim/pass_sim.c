/* SPDX-License-Identifier: MIT */
/*
 * pass_sim.c - see pass_sim.h.
 */
#include "pass_sim.h"

idlesched_pool *pass_pool;
uint64_t pass_begin_ns;

void pass_sleep_until(uint64_t moment_ns) {
  ids_sleep_until(pass_begin_ns + moment_ns);
}

void pass_make_pool(unsigned states_count, uint64_t idle_exit_ns) {
  sim_states(states_count, 2, 0);
  pass_pool = SIM_POOL(.workers_max = PASS_WORKERS, .idle_exit_ns = idle_exit_ns,
                       .hooks = sim_state_hooks);
  pass_begin_ns = ids_now_ns();
}

void pass_park_at(const uint64_t *moments_ns) {
  for (unsigned i = 0; i < PASS_WORKERS; i++) {
    pass_sleep_until(moments_ns[i]);
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(pass_pool, i + 1), 0);
  }
  sim_sleep_ns(1);
}

uint64_t pass_released_ns(unsigned i) {
  return sim_heap_counts(sim_worker(pass_pool, i)->heap).last_at_ns - pass_begin_ns;
}

uint64_t pass_purged_ns(void) {
  return sim_heap_purged_at_ns() - pass_begin_ns;
}

void pass_check_at_rest(void) {
  ids_group_lock(&pass_pool->group);
  uint64_t next_ns = ids_pass_at_ns_locked(&pass_pool->group);
  ids_group_unlock(&pass_pool->group);
  SIM_CHECK_EQUAL(next_ns, IDS_NEVER);
  for (unsigned i = 0; i < PASS_WORKERS; i++)
    SIM_CHECK_EQUAL(sim_worker(pass_pool, i)->sleeps_until_ns,
                    sim_worker(pass_pool, i)->exit_at_ns);
  SIM_CHECK_EQUAL(sim_steps_of_sleep(2 * IDS_S), 1); /* the scenario's own */
  sim_pool_check(pass_pool);
}
