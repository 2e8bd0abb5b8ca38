/* SPDX-License-Identifier: MIT */
/*
 * pool_close.c - waiting for a pool's jobs, and its end.
 */
#include "pool.h"

/* What workers that run no job get for leaving, beyond a close's time limit. */
#define LEAVING_NS (100 * IDS_MS)

static bool is_idle_locked(const struct idlesched_pool *self) {
  return self->queue.count == 0 && self->jobs_running_count == 0;
}

static void await_idle_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (!is_idle_locked(self) && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
}

int ids_pool_wait(struct idlesched_pool *self, uint64_t deadline_ns) {
  if (ids_pool_is_mine(self))
    return -EDEADLK;
  ids_group_lock(&self->group);
  await_idle_locked(self, deadline_ns);
  int status = is_idle_locked(self) ? 0 : -ETIMEDOUT;
  ids_group_unlock(&self->group);
  return status;
}

/* The job is not in the queue any more.  Without the lock. */
static void drop_cell(struct idlesched_pool *self, struct ids_cell cell) {
  ids_point("pool.dropped");
  if (cell.run != NULL) {
    if (self->dropped != NULL)
      self->dropped(cell.run, cell.context);
    return;
  }
  struct idlesched_job *job = cell.context;
  void (*done)(struct idlesched_job *) = job->done;
  ids_group_lock(&self->group);
  ids_job_end_locked(job, IDLESCHED_JOB_CANCELLED, -ECANCELED);
  ids_group_unlock(&self->group);
  if (done != NULL)
    done(job);
}

/* Cancel what is queued: taken from the workers at once, then ended one by one
 * with the lock dropped.  How many they were. */
static uint64_t drop_queue_locked(struct idlesched_pool *self) {
  struct ids_queue queue = self->queue;
  self->queue = (struct ids_queue){ 0 };
  uint64_t count = queue.count;
  self->cancelled_count += count;
  ids_group_unlock(&self->group);

  struct ids_cell cell;
  while (ids_queue_pop(&queue, &cell))
    drop_cell(self, cell);
  ids_queue_deinit(&queue);

  ids_group_lock(&self->group);
  return count;
}

/* Somebody else closes the pool, or has done so. */
static int await_closed_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (self->admission != IDS_POOL_CLOSED && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
  return self->admission == IDS_POOL_CLOSED ? 0 : -ETIMEDOUT;
}

/* Threads that are still to end. */
static unsigned threads_left_locked(const struct idlesched_pool *self) {
  return self->group.threads_count + self->group.predecessors_count;
}

/* Those that run a job are not waited for: their time was up before. */
static void await_leaving_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (threads_left_locked(self) > self->jobs_running_count && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
}

static void close_locked(struct idlesched_pool *self, enum idlesched_close_mode mode,
                         uint64_t deadline_ns, idlesched_close_report *out) {
  self->admission = IDS_POOL_CLOSING;
  self->closer = ids_thread_number();
  ids_group_await_launch_locked(&self->group);
  /* Paused, and nobody can be had to run what is queued: it is dropped. */
  bool drains = mode == IDLESCHED_CLOSE_DRAIN;
  if (drains && (!self->is_paused || ids_pool_resume_locked(self) == 0))
    await_idle_locked(self, deadline_ns);
  out->dropped_count = drop_queue_locked(self);
  self->is_paused = false;
  await_idle_locked(self, deadline_ns);

  ids_group_stop_locked(&self->group);
  uint64_t leaving_ns = ids_after_ns(ids_now_ns(), LEAVING_NS);
  await_leaving_locked(self, ids_later_ns(deadline_ns, leaving_ns));
  out->left_behind_count = threads_left_locked(self);
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
    out->left_behind_count = threads_left_locked(self);
    if (out->left_behind_count > 0)
      status = -ETIMEDOUT;
  }
  ids_group_unlock(&self->group);
  return status;
}
