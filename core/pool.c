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

bool ids_pool_is_mine(const struct idlesched_pool *self) {
  const struct ids_worker *worker = ids_worker_current();
  return worker != NULL && worker->group == &self->group;
}

/* ------------------------------------------------- what a worker asks of us */

static uint64_t work_count(const struct ids_group *group) {
  return pool_of(group)->queue.count;
}

static uint64_t next_alarm_ns(const struct ids_group *group) {
  return ids_alarms_at_ns(&pool_of(group)->alarms);
}

static void *ring(struct ids_group *group, uint64_t now_ns) {
  return ids_pool_ring_locked(pool_of(group), now_ns);
}

static void tell(struct ids_group *group, void *what) {
  ids_pool_tell(pool_of(group), what);
}

static enum ids_poll poll(struct ids_worker *worker) {
  struct idlesched_pool *self = pool_of(worker->group);
  struct ids_cell *cell = &self->claimed[worker->index];
  if (!ids_queue_pop(&self->queue, cell))
    return worker->group->is_stopping ? IDS_POLL_STOP : IDS_POLL_WAIT;
  if (cell->run == NULL) {
    ids_pool_forget_alarm_locked(self, cell->context);
    ids_job_set_running_locked(cell->context, worker);
  }
  self->jobs_running_count++;
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
void ids_pool_run_job_lock(struct idlesched_pool *self, struct idlesched_job *job,
                           struct ids_worker *worker, bool is_inside) {
  int status = job->run(job, worker);
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

/* Its worker polls next.  One that retires does not, and gives the wake when it leaves. */
static void work(struct ids_worker *worker) {
  struct idlesched_pool *self = pool_of(worker->group);
  struct ids_cell cell = self->claimed[worker->index];
  self->claimed[worker->index] = (struct ids_cell){ 0 };
  if (cell.run == NULL) {
    ids_pool_run_job_lock(self, cell.context, worker, false);
  } else {
    cell.run(cell.context);
    ids_group_lock(&self->group);
    count_end_locked(self, &self->done_count);
  }
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

static void free_pool(struct ids_group *group) {
  struct idlesched_pool *self = pool_of(group);
  ids_pools_leave(&self->entry);
  self->tag = 0;
  ids_assert(self->alarms.first == NULL);
  ids_queue_deinit(&self->queue);
  ids_group_deinit(group);
  ids_free(self->claimed);
  ids_free(self);
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
  .orphaned = free_pool,
};

/* ------------------------------------------------------------------- life */

int ids_pool_create(struct idlesched_pool **out, const struct ids_pool_config *config) {
  int status = -ENOMEM;
  *out = NULL;

  struct idlesched_pool *self = ids_alloc(sizeof *self, "pool");
  if (self == NULL)
    return status;
  *self =
    (struct idlesched_pool){ .tag = POOL_TAG, .hooks = config->hooks, .dropped = config->dropped };
  self->claimed = ids_alloc(config->group.workers_max * sizeof *self->claimed, "pool.claimed");
  if (self->claimed == NULL)
    goto free_pool;
  status = ids_group_init(&self->group, &ops, &config->group);
  if (status != 0)
    goto free_claimed;

  ids_pools_enter(&self->entry, self);
  *out = self;
  return 0;

free_claimed:
  ids_free(self->claimed);
free_pool:
  ids_free(self);
  return status;
}

void ids_pool_destroy(struct idlesched_pool *self) {
  ids_group_lock(&self->group);
  ids_assert(self->admission == IDS_POOL_CLOSED);
  self->group.is_orphaned = !ids_group_is_deserted_locked(&self->group);
  bool frees = !self->group.is_orphaned;
  ids_group_unlock(&self->group);
  if (frees) {
    ids_group_join_departed(&self->group);
    free_pool(&self->group);
  }
}
