/* SPDX-License-Identifier: MIT */
/*
 * idlesched.c - the public face: checks arguments, fills in defaults, makes one
 * call down.
 */
#include "idlesched.h"

#include <string.h>

#include "audit.h"
#include "eager_purge.h"
#include "failure.h"
#include "heap.h"
#include "host_thread.h"
#include "memory.h"
#include "option.h"
#include "pool.h"
#include "pressure.h"
#include "release.h"
#include "stats.h"
#include "status.h"
#include "token.h"

/* Long enough for the page that a worker has just used to be needed again under
 * a steady load, short enough that nobody sees the memory: the delay that a
 * browser engine's threads use. */
#define IDLE_RELEASE_DEFAULT_NS (100 * IDS_MS)
/* A thread costs about 50 us to make and 100 KB to keep. */
#define IDLE_EXIT_DEFAULT_NS (10 * IDS_S)
#define CLOSE_TIMEOUT_DEFAULT_NS (2 * IDS_S)
#define RELEASE_TIMEOUT_DEFAULT_NS (1 * IDS_S)

/* What a program may wait for memory before anybody would call it slow, and how long what it
 * had in its heaps takes to be there again: a release each 10 s costs little. */
#define PRESSURE_STALL_DEFAULT_PART 10 /* of the window */
#define PRESSURE_WINDOW_DEFAULT_NS (1 * IDS_S)
#define PRESSURE_WINDOW_MIN_NS (500 * IDS_MS) /* the kernel's own limits */
#define PRESSURE_WINDOW_MAX_NS (10 * IDS_S)
#define PRESSURE_COOLDOWN_DEFAULT_NS (10 * IDS_S)

/* Enough for a script host whose C calls nest 200 deep at 2 KiB each. */
#define STACK_SIZE_DEFAULT (1024 * 1024)
#define STACK_SIZE_MIN (64 * 1024)

/* More threads than any machine has CPUs are a mistake of units. */
#define WORKERS_MAX_LIMIT 4096

static uint64_t default_ns(uint64_t value_ns, uint64_t default_value_ns) {
  return value_ns == 0 ? default_value_ns : value_ns;
}

static uint64_t deadline_after(uint64_t timeout_ns) {
  return ids_after_ns(ids_now_ns(), timeout_ns);
}

/* ---------------------------------------------------------------- the process */

unsigned idlesched_version(void) {
  return IDLESCHED_VERSION_NUMBER;
}

const char *idlesched_allocator(void) {
  return ids_heap_name();
}

const char *idlesched_strerror(int status) {
  return ids_status_text(status);
}

void idlesched_process_defaults(void) {
  ids_options_set_defaults();
}

int idlesched_keep_huge_pages(void) {
  ids_options_set_defaults(); /* which would turn them off later */
  return ids_heap_keep_huge_pages();
}

bool idlesched_keeps_huge_pages(void) {
  return ids_heap_keeps_huge_pages();
}

idlesched_failure_handler *idlesched_set_failure_handler(idlesched_failure_handler *handler) {
  return ids_failure_set_handler(handler);
}

uint64_t idlesched_now_ns(void) {
  return ids_now_ns();
}

void idlesched_sleep(uint64_t duration_ns) {
  ids_sleep_until(deadline_after(duration_ns));
}

unsigned idlesched_cpus(void) {
  return ids_cpus_count();
}

int idlesched_memory_read(idlesched_memory *out) {
  return ids_memory_read(out);
}

/* ----------------------------------------------------------------------- blocks */

void *idlesched_realloc(void *block, size_t size) {
  ids_host_thread_check_may_allocate();
  return ids_heap_resize(block, size == 0 ? 1 : size);
}

void idlesched_free(void *block) {
  ids_host_thread_check_may_allocate();
  ids_heap_free(block);
}

void idlesched_thread_idle(void) {
  ids_host_thread_check_may_allocate();
  ids_release_thread();
}

void idlesched_thread_enter(idlesched_thread *self) {
  ids_assert(self != NULL);
  ids_host_thread_enter(self);
}

