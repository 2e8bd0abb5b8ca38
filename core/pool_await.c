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
  ids_pool_unqueue_locked(self, job);
  bool is_here = ids_pool_run_inside_locked(self, (struct ids_cell){ .context = job }, worker);
  return is_here ? 0 : IDS_POOL_FORKED;
}

/* All workers may be busy, so whoever waits for a job ends it when it expires.  Another one may
 * have got in in its place: without a callback, that is for the end of the wait to see to. */
static void expire_here_locked(struct idlesched_pool *self, struct idlesched_job *job) {
  if (!ids_pool_expire_locked(self, job))
    return;
  struct ids_wake wake = ids_group_grant_wanted_locked(&self->group);
  ids_group_unlock(&self->group);
  ids_wake_pass_on(wake);
  ids_pool_tell(self, job);
  ids_group_lock(&self->group);
}

/* When whoever waits for a job has to do something: end it, or, on a worker, run it. */
static uint64_t look_again_ns(const struct idlesched_job *job, bool is_worker) {
  if (ids_job_state(job) != IDLESCHED_JOB_QUEUED)
    return IDS_NEVER;
  return is_worker && job->is_delayed_ ? job->alarm_.at_ns_ : job->expires_at_ns_;
}

/* The worker is the one whose job waits, or NULL. */
static int await_locked(struct idlesched_pool *self, struct idlesched_job *job,
                        struct ids_worker *worker, uint64_t deadline_ns) {
  for (;;) {
    uint64_t now_ns = ids_now_ns();
    if (ids_pool_has_expired_locked(job, now_ns)) {
      expire_here_locked(self, job);
      return 0;
    }
    bool may_run = worker != NULL && now_ns < deadline_ns;
    if (may_run && ids_pool_may_begin_locked(self, job, now_ns))
      return run_inside_locked(self, job, worker);
    uint64_t until_ns = ids_earlier_ns(deadline_ns, look_again_ns(job, may_run));
    int status = ids_job_await_locked(job, worker, &self->group.lock, until_ns);
    if (status != -ETIMEDOUT || until_ns == deadline_ns)
      return status;
  }
}

/* The job runs, or is not due: meanwhile the pool may have another worker in the place of this
 * one.  The lock is dropped for that, and others may wait for this job since. */
static int block_for_locked(struct idlesched_pool *self, struct idlesched_job *job,
                            struct ids_worker *worker, uint64_t deadline_ns) {
  if (worker->state == IDS_WORKER_RUNNING && !worker->is_blocking)
    ids_worker_block_begin_locked(worker);
  return ids_job_waits_for_locked(job, worker) ? -EDEADLK
                                               : await_locked(self, job, worker, deadline_ns);
}

/* From a job of the pool, or its done callback. */
static int await_inside_locked(struct idlesched_pool *self, struct idlesched_job *job,
                               struct ids_worker *worker, uint64_t deadline_ns) {
  bool only_looks = ids_now_ns() >= deadline_ns, was_blocking = worker->is_blocking;
  if (worker->is_finishing && !only_looks)
    stand_down_locked(worker);
  if (ids_job_waits_for_locked(job, worker))
    return -EDEADLK;
  bool has_to_wait = !ids_job_has_ended(job) && !ids_pool_may_begin_locked(self, job, ids_now_ns());
  int status = has_to_wait && !only_looks ? block_for_locked(self, job, worker, deadline_ns)
                                          : await_locked(self, job, worker, deadline_ns);
  if (status != IDS_POOL_FORKED)
    ids_worker_block_as_locked(worker, was_blocking);
  return status;
}

int ids_pool_await_job(struct idlesched_pool *self, struct idlesched_job *job,
                       uint64_t deadline_ns) {
  ids_group_lock(&self->group);
  struct ids_worker *worker = ids_pool_own_worker(self);
  int status = worker != NULL ? await_inside_locked(self, job, worker, deadline_ns)
                              : await_locked(self, job, NULL, deadline_ns);
  if (status == IDS_POOL_FORKED)
    return 0;
  struct ids_wake wake = ids_group_wake_wanted_locked(&self->group);
  ids_group_unlock(&self->group);
  ids_wake_pass_on(wake);
  return status;
}
