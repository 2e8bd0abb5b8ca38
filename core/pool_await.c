/* SPDX-License-Identifier: MIT */
/*
 * pool_await.c - waiting for a job, also from another one of the same pool.
 */
#include "pool.h"

/* The worker will not poll soon, as it was about to: what it stood for wants somebody else.
 * The lock is dropped meanwhile. */
static void stand_down_locked(struct ids_worker *worker) {
  struct ids_group *group = worker->group;
  ids_worker_set_finishing_locked(worker, false);
  struct ids_wake wake = ids_group_grant_wanted_locked(group);
  ids_group_unlock(group);
  ids_wake_pass_on(wake);
  ids_group_lock(group);
}

/* From a job of the pool, or its done callback. */
static int await_inside_locked(struct idlesched_pool *self, struct idlesched_job *job,
                               struct ids_worker *worker, uint64_t deadline_ns) {
  bool only_looks = ids_now_ns() >= deadline_ns;
  if (worker->is_finishing && !only_looks)
    stand_down_locked(worker);
  if (ids_job_waits_for_locked(job, worker))
    return -EDEADLK;
  if (ids_pool_has_queued_locked(self, job) && !only_looks) {
    ids_pool_unqueue_locked(self, job);
    bool is_here = ids_pool_run_inside_locked(self, (struct ids_cell){ .context = job }, worker);
    return is_here ? 0 : IDS_POOL_FORKED;
  }
  return ids_job_await_locked(job, worker, &self->group.lock, deadline_ns);
}

int ids_pool_await_job(struct idlesched_pool *self, struct idlesched_job *job,
                       uint64_t deadline_ns) {
  ids_group_lock(&self->group);
  struct ids_worker *worker = ids_pool_own_worker(self);
  int status = worker != NULL ? await_inside_locked(self, job, worker, deadline_ns)
                              : ids_job_await_locked(job, NULL, &self->group.lock, deadline_ns);
  if (status == IDS_POOL_FORKED)
    return 0;
  ids_group_unlock(&self->group);
  return status;
}
