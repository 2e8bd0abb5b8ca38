/* SPDX-License-Identifier: MIT */
/*
 * test_sim_blocking.c - a job says that it blocks, and another worker runs in its place.
 */
#include <errno.h>
#include <string.h>

#include "heap.h"
#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER

static idlesched_pool *shared;

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

/* ------------------------------------------------------------------ jobs that block */

/* What a job does, in this order. */
struct deed {
  bool blocks;
  uint64_t blocks_ns, works_ns;
  unsigned submits; /* from its done callback: that job; 0 is none */
  bool blocks_in_done;
};
static struct deed deeds[SIM_JOBS_MAX];
/* Of each worker: its job has blocked, and goes on. */
static bool has_come_back[SIM_THREADS_MAX];

static void block(uint64_t duration_ns) {
  unsigned index = idlesched_worker_index(idlesched_worker_current());
  idlesched_blocking_begin();
  ids_point("spec.blocks");
  if (duration_ns > 0)
    sim_sleep_ns(duration_ns);
  has_come_back[index] = true;
  idlesched_blocking_end();
}

static void begin_job(struct sim_trace *job) {
  const struct deed *deed = &deeds[job - sim_jobs];
  has_come_back[job->worker] = false;
  if (deed->blocks)
    block(deed->blocks_ns);
  if (deed->works_ns > 0)
    sim_sleep_ns(deed->works_ns);
}

static void end_job(struct sim_trace *job) {
  const struct deed *deed = &deeds[job - sim_jobs];
  if (deed->submits != 0)
    (void)sim_submit_waitable(shared, deed->submits);
  if (deed->blocks_in_done)
    block(deed->blocks_ns);
}

/* No more run than may, but for those that have come back; nor are there more threads. */
static unsigned limit_most; /* as far back as a job that still runs may have begun */
static void check_limits(void *context) {
  (void)context;
  if (shared == NULL || sim_is_locked(&shared->group.lock))
    return;
  const struct ids_group *group = &shared->group;
  unsigned running_count = 0;
  for (unsigned i = 0; i < group->workers_count; i++) {
    const struct ids_worker *worker = group->workers[i];
    running_count += worker->state == IDS_WORKER_RUNNING && !worker->is_blocking &&
                     !has_come_back[i];
  }
  SIM_CHECK_RELATION(running_count, <=, limit_most);
  SIM_CHECK_RELATION(group->threads_count, <=, limit_most + group->config.blocking_max);
}

static bool open_shared(idlesched_pool_config config) {
  memset(deeds, 0, sizeof deeds);
  memset(has_come_back, 0, sizeof has_come_back);
  limit_most = config.workers_max;
  shared = sim_pool_try_create(&config);
  sim_jobs_tell(begin_job, end_job);
  sim_invariant(check_limits, NULL);
  return shared != NULL;
}

static void finish_shared(void) {
  idlesched_pool *pool = shared;
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, NEVER), 0);
  SIM_CHECK_EQUAL(sim_stats(pool).blocking, 0);
  shared = NULL;
  sim_pool_finish(pool);
}

/* --------------------------------------------------------------------- others go on */

/* One worker.  Job 0 blocks for 15 ms and works for 10 ms; the others work for 10 ms. */
static void others_go_on(void *context) {
  bool is_dedicated = context != NULL;
  open_shared((idlesched_pool_config){ .workers_max = 1,
                                       .is_dedicated = is_dedicated,
                                       .idle_release_ns = NEVER,
                                       .idle_exit_ns = NEVER });
  uint64_t begin_ns = ids_now_ns();
  for (unsigned i = 0; i < 5; i++) {
    deeds[i] = (struct deed){ .blocks = i == 0, .blocks_ns = 15 * IDS_MS, .works_ns = 10 * IDS_MS };
    sim_must_submit(shared, i);
  }
  ids_sleep_until(begin_ns + 14 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 1);
  SIM_CHECK_EQUAL(sim_stats(shared).running, 2);
  ids_sleep_until(begin_ns + 16 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 0);
  SIM_CHECK_EQUAL(sim_stats(shared).running, 2);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  /* At 20 ms the second one ends while the first one works on, and takes none. */
  static const unsigned begins_ms[] = { 0, 0, 10, 25, 35 };
  for (unsigned i = 0; i < 5; i++)
    SIM_CHECK_EQUAL(sim_jobs[i].started_at_ns, begin_ns + begins_ms[i] * IDS_MS);
  finish_shared();
}

