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
 * the job not touched after its end. */
static void run_inside_locked(struct idlesched_pool *self, struct idlesched_job *job,
                              struct ids_worker *worker) {
  ids_pool_unqueue_locked(self, job);
  ids_job_set_running_locked(job, worker);
  self->jobs_running_count++;
  self->jobs_inside_count++;
  ids_group_unlock(&self->group);

  ids_point("pool.inside");
  bool was_in_done = worker->is_in_done;
  worker->is_in_done = false;
  ids_pool_run_job_lock(self, job, worker, true);
  worker->is_in_done = was_in_done;
  self->jobs_inside_count--;
}

/* All workers may be busy, so whoever waits for a job ends it when it expires. */
static void expire_here_locked(struct idlesched_pool *self, struct idlesched_job *job) {
  if (!ids_pool_expire_locked(self, job))
    return;
  ids_group_unlock(&self->group);
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
    if (may_run && ids_pool_may_begin_locked(self, job, now_ns)) {
      run_inside_locked(self, job, worker);
      return 0;
    }
    uint64_t until_ns = ids_earlier_ns(deadline_ns, look_again_ns(job, may_run));
    int status = ids_job_await_locked(job, worker, &self->group.lock, until_ns);
    if (status != -ETIMEDOUT || until_ns == deadline_ns)
      return status;
  }
}

/* From a job of the pool, or its done callback. */
static int await_inside_locked(struct idlesched_pool *self, struct idlesched_job *job,
                               struct ids_worker *worker, uint64_t deadline_ns) {
  if (worker->is_finishing && ids_now_ns() < deadline_ns)
    stand_down_locked(worker);
  if (ids_job_waits_for_locked(job, worker))
    return -EDEADLK;
  return await_locked(self, job, worker, deadline_ns);
}

int ids_pool_await_job(struct idlesched_pool *self, struct idlesched_job *job,
                       uint64_t deadline_ns) {
  ids_group_lock(&self->group);
  int status = ids_pool_is_mine(self)
                 ? await_inside_locked(self, job, ids_worker_current(), deadline_ns)
                 : await_locked(self, job, NULL, deadline_ns);
  ids_group_unlock(&self->group);
  return status;
}
