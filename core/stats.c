/* SPDX-License-Identifier: MIT */
/*
 * stats.c - see stats.h.
 */
#include "stats.h"

#include "heap.h"

void ids_stats_read(struct idlesched_pool *pool, idlesched_pool_stats *out) {
  struct ids_group *group = &pool->group;
  ids_group_join_departed(group); /* a worker has retired when its thread has ended */
  ids_group_lock(group);
  const unsigned *in_state = group->in_state_count;
  const struct ids_group_counters *counters = &group->counters;
  *out = (idlesched_pool_stats){
    .workers_max = group->config.workers_max,
    .threads = group->threads_count,
    .active = group->active_count,
    .tickets = group->tickets_count,
    .starting = in_state[IDS_WORKER_STARTING],
    .running = in_state[IDS_WORKER_RUNNING],
    .parked = in_state[IDS_WORKER_PARKED],
    .releasing = in_state[IDS_WORKER_RELEASING],
    .exiting = in_state[IDS_WORKER_EXITING],
    .jobs_queued = pool->queue.count,
    .jobs_running = pool->jobs_running_count,
    .jobs_submitted = pool->submitted_count,
    .jobs_done = pool->done_count,
    .jobs_failed = pool->failed_count,
    .jobs_cancelled = pool->cancelled_count,
    .wakes = counters->wakes,
    .polls = counters->polls,
    .starts = counters->starts,
    .starts_refused = counters->starts_refused,
    .releases = counters->releases,
    .exits = counters->exits,
    .passes = counters->passes,
    .retires = counters->retires,
    .tickets_lost = counters->tickets_lost,
  };
  ids_group_unlock(group);
  out->purges = ids_heap_purges_count();
}
