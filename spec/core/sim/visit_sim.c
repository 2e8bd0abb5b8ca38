/* SPDX-License-Identifier: MIT */
/*
 * visit_sim.c - see visit_sim.h.
 */
#include "visit_sim.h"

#include <errno.h>

idlesched_pool *visit_pool;

void visit_make_pool(unsigned states_count) {
  sim_states(states_count, 1, 0);
  visit_pool = SIM_POOL(.workers_max = VISIT_WORKERS, .idle_release_ns = IDLESCHED_NEVER,
                        .idle_exit_ns = IDLESCHED_NEVER, .hooks = sim_state_hooks);
}

void visit_park(unsigned workers_count) {
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(visit_pool, workers_count), 0);
  sim_await_parked(visit_pool, workers_count);
}

void visit_strew(struct visit_litter *self) {
  *self = (struct visit_litter){ .count = 0 };
  ids_group_lock(&visit_pool->group);
  for (unsigned i = 0; i < visit_pool->group.workers_count; i++) {
    const struct ids_worker *worker = sim_worker(visit_pool, i);
    if (worker->heap != NULL && worker->state != IDS_WORKER_EXITING)
      self->marks[self->count++] = sim_heap_free(worker->heap);
  }
  ids_group_unlock(&visit_pool->group);
}

void visit_check_is_back(const struct visit_litter *self) {
  for (unsigned i = 0; i < self->count; i++)
    SIM_CHECK(sim_heap_is_returned(self->marks[i]));
}

int visit_release(uint64_t timeout_ns, idlesched_release_report *out) {
  struct visit_litter litter;
  visit_strew(&litter);
  int status = idlesched_pool_release(visit_pool, timeout_ns, out);
  SIM_CHECK(status == 0 || status == -ETIMEDOUT);
  SIM_CHECK_EQUAL(status == -ETIMEDOUT, out->missed_count > 0);
  if (status == 0)
    visit_check_is_back(&litter);
  return status;
}

unsigned visit_count(unsigned index) {
  struct sim_heap_counts counts = sim_heap_counts(sim_worker_heap(visit_pool, index));
  return counts.abandoned + counts.collected;
}

static void work_for(void *context) {
  sim_sleep_ns((uint64_t)(uintptr_t)context);
}

void visit_submit(uint64_t duration_ns) {
  SIM_CHECK_EQUAL(idlesched_pool_submit(visit_pool, work_for, (void *)(uintptr_t)duration_ns), 0);
}
