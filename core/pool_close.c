/* SPDX-License-Identifier: MIT */
/*
 * pool_close.c - waiting for a pool's jobs, and its end.
 */
#include "pool.h"

/* What workers that run no job get for leaving, beyond a close's time limit. */
#define LEAVING_NS (100 * IDS_MS)

static void await_idle_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (!ids_pool_is_idle_locked(self) && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
}

int ids_pool_wait(struct idlesched_pool *self, uint64_t deadline_ns) {
  if (ids_pool_is_mine(self))
    return -EDEADLK;
  ids_group_lock(&self->group);
  await_idle_locked(self, deadline_ns);
  int status = ids_pool_is_idle_locked(self) ? 0 : -ETIMEDOUT;
  ids_group_unlock(&self->group);
  return status;
}

static void drop_plain_unlock(struct idlesched_pool *self, struct ids_cell cell) {
  ids_group_unlock(&self->group);
  ids_point("pool.dropped");
  if (self->dropped != NULL)
    self->dropped(cell.run, cell.context);
}

static void drop_job_unlock(struct idlesched_pool *self, struct idlesched_job *job) {
  struct ids_drops drops = { .first = NULL };
  ids_job_drop_locked(job, -ECANCELED, &drops);
  ids_pool_end_drops_unlock(self, &drops);
}

/* Cancel what is queued: taken from the workers at once, then ended one by one
 * with the lock dropped, unless somebody else cancels it first.  How many they were. */
static uint64_t drop_queue_locked(struct idlesched_pool *self) {
  struct ids_drops drops = { .first = NULL };
  uint64_t dropped_count = ids_pool_drop_delayed_locked(self, &drops);
  struct ids_cell cell;
  self->dropping = self->queue;
  self->queue = (struct ids_queue){ 0 };
  self->cancelled_count += self->dropping.count + dropped_count;
  ids_pool_end_drops_unlock(self, &drops);
  ids_group_lock(&self->group);
  for (; ids_queue_pop(&self->dropping, &cell); dropped_count++) {
    if (cell.run == NULL)
      drop_job_unlock(self, cell.context);
    else
      drop_plain_unlock(self, cell);
    ids_group_lock(&self->group);
  }
  ids_queue_deinit(&self->dropping);
  return dropped_count;
}

/* Somebody else closes the pool, or has done so. */
static int await_closed_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (self->admission != IDS_POOL_CLOSED && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
  return self->admission == IDS_POOL_CLOSED ? 0 : -ETIMEDOUT;
}

/* Those that run a job are not waited for: their time was up before. */
static void await_leaving_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (ids_pool_threads_left_locked(self) + self->jobs_inside_count > self->jobs_running_count &&
         ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
}

/* Only delayed jobs are left, none of which is due in time: they are not waited for. */
static bool is_rest_too_late_locked(const struct idlesched_pool *self, uint64_t deadline_ns) {
  return self->queue.count == 0 && self->jobs_running_count + self->expiring_count == 0 &&
         ids_alarms_at_ns(&self->alarms) > deadline_ns;
}

static void drain_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (!ids_pool_is_idle_locked(self) && !is_rest_too_late_locked(self, deadline_ns) &&
         ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
}

static void close_locked(struct idlesched_pool *self, enum idlesched_close_mode mode,
                         uint64_t deadline_ns, idlesched_close_report *out) {
  self->admission = IDS_POOL_CLOSING;
  self->closer = ids_thread_number();
  ids_line_serve_all_locked(&self->line, -ESHUTDOWN);
  if (self->is_inline)
    ids_cond_broadcast(&self->group.changed); /* a submit may wait for its job's moment */
  ids_group_await_launch_locked(&self->group);
  /* Paused, and nobody can be had to run what is queued: it is dropped. */
  bool drains = mode == IDLESCHED_CLOSE_DRAIN;
  if (drains && (!self->is_paused || ids_pool_resume_locked(self) == 0))
    drain_locked(self, deadline_ns);
  out->dropped_count = drop_queue_locked(self);
  self->is_paused = false;
  await_idle_locked(self, deadline_ns);

  ids_group_stop_locked(&self->group);
  uint64_t leaving_ns = ids_after_ns(ids_now_ns(), LEAVING_NS);
  await_leaving_locked(self, ids_later_ns(deadline_ns, leaving_ns));
  ids_pool_stop_inline_locked(self);
  out->left_behind_count = ids_pool_threads_left_locked(self);
  self->admission = IDS_POOL_CLOSED;
  ids_cond_broadcast(&self->group.changed);
}

int ids_pool_close(struct idlesched_pool *self, enum idlesched_close_mode mode,
                   uint64_t deadline_ns, idlesched_close_report *out) {
  *out = (idlesched_close_report){ 0 };
  if (ids_pool_is_mine(self))
    return -EDEADLK;
  ids_group_lock(&self->group);
  int status;
  if (self->admission == IDS_POOL_OPEN) {
    close_locked(self, mode, deadline_ns, out);
    status = out->left_behind_count > 0 ? -ETIMEDOUT : 0;
  } else if (self->admission == IDS_POOL_CLOSING && self->closer == ids_thread_number()) {
    status = -EDEADLK; /* from a callback of that close */
  } else {
    status = await_closed_locked(self, deadline_ns);
    out->left_behind_count = ids_pool_threads_left_locked(self);
    if (out->left_behind_count > 0)
      status = -ETIMEDOUT;
  }
  ids_group_unlock(&self->group);
  return status;
}
