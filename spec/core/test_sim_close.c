/* SPDX-License-Identifier: MIT */
/*
 * test_sim_close.c - a pool closes, at any step of whatever its workers and clients do: in
 * time, once, and each job ends once.
 */
#include <errno.h>

#include "pool_sim.h"

struct setting {
  unsigned workers_max, clients;
  enum idlesched_close_mode mode;
  bool is_dedicated, retires;
  bool is_slow;  /* jobs, releases and leaving take time, and workers exit soon */
  bool is_exact; /* on the fair clock: what takes no time takes none */
};

static idlesched_pool *shared;
static const struct setting *shared_setting;

static void retire_worker(struct sim_trace *job) {
  if (job == &sim_jobs[0] && shared_setting->retires)
    idlesched_worker_retire(idlesched_worker_current());
}

static bool open_shared(const struct setting *setting) {
  shared_setting = setting;
  shared = sim_pool_try_create(&(idlesched_pool_config){
    .workers_max = setting->workers_max,
    .is_dedicated = setting->is_dedicated,
    .idle_release_ns = setting->is_slow ? 5 * IDS_MS : 0,
    .idle_exit_ns = setting->is_slow ? 20 * IDS_MS : 0,
    .hooks = sim_state_hooks,
    .dropped = sim_job_dropped,
  });
  if (shared == NULL)
    return false;
  sim_states(setting->is_slow ? 1 : 0, 2, IDS_MS);
  sim_jobs_tell(retire_worker, NULL);
  if (setting->is_slow) {
    sim_jobs_take(4 * IDS_MS);
    sim_heap_configure(&(struct sim_heap_config){
      .collect_ns = IDS_MS, .abandon_ns = IDS_MS, .purge_ns = 2 * IDS_MS });
  }
  return true;
}

/* ----------------------------------------------------- at every step of all */

/* Whoever accepted a job ends it: nobody waits for ever. */
static void submit_and_wait(void *context) {
  unsigned i = 2 * (unsigned)(uintptr_t)context;
  (void)sim_submit(shared, i);
  if (sim_submit_waitable(shared, i + 1) != 0)
    return;
  int status = idlesched_job_wait(&sim_jobs[i + 1].job, IDLESCHED_NEVER);
  SIM_CHECK(status == 0 || status == -ENOMEM); /* no condition to wait on */
}

static void close_now(void *context) {
  const struct setting *setting = context;
  uint64_t begun_ns = ids_now_ns();
  idlesched_close_report report = { 77, 77 };
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, setting->mode, IDLESCHED_NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.left_behind_count, 0);
  if (setting->mode == IDLESCHED_CLOSE_DRAIN)
    SIM_CHECK_EQUAL(report.dropped_count, 0);
  if (setting->is_exact)
    SIM_CHECK_EQUAL(ids_now_ns(), begun_ns);
  sim_check_closed(shared);
}

static void finish_closed(void) {
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, &report),
                  0);
  sim_check_closed(shared);
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, 1, &report), 0);
  SIM_CHECK_EQUAL(report.dropped_count + report.left_behind_count, 0);
  sim_pool_finish(shared);
}

static void close_at_a_step(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[4];
  open_shared(setting);
  sim_sweep_begin(close_now, context);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], submit_and_wait, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  if (setting->is_slow) { /* it has released, and may be about to exit */
    sim_sleep_ns(13 * IDS_MS);
    (void)sim_submit(shared, 60);
    sim_sleep_ns(24 * IDS_MS);
    (void)sim_submit(shared, 61);
  }
  sim_sweep_end();
  finish_closed();
}

SPEC(close_at_every_step,
     "G3 G4 C3 a pool closed at any step, drained or cancelled, ends every job once, and wakes "
     "everybody; where nothing takes time it takes 0 ms") {
  const enum idlesched_close_mode modes[] = { IDLESCHED_CLOSE_DRAIN, IDLESCHED_CLOSE_CANCEL };
  for (unsigned m = 0; m < 2; m++) {
    struct setting settings[] = {
      { .workers_max = 1, .clients = 2 },
      { .workers_max = 2, .clients = 2 },
      { .workers_max = 1, .clients = 2, .retires = true },
      { .workers_max = 2, .clients = 2, .is_dedicated = true },
      { .workers_max = 1, .clients = 1, .is_slow = true },
      { .workers_max = 2, .clients = 2, .is_slow = true },
      { .workers_max = 2, .clients = 2, .is_slow = true, .retires = true },
    };
    for (unsigned i = 0; i < ids_countof(settings); i++) {
      settings[i].mode = modes[m];
      settings[i].is_exact = !settings[i].is_slow;
      struct sim_plan plan = { .name = modes[m] == IDLESCHED_CLOSE_DRAIN ? "drain at a step"
                                                                         : "cancel at a step",
                               .scenario = close_at_a_step,
                               .context = &settings[i],
                               .runs_max = 50,
                               .strategy = SIM_RANDOM };
      sim_spec_sweep(&plan);
      settings[i].is_exact = false;
      plan.is_hostile = true;
      sim_spec_sweep(&plan);
    }
  }
}

