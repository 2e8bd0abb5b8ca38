/* SPDX-License-Identifier: MIT */
/*
 * test_sim_retire.c - workers that leave for good: after each job where they are dedicated, or
 * because they were told to.  What is queued meanwhile runs elsewhere.
 *
 * Method: each worker keeps a record of its life, from the start hook to the stop hook, in which
 * each job looks whether it may run there.
 */
#include <string.h>

#include "pool_sim.h"

/* ------------------------------------------------- what a thread remembers */

#define WORKERS_MAX 3
#define LIVES_MAX 16

/* One life of a worker, from the start hook to the stop hook. */
struct life {
  uintptr_t thread;
  unsigned jobs_count;
  bool has_left;
  const void *key;  /* of the job that runs */
  uint32_t is_told; /* to take no further job */
};

/* Of each index: a life begins after the one before has ended. */
static struct life lives[WORKERS_MAX][LIVES_MAX];
static unsigned lives_count[WORKERS_MAX], left_count[WORKERS_MAX];

static void begin_life(idlesched_worker *worker, void *context) {
  (void)context;
  unsigned index = idlesched_worker_index(worker);
  SIM_CHECK(idlesched_worker_data(worker) == NULL);
  SIM_CHECK_EQUAL(left_count[index], lives_count[index]);
  SIM_CHECK(lives_count[index] < LIVES_MAX);
  struct life *life = &lives[index][lives_count[index]++];
  *life = (struct life){ .thread = ids_thread_number() };
  idlesched_worker_set_data(worker, life);
}

static struct life *my_life(void) {
  struct life *life = idlesched_worker_data(idlesched_worker_current());
  SIM_CHECK_EQUAL(life->thread, ids_thread_number());
  SIM_CHECK(!life->has_left);
  return life;
}

static void end_life(idlesched_worker *worker, void *context) {
  (void)context;
  my_life()->has_left = true;
  left_count[idlesched_worker_index(worker)]++;
}

static idlesched_pool *shared;
static bool retires[SIM_JOBS_MAX]; /* asks that its worker retires after it */
static struct life *ran_in[SIM_JOBS_MAX];
static const char one_key;

static void begin_job(struct sim_trace *job) {
  struct life *life = my_life();
  size_t i = (size_t)(job - sim_jobs);
  ran_in[i] = life;
  SIM_CHECK_EQUAL(ids_load_acquire(&life->is_told), 0);
  SIM_CHECK(life->jobs_count == 0 || !shared->group.config.is_dedicated);
  SIM_CHECK(life->key == NULL);
  life->key = &one_key;
  life->jobs_count++;
  if (retires[i]) {
    ids_store_release(&life->is_told, 1);
    idlesched_worker_retire(idlesched_worker_current());
  }
}

/* It has settled, and its worker has not begun to leave. */
static void end_job(struct sim_trace *job) {
  struct life *life = my_life();
  SIM_CHECK(ran_in[job - sim_jobs] == life && life->key == &one_key);
  life->key = NULL;
}

/* A worker has retired only when its thread has ended. */
static void check_retires(void *context) {
  (void)context;
  if (shared == NULL || sim_is_locked(&shared->group.lock))
    return;
  const struct ids_group *group = &shared->group;
  SIM_CHECK_RELATION(group->counters.retires + sim_pool_threads_count(), <=,
                     group->counters.starts + group->in_state_count[IDS_WORKER_STARTING]);
}

static bool open_shared(idlesched_pool_config config) {
  for (unsigned i = 0; i < WORKERS_MAX; i++)
    lives_count[i] = left_count[i] = 0;
  memset(retires, 0, sizeof retires);
  config.hooks = (idlesched_worker_hooks){ .start = begin_life, .stop = end_life };
  shared = sim_pool_try_create(&config);
  sim_jobs_tell(begin_job, end_job);
  sim_invariant(check_retires, NULL);
  return shared != NULL;
}

/* So many workers have retired; false when one may have gone on, for want of a successor. */
static bool await_retires(unsigned count) {
  idlesched_pool_stats stats = sim_stats(shared);
  while (stats.retires < count && stats.starts_refused == 0) {
    sim_sleep_ns(IDS_MS);
    stats = sim_stats(shared);
  }
  return stats.starts_refused == 0;
}

