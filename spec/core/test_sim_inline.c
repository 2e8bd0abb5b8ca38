/* SPDX-License-Identifier: MIT */
/*
 * test_sim_inline.c - a pool without workers, in every order of its threads: each job runs in
 * its own submitter, one at a time, before the submit returns; who came first is first; and a
 * close, a release or a destroy beside that strands nothing.
 */
#include <errno.h>

#include "pool_sim.h"

static idlesched_pool *shared;
static unsigned inside_count; /* jobs that are outermost, just now */
static uintptr_t submitter_of[SIM_JOBS_MAX];
static unsigned children_of_first;

static void job_begins(struct sim_trace *job) {
  unsigned i = (unsigned)(job - sim_jobs);
  SIM_CHECK_EQUAL(job->thread, submitter_of[i]);
  SIM_CHECK_EQUAL(inside_count, 0);
  inside_count++;
  ids_point("inside");
  if (i % 10 == 0)
    for (unsigned child = 1; child <= children_of_first; child++) {
      submitter_of[i + child] = ids_thread_number();
      int status = child % 2 == 0 ? sim_submit(shared, i + child)
                                  : sim_submit_waitable(shared, i + child);
      SIM_CHECK(status == 0 || status == -ESHUTDOWN || status == -ENOMEM);
      SIM_CHECK_EQUAL(sim_jobs[i + child].runs_count, 0);
    }
  inside_count--;
}

/* At every step at which nobody is in the middle of a change. */
static void check_turns(void *context) {
  (void)context;
  if (shared == NULL || sim_is_locked(&shared->group.lock))
    return;
  SIM_CHECK(shared->queue.count == 0 || shared->is_taken);
  SIM_CHECK(ids_line_is_empty(&shared->line) || shared->is_taken);
  SIM_CHECK_EQUAL(shared->group.threads_count, 0);
}

static bool open_shared(unsigned children_count) {
  shared = NULL;
  inside_count = 0;
  children_of_first = children_count;
  sim_states(1, 2, 0);
  sim_invariant(check_turns, NULL);
  idlesched_pool *pool = sim_pool_try_create(&(idlesched_pool_config){
    .workers_max = IDLESCHED_NO_WORKERS, .hooks = sim_state_hooks, .dropped = sim_job_dropped });
  sim_jobs_tell(job_begins, NULL);
  shared = pool;
  return pool != NULL;
}

static void finish(void) {
  idlesched_pool *pool = shared;
  SIM_CHECK_EQUAL(sim_stats(pool).jobs_queued + sim_stats(pool).jobs_running, 0);
  SIM_CHECK(!pool->is_taken && ids_line_is_empty(&pool->line));
  shared = NULL;
  bool has_started = pool->has_started;
  unsigned stops_count = sim_state_stops(0);
  sim_pool_finish(pool);
  SIM_CHECK_EQUAL(sim_state_stops(0), stops_count + has_started);
}

/* A job, and the ones that it submits: all have ended when its submit returns, unless a close
 * is just dropping some. */
static void submit_tree(unsigned i, bool may_be_closed) {
  submitter_of[i] = ids_thread_number();
  int status = sim_submit(shared, i);
  if (may_be_closed)
    return;
  SIM_CHECK_EQUAL(status, 0);
  for (unsigned each = i; each <= i + children_of_first; each++)
    SIM_CHECK_EQUAL(sim_jobs[each].runs_count, 1);
}

/* --------------------------------------------------------------- two threads */

static void submit_two_trees(void *context) {
  unsigned first = 20 * (unsigned)(uintptr_t)context;
  submit_tree(first, false);
  submit_tree(first + 10, false);
}

static void two_threads(void *context) {
  struct sim_client clients[2];
  open_shared(*(unsigned *)context);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_two_trees, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_done, 4 * (1 + children_of_first));
  finish();
}

SPEC(in_their_own_threads,
     "G13 two threads submit: each job runs in its submitter, one at a time, and has ended, with "
     "those that it submitted, when the submit returns; no thread is started") {
  unsigned children_count = 0;
  struct sim_plan plan = { .name = "inline 2",
                           .scenario = two_threads,
                           .context = &children_count };
  sim_pool_searches(&plan, 2, 100000);
  children_count = 2;
  plan.name = "inline 2, jobs of jobs";
  sim_pool_searches(&plan, 1, 100000);
}

static unsigned begun_count;

static void check_order(struct sim_trace *job) {
  SIM_CHECK_EQUAL((unsigned)(job - sim_jobs), begun_count);
  begun_count++;
}

static void submit_at_moment(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  sim_sleep_ns(i * IDS_MS);
  sim_must_submit(shared, i);
  SIM_CHECK_EQUAL(sim_jobs[i].started_at_ns - sim_jobs[0].started_at_ns, i * 100 * IDS_MS);
}

static void in_turn(void *context) {
  enum { CLIENTS = 4 };
  struct sim_client clients[CLIENTS];
  (void)context;
  open_shared(0);
  begun_count = 0;
  sim_jobs_tell(check_order, NULL);
  sim_jobs_take(100 * IDS_MS);
  for (unsigned i = 0; i < CLIENTS; i++)
    sim_client_start(&clients[i], submit_at_moment, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < CLIENTS; i++)
    sim_client_join(&clients[i]);
  finish();
}

