/* SPDX-License-Identifier: MIT */
/*
 * test_sim_fork.c - a fork at every step of a busy process: the child leaves alone what it
 * has inherited, and all that it makes anew works, whatever the other threads were in the
 * middle of.
 *
 * A sweep lets a thread of its own fork at step k and be the child's only thread; threads
 * of the parent hold the locks of a pool, of all pools, of the purges, of the guards and of the
 * host's threads at some of the steps.
 */
#include <errno.h>
#include <string.h>

#include "eager_purge.h"
#include "option.h"
#include "fork.h"
#include "heap.h"
#include "pool_sim.h"
#include "host_thread.h"

#define NEVER IDLESCHED_NEVER

#define MULT IDS_HEAP_PURGE_MULT
#define PARENTS_MULT 9

/* What a child puts in order looks like a race with threads that stand still in the parent:
 * that those are not there, the sanitizer cannot know. */
static void need_to_fork(void) {
#ifdef IDLESCHED_SPEC_TSAN
  SKIP("the thread sanitizer takes the parent's threads for the child's");
#endif
}

/* ------------------------------------------------------------ the child's checks */

static void not_to_run(void *context) {
  (void)context;
  sim_fail("a job of an inherited pool runs");
}

static int job_is_not_to_run(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  not_to_run(job);
  return 0;
}

/* Its workers have no thread, and what the one that forked says of its memory is not heard. */
static void check_inherited_workers(idlesched_pool *pool) {
  idlesched_worker_row row = { .index = 1, .state = IDLESCHED_WORKER_RUNNING, .dead_bytes = 1 };
  idlesched_worker_row rows[8];
  SIM_CHECK_EQUAL(idlesched_pool_workers_read(pool, &row, 1), pool->group.limit);
  SIM_CHECK_EQUAL(idlesched_pool_workers_read(pool, rows, 8), pool->group.limit);
  SIM_CHECK_EQUAL(row.index, 0);
  SIM_CHECK_EQUAL(row.state, IDLESCHED_WORKER_ABSENT);
  SIM_CHECK_EQUAL(row.dead_bytes, 0);

  void *before = ids_tls_get(IDS_TLS_WORKER);
  struct ids_worker *worker = sim_worker(pool, 0);
  ids_tls_set(IDS_TLS_WORKER, worker);
  idlesched_worker_set_memory(worker, 2, 1);
  unsigned blocking_count = pool->group.blocking_count;
  idlesched_blocking_begin();
  SIM_CHECK_EQUAL(pool->group.blocking_count, blocking_count);
  idlesched_blocking_end();
  ids_tls_set(IDS_TLS_WORKER, before);
  SIM_CHECK_EQUAL(worker->live_bytes + worker->dead_bytes, 0);
}

/* Closed for good, and nothing to be freed. */
static void check_inherited(idlesched_pool *pool, idlesched_job *job) {
  static const idlesched_pool_stats nothing = { 0 };
  idlesched_pool_stats stats = sim_stats(pool);
  SIM_CHECK(memcmp(&stats, &nothing, sizeof stats) == 0);
  SIM_CHECK_EQUAL(idlesched_pool_audit(pool, NULL), 0);
  check_inherited_workers(pool);
  SIM_CHECK_EQUAL(idlesched_pool_submit(pool, not_to_run, NULL), -ESHUTDOWN);
  idlesched_job another = { .run = job_is_not_to_run };
  SIM_CHECK_EQUAL(idlesched_pool_submit_job(pool, &another), -ESHUTDOWN);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(pool, 1), -ESHUTDOWN);
  SIM_CHECK_EQUAL(idlesched_pool_resize(pool, 2, 2), -ESHUTDOWN);
  idlesched_pool_pause(pool);
  SIM_CHECK(!pool->is_paused);
  SIM_CHECK_EQUAL(idlesched_pool_resume(pool), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, NEVER), -ESHUTDOWN);
  SIM_CHECK_EQUAL(idlesched_pool_release(pool, NEVER, NULL), -ESHUTDOWN);
  int waited = idlesched_job_wait(job, NEVER); /* it may have ended, or not have begun */
  SIM_CHECK(waited == 0 || waited == -EINVAL || waited == -ESHUTDOWN);
  SIM_CHECK_EQUAL(idlesched_job_cancel(job), waited == -ESHUTDOWN ? -ESHUTDOWN : -EALREADY);
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.dropped_count + report.left_behind_count, 0);
  idlesched_worker_retire(sim_worker(pool, 0));
  idlesched_pool_freed(pool);
  idlesched_pool_destroy(pool);
  idlesched_pool_destroy(pool);
}