/* Each job has ended once, each life too. */
static void close_shared(void) {
  idlesched_pool *pool = shared;
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  shared = NULL;
  SIM_CHECK_EQUAL(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);
  sim_pool_finish(pool);
  for (unsigned i = 0; i < WORKERS_MAX; i++)
    SIM_CHECK_EQUAL(left_count[i], lives_count[i]);
}

/* ------------------------------------------------------------- the set-up */

static unsigned submits_of_each;

static void submit_some(void *context) {
  unsigned first = (unsigned)(uintptr_t)context * submits_of_each;
  for (unsigned i = 0; i < submits_of_each; i++)
    (void)sim_submit_waitable(shared, first + i);
}

static void submit_by_clients(unsigned clients_count, unsigned jobs_of_each) {
  struct sim_client clients[4];
  submits_of_each = jobs_of_each;
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_start(&clients[i], submit_some, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_join(&clients[i]);
}

static unsigned ran_count(void) {
  unsigned count = 0;
  for (unsigned i = 0; i < SIM_JOBS_MAX; i++)
    count += sim_jobs[i].runs_count;
  return count;
}

/* ---------------------------------------------------------------- dedicated */

struct setting {
  unsigned workers_max, clients, jobs_of_each;
  bool is_dedicated;
  bool is_slow; /* jobs, and tidying, take time */
};

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context),
                               struct setting *setting) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = setting };
}

static bool open_for(const struct setting *setting) {
  bool is_open = open_shared((idlesched_pool_config){
    .workers_max = setting->workers_max,
    .is_dedicated = setting->is_dedicated,
    .idle_release_ns = IDLESCHED_NEVER,
    .idle_exit_ns = IDLESCHED_NEVER,
  });
  if (is_open && setting->is_slow) {
    sim_jobs_take(10 * IDS_MS);
    sim_heap_configure(
      &(struct sim_heap_config){ .collect_ns = 2 * IDS_MS, .purge_ns = 3 * IDS_MS });
  }
  return is_open;
}

static void check_all_have_retired(unsigned count) {
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK_EQUAL(stats.retires, count);
  SIM_CHECK_EQUAL(stats.threads, 0);
  SIM_CHECK_EQUAL(stats.active, 0);
  SIM_CHECK_EQUAL(stats.exits, 0);
  SIM_CHECK_EQUAL(sim_pool_threads_count(), 0);
  SIM_CHECK_RELATION(stats.starts, >=, count);
}

static void dedicated(void *context) {
  const struct setting *setting = context;
  if (!open_for(setting))
    return;
  submit_by_clients(setting->clients, setting->jobs_of_each);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  unsigned count = ran_count();
  for (unsigned i = 0; i < SIM_JOBS_MAX; i++)
    SIM_CHECK(sim_jobs[i].runs_count == 0 || ran_in[i]->jobs_count == 1);
  if (await_retires(count))
    check_all_have_retired(count);
  close_shared();
}

SPEC(each_job_its_own_worker,
     "C1 C2 each job of a dedicated pool has a worker of its own; it settles, its done callback "
     "returns, the worker stops, its thread ends and is joined, and then it has retired") {
  struct setting one = { .workers_max = 1, .clients = 2, .jobs_of_each = 1, .is_dedicated = true };
  struct sim_plan plan = plan_of("dedicated 1x2", dedicated, &one);
  sim_pool_searches(&plan, 1, 800000);
  struct setting two = { .workers_max = 2, .clients = 2, .jobs_of_each = 1, .is_dedicated = true };
  plan = plan_of("dedicated 2x2", dedicated, &two);
  sim_pool_searches(&plan, 1, 800000);
  struct setting many = {
    .workers_max = 3, .clients = 4, .jobs_of_each = 1, .is_dedicated = true, .is_slow = true
  };
  plan = plan_of("dedicated 3x4", dedicated, &many);
  sim_pool_samples(&plan, 200000);
}

SPEC(five_dedicated_jobs,
     "C2 C1 after five dedicated jobs no worker is left and five have retired") {
  for (unsigned workers_max = 1; workers_max <= 3; workers_max++) {
    struct setting setting = { .workers_max = workers_max,
                               .clients = 1,
                               .jobs_of_each = 5,
                               .is_dedicated = true,
                               .is_slow = workers_max == 2 };
    struct sim_plan plan = plan_of("five dedicated jobs", dedicated, &setting);
    sim_spec_exhaust(&plan);
    sim_pool_samples(&plan, 100000);
  }
}

