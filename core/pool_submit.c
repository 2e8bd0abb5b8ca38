/* SPDX-License-Identifier: MIT */
/*
 * pool_submit.c - jobs are taken in, and threads started for them.
 */
#include "pool.h"

int ids_pool_enqueue_locked(struct idlesched_pool *self, struct ids_cell cell) {
  if (cell.run != NULL)
    return ids_queue_push(&self->queue, cell, 0, NULL);
  struct idlesched_job *job = cell.context;
  struct ids_queue_place place = { .segment = NULL };
  int status = ids_queue_push(&self->queue, cell, job->priority, &place);
  job->segment_ = place.segment;
  job->cell_ = place.index;
  return status;
}

/* The state that the cell's job had is put back unless the submit succeeds. */
static int push_locked(struct idlesched_pool *self, struct ids_cell cell) {
  ids_assert(ids_mutex_is_mine(&self->group.lock));
  ids_group_await_launch_locked(&self->group);
  if (self->admission != IDS_POOL_OPEN)
    return -ESHUTDOWN;
  struct idlesched_job *job = cell.run == NULL ? cell.context : NULL;
  /* Under the lock: a token is set before its jobs are looked for here. */
  if (job != NULL && ids_job_has_cancelled_token(job))
    return -ECANCELED;
  uint32_t previous = 0;
  if (job != NULL && !ids_job_claim_locked(job, self, &previous))
    return -EALREADY;
  int status = job != NULL ? ids_pool_admit_job_locked(self, job)
                           : ids_pool_enqueue_locked(self, cell);
  if (status == 0)
    self->submitted_count++;
  else if (job != NULL)
    ids_job_unclaim_locked(job, previous);
  return status;
}

/* No thread is there to run it, and the system refuses one: it is the only job,
 * as nobody else could queue any since. */
static void take_back_locked(struct idlesched_pool *self, struct ids_cell cell) {
  ids_assert_equal(self->queue.count + self->delayed_count, 1);
  self->submitted_count--;
  ids_queue_pop(&self->queue, &cell);
  if (cell.run != NULL)
    return;
  struct idlesched_job *job = cell.context;
  ids_pool_forget_alarm_locked(self, job);
  ids_job_take_back_locked(job);
}

/* A worker that submits when its own job has ended is about to poll, and takes it; unless it
 * retires first. */
static void note_own_submit_locked(struct idlesched_pool *self) {
  struct ids_worker *worker = ids_worker_current();
  if (ids_pool_is_mine(self) && worker->is_in_done && !worker->is_retiring &&
      !self->group.config.is_dedicated)
    ids_worker_set_finishing_locked(worker, true);
}

int ids_pool_submit(struct idlesched_pool *self, struct ids_cell cell) {
  struct ids_group *group = &self->group;
  struct ids_wake wake = { .worker = NULL };

  ids_group_lock(group);
  int status = push_locked(self, cell);
  if (status == 0) {
    note_own_submit_locked(self);
    wake = ids_group_grant_wanted_locked(group);
  }
  ids_group_unlock(group);
  if (wake.worker == NULL)
    return status;

  status = ids_wake_deliver(wake);
  if (status != 0) {
    ids_group_lock(group);
    /* Nothing there: a worker that has left since took the job, or a close dropped it. */
    if (ids_worker_launch_failed_locked(wake.worker) ||
        self->queue.count + self->delayed_count == 0)
      status = 0;
    else
      take_back_locked(self, cell);
    ids_group_unlock(group);
  }
  return status;
}

int ids_pool_start_workers(struct idlesched_pool *self, unsigned workers_count) {
  struct ids_group *group = &self->group;
  ids_group_lock(group);
  /* Decided once: threads that leave meanwhile are not replaced, or it might never end. */
  unsigned missing_count = workers_count > group->threads_count
                             ? workers_count - group->threads_count
                             : 0;
  int status = 0;
  if (self->admission == IDS_POOL_OPEN)
    status = ids_group_start_locked(group, missing_count);
  if (self->admission != IDS_POOL_OPEN) /* before, or since */
    status = -ESHUTDOWN;
  ids_group_unlock(group);
  return status;
}
