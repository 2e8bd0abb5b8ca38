/* SPDX-License-Identifier: MIT */
/*
 * pool.c - see pool.h.
 */
#include "pool.h"

/* "pool" in ASCII: a stray pointer hardly ever points to it. */
#define POOL_TAG UINT32_C(0x706f6f6c)

/* What workers that run no job get for leaving, beyond a close's time limit. */
#define LEAVING_NS (100 * IDS_MS)

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

static enum ids_poll poll(struct ids_worker *worker) {
  struct idlesched_pool *self = pool_of(worker->group);
  struct ids_cell *cell = &self->claimed[worker->index];
  if (!ids_queue_pop(&self->queue, cell))
    return worker->group->is_stopping ? IDS_POLL_STOP : IDS_POLL_WAIT;
  if (cell->run == NULL)
    ids_job_set_running_locked(cell->context);
  self->jobs_running_count++;
  return IDS_POLL_WORK;
}

/* A job is running until its done callback has returned; then it counts as ended, and its
 * worker polls next.  One that retires does not, and gives the wake when it leaves. */
static void job_finished_locked(struct ids_worker *worker, uint64_t *ended_count) {
  struct idlesched_pool *self = pool_of(worker->group);
  ids_assert(self->jobs_running_count > 0);
  ids_worker_set_finishing_locked(worker, true);
  self->jobs_running_count--;
  (*ended_count)++;
  if (self->jobs_running_count == 0 && self->queue.count == 0)
    ids_cond_broadcast(&self->group.changed); /* the pool is idle */
}

static void run_job(struct idlesched_pool *self, struct idlesched_job *job,
                    struct ids_worker *worker) {
  int status = job->run(job, worker);
  void (*done)(struct idlesched_job *) = job->done;

  ids_group_lock(&self->group);
  ids_job_end_locked(job, status < 0 ? IDLESCHED_JOB_FAILED : IDLESCHED_JOB_DONE, status);
  if (done != NULL) {
    ids_group_unlock(&self->group);
    ids_point("pool.done");
    worker->is_in_done = true;
    done(job);
    worker->is_in_done = false;
    ids_group_lock(&self->group);
  }
  job_finished_locked(worker, status < 0 ? &self->failed_count : &self->done_count);
  ids_group_unlock(&self->group);
}

static void work(struct ids_worker *worker) {
  struct idlesched_pool *self = pool_of(worker->group);
  struct ids_cell cell = self->claimed[worker->index];
  self->claimed[worker->index] = (struct ids_cell){ 0 };
  if (cell.run == NULL) {
    run_job(self, cell.context, worker);
    return;
  }
  cell.run(cell.context);
  ids_group_lock(&self->group);
  job_finished_locked(worker, &self->done_count);
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
  ids_queue_deinit(&self->queue);
  ids_group_deinit(group);
  ids_free(self->claimed);
  ids_free(self);
}

static const struct ids_group_ops ops = {
  .poll = poll,
  .work = work,
  .work_count = work_count,
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

/* ------------------------------------------------------------------ submit */

/* The state that the cell's job had is put back unless the submit succeeds. */
static int push_locked(struct idlesched_pool *self, struct ids_cell cell) {
  ids_assert(ids_mutex_is_mine(&self->group.lock));
  ids_group_await_launch_locked(&self->group);
  if (self->admission != IDS_POOL_OPEN)
    return -ESHUTDOWN;
  struct idlesched_job *job = cell.run == NULL ? cell.context : NULL;
  uint32_t previous = 0;
  if (job != NULL && !ids_job_claim_locked(job, self, &previous))
    return -EALREADY;
  int status = ids_queue_push(&self->queue, cell);
  if (status == 0)
    self->submitted_count++;
  else if (job != NULL)
    ids_job_unclaim_locked(job, previous);
  return status;
}

/* No thread is there to run it, and the system refuses one: it is the only job,
 * as nobody else could queue any since. */
static void take_back_locked(struct idlesched_pool *self) {
  struct ids_cell cell;
  ids_assert_equal(self->queue.count, 1);
  ids_queue_pop(&self->queue, &cell);
  if (cell.run == NULL)
    ids_job_take_back_locked(cell.context);
  self->submitted_count--;
}

/* A worker that submits when its own job has ended is about to poll, and takes it; unless it
 * retires first. */
static void note_own_submit_locked(struct idlesched_pool *self) {
  struct ids_worker *worker = ids_worker_current();
  if (ids_pool_is_mine(self) && worker->is_in_done && !worker->is_retiring &&
      !self->group.config.is_dedicated)
    ids_worker_set_finishing_locked(worker, true);
}

int ids_pool_submit(struct idlesched_pool *self, struct ids_cell cell) {
  struct ids_group *group = &self->group;
  struct ids_wake wake = { .worker = NULL };

  ids_group_lock(group);
  int status = push_locked(self, cell);
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
    /* An empty queue: a worker that has left since took the job, or a close dropped it. */
    if (ids_worker_launch_failed_locked(wake.worker) || self->queue.count == 0)
      status = 0;
    else
      take_back_locked(self);
    ids_group_unlock(group);
  }
  return status;
}