SPEC(others_go_on_meanwhile,
     "G12 while a job blocks, others go on, 0 ms later; when it goes on, who ends first takes no "
     "other job; in a dedicated pool too") {
  static char is_dedicated;
  struct sim_plan plan = plan_of("blocks", others_go_on, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan = plan_of("blocks, dedicated", others_go_on, &is_dedicated);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* Three of four jobs block for a second, the limit is 1, and so many more may be. */
static void as_many_as_may_be(void *context) {
  unsigned blocking_max = *(unsigned *)context;
  open_shared((idlesched_pool_config){
    .workers_max = 1, .blocking_max = blocking_max == 0 ? IDLESCHED_NO_WORKERS : blocking_max });
  for (unsigned i = 0; i < 4; i++) {
    deeds[i] = (struct deed){ .blocks = i < 3, .blocks_ns = IDS_S, .works_ns = IDS_MS };
    sim_must_submit(shared, i);
  }
  sim_sleep_ns(IDS_MS / 2);
  unsigned running_count = blocking_max < 3 ? blocking_max + 1 : 4;
  SIM_CHECK_EQUAL(sim_stats(shared).running, running_count);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, running_count);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, running_count < 4 ? running_count : 3);
  finish_shared();
}

SPEC(no_more_than_may_be, "G12 there are no more than blocking_max workers in place of others") {
  for (unsigned blocking_max = 0; blocking_max <= 4; blocking_max++) {
    struct sim_plan plan = plan_of("blocking_max", as_many_as_may_be, &blocking_max);
    if (blocking_max < 2)
      sim_spec_exhaust(&plan);
    plan.strategy = SIM_RANDOM;
    sim_spec_sample(&plan, 5000);
  }
}

/* ---------------------------------------------------------------- their number falls */

static void number_falls(void *context) {
  bool has_state = context != NULL;
  sim_states(has_state ? 3 : 0, 1, 0);
  open_shared((idlesched_pool_config){
    .workers_max = 1, .idle_exit_ns = 10 * IDS_S, .blocking_max = 2, .hooks = sim_state_hooks });
  for (unsigned i = 0; i < 3; i++) {
    deeds[i] = (struct deed){ .blocks = i < 2, .blocks_ns = 5 * IDS_MS };
    sim_must_submit(shared, i);
  }
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  sim_sleep_ns(1);
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK_EQUAL(stats.threads, 3);
  SIM_CHECK_EQUAL(stats.parked, 3);
  idlesched_worker_row rows[4];
  SIM_CHECK_EQUAL(idlesched_pool_workers_read(shared, rows, 4), 3);
  SIM_CHECK_EQUAL(rows[2].state, IDLESCHED_WORKER_PARKED);
  idlesched_release_report report;
  SIM_CHECK_EQUAL(idlesched_pool_release(shared, NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.visited_count, 3);
  SIM_CHECK_EQUAL(sim_stats(shared).releases, 3);
  /* One job each 2 s: one worker is enough, and the others end. */
  for (unsigned i = 0; i < 6; i++) {
    sim_work(shared, 3);
    sim_sleep_ns(2 * IDS_S);
  }
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  SIM_CHECK_EQUAL(sim_stats(shared).exits, 2);
  sim_sleep_ns(10 * IDS_S + 1);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 0);
  finish_shared();
}