/* A guard whose thread is not there any more holds on, and no other trace is left. */
static void check_guards(void) {
  unsigned inherited_count = ids_eager_purge_holders();
  idlesched_eager_purge_enter();
  SIM_CHECK_EQUAL(ids_eager_purge_holders(), inherited_count + 1);
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), 0);
  idlesched_eager_purge_leave();
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), inherited_count == 0 ? SIM_HEAP_DELAY_DEFAULT_MS : 0);
}

/* An override likewise, also one that was lifted just then. */
static void check_overrides(void) {
  long inherited = ids_option_holders(MULT) == 0 ? SIM_HEAP_MULT_DEFAULT : PARENTS_MULT;
  idlesched_override self;
  SIM_CHECK_EQUAL(sim_heap_option(MULT), inherited);
  SIM_CHECK_EQUAL(idlesched_override_enter(&self, "purge_mult", 77, "child"), 0);
  SIM_CHECK_EQUAL(sim_heap_option(MULT), 77);
  idlesched_override_leave(&self);
  SIM_CHECK_EQUAL(sim_heap_option(MULT), inherited);
}

/* The first one may be a promise of threads that are still on their way out. */
static void check_purges(void) {
  unsigned mark = sim_heap_free(ids_heap_own());
  ids_heap_collect();
  ids_heap_purge();
  ids_heap_purge_and_wait();
  SIM_CHECK(sim_heap_is_returned(mark));
  SIM_CHECK(strcmp(ids_heap_name(), "simulated") == 0);
}

static void take_part(void *context) {
  idlesched_thread self;
  idlesched_pool *pool = context;
  idlesched_thread_enter(&self);
  idlesched_thread_park_begin(&self);
  idlesched_thread_park_end(&self);
  SIM_CHECK_EQUAL(idlesched_pool_release(pool, NEVER, NULL), 0);
  idlesched_thread_leave(&self);
}

/* A new pool works, visits, and shows in no number that there was another one. */
static idlesched_pool *check_new_pool(void) {
  idlesched_release_report report;
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_exit_ns = NEVER);
  sim_must_submit(pool, 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, NEVER), 0);
  SIM_CHECK_EQUAL(idlesched_pool_release(pool, NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 1);
  SIM_CHECK_EQUAL(idlesched_release(NEVER, NULL), 0); /* and none of the parent's */
  SIM_CHECK_EQUAL(sim_stats(pool).jobs_done, 1);
  struct sim_client client;
  sim_client_start(&client, take_part, pool);
  sim_client_join(&client);
  sim_pool_check(pool);
  return pool;
}

static void check_child(idlesched_pool *inherited, idlesched_job *job) {
  if (inherited != NULL)
    check_inherited(inherited, job);
  if (sim_choose(2, "order") == 0) {
    check_guards();
    check_overrides();
    check_purges();
    sim_pool_finish(check_new_pool());
  } else {
    sim_pool_finish(check_new_pool());
    check_purges();
    check_overrides();
    check_guards();
  }
}

/* -------------------------------------------------------- what the parent does */

static idlesched_pool *the_pool;
static idlesched_job the_job;

static int job_runs(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  (void)worker;
  return 0;
}

static void submit(void *context) {
  (void)context;
  for (unsigned i = 0; i < 2; i++)
    sim_must_submit(the_pool, i);
  SIM_CHECK_EQUAL(idlesched_pool_submit_job(the_pool, &the_job), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&the_job, NEVER), 0);
}

static void hold_and_purge(void *context) {
  (void)context;
  idlesched_override self;
  idlesched_eager_purge_enter();
  idlesched_override_enter(&self, "purge_mult", PARENTS_MULT, "parent");
  (void)ids_options_lift();
  ids_heap_purge();
  ids_options_unlift();
  idlesched_override_leave(&self);
  idlesched_eager_purge_leave();
  idlesched_thread_idle();
}