int ids_pool_start_workers(struct idlesched_pool *self, unsigned workers_count) {
  struct ids_group *group = &self->group;
  ids_group_lock(group);
  /* Decided once: threads that leave meanwhile are not replaced, or it might never end. */
  unsigned missing_count = workers_count > group->threads_count
                             ? workers_count - group->threads_count
                             : 0;
  int status = 0;
  if (self->admission == IDS_POOL_OPEN)
    status = ids_group_start_locked(group, missing_count);
  if (self->admission != IDS_POOL_OPEN) /* before, or since */
    status = -ESHUTDOWN;
  ids_group_unlock(group);
  return status;
}

/* ------------------------------------------------------------ wait and close */

static bool is_idle_locked(const struct idlesched_pool *self) {
  return self->queue.count == 0 && self->jobs_running_count == 0;
}

static void await_idle_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (!is_idle_locked(self) && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
}

int ids_pool_wait(struct idlesched_pool *self, uint64_t deadline_ns) {
  if (ids_pool_is_mine(self))
    return -EDEADLK;
  ids_group_lock(&self->group);
  await_idle_locked(self, deadline_ns);
  int status = is_idle_locked(self) ? 0 : -ETIMEDOUT;
  ids_group_unlock(&self->group);
  return status;
}

/* The job is not in the queue any more.  Without the lock. */
static void drop_cell(struct idlesched_pool *self, struct ids_cell cell) {
  ids_point("pool.dropped");
  if (cell.run != NULL) {
    if (self->dropped != NULL)
      self->dropped(cell.run, cell.context);
    return;
  }
  struct idlesched_job *job = cell.context;
  void (*done)(struct idlesched_job *) = job->done;
  ids_group_lock(&self->group);
  ids_job_end_locked(job, IDLESCHED_JOB_CANCELLED, -ECANCELED);
  ids_group_unlock(&self->group);
  if (done != NULL)
    done(job);
}

/* Cancel what is queued: taken from the workers at once, then ended one by one
 * with the lock dropped.  How many they were. */
static uint64_t drop_queue_locked(struct idlesched_pool *self) {
  struct ids_queue queue = self->queue;
  self->queue = (struct ids_queue){ 0 };
  uint64_t count = queue.count;
  self->cancelled_count += count;
  ids_group_unlock(&self->group);

  struct ids_cell cell;
  while (ids_queue_pop(&queue, &cell))
    drop_cell(self, cell);
  ids_queue_deinit(&queue);

  ids_group_lock(&self->group);
  return count;
}

/* Somebody else closes the pool, or has done so. */
static int await_closed_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (self->admission != IDS_POOL_CLOSED && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
  return self->admission == IDS_POOL_CLOSED ? 0 : -ETIMEDOUT;
}

/* Threads that are still to end. */
static unsigned threads_left_locked(const struct idlesched_pool *self) {
  return self->group.threads_count + self->group.predecessors_count;
}

/* Those that run a job are not waited for: their time was up before. */
static void await_leaving_locked(struct idlesched_pool *self, uint64_t deadline_ns) {
  while (threads_left_locked(self) > self->jobs_running_count && ids_now_ns() < deadline_ns)
    ids_group_wait_locked(&self->group, deadline_ns);
}

static void close_locked(struct idlesched_pool *self, enum idlesched_close_mode mode,
                         uint64_t deadline_ns, idlesched_close_report *out) {
  self->admission = IDS_POOL_CLOSING;
  self->closer = ids_thread_number();
  ids_group_await_launch_locked(&self->group);
  if (mode == IDLESCHED_CLOSE_DRAIN)
    await_idle_locked(self, deadline_ns);
  out->dropped_count = drop_queue_locked(self);
  await_idle_locked(self, deadline_ns);

  ids_group_stop_locked(&self->group);
  uint64_t leaving_ns = ids_after_ns(ids_now_ns(), LEAVING_NS);
  await_leaving_locked(self, ids_later_ns(deadline_ns, leaving_ns));
  out->left_behind_count = threads_left_locked(self);
  self->admission = IDS_POOL_CLOSED;
  ids_cond_broadcast(&self->group.changed);
}

int ids_pool_close(struct idlesched_pool *self, enum idlesched_close_mode mode,
                   uint64_t deadline_ns, idlesched_close_report *out) {
  *out = (idlesched_close_report){ 0 };
  if (ids_pool_is_mine(self))
    return -EDEADLK;
  ids_group_lock(&self->group);
  int status;
  if (self->admission == IDS_POOL_OPEN) {
    close_locked(self, mode, deadline_ns, out);
    status = out->left_behind_count > 0 ? -ETIMEDOUT : 0;
  } else if (self->admission == IDS_POOL_CLOSING && self->closer == ids_thread_number()) {
    status = -EDEADLK; /* from a callback of that close */
  } else {
    status = await_closed_locked(self, deadline_ns);
    out->left_behind_count = threads_left_locked(self);
    if (out->left_behind_count > 0)
      status = -ETIMEDOUT;
  }
  ids_group_unlock(&self->group);
  return status;
}