SPEC(their_number_falls,
     "G12 B14 A18 those that ran in place of others park, release, are visited like all, and end "
     "in the usual time") {
  static char has_state;
  struct sim_plan plan = plan_of("number falls", number_falls, NULL);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 5000);
  plan = plan_of("number falls, states", number_falls, &has_state);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 5000);
}

/* ---------------------------------------------------------------------- at any moment */

struct setting {
  unsigned workers_max, blocking_max, clients, jobs_of_each;
  unsigned blockers; /* a bit for each job */
  bool is_dedicated, is_slow, in_done, exits;
  unsigned resizes_to; /* 0: it is not resized */
};

static const struct setting *the_setting;

static void submit_some(void *context) {
  unsigned first = (unsigned)(uintptr_t)context * the_setting->jobs_of_each;
  for (unsigned i = 0; i < the_setting->jobs_of_each; i++)
    (void)sim_submit_waitable(shared, first + i);
}

static void block_at_any_moment(void *context) {
  const struct setting *setting = the_setting = context;
  struct sim_client clients[3];
  unsigned jobs_count = setting->clients * setting->jobs_of_each;
  bool is_open = open_shared((idlesched_pool_config){
    .workers_max = setting->workers_max,
    .blocking_max = setting->blocking_max,
    .is_dedicated = setting->is_dedicated,
    .idle_release_ns = NEVER,
    .idle_exit_ns = setting->exits ? IDLESCHED_AT_ONCE : NEVER,
  });
  if (!is_open)
    return;
  for (unsigned i = 0; i < jobs_count; i++)
    deeds[i] = (struct deed){ .blocks = setting->blockers & (1u << i) && !setting->in_done,
                              .blocks_in_done = setting->blockers & (1u << i) && setting->in_done,
                              .submits = setting->in_done ? jobs_count + i : 0,
                              .blocks_ns = setting->is_slow ? IDS_MS : 0,
                              .works_ns = setting->is_slow ? IDS_MS : 0 };
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], submit_some, (void *)(uintptr_t)i);
  if (setting->resizes_to > 0) {
    if (setting->resizes_to > limit_most)
      limit_most = setting->resizes_to;
    int status = idlesched_pool_resize(shared, setting->resizes_to, 0);
    SIM_CHECK(status == 0 || status == -ENOMEM || status == -EAGAIN);
  }
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  finish_shared();
}

SPEC(blocks_at_any_moment,
     "G12 a job that blocks and goes on at any moment strands none, and no more run than may, but "
     "for those that come back") {
  struct setting one = {
    .workers_max = 1, .blocking_max = 1, .clients = 1, .jobs_of_each = 2, .blockers = 1
  };
  struct sim_plan plan = plan_of("blocks 1x2", block_at_any_moment, &one);
  sim_pool_searches(&plan, 2, 200000);
  struct setting both = {
    .workers_max = 1, .blocking_max = 1, .clients = 1, .jobs_of_each = 3, .blockers = 3
  };
  plan = plan_of("blocks 1x3", block_at_any_moment, &both);
  sim_pool_searches(&plan, 1, 200000);
  struct setting two = { .workers_max = 2,
                         .blocking_max = 1,
                         .clients = 2,
                         .jobs_of_each = 2,
                         .blockers = 7,
                         .exits = true };
  plan = plan_of("blocks 2x4", block_at_any_moment, &two);
  sim_pool_samples(&plan, 300000);
  struct setting slow = { .workers_max = 2,
                          .blocking_max = 2,
                          .clients = 3,
                          .jobs_of_each = 3,
                          .blockers = 0x5b,
                          .is_slow = true };
  plan = plan_of("blocks 2x9", block_at_any_moment, &slow);
  sim_pool_samples(&plan, 300000);
}