void idlesched_thread_leave(idlesched_thread *self) {
  ids_host_thread_leave(self);
}

void idlesched_thread_park_begin(idlesched_thread *self) {
  ids_host_thread_park_begin(self);
}

void idlesched_thread_park_end(idlesched_thread *self) {
  ids_host_thread_park_end(self);
}

void idlesched_eager_purge_enter(void) {
  ids_host_thread_check_may_allocate(); /* a purge collects the own heap */
  ids_eager_purge_enter();
}

void idlesched_eager_purge_leave(void) {
  ids_host_thread_check_may_allocate(); /* a purge collects the own heap */
  ids_eager_purge_leave();
}

/* -------------------------------------------------------------------- options */

int idlesched_override_enter(idlesched_override *self, const char *option, int64_t value,
                             const char *holder) {
  ids_assert(self != NULL && option != NULL);
  ids_host_thread_check_may_allocate();
  return ids_override_enter(self, option, value, holder);
}

void idlesched_override_leave(idlesched_override *self) {
  ids_assert(self != NULL);
  ids_host_thread_check_may_allocate();
  ids_override_leave(self);
}

const char *idlesched_option_reason(const char *option) {
  ids_assert(option != NULL);
  return ids_option_reason(option);
}

int idlesched_option_read(unsigned i, idlesched_option_info *out) {
  return ids_option_read(i, out);
}

/* -------------------------------------------------------------------- workers */

idlesched_worker *idlesched_worker_current(void) {
  return ids_worker_current();
}

idlesched_pool *idlesched_worker_pool(const idlesched_worker *worker) {
  return ids_pool_of(worker->group);
}

unsigned idlesched_worker_index(const idlesched_worker *worker) {
  ids_assert(worker != NULL);
  return worker->index;
}

void *idlesched_worker_data(const idlesched_worker *worker) {
  ids_assert(worker != NULL && worker == ids_worker_current());
  return worker->data;
}

void idlesched_worker_set_data(idlesched_worker *worker, void *data) {
  ids_assert(worker != NULL && worker == ids_worker_current());
  worker->data = data;
}

/* ---------------------------------------------------------------------- pools */

/*
 * A pool that a fork brought along has no workers in this process, and nobody knows who
 * holds its lock: it is as good as closed, and left alone.
 */
static bool is_inherited(const idlesched_pool *pool) {
  return pool->group.fork_generation != ids_fork_generation();
}

void idlesched_worker_set_memory(idlesched_worker *worker, uint64_t live_bytes,
                                 uint64_t dead_bytes) {
  ids_assert(worker != NULL && worker == ids_worker_current());
  if (!is_inherited(ids_pool_of(worker->group)))
    ids_worker_set_memory(worker, live_bytes, dead_bytes);
}

void idlesched_worker_retire(idlesched_worker *worker) {
  ids_assert(worker != NULL);
  if (!is_inherited(ids_pool_of(worker->group)))
    ids_worker_retire(worker);
}

/* Without workers there is one all the same: pool_inline.c. */
static unsigned workers_max_of(const idlesched_pool_config *config) {
  if (config->workers_max == IDLESCHED_NO_WORKERS)
    return 1;
  if (config->workers_max == 0)
    return (unsigned)ids_smaller(ids_cpus_count(), WORKERS_MAX_LIMIT);
  return config->workers_max;
}

static bool is_size(unsigned workers_max, unsigned workers_min) {
  return workers_max > 0 && workers_max <= WORKERS_MAX_LIMIT && workers_min <= workers_max;
}