/* ---------------------------------------------------------- beside submits */

static void retire_worker_0(void *context) {
  (void)context;
  idlesched_worker_retire(sim_worker(shared, 0));
}

static void close_beside_submits(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[4], retirer;
  if (!open_shared(setting))
    return;
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], i == 0 ? close_now : submit_and_wait,
                     i == 0 ? context : (void *)(uintptr_t)i);
  if (setting->retires)
    sim_client_start(&retirer, retire_worker_0, NULL);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  if (setting->retires)
    sim_client_join(&retirer);
  finish_closed();
}

static struct sim_plan plan_beside(const char *name, struct setting *setting) {
  return (struct sim_plan){ .name = name, .scenario = close_beside_submits, .context = setting };
}

SPEC(close_races_a_submit, "G3 G4 a close beside submits: what was accepted ends once") {
  struct setting one = { .workers_max = 1, .clients = 2 };
  struct sim_plan plan = plan_beside("close 1x2", &one);
  sim_pool_searches(&plan, 2, 800000);
  struct setting two = { .workers_max = 2, .clients = 2, .mode = IDLESCHED_CLOSE_CANCEL };
  plan = plan_beside("close 2x2", &two);
  sim_pool_searches(&plan, 1, 800000);
  struct setting retiring = { .workers_max = 1, .clients = 2, .retires = true };
  plan = plan_beside("close and retire 1x2", &retiring);
  sim_pool_searches(&plan, 1, 400000);
  struct setting many = {
    .workers_max = 3, .clients = 4, .mode = IDLESCHED_CLOSE_CANCEL, .is_slow = true
  };
  plan = plan_beside("close 3x4", &many);
  sim_pool_samples(&plan, 200000);
}

SPEC(close_with_refusals, "G3 G4 a close returns, and every job ends once, whatever is refused") {
  struct setting setting = { .workers_max = 2, .clients = 3, .retires = true };
  struct sim_plan plan = plan_beside("close, refusals", &setting);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 50;
  sim_spec_faults(&plan);
}

/* ------------------------------------------------------------ several closes */

static const struct setting one_worker = { .workers_max = 1 };
static unsigned dropped_count;
static int status_within;

static void close_too(void *mode) {
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, (enum idlesched_close_mode)(uintptr_t)mode,
                                       IDLESCHED_NEVER, &report),
                  0);
  SIM_CHECK_EQUAL(report.left_behind_count, 0);
  dropped_count += (unsigned)report.dropped_count; /* of one of them, or of none */
}

static void close_from_within(struct sim_trace *job) {
  (void)job;
  status_within = idlesched_pool_close(shared, IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, NULL);
  SIM_CHECK_EQUAL(status_within, -EDEADLK);
}

static void close_twice(void *context) {
  (void)context;
  struct sim_client closer;
  dropped_count = 0;
  open_shared(&one_worker);
  sim_jobs_tell(close_from_within, close_from_within);
  for (unsigned i = 0; i < 3; i++)
    SIM_CHECK_EQUAL(sim_submit_waitable(shared, i), 0);
  sim_client_start(&closer, close_too, (void *)(uintptr_t)IDLESCHED_CLOSE_CANCEL);
  close_too((void *)(uintptr_t)IDLESCHED_CLOSE_DRAIN);
  sim_client_join(&closer);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_cancelled, dropped_count);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_done + dropped_count, 3);
  finish_closed();
}

SPEC(two_closes,
     "G3 two closes at once are one; from a job or a callback of its own it is refused") {
  struct sim_plan plan = { .name = "two closes", .scenario = close_twice };
  sim_pool_searches(&plan, 1, 400000);
}

/* ---------------------------------------------------------- the time limit */

struct limit {
  enum idlesched_close_mode mode;
  uint64_t timeout_ns;
  uint64_t returns_after_ns;
  unsigned dropped_count, left_count;
  bool is_freed_at_once; /* by the threads that are left behind */
};

