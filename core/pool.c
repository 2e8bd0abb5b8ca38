/* SPDX-License-Identifier: MIT */
/*
 * pool.c - what a pool is, what its workers ask of it, its life.  See pool.h.
 */
#include "pool.h"

/* "pool" in ASCII: a stray pointer hardly ever points to it. */
#define POOL_TAG UINT32_C(0x706f6f6c)

static struct idlesched_pool *pool_of(const struct ids_group *group) {
  return ids_container_of(group, struct idlesched_pool, group);
}

struct idlesched_pool *ids_pool_of(struct ids_group *group) {
  return pool_of(group);
}

void ids_pool_check(const struct idlesched_pool *self) {
  ids_assert(self != NULL && self->tag == POOL_TAG);
}

struct ids_worker *ids_pool_own_worker(struct idlesched_pool *self) {
  if (self->is_inline)
    return ids_load_relaxed(&self->turn_thread) == ids_thread_number() ? self->group.workers[0]
                                                                       : NULL;
  struct ids_worker *worker = ids_worker_outermost();
  return worker != NULL && worker->group == &self->group ? worker : NULL;
}

bool ids_pool_is_mine(struct idlesched_pool *self) {
  return ids_pool_own_worker(self) != NULL;
}

unsigned ids_pool_workers_max(const struct idlesched_pool *self) {
  return self->is_inline ? 0 : self->group.limit;
}

unsigned ids_pool_threads_left_locked(const struct idlesched_pool *self) {
  return self->group.threads_count + self->group.predecessors_count + self->is_taken;
}

/* ------------------------------------------------- what a worker asks of us */

/* Of a pool without workers no worker is to be told. */
static uint64_t work_count(const struct ids_group *group) {
  const struct idlesched_pool *self = pool_of(group);
  return self->is_inline || self->is_paused ? 0 : self->queue.count;
}

void ids_pool_begin_locked(struct idlesched_pool *self, struct ids_cell cell,
                           struct ids_worker *worker) {
  if (cell.run == NULL) {
    ids_pool_forget_alarm_locked(self, cell.context);
    ids_job_set_running_locked(cell.context, worker);
  }
  self->jobs_running_count++;
}

static uint64_t next_alarm_ns(const struct ids_group *group) {
  const struct idlesched_pool *self = pool_of(group);
  return self->is_inline ? IDS_NEVER : ids_alarms_at_ns(&self->alarms);
}

static void *ring(struct ids_group *group, uint64_t now_ns) {
  return ids_pool_ring_locked(pool_of(group), now_ns);
}

static void tell(struct ids_group *group, void *what) {
  ids_pool_tell(pool_of(group), what);
}

static enum ids_poll poll(struct ids_worker *worker) {
  struct idlesched_pool *self = pool_of(worker->group);
  struct ids_cell *cell = &worker->claimed;
  if (self->is_paused || !ids_queue_pop(&self->queue, cell))
    return worker->group->is_stopping ? IDS_POLL_STOP : IDS_POLL_WAIT;
  ids_pool_begin_locked(self, *cell, worker);
  ids_pool_room_made_locked(self);
  return IDS_POLL_WORK;
}

bool ids_pool_is_idle_locked(const struct idlesched_pool *self) {
  return self->queue.count == 0 && self->delayed_count == 0 && self->jobs_running_count == 0 &&
         self->expiring_count == 0;
}

/* Or only delayed ones are left, which a close may not want to wait for. */
void ids_pool_note_idle_locked(struct idlesched_pool *self) {
  if (self->queue.count == 0 && self->jobs_running_count == 0 && self->expiring_count == 0)
    ids_cond_broadcast(&self->group.changed);
}

/* A job is running until its done callback has returned; then it counts as ended. */
static void count_end_locked(struct idlesched_pool *self, uint64_t *ended_count) {
  ids_assert(self->jobs_running_count > 0);
  self->jobs_running_count--;
  (*ended_count)++;
  ids_pool_note_idle_locked(self);
}

/* A job that submits when one inside it is done is not about to poll. */
static void end_job_lock(struct idlesched_pool *self, struct idlesched_job *job, int status,
                         struct ids_worker *worker, bool is_inside) {
  void (*done)(struct idlesched_job *) = job->done;

  ids_group_lock(&self->group);
  ids_job_end_locked(job, status < 0 ? IDLESCHED_JOB_FAILED : IDLESCHED_JOB_DONE, status);
  if (done != NULL) {
    ids_group_unlock(&self->group);
    ids_point("pool.done");
    worker->is_in_done = !is_inside;
    done(job);
    worker->is_in_done = false;
    ids_group_lock(&self->group);
  }
  count_end_locked(self, status < 0 ? &self->failed_count : &self->done_count);
}

