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
    .workers_max = ids_pool_workers_max(pool),
    .threads = group->threads_count,
    .active = group->active_count,
    .tickets = group->tickets_count,
    .starting = in_state[IDS_WORKER_STARTING],
    .running = in_state[IDS_WORKER_RUNNING],
    .parked = in_state[IDS_WORKER_PARKED],
    .releasing = in_state[IDS_WORKER_RELEASING],
    .exiting = in_state[IDS_WORKER_EXITING],
    .blocking = group->blocking_count,
    .workers_min = group->workers_min,
    .is_paused = pool->is_paused,
    .jobs_queued = pool->queue.count + pool->delayed_count,
    .jobs_delayed = pool->delayed_count,
    .jobs_running = pool->jobs_running_count + pool->expiring_count,
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

/* GONE is how a worker without a thread is called once its pool stops. */
static enum idlesched_worker_state public_state(enum ids_worker_state state) {
  static const enum idlesched_worker_state states[IDS_WORKER_STATES] = {
    [IDS_WORKER_ABSENT] = IDLESCHED_WORKER_ABSENT,
    [IDS_WORKER_STARTING] = IDLESCHED_WORKER_STARTING,
    [IDS_WORKER_RUNNING] = IDLESCHED_WORKER_RUNNING,
    [IDS_WORKER_PARKED] = IDLESCHED_WORKER_PARKED,
    [IDS_WORKER_RELEASING] = IDLESCHED_WORKER_RELEASING,
    [IDS_WORKER_EXITING] = IDLESCHED_WORKER_EXITING,
    [IDS_WORKER_GONE] = IDLESCHED_WORKER_ABSENT,
  };
  return states[state];
}

/* Who asked for the number before, and has room for so many, finds every row written, also
 * when a resize has come between: slots never become fewer. */
unsigned ids_workers_read(struct idlesched_pool *pool, idlesched_worker_row *rows,
                          unsigned rows_max) {
  struct ids_group *group = &pool->group;
  if (pool->is_inline) /* what it has for its jobs is no worker */
    return 0;
  ids_group_lock(group);
  uint64_t now_ns = ids_now_ns();
  for (unsigned i = 0; i < rows_max && i < group->slots_count; i++) {
    const struct ids_worker *worker = group->workers[i];
    rows[i] = (idlesched_worker_row){
      .index = i,
      .state = public_state(worker->state),
      .has_released = worker->is_released,
      .running_ns = worker->began_at_ns == 0 ? 0 : ids_less(now_ns, worker->began_at_ns),
      .live_bytes = ids_load_relaxed(&worker->live_bytes),
      .dead_bytes = ids_load_relaxed(&worker->dead_bytes),
    };
  }
  unsigned count = group->limit > group->workers_count ? group->limit : group->workers_count;
  ids_group_unlock(group);
  return count;
}