static void park_and_release(void *context) {
  (void)context;
  idlesched_thread self;
  idlesched_thread_enter(&self);
  idlesched_thread_park_begin(&self);
  sim_sleep_ns(IDS_MS); /* to pass a point is not to sleep, and its heap may be in hand */
  idlesched_thread_park_end(&self);
  idlesched_release(NEVER, NULL);
  idlesched_thread_leave(&self);
}

/* What an earlier run, which forked, has left in the process is put in order before there
 * is a second thread: so all schedules begin alike. */
static void begin_process(void) {
  while (ids_eager_purge_holders() > 0)
    idlesched_eager_purge_leave();
  while (ids_option_holders(MULT) > 0)
    ids_option_drop(MULT);
  ids_heap_purges_count();
  ids_host_threads_give_up(0, 0);
  the_job = (idlesched_job){ .run = job_runs };
}

static void busy_process(void *context) {
  void (*fork_and_check)(void *context) = *(void (**)(void *context))context;
  struct sim_client clients[3];
  begin_process();
  sim_states(1, 2, 0);
  the_pool = SIM_POOL(.workers_max = 2, .idle_release_ns = 2 * IDS_MS, .idle_exit_ns = 5 * IDS_MS,
                      .hooks = sim_state_hooks);
  if (sim_sweep_step() > 0)
    sim_post_at_step(sim_steps_count() + sim_sweep_step(), fork_and_check, NULL);
  sim_client_start(&clients[0], submit, NULL);
  sim_client_start(&clients[1], hold_and_purge, NULL);
  sim_client_start(&clients[2], park_and_release, NULL);
  for (unsigned i = 0; i < 3; i++)
    sim_client_join(&clients[i]);
  sim_sleep_ns(sim_choose(3, "rest") * 2 * IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  idlesched_pool_close(the_pool, IDLESCHED_CLOSE_DRAIN, NEVER, NULL);
  idlesched_pool *pool = the_pool;
  the_pool = NULL; /* who forks while it is destroyed has no use for it */
  sim_pool_finish(pool);
}

static void sweep(const char *name, void (*fork_and_check)(void *context)) {
  struct sim_plan plan = {
    .name = name, .scenario = busy_process, .context = &fork_and_check, .forks = true
  };
  plan.strategy = SIM_RANDOM;
  plan.is_hostile = true;
  plan.runs_max = 60;
  sim_spec_sweep(&plan);
  plan.is_hostile = false;
  plan.runs_max = 30;
  sim_spec_sweep(&plan);
  plan.strategy = SIM_DFS;
  plan.bound = 0;
  sim_spec_sweep(&plan);
}

/* ------------------------------------------------------------------- the cases */

static void fork_once(void *context) {
  (void)context;
  sim_fork();
  check_child(the_pool, &the_job);
}

SPEC(at_every_step, "G5 a fork at any step: the child leaves the pool alone, and the rest works") {
  need_to_fork();
  sweep("fork", fork_once);
}

/* The forking thread takes part in releases: so it does in the child. */
static void fork_as_host(void *context) {
  (void)context;
  idlesched_thread self;
  idlesched_thread_enter(&self);
  sim_fork();
  idlesched_pool *pool = SIM_POOL(.workers_max = 1);
  void *heap = ids_heap_own();
  unsigned abandoned_count = sim_heap_counts(heap).abandoned;
  struct sim_client client;
  idlesched_thread_park_begin(&self);
  sim_client_start(&client, take_part, pool);
  sim_client_join(&client);
  idlesched_thread_park_end(&self);
  SIM_CHECK_EQUAL(sim_heap_counts(heap).abandoned, abandoned_count + 1);
  sim_pool_finish(pool);
  check_child(the_pool, &the_job);
  idlesched_thread_leave(&self);
  sim_pool_finish(check_new_pool()); /* nothing of the parent's is on the list */
}

SPEC(by_a_thread_that_takes_part,
     "G5 N12 a thread that takes part forks, and does so in the child") {
  need_to_fork();
  sweep("fork by host", fork_as_host);
}

/* In the child somebody else is the first to look at the threads that take part. */
static void fork_as_host_and_wait(void *context) {
  (void)context;
  idlesched_thread self;
  idlesched_thread_enter(&self);
  sim_fork();
  struct sim_heap_counts before = sim_heap_counts(ids_heap_own());
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_release_ns = IDS_MS);
  sim_must_submit(pool, 0);
  while (sim_stats(pool).passes == 0)
    sim_sleep_ns(IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_counts(ids_heap_own()).abandoned, before.abandoned);
  sim_pool_finish(pool);
  idlesched_thread_leave(&self);
  sim_pool_finish(check_new_pool());
  check_guards(); /* for the next run */
}

