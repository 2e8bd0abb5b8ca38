/* SPDX-License-Identifier: MIT */
/*
 * pool_cancel.c - jobs that will not run: they leave the queue, and end.
 */
#include "pool.h"

/* Nobody has begun to run it or to drop it. */
static bool is_to_come(const struct idlesched_job *job) {
  return ids_job_state(job) == IDLESCHED_JOB_QUEUED && (job->segment_ != NULL || job->is_delayed_);
}

static void remove_from(struct ids_queue *queue, struct idlesched_job *job) {
  ids_assert(is_to_come(job));
  ids_queue_remove(queue, job->priority,
                   (struct ids_queue_place){ .segment = job->segment_, .index = job->cell_ });
}

bool ids_pool_may_begin_locked(const struct idlesched_pool *self, const struct idlesched_job *job,
                               uint64_t now_ns) {
  return is_to_come(job) && self->dropping.count == 0 &&
         (!job->is_delayed_ || job->alarm_.at_ns_ <= now_ns);
}

void ids_pool_unqueue_locked(struct idlesched_pool *self, struct idlesched_job *job) {
  if (!job->is_delayed_)
    remove_from(&self->queue, job);
  ids_pool_forget_alarm_locked(self, job);
  ids_group_work_fell_locked(&self->group);
  ids_pool_room_made_locked(self);
}

void ids_pool_drop_locked(struct idlesched_pool *self, struct idlesched_job *job, int status,
                          struct ids_drops *drops) {
  if (self->dropping.count > 0) { /* J3 */
    remove_from(&self->dropping, job);
  } else {
    ids_pool_unqueue_locked(self, job);
    self->cancelled_count++;
    ids_pool_note_idle_locked(self);
  }
  ids_job_drop_locked(job, status, drops);
}

/* Others may have got in in the place of those that were dropped. */
void ids_pool_end_drops_unlock(struct idlesched_pool *self, struct ids_drops *drops) {
  struct ids_wake wake = ids_group_wake_wanted_locked(&self->group);
  struct idlesched_job *job = drops->first;
  while (job != NULL) {
    struct idlesched_job *next = job->next_;
    void (*done)(struct idlesched_job *) = job->done;
    ids_job_end_locked(job, IDLESCHED_JOB_CANCELLED, job->status_);
    ids_group_unlock(&self->group);
    ids_wake_pass_on(wake);
    wake.worker = NULL;
    ids_point("pool.dropped");
    done(job);
    if (next == NULL)
      return;
    ids_group_lock(&self->group);
    job = next;
  }
  ids_group_unlock(&self->group);
  ids_wake_pass_on(wake);
}

int ids_pool_cancel_job(struct idlesched_pool *self, struct idlesched_job *job) {
  struct ids_drops drops = { .first = NULL };
  int status = -EALREADY;
  ids_group_lock(&self->group);
  if (is_to_come(job)) {
    ids_pool_drop_locked(self, job, -ECANCELED, &drops);
    status = 0;
  } else if (ids_job_state(job) == IDLESCHED_JOB_RUNNING) {
    ids_job_ask_to_stop_locked(job);
    status = -EBUSY;
  }
  ids_pool_end_drops_unlock(self, &drops);
  return status;
}

static bool has_token(const struct ids_cell *cell, const idlesched_token *token) {
  return cell->run == NULL && ((const struct idlesched_job *)cell->context)->token == token;
}

static uint64_t cancel_delayed_locked(struct idlesched_pool *self, const idlesched_token *token,
                                      struct ids_drops *drops) {
  struct idlesched_job *job = ids_pool_list_delayed_locked(self, token);
  uint64_t count = 0;
  for (; job != NULL; count++) {
    struct idlesched_job *next = job->next_;
    ids_pool_drop_locked(self, job, -ECANCELED, drops);
    job = next;
  }
  return count;
}

/* What a close is dropping is cancelled as it is. */
uint64_t ids_pool_cancel_token(struct idlesched_pool *self, const idlesched_token *token) {
  struct ids_drops drops = { .first = NULL };
  uint64_t count = 0;
  ids_group_lock(&self->group);
  struct ids_queue_place place = ids_queue_first(&self->queue);
  while (place.segment != NULL) {
    const struct ids_cell *cell = ids_queue_at(place);
    place = ids_queue_after(&self->queue, place);
    if (!has_token(cell, token))
      continue;
    ids_pool_drop_locked(self, cell->context, -ECANCELED, &drops);
    count++;
  }
  count += cancel_delayed_locked(self, token, &drops);
  ids_pool_end_drops_unlock(self, &drops);
  return count;
}
