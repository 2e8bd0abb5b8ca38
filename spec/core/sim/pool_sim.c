/* SPDX-License-Identifier: MIT */
/*
 * pool_sim.c - see pool_sim.h.
 */
#include "pool_sim.h"

#include <errno.h>
#include <string.h>

#include "inside.h"

struct sim_trace sim_jobs[SIM_JOBS_MAX];
/* Jobs from here on were not submitted in this run: runs are many, and jobs few. */
static unsigned jobs_end;
static unsigned jobs_began_count;
static uint64_t job_duration_ns;
static void (*job_begins)(struct sim_trace *job);
static void (*job_is_done)(struct sim_trace *job);

/* ------------------------------------------------------------------- pools */

/* The pools of this run that are looked at when nothing can run: as many as it may ask for
 * looks, so that the places of earlier runs are free again. */
static idlesched_pool *watched[8];
static unsigned watched_count;

/* After a refusal what is to be done may wait for a worker that is busy, as long as all that
 * have a thread are; or, in a paused pool where none has one, for the resume. */
static bool may_wait(struct ids_group *group) {
  bool is_for_resume = group->threads_count == 0 && ids_pool_of(group)->is_paused;
  return group->counters.starts_refused > 0 && (group->active_count > 0 || is_for_resume) &&
         group->in_state_count[IDS_WORKER_PARKED] == 0;
}

/* Work lies there, a worker could take it, and nobody is on the way. */
static bool is_work_left(struct ids_group *group) {
  return ids_group_wants_wake_locked(group) && !may_wait(group);
}

/* A worker that has been told to run, or to leave, sleeps. */
static bool is_wake_left(const struct ids_group *group) {
  for (unsigned i = 0; i < group->workers_count; i++) {
    const struct ids_worker *worker = group->workers[i];
    if (worker->state == IDS_WORKER_PARKED && (worker->has_ticket || worker->is_retiring))
      return true;
  }
  return false;
}

/* When the first of those that wait for a pass has its release time. */
static uint64_t first_due_ns(const struct ids_group *group) {
  uint64_t first_ns = group->owes_purge ? group->owed_since_ns : IDS_NEVER;
  for (unsigned i = 0; i < group->workers_count; i++) {
    const struct ids_worker *worker = group->workers[i];
    if (worker->awaits_pass && worker->state == IDS_WORKER_PARKED && !worker->has_ticket &&
        !worker->is_retiring)
      first_ns = ids_earlier_ns(first_ns, worker->release_at_ns);
  }
  return first_ns;
}

/* A pass is due some time, a worker is parked, and none will wake up for it in time.  Its
 * holder may sleep to the end of the window for somebody who was to be in it, and has left
 * since, or has a state and is done with that. */
static bool is_timer_left(const struct ids_group *group) {
  if (ids_pass_at_ns_locked(group) == IDS_NEVER || group->is_passing ||
      group->in_state_count[IDS_WORKER_PARKED] == 0)
    return false;
  uint64_t window_ns = ids_earlier_ns(50 * IDS_MS, group->config.idle_release_ns);
  uint64_t last_ns = ids_after_ns(first_due_ns(group), window_ns);
  if (group->later_count > 0)
    last_ns = ids_earlier_ns(last_ns, group->later_at_ns[0]);
  const struct ids_worker *holder = group->timer_holder;
  return holder == NULL || holder->sleeps_until_ns > last_ns;
}

/* An alarm will ring, a worker could do what it is for, and none will wake up in time. */
static bool is_alarm_left(struct ids_group *group) {
  uint64_t next_ns = group->ops->next_alarm_ns(group);
  bool is_somebody_busy = group->tickets_count > 0 || group->finishing_count > 0 ||
                          group->in_state_count[IDS_WORKER_RELEASING] > 0;
  if (next_ns == IDS_NEVER || group->active_count >= ids_group_room_locked(group) ||
      is_somebody_busy)
    return false;
  for (unsigned i = 0; i < group->workers_count; i++) {
    const struct ids_worker *worker = group->workers[i];
    if (worker->state == IDS_WORKER_PARKED && worker->sleeps_until_ns <= next_ns)
      return false;
  }
  return !may_wait(group);
}