SPEC(dedicated_with_refusals, "C1 G4 C14 dedicated jobs end once each when the system refuses") {
  struct setting setting = {
    .workers_max = 2, .clients = 2, .jobs_of_each = 2, .is_dedicated = true
  };
  struct sim_plan plan = plan_of("dedicated, refusals", dedicated, &setting);
  plan.runs_max = 200;
  plan.strategy = SIM_RANDOM;
  sim_spec_faults(&plan);
}

/* ----------------------------------------------------- retiring by one's own */

/* The first job of each client retires its worker; others are queued at that moment. */
static void retire_oneself(void *context) {
  const struct setting *setting = context;
  if (!open_for(setting))
    return;
  for (unsigned i = 0; i < setting->clients; i++)
    retires[i * setting->jobs_of_each] = true;
  submit_by_clients(setting->clients, setting->jobs_of_each);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  unsigned told_count = 0;
  for (unsigned i = 0; i < SIM_JOBS_MAX; i++)
    told_count += retires[i] ? sim_jobs[i].runs_count : 0;
  (void)await_retires(told_count);
  close_shared();
}

SPEC(back_to_back,
     "C18 C11 C10 G4 a worker that retires meets back-to-back work: it takes none of it, and "
     "none is stranded, with one worker too") {
  struct setting one = { .workers_max = 1, .clients = 2, .jobs_of_each = 1 };
  struct sim_plan plan = plan_of("retire 1x2", retire_oneself, &one);
  sim_pool_searches(&plan, 2, 800000);
  struct setting two = { .workers_max = 2, .clients = 2, .jobs_of_each = 1 };
  plan = plan_of("retire 2x2", retire_oneself, &two);
  sim_pool_searches(&plan, 1, 800000);
  struct setting many = { .workers_max = 3, .clients = 4, .jobs_of_each = 2, .is_slow = true };
  plan = plan_of("retire 3x4", retire_oneself, &many);
  sim_pool_samples(&plan, 200000);
}

/* False when it was refused. */
static bool run_waitable_job(unsigned i) {
  if (sim_submit_waitable(shared, i) != 0)
    return false;
  if (idlesched_job_wait(&sim_jobs[i].job, IDLESCHED_NEVER) != 0) /* no condition to wait on */
    SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  return true;
}

/* Job 0 retires its worker, which leaves for 5 ms; job 1 comes at some moment of that. */
static void meet_one_that_leaves(void *context) {
  const struct setting *setting = context;
  static const uint64_t offsets_ns[] = { 0, 1, IDS_MS, 5 * IDS_MS - 1, 5 * IDS_MS, 5 * IDS_MS + 1 };
  if (!open_for(setting))
    return;
  sim_heap_configure(&(struct sim_heap_config){ .collect_ns = 2 * IDS_MS, .purge_ns = 3 * IDS_MS });
  retires[0] = true;
  uint64_t begun_ns = ids_now_ns();
  bool is_refused = !run_waitable_job(0);
  ids_sleep_until(begun_ns + offsets_ns[sim_choose(ids_countof(offsets_ns), "offset")]);
  if (is_refused || !run_waitable_job(1)) {
    close_shared();
    return;
  }
  bool is_elsewhere = sim_jobs[0].thread != sim_jobs[1].thread;
  idlesched_pool_stats stats = sim_stats(shared);
  if (stats.starts_refused == 0) {
    uint64_t may_start_ns = sim_jobs[1].submitted_at_ns;
    if (setting->workers_max == 1)
      may_start_ns = ids_later_ns(may_start_ns, begun_ns + 5 * IDS_MS);
    SIM_CHECK_EQUAL(sim_jobs[1].started_at_ns, may_start_ns);
    SIM_CHECK(is_elsewhere);
    (void)await_retires(1);
  }
  if (!is_elsewhere) { /* the system refused the successor: the old thread went on */
    SIM_CHECK_EQUAL(stats.starts_refused, 1);
    SIM_CHECK(ran_in[0] != ran_in[1]);
    SIM_CHECK_EQUAL(stats.retires, 0);
  }
  close_shared();
}

