/* SPDX-License-Identifier: MIT */
/*
 * pool_settings.c - what may be changed while a pool works: its size, and whether it begins
 * jobs.
 */
#include "pool.h"

/* Where the queue wants one of the new workers, another one is active. */
int ids_pool_resize(struct idlesched_pool *self, unsigned workers_max, unsigned workers_min) {
  struct ids_group *group = &self->group;
  struct ids_wake wake = { .worker = NULL };
  if (self->is_inline)
    return -EINVAL;
  ids_group_lock(group);
  int status = -ESHUTDOWN;
  if (self->admission == IDS_POOL_OPEN)
    status = ids_group_resize_locked(group, workers_max, workers_min);
  if (status == 0)
    wake = ids_group_grant_wanted_locked(group);
  ids_group_unlock(group);
  ids_wake_pass_on(wake);
  return status;
}

/* Without workers a job begins when it is submitted, or not at all. */
void ids_pool_pause(struct idlesched_pool *self) {
  ids_group_lock(&self->group);
  if (self->admission == IDS_POOL_OPEN && !self->is_inline)
    self->is_paused = true;
  ids_group_unlock(&self->group);
}

/*
 * The threads may all have ended meanwhile.  Without the first one that is started now nobody
 * is there for what is queued: so nobody relies on it before it is known to be there, and when
 * it is refused all is as before.
 */
int ids_pool_resume_locked(struct idlesched_pool *self) {
  struct ids_group *group = &self->group;
  ids_group_await_launch_locked(group);
  self->is_paused = false;
  struct ids_wake wake = ids_group_grant_wanted_locked(group);
  if (wake.worker == NULL)
    return 0;

  ids_group_unlock(group);
  int status = ids_wake_deliver(wake);
  ids_group_lock(group);
  if (status == 0 || ids_worker_launch_failed_locked(wake.worker) ||
      !ids_pool_wants_thread_locked(self))
    return 0;
  self->is_paused = true;
  return status;
}

int ids_pool_resume(struct idlesched_pool *self) {
  ids_group_lock(&self->group);
  int status = self->is_paused ? ids_pool_resume_locked(self) : 0;
  ids_group_unlock(&self->group);
  return status;
}
