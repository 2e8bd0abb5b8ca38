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

/* Run a queued job on a worker that is inside another one.  The lock is dropped meanwhile, and
 * the job not touched after its end.  0, or IDS_POOL_FORKED. */
static int run_inside_locked(struct idlesched_pool *self, struct idlesched_job *job,
                             struct ids_worker *worker) {
  bool was_blocking = worker->is_blocking; /* the job below has said so; this one has not */
  if (was_blocking)
    ids_worker_block_end_locked(worker);
  ids_pool_unqueue_locked(self, job);
  if (!ids_pool_run_inside_locked(self, (struct ids_cell){ .context = job }, worker))
    return IDS_POOL_FORKED;
  if (was_blocking)
    ids_worker_block_begin_locked(worker);
  return 0;
}

/* The job runs: meanwhile the pool may have another worker in the place of this one.  The lock
 * is dropped for that, so what was known of the job is looked at again. */
static int block_for_locked(struct idlesched_pool *self, struct idlesched_job *job,
                            struct ids_worker *worker, uint64_t deadline_ns) {
  bool begins = worker->state == IDS_WORKER_RUNNING && !worker->is_blocking;
  if (begins)
    ids_worker_block_begin_locked(worker);
  bool is_queued = ids_pool_has_queued_locked(self, job);
  int status = 0;
  if (ids_job_waits_for_locked(job, worker))
    status = -EDEADLK;
  else if (!is_queued)
    status = ids_job_await_locked(job, worker, &self->group.lock, deadline_ns);
  if (begins)
    ids_worker_block_end_locked(worker);
  return is_queued ? run_inside_locked(self, job, worker) : status;
}

/* From a job of the pool, or its done callback. */
static int await_inside_locked(struct idlesched_pool *self, struct idlesched_job *job,
                               struct ids_worker *worker, uint64_t deadline_ns) {
  bool only_looks = ids_now_ns() >= deadline_ns;
  if (worker->is_finishing && !only_looks)
    stand_down_locked(worker);
  if (ids_job_waits_for_locked(job, worker))
    return -EDEADLK;
  if (only_looks || ids_job_has_ended(job))
    return ids_job_await_locked(job, worker, &self->group.lock, deadline_ns);
  if (ids_pool_has_queued_locked(self, job))
    return run_inside_locked(self, job, worker);
  return block_for_locked(self, job, worker, deadline_ns);
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