SPEC(no_job_waits_for_who_leaves,
     "C11 C18 a job beside a worker that leaves starts at once on another one; where there is no "
     "other, on its successor, as soon as that has the place") {
  struct setting one = { .workers_max = 1 }, two = { .workers_max = 2 };
  struct sim_plan plan = plan_of("meets a leaving one, 1", meet_one_that_leaves, &one);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  plan = plan_of("meets a leaving one, 2", meet_one_that_leaves, &two);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

SPEC(successor_is_refused,
     "C11 C14 when the system refuses the successor, the old thread goes on as if it were new") {
  struct setting one = { .workers_max = 1 };
  struct sim_plan plan = plan_of("successor refused", meet_one_that_leaves, &one);
  plan.bound = 1;
  plan.faults_max = 1;
  sim_spec_exhaust(&plan);
  struct setting two = { .workers_max = 2, .clients = 2, .jobs_of_each = 2 };
  plan = plan_of("retire, refusals", retire_oneself, &two);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 30;
  sim_spec_faults(&plan);
}

/* ------------------------------------------------- told by somebody, at any step */

static unsigned told_count;

/* From the next look on: which is a moment later, and may see its successor. */
static void tell_worker_0(void *context) {
  (void)context;
  struct ids_worker *worker = sim_worker(shared, 0);
  idlesched_worker_retire(worker);
  ids_group_lock(&shared->group);
  if (worker->is_retiring) {
    told_count++;
    bool is_waiting = worker->state == IDS_WORKER_PARKED || worker->state == IDS_WORKER_RELEASING;
    if (is_waiting) /* it has no job in hand */
      ids_store_release(&lives[0][lives_count[0] - 1].is_told, 1);
  }
  ids_group_unlock(&shared->group);
}

static void told_at_a_step(void *context) {
  const struct setting *setting = context;
  told_count = 0;
  open_shared((idlesched_pool_config){ .workers_max = setting->workers_max,
                                       .is_dedicated = setting->is_dedicated,
                                       .idle_release_ns = 5 * IDS_MS,
                                       .idle_exit_ns = setting->is_slow ? 20 * IDS_MS : 0 });
  if (setting->is_slow) {
    sim_jobs_take(10 * IDS_MS);
    sim_heap_configure(&(struct sim_heap_config){ .abandon_ns = IDS_MS, .purge_ns = 3 * IDS_MS });
  }
  retires[1] = true;
  sim_sweep_begin(tell_worker_0, NULL);
  submit_by_clients(setting->clients, setting->jobs_of_each);
  sim_sleep_ns(8 * IDS_MS); /* it may have released */
  (void)sim_submit_waitable(shared, 60);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[60].job, IDLESCHED_NEVER), 0);
  sim_sweep_end();
  SIM_CHECK(await_retires(told_count));
  close_shared();
}

SPEC(told_at_every_step,
     "C18 C11 G4 a worker told to retire at any step takes no further job, its thread ends, and "
     "no job is lost") {
  struct setting settings[] = {
    { .workers_max = 1, .clients = 1, .jobs_of_each = 2 },
    { .workers_max = 1, .clients = 2, .jobs_of_each = 1, .is_slow = true },
    { .workers_max = 2, .clients = 2, .jobs_of_each = 2 },
    { .workers_max = 2, .clients = 2, .jobs_of_each = 2, .is_slow = true },
    { .workers_max = 2, .clients = 2, .jobs_of_each = 1, .is_dedicated = true },
    { .workers_max = 3, .clients = 4, .jobs_of_each = 1, .is_slow = true },
  };
  for (unsigned i = 0; i < ids_countof(settings); i++) {
    struct sim_plan plan = plan_of("told at a step", told_at_a_step, &settings[i]);
    plan.runs_max = 50;
    sim_spec_sweep(&plan);
    plan.strategy = SIM_RANDOM;
    plan.runs_max = 30;
    plan.is_hostile = true;
    sim_spec_sweep(&plan);
  }
}

/* The warmest of two retires, and has not yet moved when a job comes. */
static void one_retires_and_a_job_comes(void *context) {
  (void)context;
  open_shared((idlesched_pool_config){ .workers_max = 2 });
  for (unsigned i = 1; i <= 2; i++) {
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, i), 0);
    sim_settle(shared);
  }
  idlesched_worker_retire(sim_worker(shared, 1));
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, IDLESCHED_NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[0].worker, 0);
  SIM_CHECK_EQUAL(sim_stats(shared).starts, 2);
  close_shared();
}

SPEC(who_retires_is_asked_last,
     "C18 A8 a job goes to a parked worker and starts no thread, even if a warmer one retires") {
  struct sim_plan plan = plan_of("one retires", one_retires_and_a_job_comes, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}
