/* SPDX-License-Identifier: MIT */
/*
 * pool_alarm.c - jobs that begin later, and jobs that are not wanted any more after a while.
 *
 * Both are an alarm of the job's, of which it has one at a time: while it is delayed, for the
 * end of that or for its expiry, whichever comes first; in the queue for its expiry.
 */
#include "pool.h"

/* Without memory for the queue a job that is due stays delayed, for so long. */
#define RETRY_NS (10 * IDS_MS)

static struct idlesched_job *job_of(idlesched_alarm *alarm) {
  return ids_container_of(alarm, struct idlesched_job, alarm_);
}

static void delay_until_locked(struct idlesched_pool *self, struct idlesched_job *job,
                               uint64_t at_ns) {
  ids_alarms_insert(&self->alarms, &job->alarm_, ids_earlier_ns(at_ns, job->expires_at_ns_));
}

static int enqueue_locked(struct idlesched_pool *self, struct idlesched_job *job) {
  int status = ids_pool_enqueue_locked(self, (struct ids_cell){ .context = job });
  if (status == 0 && job->expires_at_ns_ != IDS_NEVER)
    ids_alarms_insert(&self->alarms, &job->alarm_, job->expires_at_ns_);
  return status;
}

int ids_pool_admit_job_locked(struct idlesched_pool *self, struct idlesched_job *job) {
  uint64_t now_ns = job->delay_ns > 0 || job->expire_ns > 0 ? ids_now_ns() : 0;
  job->expires_at_ns_ = job->expire_ns > 0 ? ids_after_ns(now_ns, job->expire_ns) : IDS_NEVER;
  job->is_delayed_ = job->delay_ns > 0 && !self->is_inline; /* there the submit has waited */
  if (!job->is_delayed_)
    return enqueue_locked(self, job);
  delay_until_locked(self, job, ids_after_ns(now_ns, job->delay_ns));
  self->delayed_count++;
  return 0;
}

void ids_pool_forget_alarm_locked(struct idlesched_pool *self, struct idlesched_job *job) {
  if (!job->is_delayed_ && job->expires_at_ns_ == IDS_NEVER)
    return;
  ids_alarms_remove(&self->alarms, &job->alarm_);
  self->delayed_count -= job->is_delayed_;
  job->is_delayed_ = false;
  job->expires_at_ns_ = IDS_NEVER;
  ids_group_watch_locked(&self->group);
}

struct idlesched_job *ids_pool_list_delayed_locked(const struct idlesched_pool *self,
                                                   const idlesched_token *token) {
  struct idlesched_job *list = NULL;
  for (idlesched_alarm *alarm = self->alarms.first; alarm != NULL; alarm = ids_alarm_next(alarm)) {
    struct idlesched_job *job = job_of(alarm);
    if (!job->is_delayed_ || job->token != token)
      continue;
    job->next_ = list;
    list = job;
  }
  return list;
}

uint64_t ids_pool_drop_delayed_locked(struct idlesched_pool *self, struct ids_drops *drops) {
  uint64_t count = self->delayed_count;
  while (self->alarms.first != NULL) {
    struct idlesched_job *job = job_of(self->alarms.first);
    bool is_delayed = job->is_delayed_;
    ids_pool_forget_alarm_locked(self, job);
    if (is_delayed)
      ids_job_drop_locked(job, -ECANCELED, drops);
  }
  return count;
}

/* ------------------------------------------------- what a worker asks of us */

/* At the very moment it is over. */
bool ids_pool_has_expired_locked(const struct idlesched_job *job, uint64_t now_ns) {
  return ids_job_state(job) == IDLESCHED_JOB_QUEUED && job->expires_at_ns_ <= now_ns;
}

bool ids_pool_expire_locked(struct idlesched_pool *self, struct idlesched_job *job) {
  bool has_done = job->done != NULL; /* asked first: without one it may be gone */
  ids_pool_unqueue_locked(self, job);
  if (has_done)
    self->expiring_count++;
  else
    self->cancelled_count++;
  ids_pool_note_idle_locked(self);
  ids_job_end_locked(job, IDLESCHED_JOB_CANCELLED, -ETIMEDOUT);
  return has_done;
}

/* Its alarm has rung, and is in the heap no more. */
static void begin_locked(struct idlesched_pool *self, struct idlesched_job *job, uint64_t now_ns) {
  if (enqueue_locked(self, job) != 0) {
    delay_until_locked(self, job, ids_after_ns(now_ns, RETRY_NS));
    return;
  }
  job->is_delayed_ = false;
  self->delayed_count--;
}

struct idlesched_job *ids_pool_ring_locked(struct idlesched_pool *self, uint64_t now_ns) {
  while (ids_alarms_at_ns(&self->alarms) <= now_ns) {
    struct idlesched_job *job = job_of(self->alarms.first);
    if (ids_pool_has_expired_locked(job, now_ns)) {
      if (ids_pool_expire_locked(self, job))
        return job;
    } else {
      ids_alarms_remove(&self->alarms, &job->alarm_);
      begin_locked(self, job, now_ns);
    }
  }
  return NULL;
}

void ids_pool_tell(struct idlesched_pool *self, struct idlesched_job *job) {
  job->done(job);
  ids_group_lock(&self->group);
  self->expiring_count--;
  self->cancelled_count++;
  ids_pool_note_idle_locked(self);
  ids_group_unlock(&self->group);
}