SPEC(others_look_first,
     "G5 N12 a thread leaves in the child whose list another one has begun anew: "
     "it put the parent's threads back") {
  need_to_fork();
  sweep("fork by host, late", fork_as_host_and_wait);
}

static void fork_twice(void *context) {
  (void)context;
  sim_fork();
  idlesched_pool *pool = SIM_POOL(.workers_max = 1);
  idlesched_job job = { .run = job_runs };
  SIM_CHECK_EQUAL(idlesched_pool_submit_job(pool, &job), 0);
  if (sim_choose(2, "the first one looks at all of it") == 1)
    check_child(the_pool, &the_job);
  sim_fork();
  if (the_pool != NULL)
    check_inherited(the_pool, &the_job);
  check_child(pool, &job);
}

SPEC(a_child_forks, "G5 a child's child leaves both pools alone, and the rest works") {
  need_to_fork();
  sweep("fork twice", fork_twice);
}

/* ------------------------------------------------- a parked thread that forks */

static void give_up_once(void *context) {
  (void)context;
  ids_host_threads_give_up(NEVER, 0);
}

/* The word was copied as somebody had claimed it, who is not in the child. */
static void parked_one_forks(void *context) {
  struct sim_client client;
  idlesched_thread self;
  (void)context;
  begin_process();
  idlesched_thread_enter(&self);
  sim_client_start(&client, give_up_once, NULL);
  idlesched_thread_park_begin(&self);
  (void)ids_load_acquire(&self.state_); /* a step, in which somebody may claim it */
  sim_fork();
  idlesched_thread_park_end(&self);
  idlesched_thread_leave(&self);
}

SPEC(a_parked_thread_forks,
     "G5 N12 a thread that forks while it is parked, claimed or not, goes on") {
  need_to_fork();
  struct sim_plan plan = {
    .name = "parked one forks", .scenario = parked_one_forks, .forks = true, .bound = 3
  };
  sim_spec_exhaust(&plan);
  plan.is_hostile = true;
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------------ a job that forks */

/* For the child the worker whose thread forked is nobody that others wait for. */
static void a_job_forks(void *context) {
  idlesched_release_report report;
  (void)context;
  begin_process();
  the_pool = SIM_POOL(.workers_max = 1);
  ids_tls_set(IDS_TLS_WORKER, sim_worker(the_pool, 0)); /* as if this were in a job */
  sim_fork();
  SIM_CHECK_EQUAL(idlesched_release(NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.pools_count, 0);
  SIM_CHECK_EQUAL(idlesched_pool_release(the_pool, NEVER, NULL), -ESHUTDOWN);
  SIM_CHECK_EQUAL(idlesched_release_pools(&the_pool, 1, NEVER, &report), -ESHUTDOWN);
  ids_tls_set(IDS_TLS_WORKER, NULL);
}

SPEC(a_job_that_forks_releases, "G5 B14 a job forks: in the child it releases, and visits nobody") {
  need_to_fork();
  struct sim_plan plan = {
    .name = "a job forks", .scenario = a_job_forks, .forks = true, .bound = 1
  };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------- two who are the first to look */

static struct ids_fork_mark the_mark;
static unsigned firsts_count;
static bool is_in_order;

/* To put things in order takes a while, in which others may look. */
static void look(void *context) {
  (void)context;
  if (ids_fork_is_first(&the_mark)) {
    firsts_count++;
    ids_point("put in order");
    is_in_order = true;
    ids_fork_done(&the_mark);
  }
  SIM_CHECK(is_in_order);
}

static void two_look_at_once(void *context) {
  struct sim_client clients[2];
  (void)context;
  begin_process();
  sim_fork();
  the_mark = (struct ids_fork_mark){ .claimed = 0 };
  firsts_count = 0;
  is_in_order = false;
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], look, NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(firsts_count, 1);
}

SPEC(one_puts_in_order,
     "G5 of two threads of a child one puts in order what the process has one of, and the other "
     "waits for that") {
  need_to_fork();
  struct sim_plan plan = {
    .name = "two look", .scenario = two_look_at_once, .forks = true, .bound = 2
  };
  sim_spec_exhaust(&plan);
}