bool ids_pool_run_lock(struct idlesched_pool *self, struct ids_cell cell, struct ids_worker *worker,
                       bool is_inside) {
  struct idlesched_job *job = cell.run == NULL ? cell.context : NULL;
  int status = 0;
  if (job == NULL)
    cell.run(cell.context);
  else
    status = job->run(job, worker);
  if (is_inside && self->group.fork_generation != ids_fork_generation())
    return false;
  if (job != NULL) {
    end_job_lock(self, job, status, worker, is_inside);
  } else {
    ids_group_lock(&self->group);
    count_end_locked(self, &self->done_count);
  }
  return true;
}

/* The worker may be inside a job of another pool just now. */
bool ids_pool_run_inside_locked(struct idlesched_pool *self, struct ids_cell cell,
                                struct ids_worker *worker) {
  struct ids_worker *innermost = ids_worker_current();
  bool was_in_done = worker->is_in_done;
  ids_worker_block_as_locked(worker, false); /* the job below may block; this one does not */
  ids_pool_begin_locked(self, cell, worker);
  self->jobs_inside_count++;
  struct ids_wake wake = ids_group_grant_wanted_locked(&self->group);
  ids_group_unlock(&self->group);
  ids_wake_pass_on(wake);

  ids_point("pool.inside");
  ids_tls_set(IDS_TLS_WORKER, worker);
  worker->is_in_done = false;
  bool is_here = ids_pool_run_lock(self, cell, worker, true);
  worker->is_in_done = was_in_done;
  ids_tls_set(IDS_TLS_WORKER, innermost);
  if (is_here)
    self->jobs_inside_count--;
  return is_here;
}

/* Its worker polls next.  One that retires does not, and gives the wake when it leaves. */
static void work(struct ids_worker *worker) {
  struct idlesched_pool *self = pool_of(worker->group);
  struct ids_cell cell = worker->claimed;
  worker->claimed = (struct ids_cell){ 0 };
  (void)ids_pool_run_lock(self, cell, worker, false);
  ids_worker_set_finishing_locked(worker, true);
  ids_group_unlock(&self->group);
}

static void start(struct ids_worker *worker) {
  const idlesched_worker_hooks *hooks = &pool_of(worker->group)->hooks;
  if (hooks->start != NULL)
    hooks->start(worker, hooks->context);
}

static bool has_state(const struct ids_worker *worker) {
  return pool_of(worker->group)->hooks.collect != NULL && worker->data != NULL;
}

static bool collect(struct ids_worker *worker) {
  const idlesched_worker_hooks *hooks = &pool_of(worker->group)->hooks;
  return hooks->collect(worker, hooks->context);
}

static void stop(struct ids_worker *worker) {
  const idlesched_worker_hooks *hooks = &pool_of(worker->group)->hooks;
  if (hooks->stop != NULL)
    hooks->stop(worker, hooks->context);
  worker->data = NULL;
}

bool ids_pool_tell_release(struct idlesched_pool *self) {
  if (self->on_release == NULL)
    return false;
  self->on_release(self->hooks.context);
  return true;
}

static bool before_purge(struct ids_group *group) {
  return ids_pool_tell_release(pool_of(group));
}

void ids_pool_free(struct idlesched_pool *self) {
  ids_pools_leave(&self->entry);
  self->tag = 0;
  ids_assert(self->alarms.first == NULL);
  ids_queue_deinit(&self->queue);
  ids_group_deinit(&self->group);
  ids_free(self);
}

static void orphaned(struct ids_group *group) {
  ids_pool_free(pool_of(group));
}

static const struct ids_group_ops ops = {
  .poll = poll,
  .work = work,
  .work_count = work_count,
  .next_alarm_ns = next_alarm_ns,
  .ring = ring,
  .tell = tell,
  .start = start,
  .has_state = has_state,
  .collect = collect,
  .stop = stop,
  .before_purge = before_purge,
  .orphaned = orphaned,
};

/* ------------------------------------------------------------------- life */

int ids_pool_create(struct idlesched_pool **out, const struct ids_pool_config *config) {
  *out = NULL;
  struct idlesched_pool *self = ids_alloc(sizeof *self, "pool");
  if (self == NULL)
    return -ENOMEM;
  *self = (struct idlesched_pool){
    .tag = POOL_TAG,
    .hooks = config->hooks,
    .dropped = config->dropped,
    .on_release = config->on_release,
    .is_inline = config->is_inline,
    .queue_max = config->queue_max,
    .queue_timeout_ns = config->queue_timeout_ns,
  };
  ids_line_init(&self->line);
  int status = ids_group_init(&self->group, &ops, &config->group);
  if (status != 0) {
    ids_free(self);
    return status;
  }

  ids_pools_enter(&self->entry, self);
  *out = self;
  return 0;
}

void ids_pool_destroy(struct idlesched_pool *self) {
  ids_group_lock(&self->group);
  ids_assert(self->admission == IDS_POOL_CLOSED);
  ids_pool_await_visit_locked(self);
  self->group.is_orphaned = ids_pool_threads_left_locked(self) > 0;
  bool frees = !self->group.is_orphaned;
  ids_group_unlock(&self->group);
  if (frees) {
    ids_group_join_departed(&self->group);
    ids_pool_free(self);
  }
}