static bool is_stuck(void *context) {
  idlesched_pool *pool = *(idlesched_pool **)context;
  if (pool == NULL || pool->group.fork_generation != ids_fork_generation() ||
      sim_is_locked(&pool->group.lock))
    return false;
  return is_work_left(&pool->group) || is_wake_left(&pool->group) || is_timer_left(&pool->group) ||
         is_alarm_left(&pool->group);
}

static void watch(idlesched_pool *pool) {
  idlesched_pool **place = &watched[watched_count++ % ids_countof(watched)];
  *place = pool;
  sim_on_rest(is_stuck, place);
}

void sim_pool_unwatch(const idlesched_pool *pool) {
  for (unsigned i = 0; i < ids_countof(watched); i++)
    if (watched[i] == pool)
      watched[i] = NULL;
}

idlesched_pool *sim_pool_try_create(const idlesched_pool_config *config) {
  idlesched_pool *pool;
  memset(sim_jobs, 0, jobs_end * sizeof *sim_jobs);
  jobs_end = 0;
  jobs_began_count = 0;
  job_duration_ns = 0;
  job_begins = job_is_done = NULL;
  if (idlesched_pool_create(&pool, config) != 0)
    return NULL;
  watch(pool);
  return pool;
}

idlesched_pool *sim_pool_create(const idlesched_pool_config *config) {
  idlesched_pool *pool = sim_pool_try_create(config);
  SIM_CHECK(pool != NULL);
  return pool;
}

void sim_pool_check(idlesched_pool *pool) {
  idlesched_audit audit;
  if (idlesched_pool_audit(pool, &audit) > 0)
    sim_fail("%s: %llu against %llu", audit.findings[0].rule,
             (unsigned long long)audit.findings[0].left,
             (unsigned long long)audit.findings[0].right);
  idlesched_pool_stats stats = sim_stats(pool);
  SIM_CHECK_EQUAL(stats.wakes, stats.polls + stats.tickets + stats.tickets_lost);
}

void sim_pool_finish(idlesched_pool *pool) {
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  sim_pool_check(pool);
  sim_check_jobs_ended();
  sim_pool_unwatch(pool);
  idlesched_pool_destroy(pool);
}

idlesched_pool_stats sim_stats(idlesched_pool *pool) {
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool, &stats);
  return stats;
}

struct ids_worker *sim_worker(idlesched_pool *pool, unsigned index) {
  return pool->group.workers[index];
}

unsigned sim_pool_threads_count(void) {
  unsigned count = 0;
  for (unsigned slot = 0; slot < SIM_THREADS_MAX; slot++)
    count += (sim.alive & SIM_BIT(slot)) && strcmp(sim.threads[slot].name, "idlesched") == 0;
  return count;
}

void *sim_worker_heap(idlesched_pool *pool, unsigned index) {
  ids_mutex_lock(&pool->group.lock);
  void *heap = sim_worker(pool, index)->heap;
  ids_mutex_unlock(&pool->group.lock);
  return heap;
}

void sim_await_parked(idlesched_pool *pool, unsigned count) {
  do
    sim_sleep_ns(1);
  while (sim_stats(pool).parked != count);
}

uint64_t sim_settle(idlesched_pool *pool) {
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(pool).parked, sim_stats(pool).threads);
  return sim_worker(pool, 0)->parked_at_ns;
}