SPEC(who_came_first_is_first, "G13 who waits first for a turn has it first, and at once") {
  struct sim_plan plan = { .name = "inline, in turn", .scenario = in_turn, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------- a close and releases */

static enum idlesched_close_mode close_mode;

static void close_now(void *context) {
  (void)context;
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, close_mode, IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.left_behind_count, 0);
  sim_check_closed(shared);
}

static void may_submit_two_trees(void *context) {
  unsigned first = 20 * (unsigned)(uintptr_t)context;
  submit_tree(first, true);
  submit_tree(first + 10, true);
}

static void closed_at_a_step(void *context) {
  struct sim_client clients[2];
  close_mode = *(enum idlesched_close_mode *)context;
  open_shared(2);
  sim_sweep_begin(close_now, NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], may_submit_two_trees, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  sim_sweep_end();
  finish();
}

SPEC(closed_at_every_step,
     "G13 G3 a pool without workers that is closed at any step ends each job once, and its host's "
     "stop hook is called once for each start") {
  enum idlesched_close_mode modes[] = { IDLESCHED_CLOSE_DRAIN, IDLESCHED_CLOSE_CANCEL };
  for (unsigned i = 0; i < 2; i++) {
    struct sim_plan plan = { .name = "inline, close at a step",
                             .scenario = closed_at_a_step,
                             .context = &modes[i],
                             .runs_max = 50,
                             .strategy = SIM_RANDOM };
    sim_spec_sweep(&plan);
    plan.is_hostile = true;
    sim_spec_sweep(&plan);
  }
}

static void release_now(void *context) {
  idlesched_release_report report;
  uint64_t timeout_ns = *(uint64_t *)context;
  int status = idlesched_pool_release(shared, timeout_ns, &report);
  SIM_CHECK_EQUAL(status, report.missed_count > 0 ? -ETIMEDOUT : 0);
  SIM_CHECK_RELATION(report.visited_count + report.missed_count, <=, 1);
}

static void released_meanwhile(void *context) {
  struct sim_client clients[2], releasers[2];
  uint64_t *timeouts_ns = context;
  if (!open_shared(1))
    return;
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], may_submit_two_trees, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&releasers[i], release_now, &timeouts_ns[i]);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&releasers[i]);
  SIM_CHECK(!shared->owes_collect);
  finish();
}

SPEC(releases_beside_jobs,
     "G13 B17 releases beside jobs: each collects in its turn, or misses, and then the thread that "
     "has the turn does it") {
  uint64_t timeouts_ns[] = { IDLESCHED_NEVER, 1 };
  struct sim_plan plan = { .name = "inline, releases",
                           .scenario = released_meanwhile,
                           .context = timeouts_ns };
  sim_pool_searches(&plan, 1, 100000);
}

SPEC(inline_refusals, "G13 G4 whatever is refused, no job is stranded") {
  uint64_t timeouts_ns[] = { IDLESCHED_NEVER, 1 };
  struct sim_plan plan = { .name = "inline, refusals",
                           .scenario = released_meanwhile,
                           .context = timeouts_ns,
                           .strategy = SIM_RANDOM,
                           .runs_max = 50 };
  sim_spec_faults(&plan);
}

static void closed_beside_a_release(void *context) {
  struct sim_client releaser;
  idlesched_close_report report;
  open_shared(0);
  sim_jobs_tell(NULL, NULL);
  sim_must_submit(shared, 0);
  sim_client_start(&releaser, release_now, context);
  uint64_t begun_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, IDS_S, &report), 0);
  SIM_CHECK_EQUAL(report.left_behind_count, 0);
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns);
  sim_client_join(&releaser);
  finish();
}

SPEC(a_close_beside_a_release,
     "G13 G3 a close beside a release that collects, or waits for the stop hook, leaves nobody "
     "behind, and takes no time that those do not") {
  uint64_t timeout_ns = IDLESCHED_NEVER;
  struct sim_plan plan = { .name = "inline, close and release",
                           .scenario = closed_beside_a_release,
                           .context = &timeout_ns,
                           .bound = 2 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------------- destroyed early */

static void submit_long(void *context) {
  (void)context;
  (void)sim_submit(shared, 0);
}

static void release_all(void *context) {
  (void)context;
  (void)idlesched_release(IDS_S, NULL);
}

/* Its one thread is left behind, and frees it; a release may be anywhere meanwhile. */
static void destroyed_meanwhile(void *context) {
  (void)context;
  struct sim_client client, releaser;
  open_shared(0);
  sim_jobs_tell(NULL, NULL);
  sim_jobs_take(sim_choose(2, "duration") == 0 ? IDS_MS : 5 * IDS_S);
  sim_client_start(&client, submit_long, NULL);
  sim_sleep_ns(sim_choose(3, "moment") * IDS_MS);
  sim_client_start(&releaser, release_all, NULL);
  idlesched_pool *pool = shared;
  bool has_joined = sim_jobs[0].runs_count == 0;
  if (has_joined)
    sim_client_join(&client); /* or it would come too late */
  shared = NULL;
  sim_pool_unwatch(pool);
  idlesched_pool_destroy(pool);
  if (!has_joined)
    sim_client_join(&client);
  sim_client_join(&releaser);
  sim_check_jobs_ended();
  SIM_CHECK_EQUAL(sim_state_stops(0), 1);
}

SPEC(destroyed_beside_a_job,
     "G13 G3 a pool without workers that is destroyed while a job runs, or a release goes over it, "
     "is freed once, after its host's stop hook") {
  struct sim_plan plan = { .name = "inline, destroyed", .scenario = destroyed_meanwhile };
  sim_pool_searches(&plan, 1, 100000);
}
