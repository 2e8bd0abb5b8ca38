/* SPDX-License-Identifier: MIT */
/*
 * pool_inline.c - a pool without workers: each job runs in the thread that submits it.
 *
 * Such a pool has one worker, which is never given a ticket and has no thread of its own.
 * Instead, threads take turns at being it.  Who has the turn runs what is queued, which is the
 * job that it submits, and those that jobs submit meanwhile; when nothing is left it gives the
 * turn to the first in line.  So the queue is empty while nobody has the turn (J4).
 *
 * Threads are told apart by their number, as the calling thread may be inside jobs of several
 * pools at once: the worker that others see is that of the innermost job.
 *
 * A release takes a turn to collect what the host keeps, and a close one for the stop hook.  If
 * a job still runs when the time of one of them is over, that is left to the thread that runs
 * it, for the end of its turn.
 *
 * A job may fork, and the child returns from it.  There the pool is a parent's: it is not
 * touched any more on the way out.
 */
#include "pool.h"

static struct ids_worker *worker_of(struct idlesched_pool *self) {
  return self->group.workers[0];
}

/* ------------------------------------------------------------------ turns */

/* What those in line wish. */
static const char a_visit[] = "a release's turn";

static int take_turn_locked(struct idlesched_pool *self, const char *wish, uint64_t deadline_ns) {
  int status = 0;
  if (self->is_taken) {
    ids_group_check_locked(&self->group);
    status = ids_line_wait_locked(&self->line, wish, &self->group.lock, deadline_ns);
  }
  if (status != 0)
    return status;
  self->is_taken = true;
  self->is_visited = wish == a_visit;
  ids_store_relaxed(&self->turn_thread, ids_thread_number());
  return 0;
}

/* Once the pool is closed there are no more turns, but for who comes by and finds it free. */
static void give_turn_locked(struct idlesched_pool *self) {
  ids_store_relaxed(&self->turn_thread, 0);
  if (self->admission == IDS_POOL_CLOSED)
    ids_line_serve_all_locked(&self->line, -ESHUTDOWN);
  self->is_taken = !ids_line_is_empty(&self->line);
  self->is_visited = self->is_taken && ids_line_first_wish_locked(&self->line) == a_visit;
  if (self->is_taken)
    ids_line_serve_first_locked(&self->line, 0);
  ids_cond_broadcast(&self->group.changed);
}

static void enter_worker(struct ids_worker *worker) {
  worker->outer = ids_worker_current();
  ids_tls_set(IDS_TLS_WORKER, worker);
}

static void leave_worker(struct ids_worker *worker) {
  ids_tls_set(IDS_TLS_WORKER, worker->outer);
  worker->outer = NULL;
}

/* ------------------------------------------- what the host keeps for the worker */

/* Without the lock, as the worker. */
static void start_once(struct idlesched_pool *self) {
  if (self->has_started)
    return;
  self->has_started = true;
  self->group.ops->start(worker_of(self));
}

/* The lock is dropped meanwhile.  Whether there was anything. */
static bool collect_locked(struct idlesched_pool *self) {
  struct ids_worker *worker = worker_of(self);
  self->owes_collect = false;
  if (!self->group.ops->has_state(worker))
    return false;
  ids_group_unlock(&self->group);
  enter_worker(worker);
  while (self->group.ops->collect(worker))
    ids_point("pool.collect");
  leave_worker(worker);
  ids_group_lock(&self->group);
  return true;
}

/* The lock is dropped meanwhile. */
static void stop_locked(struct idlesched_pool *self) {
  struct ids_worker *worker = worker_of(self);
  if (!self->has_started)
    return;
  self->has_started = false;
  ids_group_unlock(&self->group);
  enter_worker(worker);
  self->group.ops->stop(worker);
  ids_worker_set_memory(worker, 0, 0);
  leave_worker(worker);
  ids_group_lock(&self->group);
}

/* What others have left to this thread comes first. */
static void end_turn_locked(struct idlesched_pool *self) {
  while (self->owes_collect)
    (void)collect_locked(self);
  if (self->admission == IDS_POOL_CLOSED)
    stop_locked(self);
  give_turn_locked(self);
}