SPEC(blocks_in_a_dedicated_pool, "G12 C1 the same in a dedicated pool") {
  struct setting one = { .workers_max = 1,
                         .blocking_max = 1,
                         .clients = 1,
                         .jobs_of_each = 2,
                         .blockers = 1,
                         .is_dedicated = true };
  struct sim_plan plan = plan_of("blocks 1x2, dedicated", block_at_any_moment, &one);
  sim_pool_searches(&plan, 1, 200000);
  struct setting slow = { .workers_max = 2,
                          .blocking_max = 2,
                          .clients = 3,
                          .jobs_of_each = 2,
                          .blockers = 0x1b,
                          .is_dedicated = true,
                          .is_slow = true };
  plan = plan_of("blocks 2x6, dedicated", block_at_any_moment, &slow);
  sim_pool_samples(&plan, 200000);
}

SPEC(blocks_in_a_done_callback,
     "G12 C10 a done callback that submits a job and then blocks keeps nobody from that job") {
  struct setting one = { .workers_max = 1,
                         .blocking_max = 1,
                         .clients = 1,
                         .jobs_of_each = 1,
                         .blockers = 1,
                         .in_done = true };
  struct sim_plan plan = plan_of("blocks in done 1x1", block_at_any_moment, &one);
  sim_pool_searches(&plan, 2, 100000);
  struct setting slow = { .workers_max = 2,
                          .blocking_max = 2,
                          .clients = 2,
                          .jobs_of_each = 2,
                          .blockers = 0xb,
                          .in_done = true,
                          .is_slow = true };
  plan = plan_of("blocks in done 2x4", block_at_any_moment, &slow);
  sim_pool_samples(&plan, 200000);
}

/* The first job submits the second one from its done callback, and blocks for a second then;
 * or blocks there first, and submits while it does. */
static void done_blocks(void *context) {
  (void)context;
  open_shared((idlesched_pool_config){ .workers_max = 1 });
  deeds[0] = (struct deed){ .submits = 1, .blocks_in_done = true, .blocks_ns = IDS_S };
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  sim_check_jobs_started_at_once();
  finish_shared();
}

static void submit_while_blocking(struct sim_trace *job) {
  if (job != &sim_jobs[0])
    return;
  idlesched_blocking_begin();
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  sim_sleep_ns(IDS_S);
  idlesched_blocking_end();
}

static void done_submits_while_it_blocks(void *context) {
  (void)context;
  open_shared((idlesched_pool_config){ .workers_max = 1 });
  sim_jobs_tell(NULL, submit_while_blocking);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  sim_check_jobs_started_at_once();
  finish_shared();
}