/* Who is left behind, and since when it runs the job that keeps it, in steps of 500 ms. */
static void check_left_behind(uint64_t begun_ns, unsigned left_count) {
  idlesched_worker_row rows[2];
  unsigned count = 0;
  uint64_t now_ns = ids_now_ns();
  idlesched_pool_workers_read(shared, rows, 2);
  for (unsigned i = 0; i < 2; i++) {
    bool is_left = rows[i].state != IDLESCHED_WORKER_ABSENT;
    SIM_CHECK_EQUAL(rows[i].state, is_left ? IDLESCHED_WORKER_RUNNING : IDLESCHED_WORKER_ABSENT);
    SIM_CHECK_EQUAL(rows[i].running_ns, is_left ? (now_ns + 1 - begun_ns) % (500 * IDS_MS) : 0);
    count += is_left;
  }
  SIM_CHECK_EQUAL(count, left_count);
}

/* Two workers, and five jobs of 500 ms. */
static void close_within(void *context) {
  const struct limit *limit = context;
  idlesched_close_report report;
  open_shared(&(const struct setting){ .workers_max = 2 });
  sim_jobs_take(500 * IDS_MS);
  for (unsigned i = 0; i < 5; i++)
    SIM_CHECK_EQUAL(i % 2 == 0 ? sim_submit(shared, i) : sim_submit_waitable(shared, i), 0);
  sim_sleep_ns(1); /* two of them run */
  uint64_t begun_ns = ids_now_ns();
  int status = limit->left_count > 0 ? -ETIMEDOUT : 0;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, limit->mode, limit->timeout_ns, &report), status);
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + limit->returns_after_ns);
  SIM_CHECK_EQUAL(report.dropped_count, limit->dropped_count);
  SIM_CHECK_EQUAL(report.left_behind_count, limit->left_count);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_queued, 0);
  SIM_CHECK_EQUAL(sim_submit(shared, 62), -ESHUTDOWN);
  /* A second one tells of now, and does not wait for what was given up. */
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, limit->mode, IDLESCHED_NEVER, &report), status);
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + limit->returns_after_ns);
  SIM_CHECK_EQUAL(report.left_behind_count, limit->left_count);
  check_left_behind(begun_ns, limit->left_count);
  if (limit->is_freed_at_once) {
    sim_pool_unwatch(shared);
    idlesched_pool_destroy(shared);
    SIM_CHECK_EQUAL(sim_pool_threads_count(), limit->left_count);
  }
  ids_sleep_until(begun_ns + 2 * IDS_S);
  SIM_CHECK_EQUAL(sim_pool_threads_count(), 0);
  sim_check_jobs_ended();
  if (!limit->is_freed_at_once)
    finish_closed();
}

SPEC(close_in_time,
     "G3 G4 C3 a close returns at its limit to the nanosecond, or when the last job has ended, and "
     "reports what it dropped and left, and for how long that runs; left-behind threads end their jobs and free the pool") {
  static const struct limit limits[] = {
    { IDLESCHED_CLOSE_DRAIN, 100 * IDS_MS, 100 * IDS_MS, 3, 2, false },
    { IDLESCHED_CLOSE_DRAIN, 100 * IDS_MS, 100 * IDS_MS, 3, 2, true },
    { IDLESCHED_CLOSE_CANCEL, 100 * IDS_MS, 100 * IDS_MS, 3, 2, true },
    { IDLESCHED_CLOSE_DRAIN, 700 * IDS_MS, 700 * IDS_MS, 1, 2, true },
    { IDLESCHED_CLOSE_DRAIN, 1200 * IDS_MS, 1200 * IDS_MS, 0, 1, true },
    { IDLESCHED_CLOSE_DRAIN, 0, 1500 * IDS_MS - 1, 0, 0, false },
    { IDLESCHED_CLOSE_CANCEL, 0, 500 * IDS_MS - 1, 3, 0, false },
    { IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, 500 * IDS_MS - 1, 3, 0, false },
  };
  for (unsigned i = 0; i < ids_countof(limits); i++) {
    struct limit limit = limits[i];
    struct sim_plan plan = { .name = "close in time", .scenario = close_within, .context = &limit };
    sim_spec_exhaust(&plan);
    plan.strategy = SIM_RANDOM;
    sim_spec_sample(&plan, 20000);
  }
}

/* Without a limit of its own, 2 s; and orphaned at any moment, in any order. */
static void orphan(void *context) {
  (void)context;
  open_shared(&(const struct setting){ .workers_max = 2, .retires = true });
  sim_jobs_take(5 * IDS_S);
  for (unsigned i = 0; i < 3; i++)
    SIM_CHECK_EQUAL(sim_submit_waitable(shared, i), 0);
  uint64_t begun_ns = ids_now_ns();
  sim_pool_unwatch(shared);
  idlesched_pool_destroy(shared);
  ids_sleep_until(begun_ns + 3600 * IDS_S);
  if (sim_pool_threads_count() == 0)
    sim_check_jobs_ended();
}