static int group_config(struct ids_group_config *out, const idlesched_pool_config *config) {
  *out = (struct ids_group_config){
    .workers_max = workers_max_of(config),
    .workers_min = config->workers_min,
    .idle_release_ns = default_ns(config->idle_release_ns, IDLE_RELEASE_DEFAULT_NS),
    .idle_exit_ns = default_ns(config->idle_exit_ns, IDLE_EXIT_DEFAULT_NS),
    .stack_size = config->stack_size == 0 ? STACK_SIZE_DEFAULT : config->stack_size,
    .is_dedicated = config->is_dedicated,
  };
  out->blocking_max = config->blocking_max == 0 ? out->workers_max : config->blocking_max;
  if (config->blocking_max == IDLESCHED_NO_WORKERS)
    out->blocking_max = 0;
  const char *name = config->name == NULL ? "idlesched" : config->name;
  strncpy(out->name, name, sizeof out->name - 1);
  if (!is_size(out->workers_max, out->workers_min) || out->blocking_max > WORKERS_MAX_LIMIT ||
      out->stack_size < STACK_SIZE_MIN)
    return -EINVAL;
  return 0;
}

int idlesched_pool_create(idlesched_pool **out, const idlesched_pool_config *config) {
  static const idlesched_pool_config defaults = { 0 };
  if (config == NULL)
    config = &defaults;
  struct ids_pool_config checked = {
    .hooks = config->hooks,
    .dropped = config->dropped,
    .on_release = config->on_release,
    .is_inline = config->workers_max == IDLESCHED_NO_WORKERS,
    .queue_max = config->queue_max == 0 ? UINT64_MAX : config->queue_max,
    .queue_timeout_ns = config->queue_timeout_ns,
  };
  *out = NULL;
  int status = group_config(&checked.group, config);
  if (status != 0)
    return status;
  idlesched_process_defaults();
  return ids_pool_create(out, &checked);
}

void idlesched_pool_destroy(idlesched_pool *pool) {
  if (pool == NULL)
    return;
  ids_pool_check(pool);
  if (is_inherited(pool))
    return;
  ids_assert(!ids_pool_is_mine(pool));
  (void)idlesched_pool_close(pool, IDLESCHED_CLOSE_CANCEL, 0, NULL);
  ids_pool_destroy(pool);
}

int idlesched_pool_submit(idlesched_pool *pool, void (*run)(void *context), void *context) {
  ids_pool_check(pool);
  if (run == NULL)
    return -EINVAL;
  if (is_inherited(pool))
    return -ESHUTDOWN;
  return ids_pool_submit(pool, (struct ids_cell){ .run = run, .context = context });
}

int idlesched_pool_start_workers(idlesched_pool *pool, unsigned workers_count) {
  ids_pool_check(pool);
  if (is_inherited(pool))
    return -ESHUTDOWN;
  return ids_pool_start_workers(pool, workers_count);
}

int idlesched_pool_resize(idlesched_pool *pool, unsigned workers_max, unsigned workers_min) {
  ids_pool_check(pool);
  if (!is_size(workers_max, workers_min))
    return -EINVAL;
  if (is_inherited(pool))
    return -ESHUTDOWN;
  return ids_pool_resize(pool, workers_max, workers_min);
}

void idlesched_pool_pause(idlesched_pool *pool) {
  ids_pool_check(pool);
  if (!is_inherited(pool))
    ids_pool_pause(pool);
}

int idlesched_pool_resume(idlesched_pool *pool) {
  ids_pool_check(pool);
  return is_inherited(pool) ? 0 : ids_pool_resume(pool);
}

/* The worker whose job calls, if there is one in this process. */
static struct ids_worker *worker_that_calls(void) {
  struct ids_worker *worker = ids_worker_current();
  return worker == NULL || is_inherited(ids_pool_of(worker->group)) ? NULL : worker;
}

void idlesched_blocking_begin(void) {
  struct ids_worker *worker = worker_that_calls();
  if (worker != NULL)
    ids_worker_block_begin(worker);
}

void idlesched_blocking_end(void) {
  struct ids_worker *worker = worker_that_calls();
  if (worker != NULL)
    ids_worker_block_end(worker);
}

int idlesched_pool_wait(idlesched_pool *pool, uint64_t timeout_ns) {
  ids_pool_check(pool);
  if (is_inherited(pool))
    return -ESHUTDOWN;
  return ids_pool_wait(pool, deadline_after(timeout_ns));
}