/* ------------------------------------------------------------------ submit */

/* Until the job may be queued. */
static int await_moment_locked(struct idlesched_pool *self, struct ids_cell cell) {
  const struct idlesched_job *job = cell.run == NULL ? cell.context : NULL;
  uint64_t moment_ns = job == NULL ? 0 : ids_after_ns(ids_now_ns(), job->delay_ns);
  while (self->admission == IDS_POOL_OPEN && ids_now_ns() < moment_ns)
    ids_group_wait_locked(&self->group, moment_ns);
  return self->admission == IDS_POOL_OPEN ? 0 : -ESHUTDOWN;
}

/* End what has expired in the queue; the lock is dropped meanwhile. */
static void expire_locked(struct idlesched_pool *self) {
  struct idlesched_job *job;
  while (ids_alarms_at_ns(&self->alarms) != IDS_NEVER &&
         (job = ids_pool_ring_locked(self, ids_now_ns())) != NULL) {
    ids_group_unlock(&self->group);
    ids_pool_tell(self, job);
    ids_group_lock(&self->group);
  }
}

/* All that is queued, the lock being dropped meanwhile.  False: this is a child of a job's, and
 * has no lock. */
static bool run_queue_locked(struct idlesched_pool *self) {
  struct ids_worker *worker = worker_of(self);
  struct ids_cell cell;
  bool is_here = true;
  enter_worker(worker);
  while (is_here && (expire_locked(self), ids_queue_pop(&self->queue, &cell))) {
    ids_pool_begin_locked(self, cell, worker);
    ids_group_unlock(&self->group);
    start_once(self);
    ids_point("pool.inline");
    is_here = ids_pool_run_lock(self, cell, worker, true);
  }
  leave_worker(worker);
  return is_here;
}

int ids_pool_submit_inline(struct idlesched_pool *self, struct ids_cell cell) {
  struct ids_group *group = &self->group;
  bool is_inside = ids_pool_own_worker(self) != NULL;
  ids_group_lock(group);
  int status = await_moment_locked(self, cell);
  if (status == 0)
    status = is_inside ? ids_pool_take_in_locked(self, cell)
                       : take_turn_locked(self, NULL, IDS_NEVER);
  if (status == IDS_POOL_FORKED)
    return 0;
  if (status != 0 || is_inside) {
    ids_group_unlock(group);
    return status;
  }
  status = ids_pool_push_locked(self, cell);
  if (!run_queue_locked(self))
    return status;
  end_turn_locked(self);
  bool frees = group->is_orphaned;
  ids_group_unlock(group);
  if (frees)
    ids_pool_free(self);
  return status;
}

/* ------------------------------------------------------- releases and the end */

enum ids_inline_visit ids_pool_visit_inline(struct idlesched_pool *self, uint64_t deadline_ns) {
  if (self->hooks.collect == NULL || ids_pool_own_worker(self) != NULL)
    return IDS_INLINE_HAS_NOTHING;
  ids_group_lock(&self->group);
  int status = take_turn_locked(self, a_visit, deadline_ns);
  bool has_collected = status == 0 && collect_locked(self);
  if (status == 0)
    end_turn_locked(self);
  else if (status != -ESHUTDOWN)
    self->owes_collect = true; /* by who has the turn */
  ids_group_unlock(&self->group);
  if (status != 0 && status != -ESHUTDOWN)
    return IDS_INLINE_MISSED;
  return has_collected ? IDS_INLINE_COLLECTED : IDS_INLINE_HAS_NOTHING;
}

void ids_pool_stop_inline_locked(struct idlesched_pool *self) {
  if (!self->is_inline || self->is_taken)
    return; /* whoever has the turn does it at the end */
  (void)take_turn_locked(self, NULL, IDS_NEVER);
  stop_locked(self);
  ids_line_serve_all_locked(&self->line, -ESHUTDOWN); /* releases: there is nothing any more */
  give_turn_locked(self);
}

/* Before the pool may be freed: a release holds it on the list of pools, so it cannot do that
 * itself. */
void ids_pool_await_visit_locked(struct idlesched_pool *self) {
  while (self->is_visited)
    ids_group_wait_locked(&self->group, IDS_NEVER);
}