void sim_check_closed(idlesched_pool *pool) {
  idlesched_pool_stats stats = sim_stats(pool);
  SIM_CHECK_EQUAL(stats.threads, 0);
  SIM_CHECK_EQUAL(stats.active, 0);
  SIM_CHECK_EQUAL(stats.jobs_queued + stats.jobs_running, 0);
  SIM_CHECK_EQUAL(sim_pool_threads_count(), 0);
  SIM_CHECK_EQUAL(sim_submit(pool, SIM_JOBS_MAX - 1), -ESHUTDOWN);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), -ESHUTDOWN);
  SIM_CHECK_EQUAL(sim_stats(pool).starts, stats.starts);
  sim_pool_check(pool);
}

/* ------------------------------------------------------------- the machine */

void sim_heap_takes(uint64_t duration_ns) {
  sim_heap_configure(&(struct sim_heap_config){
    .collect_ns = duration_ns, .abandon_ns = duration_ns, .purge_ns = duration_ns });
}

uint64_t sim_steps_of_sleep(uint64_t duration_ns) {
  uint64_t before = sim_steps_count();
  sim_sleep_ns(duration_ns);
  return sim_steps_count() - before;
}

/* ---------------------------------------------------------------- searches */

void sim_pool_samples(const struct sim_plan *plan, uint64_t runs_count) {
  struct sim_plan part = *plan;
  part.strategy = SIM_RANDOM;
  part.is_hostile = true;
  sim_spec_sample(&part, runs_count * 6 / 10);
  part.spurious_max = 1;
  sim_spec_sample(&part, runs_count / 10);
  part.spurious_max = 0;
  part.is_hostile = false;
  sim_spec_sample(&part, runs_count * 2 / 10);
  part.strategy = SIM_PCT;
  part.depth = 3;
  part.is_hostile = true;
  sim_spec_sample(&part, runs_count / 10);
}

void sim_pool_searches(const struct sim_plan *plan, unsigned bound, uint64_t runs_count) {
  struct sim_plan part = *plan;
  part.strategy = SIM_DFS;
  part.bound = bound;
  sim_spec_exhaust(&part);
  part.is_hostile = true;
  sim_spec_exhaust(&part);
  sim_pool_samples(plan, runs_count);
}

/* ----------------------------------------------------------------- clients */

static void client_main(void *context) {
  struct sim_client *self = context;
  self->main(self->context);
}

void sim_client_start(struct sim_client *self, void (*main)(void *context), void *context) {
  *self = (struct sim_client){ .main = main, .context = context };
  const struct ids_thread_config config = {
    .main = client_main, .context = self, .name = "client", .stack_size = 64 * 1024
  };
  /* A refusal is for the library to bear, and not for the scenario: it goes without. */
  if (ids_thread_start(&self->thread, &config, "client") != 0)
    self->main = NULL;
}

void sim_client_join(struct sim_client *self) {
  if (self->main != NULL)
    ids_thread_join(&self->thread);
}

/* ------------------------------------------------------------------ states */

static struct {
  unsigned workers_count, steps_count;
  uint64_t step_ns;
  unsigned made_counts[SIM_THREADS_MAX], stops_counts[SIM_THREADS_MAX];
} states;

void sim_states(unsigned workers_count, unsigned steps_count, uint64_t step_ns) {
  SIM_CHECK(workers_count <= SIM_THREADS_MAX && steps_count > 0);
  memset(&states, 0, sizeof states);
  states.workers_count = workers_count;
  states.steps_count = steps_count;
  states.step_ns = step_ns;
}

static void make_state(idlesched_worker *worker, void *context) {
  (void)context;
  unsigned index = idlesched_worker_index(worker);
  SIM_CHECK(idlesched_worker_data(worker) == NULL);
  if (index < states.workers_count)
    idlesched_worker_set_data(worker, &states.made_counts[index]);
}

static bool collect_state(idlesched_worker *worker, void *context) {
  (void)context;
  unsigned *made_count = idlesched_worker_data(worker);
  SIM_CHECK(made_count != NULL);
  SIM_CHECK(!ids_mutex_is_mine(&worker->group->lock));
  if (states.step_ns > 0)
    sim_sleep_ns(states.step_ns);
  (*made_count)++;
  return *made_count % states.steps_count != 0;
}