SPEC(a_job_of_a_done_callback_that_blocks,
     "G12 a job that is submitted in a done callback which blocks begins 0 ms later") {
  struct sim_plan plan = plan_of("submit, block", done_blocks, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan = plan_of("block, submit", done_submits_while_it_blocks, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

SPEC(resized_while_jobs_block, "G12 G7 a resize while jobs block strands none") {
  struct setting down = { .workers_max = 2,
                          .blocking_max = 1,
                          .clients = 1,
                          .jobs_of_each = 3,
                          .blockers = 3,
                          .resizes_to = 1 };
  struct sim_plan plan = plan_of("blocks, resize 2 1", block_at_any_moment, &down);
  sim_pool_searches(&plan, 1, 200000);
  struct setting up = { .workers_max = 1,
                        .blocking_max = 1,
                        .clients = 2,
                        .jobs_of_each = 3,
                        .blockers = 0x2d,
                        .is_slow = true,
                        .resizes_to = 3 };
  plan = plan_of("blocks, resize 1 3", block_at_any_moment, &up);
  sim_pool_samples(&plan, 200000);
  struct setting more = { .workers_max = 3,
                          .blocking_max = 2,
                          .clients = 3,
                          .jobs_of_each = 3,
                          .blockers = 0x16d,
                          .is_slow = true,
                          .exits = true,
                          .resizes_to = 1 };
  plan = plan_of("blocks, resize 3 1", block_at_any_moment, &more);
  sim_pool_samples(&plan, 200000);
}

/* ------------------------------------------------------------------------- its close */

/* The first job has blocked and works on for ever, as it seems; who ran in its place is parked. */
static void close_while_one_has_come_back(void *context) {
  (void)context;
  open_shared(
    (idlesched_pool_config){ .workers_max = 1, .idle_release_ns = NEVER, .idle_exit_ns = NEVER });
  idlesched_pool *pool = shared;
  deeds[0] = (struct deed){ .blocks = true, .blocks_ns = IDS_MS, .works_ns = 10 * IDS_S };
  sim_must_submit(pool, 0);
  sim_must_submit(pool, 1);
  sim_sleep_ns(2 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(pool).parked, 1);
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, IDS_S, &report), -ETIMEDOUT);
  SIM_CHECK_EQUAL(report.left_behind_count, 1);
  SIM_CHECK_EQUAL(sim_pool_threads_count(), 1);
  shared = NULL;
  sim_sleep_ns(10 * IDS_S);
  SIM_CHECK_EQUAL(sim_pool_threads_count(), 0);
  sim_pool_finish(pool);
}

SPEC(closed_while_one_too_many_is_parked,
     "G12 C11 a close leaves behind whose job goes on, and nobody who ran in its place") {
  struct sim_plan plan = plan_of("blocks, close", close_while_one_has_come_back, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* -------------------------------------------------------------------------- refusals */

/* Job 0 blocks for 10 ms.  There is a thread for the others, or they wait for job 0's. */
static void nobody_in_its_place(void *context) {
  (void)context;
  if (!open_shared((idlesched_pool_config){ .workers_max = 1 }))
    return;
  deeds[0] = (struct deed){ .blocks = true, .blocks_ns = 10 * IDS_MS };
  if (sim_submit(shared, 0) != 0)
    sim_must_submit(shared, 0);
  uint64_t refused_count = sim_stats(shared).starts_refused;
  (void)sim_submit(shared, 1);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  bool is_refused = sim_stats(shared).starts_refused > refused_count;
  if (sim_jobs[1].runs_count > 0 && sim_jobs[0].started_at_ns == sim_jobs[0].submitted_at_ns)
    SIM_CHECK_EQUAL(sim_jobs[1].started_at_ns,
                    sim_jobs[1].submitted_at_ns + (is_refused ? 10 * IDS_MS : 0));
  finish_shared();
}

SPEC(a_thread_in_its_place_is_refused,
     "G12 G2 when no thread can be had in place of a job that blocks, others wait for it, and none "
     "is stranded") {
  struct sim_plan plan = plan_of("nobody in its place", nobody_in_its_place, NULL);
  plan.fault_mode = SIM_FAULT_CHOICE;
  plan.faults_max = 1;
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  struct setting two = {
    .workers_max = 1, .blocking_max = 2, .clients = 2, .jobs_of_each = 2, .blockers = 0xb
  };
  plan = plan_of("blocks 1x4, refusals", block_at_any_moment, &two);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 300;
  sim_spec_faults(&plan);
  plan.is_hostile = true;
  sim_spec_faults(&plan);
}

/* -------------------------------------------------------------------- elsewhere */

static void block_in_hook(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  idlesched_blocking_begin();
  sim_sleep_ns(IDS_MS);
  idlesched_blocking_end();
}

static void block_elsewhere(void *context) {
  (void)context;
  open_shared(
    (idlesched_pool_config){ .workers_max = 1,
                             .idle_exit_ns = IDS_MS,
                             .hooks = { .start = block_in_hook, .stop = block_in_hook } });
  idlesched_blocking_end();
  idlesched_blocking_begin();
  sim_must_submit(shared, 0);
  sim_must_submit(shared, 1);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  sim_sleep_ns(10 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 0);
  finish_shared();
}

SPEC(nothing_elsewhere, "G12 in a hook, and on threads that are no workers, it does nothing") {
  struct sim_plan plan = plan_of("block elsewhere", block_elsewhere, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}