SPEC(orphaned, "G3 G4 a pool destroyed with jobs that run is freed by its last thread") {
  struct sim_plan plan = { .name = "orphaned", .scenario = orphan };
  sim_pool_searches(&plan, 1, 200000);
}

/* A worker exits, or retires, and takes so long to purge; the pool closes meanwhile. */
struct leaving {
  bool retires;
  uint64_t purge_ns, closes_at_ns, returns_at_ns;
  unsigned left_count;
};

static void close_meets_one_that_leaves(void *context) {
  const struct leaving *leaving = context;
  idlesched_close_report report;
  shared = SIM_POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER,
                    .idle_exit_ns = 50 * IDS_MS);
  uint64_t begun_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 1), 0);
  sim_await_parked(shared, 1);
  sim_heap_configure(&(struct sim_heap_config){ .purge_ns = leaving->purge_ns });
  ids_sleep_until(begun_ns + 40 * IDS_MS);
  if (leaving->retires)
    idlesched_worker_retire(sim_worker(shared, 0));
  ids_sleep_until(begun_ns + leaving->closes_at_ns);
  int status = leaving->left_count > 0 ? -ETIMEDOUT : 0;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, IDS_MS, &report), status);
  SIM_CHECK_EQUAL(report.left_behind_count, leaving->left_count);
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + leaving->returns_at_ns);
  sim_sleep_ns(IDS_S);
  finish_closed();
}

SPEC(leaving_by_itself,
     "C3 G3 a worker that exits or retires by itself while close runs counts as gone: close "
     "returns as it ends, which is not twice, and 100 ms after its limit at the latest") {
  static const struct leaving all[] = {
    { false, 30 * IDS_MS, 45 * IDS_MS, 75 * IDS_MS, 0 }, /* still parked: it stops */
    { false, 30 * IDS_MS, 50 * IDS_MS, 80 * IDS_MS, 0 }, /* at the same instant */
    { false, 30 * IDS_MS, 60 * IDS_MS, 80 * IDS_MS, 0 },
    { false, 3 * IDS_MS, 53 * IDS_MS, 53 * IDS_MS, 0 }, /* as it ends */
    { true, 30 * IDS_MS, 40 * IDS_MS, 70 * IDS_MS, 0 },
    { true, 30 * IDS_MS, 69 * IDS_MS, 70 * IDS_MS, 0 },
    { true, 400 * IDS_MS, 60 * IDS_MS, 160 * IDS_MS, 1 },
  };
  for (unsigned i = 0; i < ids_countof(all); i++) {
    struct leaving leaving = all[i];
    struct sim_plan plan = { .name = "meets a leaving one",
                             .scenario = close_meets_one_that_leaves,
                             .context = &leaving };
    plan.bound = 2;
    sim_spec_exhaust(&plan);
  }
}

/* ------------------------------------------------------ beside threads that start */

static uint64_t starts_when_closed;

static void close_and_note(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);
  starts_when_closed = sim_stats(shared).starts;
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 0);
}

static void close_beside_starts(void *context) {
  (void)context;
  struct sim_client client;
  shared = SIM_POOL(.workers_max = 2);
  sim_client_start(&client, close_and_note, NULL);
  int status = idlesched_pool_start_workers(shared, 2);
  SIM_CHECK(status == 0 || status == -ESHUTDOWN);
  sim_client_join(&client);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(shared).starts, starts_when_closed);
  finish_closed();
}

SPEC(close_beside_workers_that_start,
     "G3 workers are started while the pool closes: when it is closed no further thread starts") {
  struct sim_plan plan = { .name = "close beside starts", .scenario = close_beside_starts };
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* Told to retire when close has told it to stop: it does not go on as its own successor. */
static void close_beside_a_retirement(void *context) {
  (void)context;
  struct sim_client client;
  sim_states(1, 1, 0);
  shared = SIM_POOL(.workers_max = 1, .hooks = sim_state_hooks);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 1), 0);
  sim_settle(shared);
  sim_heap_configure(&(struct sim_heap_config){ .purge_ns = 30 * IDS_MS });
  uint64_t begun_ns = ids_now_ns();
  sim_client_start(&client, retire_worker_0, NULL);
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + 30 * IDS_MS);
  SIM_CHECK_EQUAL(sim_state_stops(0), 1);
  sim_client_join(&client);
  finish_closed();
}

SPEC(retired_while_it_stops,
     "C18 G3 a worker told to retire at any moment of a close leaves once") {
  struct sim_plan plan = { .name = "close beside retirement",
                           .scenario = close_beside_a_retirement };
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}