int idlesched_pool_close(idlesched_pool *pool, enum idlesched_close_mode mode, uint64_t timeout_ns,
                         idlesched_close_report *out) {
  idlesched_close_report ignored;
  ids_pool_check(pool);
  if (mode != IDLESCHED_CLOSE_DRAIN && mode != IDLESCHED_CLOSE_CANCEL)
    return -EINVAL;
  if (out == NULL)
    out = &ignored;
  *out = (idlesched_close_report){ 0 };
  if (is_inherited(pool))
    return 0;
  uint64_t deadline_ns = deadline_after(default_ns(timeout_ns, CLOSE_TIMEOUT_DEFAULT_NS));
  return ids_pool_close(pool, mode, deadline_ns, out);
}

int idlesched_pool_release(idlesched_pool *pool, uint64_t timeout_ns,
                           idlesched_release_report *out) {
  ids_pool_check(pool);
  if (!is_inherited(pool) && ids_pool_is_mine(pool)) {
    if (out != NULL)
      *out = (idlesched_release_report){ 0 };
    return -EDEADLK;
  }
  return idlesched_release_pools(&pool, 1, timeout_ns, out);
}

int idlesched_release_pools(idlesched_pool *const *pools, unsigned pools_count, uint64_t timeout_ns,
                            idlesched_release_report *out) {
  idlesched_release_report ignored;
  ids_assert(pools != NULL || pools_count == 0);
  if (out == NULL)
    out = &ignored;
  *out = (idlesched_release_report){ 0 };
  bool has_inherited = false;
  for (unsigned i = 0; i < pools_count; i++) {
    ids_pool_check(pools[i]);
    has_inherited |= is_inherited(pools[i]);
  }
  if (has_inherited)
    return -ESHUTDOWN;
  ids_host_thread_check_may_allocate(); /* the caller's own heap is collected as well */
  return ids_release_pools(pools, pools_count, default_ns(timeout_ns, RELEASE_TIMEOUT_DEFAULT_NS),
                           out);
}

int idlesched_release(uint64_t timeout_ns, idlesched_release_report *out) {
  idlesched_release_report ignored;
  ids_host_thread_check_may_allocate();
  return ids_release_all(default_ns(timeout_ns, RELEASE_TIMEOUT_DEFAULT_NS),
                         out == NULL ? &ignored : out);
}

void idlesched_purge_all(idlesched_release_report *out) {
  idlesched_release_report ignored;
  ids_host_thread_check_may_allocate();
  ids_release_free(out == NULL ? &ignored : out);
}

void idlesched_pool_freed(idlesched_pool *pool) {
  ids_pool_check(pool);
  ids_host_thread_check_may_allocate();
  if (!is_inherited(pool))
    ids_pass_freed(&pool->group);
}

void idlesched_pool_stats_read(idlesched_pool *pool, idlesched_pool_stats *out) {
  ids_pool_check(pool);
  *out = (idlesched_pool_stats){ 0 };
  if (!is_inherited(pool))
    ids_stats_read(pool, out);
}

unsigned idlesched_pool_workers_read(idlesched_pool *pool, idlesched_worker_row *rows,
                                     unsigned rows_max) {
  ids_pool_check(pool);
  if (!is_inherited(pool))
    return ids_workers_read(pool, rows, rows_max);
  unsigned workers_count = ids_pool_workers_max(pool);
  for (unsigned i = 0; i < rows_max && i < workers_count; i++)
    rows[i] = (idlesched_worker_row){ .index = i, .state = IDLESCHED_WORKER_ABSENT };
  return workers_count;
}

unsigned idlesched_pool_audit(idlesched_pool *pool, idlesched_audit *out) {
  idlesched_audit ignored;
  ids_pool_check(pool);
  if (out == NULL)
    out = &ignored;
  *out = (idlesched_audit){ 0 };
  return is_inherited(pool) ? 0 : ids_audit_pool(pool, out);
}

/* ------------------------------------------------------------------- pressure */