static void stop_state(idlesched_worker *worker, void *context) {
  (void)context;
  unsigned index = idlesched_worker_index(worker);
  bool has_state = index < states.workers_count;
  SIM_CHECK(idlesched_worker_data(worker) == (has_state ? &states.made_counts[index] : NULL));
  states.stops_counts[index]++;
}

const idlesched_worker_hooks sim_state_hooks = { .start = make_state,
                                                 .collect = collect_state,
                                                 .stop = stop_state };

unsigned sim_state_steps(unsigned worker) {
  return states.made_counts[worker];
}

unsigned sim_state_stops(unsigned worker) {
  return states.stops_counts[worker];
}

/* ------------------------------------------------------------------ sweeps */

enum { SWEEP_OPEN, SWEEP_BUSY, SWEEP_OVER };
static struct {
  void (*function)(void *context);
  void *context;
  uint32_t state;
} sweep;

static void sweep_main(void *context) {
  (void)context;
  if (!ids_store_if_equal(&sweep.state, SWEEP_OPEN, SWEEP_BUSY))
    return;
  sweep.function(sweep.context);
  ids_store_release(&sweep.state, SWEEP_OVER);
}

void sim_sweep_begin(void (*function)(void *context), void *context) {
  sweep.function = function;
  sweep.context = context;
  ids_store_release(&sweep.state, SWEEP_OPEN);
  sim_post_at_step(sim_sweep_step(), sweep_main, NULL);
}

void sim_sweep_end(void) {
  if (ids_store_if_equal(&sweep.state, SWEEP_OPEN, SWEEP_OVER))
    return;
  while (ids_load_acquire(&sweep.state) != SWEEP_OVER)
    sim_sleep_ns(IDS_MS);
}

/* -------------------------------------------------------------------- jobs */

static void run_job(void *context) {
  struct sim_trace *self = context;
  self->thread = ids_thread_number();
  self->runs_count++;
  self->started_at_ns = ids_now_ns();
  SIM_CHECK_RELATION(self->started_at_ns, >=, self->due_at_ns);
  self->began = ++jobs_began_count;
  self->worker = idlesched_worker_index(idlesched_worker_current());
  if (job_begins != NULL)
    job_begins(self);
  if (job_duration_ns > 0)
    sim_sleep_ns(job_duration_ns);
}

void sim_jobs_tell(void (*begins)(struct sim_trace *job), void (*is_done)(struct sim_trace *job)) {
  job_begins = begins;
  job_is_done = is_done;
}

static struct sim_trace *begin_submit(unsigned i) {
  SIM_CHECK(i < SIM_JOBS_MAX);
  struct sim_trace *job = &sim_jobs[i];
  if (i >= jobs_end)
    jobs_end = i + 1;
  job->submits_count++;
  job->submitted_at_ns = ids_now_ns();
  job->due_at_ns = job->expires_at_ns = 0;
  return job;
}

int sim_submit(idlesched_pool *pool, unsigned i) {
  struct sim_trace *job = begin_submit(i);
  int status = idlesched_pool_submit(pool, run_job, job);
  if (status != 0)
    job->submits_count--;
  return status;
}

void sim_submit_to(idlesched_pool *pool, unsigned i, struct ids_worker *worker) {
  const struct ids_cell cell = { .run = run_job, .context = begin_submit(i) };
  ids_group_lock(&pool->group);
  SIM_CHECK_EQUAL(ids_queue_push(&pool->queue, cell, 0, NULL), 0);
  pool->submitted_count++;
  struct ids_wake wake = ids_worker_grant_locked(worker);
  ids_group_unlock(&pool->group);
  SIM_CHECK_EQUAL(ids_wake_deliver(wake), 0);
}

