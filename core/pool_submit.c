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

int ids_pool_push_locked(struct idlesched_pool *self, struct ids_cell cell) {
  ids_assert(ids_mutex_is_mine(&self->group.lock));
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

bool ids_pool_wants_thread_locked(const struct idlesched_pool *self) {
  return ids_group_has_work_locked(&self->group) || (self->delayed_count > 0 && !self->is_paused);
}

/* No thread is there to run it, and the system refuses one: it is the only job,
 * as nobody else could queue any since; or, delayed, the only one that is.  Nor does anybody
 * wait for room: for that the queue was full, and so some worker had a thread, and has it
 * still. */
static void take_back_locked(struct idlesched_pool *self, struct ids_cell cell) {
  ids_assert_equal(self->delayed_count > 0 ? self->delayed_count : self->queue.count, 1);
  ids_assert(ids_line_is_empty(&self->line));
  self->submitted_count--;
  struct idlesched_job *job = cell.run == NULL ? cell.context : NULL;
  if (job == NULL || !job->is_delayed_)
    ids_queue_pop(&self->queue, &cell);
  if (job == NULL)
    return;
  ids_pool_forget_alarm_locked(self, job);
  ids_job_take_back_locked(job);
}

/* A worker that submits when its own job has ended is about to poll, and takes it; unless it
 * retires first. */
static void note_own_submit_locked(struct idlesched_pool *self) {
  struct ids_worker *worker = ids_pool_own_worker(self);
  if (worker != NULL && worker->is_in_done && !worker->is_retiring && !worker->is_blocking &&
      !self->group.config.is_dedicated)
    ids_worker_set_finishing_locked(worker, true);
}

int ids_pool_submit(struct idlesched_pool *self, struct ids_cell cell) {
  struct ids_group *group = &self->group;
  struct ids_wake wake = { .worker = NULL };
  if (self->is_inline)
    return ids_pool_submit_inline(self, cell);

  ids_group_lock(group);
  int status = ids_pool_take_in_locked(self, cell);
  if (status == IDS_POOL_FORKED)
    return 0;
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
    /* Nothing there: a worker that has left since took the job, or a close dropped it; or the
     * pool is paused, and it waits for the resume, as others may. */
    bool is_there = ids_pool_wants_thread_locked(self);
    if (ids_worker_launch_failed_locked(wake.worker) || !is_there)
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
  unsigned missing_count = (unsigned)ids_less(ids_smaller(workers_count, group->limit),
                                              group->threads_count);
  int status = 0;
  if (self->admission == IDS_POOL_OPEN && !self->is_inline)
    status = ids_group_start_locked(group, missing_count);
  if (self->admission != IDS_POOL_OPEN) /* before, or since */
    status = -ESHUTDOWN;
  ids_group_unlock(group);
  return status;
}