int idlesched_pressure_start(const idlesched_pressure_config *config) {
  static const idlesched_pressure_config defaults = { 0 };
  if (config == NULL)
    config = &defaults;
  uint64_t window_ns = default_ns(config->window_ns, PRESSURE_WINDOW_DEFAULT_NS);
  const idlesched_pressure_config checked = {
    .stall_ns = default_ns(config->stall_ns, window_ns / PRESSURE_STALL_DEFAULT_PART),
    .window_ns = window_ns,
    .cooldown_ns = default_ns(config->cooldown_ns, PRESSURE_COOLDOWN_DEFAULT_NS),
    .timeout_ns = default_ns(config->timeout_ns, RELEASE_TIMEOUT_DEFAULT_NS),
    .path = config->path,
  };
  if (checked.window_ns < PRESSURE_WINDOW_MIN_NS || checked.window_ns > PRESSURE_WINDOW_MAX_NS)
    return -EINVAL;
  if (checked.stall_ns > checked.window_ns)
    return -EINVAL;
  return ids_pressure_start(&checked);
}

void idlesched_pressure_stop(void) {
  ids_pressure_stop();
}

void idlesched_pressure_stats_read(idlesched_pressure_stats *out) {
  ids_pressure_stats_read(out);
}

/* ----------------------------------------------------------------------- jobs */

int idlesched_pool_submit_job(idlesched_pool *pool, idlesched_job *job) {
  ids_pool_check(pool);
  ids_assert(job != NULL);
  if (job->run == NULL || job->priority < -IDLESCHED_PRIORITY_MOST ||
      job->priority > IDLESCHED_PRIORITY_MOST)
    return -EINVAL;
  if (is_inherited(pool))
    return -ESHUTDOWN;
  return ids_pool_submit(pool, (struct ids_cell){ .run = NULL, .context = job });
}

enum idlesched_job_state idlesched_job_state_read(const idlesched_job *job) {
  return ids_job_state(job);
}

int idlesched_job_status(const idlesched_job *job) {
  return ids_job_has_ended(job) ? job->status_ : 0;
}

/* 0, or -ESHUTDOWN: whoever ran it is not in this process. */
static int pool_of_job(idlesched_pool **out, const idlesched_job *job) {
  *out = job->pool_;
  ids_pool_check(*out);
  return is_inherited(*out) ? -ESHUTDOWN : 0;
}

static int await_job(idlesched_job *job, uint64_t deadline_ns) {
  /* In this order: a job that ends between the two looks has ended. */
  if (!ids_job_is_under_way(job))
    return ids_job_has_ended(job) ? 0 : -EINVAL;
  idlesched_pool *pool;
  int status = pool_of_job(&pool, job);
  return status == 0 ? ids_pool_await_job(pool, job, deadline_ns) : status;
}

int idlesched_job_wait(idlesched_job *job, uint64_t timeout_ns) {
  return await_job(job, deadline_after(timeout_ns));
}

int idlesched_jobs_wait(idlesched_job *const *jobs, unsigned jobs_count, uint64_t timeout_ns) {
  ids_assert(jobs != NULL || jobs_count == 0);
  uint64_t deadline_ns = deadline_after(timeout_ns);
  int status = 0;
  for (unsigned i = 0; i < jobs_count && status == 0; i++)
    status = await_job(jobs[i], deadline_ns);
  return status;
}

int idlesched_job_cancel(idlesched_job *job) {
  ids_assert(job != NULL);
  if (!ids_job_is_under_way(job))
    return -EALREADY;
  idlesched_pool *pool;
  int status = pool_of_job(&pool, job);
  return status == 0 ? ids_pool_cancel_job(pool, job) : status;
}

bool idlesched_job_is_cancelled(const idlesched_job *job) {
  return ids_job_is_cancelled(job);
}

uint64_t idlesched_token_cancel(idlesched_token *token) {
  ids_assert(token != NULL);
  return ids_token_cancel(token);
}

bool idlesched_token_is_cancelled(const idlesched_token *token) {
  return ids_token_is_cancelled(token);
}