static int run_waitable(idlesched_job *job, idlesched_worker *worker) {
  struct sim_trace *self = job->context;
  SIM_CHECK(worker == idlesched_worker_current());
  SIM_CHECK_EQUAL(idlesched_job_state_read(job), IDLESCHED_JOB_RUNNING);
  SIM_CHECK_EQUAL(self->dones_count + 1, self->submits_count);
  run_job(self);
  return 0;
}

static void waitable_done(idlesched_job *job) {
  struct sim_trace *self = job->context;
  enum idlesched_job_state state = idlesched_job_state_read(job);
  SIM_CHECK(state == IDLESCHED_JOB_DONE || state == IDLESCHED_JOB_CANCELLED);
  if (state == IDLESCHED_JOB_CANCELLED)
    self->drops_count++;
  if (idlesched_job_status(job) == -ETIMEDOUT) {
    SIM_CHECK(self->expires_at_ns > 0);
    SIM_CHECK_RELATION(ids_now_ns(), >=, self->expires_at_ns);
  }
  self->dones_count++;
  if (job_is_done != NULL)
    job_is_done(self);
}

int sim_submit_again(idlesched_pool *pool, unsigned i) {
  struct sim_trace *self = begin_submit(i);
  const idlesched_job *job = &self->job;
  self->due_at_ns = job->delay_ns > 0 ? self->submitted_at_ns + job->delay_ns : 0;
  self->expires_at_ns = job->expire_ns > 0 ? self->submitted_at_ns + job->expire_ns : 0;
  int status = idlesched_pool_submit_job(pool, &self->job);
  if (status != 0)
    self->submits_count--;
  return status;
}

int sim_submit_like(idlesched_pool *pool, unsigned i, const idlesched_job *like) {
  struct sim_trace *self = &sim_jobs[i];
  self->is_waitable = true;
  self->job = (idlesched_job){ .run = run_waitable,
                               .done = waitable_done,
                               .context = self,
                               .priority = like->priority,
                               .delay_ns = like->delay_ns,
                               .expire_ns = like->expire_ns,
                               .token = like->token };
  return sim_submit_again(pool, i);
}

int sim_submit_timed(idlesched_pool *pool, unsigned i, uint64_t delay_ns, uint64_t expire_ns) {
  return sim_submit_like(pool, i,
                         &(const idlesched_job){ .delay_ns = delay_ns, .expire_ns = expire_ns });
}

int sim_submit_waitable(idlesched_pool *pool, unsigned i) {
  return sim_submit_like(pool, i, &(const idlesched_job){ .priority = 0 });
}

void sim_must_submit(idlesched_pool *pool, unsigned i) {
  SIM_CHECK_EQUAL(sim_submit(pool, i), 0);
}

void sim_work(idlesched_pool *pool, unsigned i) {
  sim_must_submit(pool, i);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
}

void sim_jobs_take(uint64_t duration_ns) {
  job_duration_ns = duration_ns;
}

void sim_job_dropped(void (*run)(void *context), void *context) {
  SIM_CHECK(run == run_job);
  ((struct sim_trace *)context)->drops_count++;
}

void sim_check_jobs_ended(void) {
  for (unsigned i = 0; i < jobs_end; i++) {
    const struct sim_trace *job = &sim_jobs[i];
    SIM_CHECK_EQUAL(job->submits_count, job->runs_count + job->drops_count);
    SIM_CHECK_EQUAL(job->dones_count, job->is_waitable ? job->submits_count : 0);
  }
}

void sim_check_jobs_started_at_once(void) {
  for (unsigned i = 0; i < jobs_end; i++) {
    const struct sim_trace *job = &sim_jobs[i];
    uint64_t moment_ns = ids_later_ns(job->submitted_at_ns, job->due_at_ns);
    if (job->runs_count > 0)
      SIM_CHECK_EQUAL(job->started_at_ns, moment_ns);
    else if (job->submits_count > 0)
      SIM_CHECK(job->expires_at_ns > 0 && job->expires_at_ns <= moment_ns);
  }
}
