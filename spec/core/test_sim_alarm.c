/* SPDX-License-Identifier: MIT */
/*
 * test_sim_alarm.c - delayed jobs begin at their moment, jobs that were not begun in time end at
 * theirs, and some worker watches as long as one of them is there.
 *
 * Method: on the fair clock, where nothing takes time, each moment is met to the nanosecond,
 * whatever comes between; the hostile one and refusals are for what must not be lost.  That
 * somebody wakes up for the next alarm is looked at whenever nothing can run (pool_sim.h), and
 * asserted at each unlock (I9).
 */
#include <errno.h>

#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER
#define DELAY_NS (200 * IDS_MS)

static idlesched_pool *the_pool;

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

static void must_submit_timed(unsigned i, uint64_t delay_ns, uint64_t expire_ns) {
  SIM_CHECK_EQUAL(sim_submit_timed(the_pool, i, delay_ns, expire_ns), 0);
}

/* A delayed job costs a ticket for its watcher at most, and one to run it; and a job that the
 * last idle worker takes, one for another watcher.  Besides, others may have been given. */
static void check_wakes_are_few(unsigned others_count) {
  idlesched_pool_stats stats = sim_stats(the_pool);
  SIM_CHECK_RELATION(stats.wakes - stats.tickets_lost, <=, 2 * stats.jobs_submitted + others_count);
}

static void finish(void) {
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  check_wakes_are_few(2);
  sim_pool_finish(the_pool);
}

/* ------------------------------------------------------------- at its moment */

struct setting {
  unsigned workers_max;
  uint64_t idle_release_ns, idle_exit_ns;
  bool is_dedicated;
  unsigned busy_count; /* workers that run a job of 10 s all the time */
  bool is_exact;       /* fair clock */
};

static void make_pool(const struct setting *setting) {
  the_pool = SIM_POOL(.workers_max = setting->workers_max, .is_dedicated = setting->is_dedicated,
                      .idle_release_ns = setting->idle_release_ns,
                      .idle_exit_ns = setting->idle_exit_ns, .dropped = sim_job_dropped,
                      .hooks = sim_state_hooks);
  sim_states(0, 1, 0);
}

static void take_long(struct sim_trace *job) {
  if (job >= &sim_jobs[50])
    sim_sleep_ns(10 * IDS_S);
}

static void keep_busy(unsigned count) {
  sim_jobs_tell(take_long, NULL);
  for (unsigned i = 0; i < count; i++)
    sim_must_submit(the_pool, 50 + i);
}

/* Jobs of equal and other moments, submitted out of order. */
static void begin_at_their_moments(void *context) {
  const struct setting *setting = context;
  make_pool(setting);
  keep_busy(setting->busy_count);
  sim_sleep_ns(1);
  must_submit_timed(0, 2 * DELAY_NS, 0);
  must_submit_timed(1, DELAY_NS, 0);
  must_submit_timed(2, DELAY_NS, 0);
  must_submit_timed(3, 0, 0);
  must_submit_timed(4, 1, 0);
  SIM_CHECK_RELATION(sim_stats(the_pool).jobs_delayed, >=, setting->is_exact ? 4 : 0);
  SIM_CHECK_RELATION(sim_stats(the_pool).jobs_queued, >=, sim_stats(the_pool).jobs_delayed);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  if (setting->is_exact)
    sim_check_jobs_started_at_once();
  if (setting->workers_max == 1)
    SIM_CHECK_RELATION(sim_jobs[1].began, <, sim_jobs[2].began);
  check_wakes_are_few(0);
  finish();
}

static const struct setting settings[] = {
  { .workers_max = 1 },
  { .workers_max = 2 },
  { .workers_max = 2, .busy_count = 1 },
  { .workers_max = 3, .busy_count = 2 },
  { .workers_max = 2, .is_dedicated = true },
  { .workers_max = 2, .is_dedicated = true, .busy_count = 1 },
  { .workers_max = 2, .idle_exit_ns = 1 },
  { .workers_max = 2, .idle_release_ns = 1, .idle_exit_ns = NEVER },
  { .workers_max = 2, .idle_release_ns = NEVER, .idle_exit_ns = NEVER },
  { .workers_max = 2, .idle_release_ns = NEVER, .idle_exit_ns = 50 * IDS_MS },
  { .workers_max = 3, .idle_release_ns = 1, .idle_exit_ns = 1, .busy_count = 1 },
};

SPEC(delayed_jobs_begin_at_their_moment,
     "G6 G7 delayed jobs begin at their moment to the nanosecond, whoever else is busy, and never "
     "before it; those of one moment in the order of their submits") {
  for (unsigned i = 0; i < ids_countof(settings); i++) {
    struct setting setting = settings[i];
    struct sim_plan plan = plan_of("at its moment", begin_at_their_moments, &setting);
    setting.is_exact = true;
    plan.bound = 1;
    sim_spec_exhaust(&plan);
    setting.is_exact = false;
    plan.is_hostile = true;
    plan.strategy = SIM_RANDOM;
    sim_spec_sample(&plan, 40000);
  }
}

/* --------------------------------------------------- who watches is called away */

static struct ids_worker *watcher_of_pool(void) {
  ids_group_lock(&the_pool->group);
  struct ids_worker *watcher = the_pool->group.watcher;
  ids_group_unlock(&the_pool->group);
  return watcher != NULL ? watcher : sim_worker(the_pool, 0);
}

static void submit_one(void *context) {
  (void)context;
  sim_must_submit(the_pool, 10);
}

static void submit_two(void *context) {
  (void)context;
  sim_must_submit(the_pool, 10);
  sim_must_submit(the_pool, 11);
}

static void retire_watcher(void *context) {
  (void)context;
  idlesched_worker_retire(watcher_of_pool());
}

static void release_all(void *context) {
  (void)context;
  int status = idlesched_pool_release(the_pool, NEVER, NULL);
  SIM_CHECK_EQUAL(status, 0);
}

static void start_more(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(the_pool, 2), 0);
}

static void free_some(void *context) {
  (void)context;
  idlesched_pool_freed(the_pool);
}

static void submit_sooner(void *context) {
  (void)context;
  must_submit_timed(12, IDS_MS, 0);
}

static void submit_what_expires(void *context) {
  (void)context;
  must_submit_timed(13, 0, IDS_MS);
}

static void (*const calls_away[])(void *context) = { submit_one,     submit_two,
                                                     retire_watcher, release_all,
                                                     start_more,     free_some,
                                                     submit_sooner,  submit_what_expires };

static const struct setting short_lives[] = {
  { .workers_max = 1, .idle_release_ns = 50 * IDS_MS, .idle_exit_ns = 120 * IDS_MS },
  { .workers_max = 2, .idle_release_ns = 50 * IDS_MS, .idle_exit_ns = 120 * IDS_MS },
  { .workers_max = 2,
    .idle_release_ns = 50 * IDS_MS,
    .idle_exit_ns = 120 * IDS_MS,
    .busy_count = 1 },
  { .workers_max = 3, .idle_release_ns = NEVER, .idle_exit_ns = 120 * IDS_MS },
  { .workers_max = 2, .idle_release_ns = 50 * IDS_MS, .idle_exit_ns = 1, .is_dedicated = true },
};

/* One job that is delayed, and one that expires before its delay is over. */
static void called_away(void *context) {
  const struct setting *setting = context;
  make_pool(setting);
  uint64_t begin_ns = ids_now_ns();
  sim_states(sim_choose(2, "workers with a state"), 2, 0);
  keep_busy(setting->busy_count);
  must_submit_timed(0, DELAY_NS, 0);
  must_submit_timed(1, 4 * DELAY_NS, 2 * DELAY_NS);
  uint64_t when_ns = sim_choose(8, "when") * DELAY_NS / 4;
  unsigned call = sim_choose(ids_countof(calls_away), "what");
  ids_sleep_until(begin_ns + when_ns);
  calls_away[call](NULL);
  ids_sleep_until(begin_ns + DELAY_NS + 1);
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 1);
  ids_sleep_until(begin_ns + 2 * DELAY_NS + 1);
  SIM_CHECK_EQUAL(sim_jobs[1].drops_count, 1);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  sim_check_jobs_started_at_once();
  sim_sleep_ns(11 * IDS_S); /* all is over, and who stayed to watch is gone */
  if (setting->idle_exit_ns != NEVER)
    SIM_CHECK_EQUAL(sim_stats(the_pool).threads, 0);
  finish();
}

SPEC(whoever_watches_may_be_called_away,
     "G6 G7 the worker that watches is given a job, retires, is released, or another alarm comes "
     "first: what is due happens at its moment, and then threads end in time") {
  for (unsigned i = 0; i < ids_countof(short_lives); i++) {
    struct setting setting = short_lives[i];
    struct sim_plan plan = plan_of("called away", called_away, &setting);
    sim_spec_exhaust(&plan);
    plan.bound = 1;
    plan.strategy = SIM_RANDOM;
    plan.spurious_max = 2;
    sim_spec_sample(&plan, 300000);
  }
}

/* The same at every step, and on the hostile clock: nothing is lost, whatever its moment. */
static void called_away_at_a_step(void *context) {
  const struct setting *setting = context;
  make_pool(setting);
  sim_sweep_begin(calls_away[sim_choose(ids_countof(calls_away), "what")], NULL);
  keep_busy(setting->busy_count);
  must_submit_timed(0, DELAY_NS, 0);
  must_submit_timed(1, 4 * DELAY_NS, 2 * DELAY_NS);
  must_submit_timed(2, DELAY_NS, 2 * DELAY_NS);
  sim_sleep_ns(3 * DELAY_NS);
  sim_sweep_end();
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  if (setting->is_exact)
    sim_check_jobs_started_at_once();
  finish();
}

SPEC(called_away_at_any_step, "G4 G6 the same at every step, in any order of things") {
  for (unsigned i = 0; i < ids_countof(short_lives); i++) {
    struct setting setting = short_lives[i];
    struct sim_plan plan = plan_of("called away at a step", called_away_at_a_step, &setting);
    plan.strategy = SIM_RANDOM;
    plan.runs_max = 100;
    setting.is_exact = true;
    sim_spec_sweep(&plan);
    setting.is_exact = false;
    plan.is_hostile = true;
    plan.spurious_max = 1;
    sim_spec_sweep(&plan);
  }
}

/* In all schedules, as far as they go: one thing beside alarms that are set. */
static void beside(void *context) {
  struct sim_client client;
  make_pool(&(const struct setting){ .workers_max = 2, .idle_exit_ns = 120 * IDS_MS });
  sim_client_start(&client, *(void (*const *)(void *context))context, NULL);
  must_submit_timed(0, DELAY_NS, 0);
  must_submit_timed(1, 0, DELAY_NS);
  sim_client_join(&client);
  finish();
}

SPEC(alarms_are_set_beside_others,
     "G4 G7 whatever happens while alarms are set: no job is lost, and wakes are few",
     .limit_s = 120) {
  for (unsigned i = 0; i < ids_countof(calls_away); i++) {
    struct sim_plan plan = plan_of("set beside", beside, (void *)&calls_away[i]);
    sim_pool_searches(&plan, 1, 60000);
  }
}

/* Who watches is at something that takes time when an alarm is due. */
struct tidying {
  unsigned workers_count;
  bool has_state, retires;
  uint64_t begins_at_ns;
};

/* A pass or a release begins at 50 ms, and its purge takes 30 ms; a state takes 20 steps of
 * 2 ms.  The alarm is for 61 ms. */
static void due_while_tidying(void *context) {
  const struct tidying *tidying = context;
  sim_states(tidying->has_state ? SIM_THREADS_MAX : 0, 20, 2 * IDS_MS);
  the_pool = SIM_POOL(.workers_max = tidying->workers_count, .idle_release_ns = 50 * IDS_MS,
                      .idle_exit_ns = NEVER, .hooks = sim_state_hooks);
  uint64_t begin_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(the_pool, tidying->workers_count), 0);
  sim_heap_configure(&(struct sim_heap_config){ .purge_ns = 30 * IDS_MS });
  must_submit_timed(0, 61 * IDS_MS, 0);
  if (tidying->retires) {
    sim_sleep_ns(20 * IDS_MS);
    retire_watcher(NULL);
  }
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[0].started_at_ns, begin_ns + tidying->begins_at_ns);
  finish();
}

SPEC(due_while_who_watches_tidies,
     "G6 A1 an alarm that falls due in a pass rings at its moment when another worker is parked; "
     "else when the purge, or the step of a collection, is over") {
  static const struct tidying all[] = {
    { .workers_count = 2, .begins_at_ns = 61 * IDS_MS },
    { .workers_count = 1, .begins_at_ns = 80 * IDS_MS },
    { .workers_count = 1, .has_state = true, .begins_at_ns = 62 * IDS_MS },
    { .workers_count = 2, .has_state = true, .begins_at_ns = 62 * IDS_MS },
    { .workers_count = 1, .retires = true, .begins_at_ns = 61 * IDS_MS }, /* its successor */
  };
  for (unsigned i = 0; i < ids_countof(all); i++) {
    struct tidying tidying = all[i];
    struct sim_plan plan = plan_of("due while tidying", due_while_tidying, &tidying);
    sim_spec_exhaust(&plan);
  }
}

/* Between alarms nobody wakes up, and a worker that stays for one alone leaves with it. */
static void at_rest(void *context) {
  (void)context;
  bool cancels = sim_choose(2, "cancels"), exits_late = sim_choose(2, "exits late");
  the_pool = SIM_POOL(.workers_max = 3, .idle_release_ns = 50 * IDS_MS,
                      .idle_exit_ns = (exits_late ? 120 : 1) * IDS_MS);
  uint64_t begin_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(the_pool, 3), 0);
  must_submit_timed(0, 10 * IDS_S, 0);
  must_submit_timed(1, 20 * IDS_S, 15 * IDS_S);
  sim_sleep_ns(2 * IDS_S); /* the others have left, and all is released */
  idlesched_pool_stats stats = sim_stats(the_pool);
  SIM_CHECK_EQUAL(stats.threads, 1);
  SIM_CHECK_EQUAL(stats.parked, 1);
  SIM_CHECK_EQUAL(stats.exits, 2);
  SIM_CHECK_EQUAL(stats.releases, exits_late ? 3 : 1); /* the others' exits have released */
  SIM_CHECK_EQUAL(sim_steps_of_sleep(7 * IDS_S), 1);   /* the scenario's own */
  if (cancels) {
    SIM_CHECK_EQUAL(idlesched_job_cancel(&sim_jobs[0].job), 0);
    SIM_CHECK_EQUAL(sim_stats(the_pool).threads, 1);
    SIM_CHECK_EQUAL(idlesched_job_cancel(&sim_jobs[1].job), 0);
    sim_sleep_ns(1);
    SIM_CHECK_EQUAL(sim_stats(the_pool).threads, 0);
  } else {
    ids_sleep_until(begin_ns + 12 * IDS_S);
    SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 1);
    SIM_CHECK_EQUAL(sim_stats(the_pool).threads, 1);
    ids_sleep_until(begin_ns + 17 * IDS_S);
    SIM_CHECK_EQUAL(sim_jobs[1].drops_count, 1);
    SIM_CHECK_EQUAL(sim_stats(the_pool).threads, 0);
  }
  finish();
}

SPEC(at_rest_between_alarms,
     "G7 G8 between alarms nobody wakes up; one worker stays for them, released, and leaves with "
     "the last of them, also when that is cancelled") {
  struct sim_plan plan = plan_of("between alarms", at_rest, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* --------------------------------------------------------------- not in time */

#define EXPIRE_NS (100 * IDS_MS)

static void wait_for_0(void *context) {
  uint64_t *returned_ns = context;
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, NEVER), 0);
  *returned_ns = ids_now_ns();
}

/* The only worker is busy, and somebody waits, or nobody; with a done callback, or without. */
static void nobody_comes_by(void *context) {
  (void)context;
  bool is_waited_for = sim_choose(2, "waits"), has_done = sim_choose(2, "has done");
  uint64_t returned_ns[2] = { 0, 0 };
  struct sim_client clients[2];
  the_pool = SIM_POOL(.workers_max = 1);
  keep_busy(1);
  sim_sleep_ns(1);
  uint64_t begin_ns = ids_now_ns();
  must_submit_timed(0, sim_choose(2, "is delayed"), EXPIRE_NS);
  struct sim_trace *job = &sim_jobs[0];
  if (!has_done)
    job->job.done = NULL;
  SIM_CHECK_EQUAL(idlesched_job_wait(&job->job, EXPIRE_NS / 2), -ETIMEDOUT);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + EXPIRE_NS / 2);
  for (unsigned i = 0; is_waited_for && i < 2; i++)
    sim_client_start(&clients[i], wait_for_0, &returned_ns[i]);
  for (unsigned i = 0; is_waited_for && i < 2; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; is_waited_for && i < 2; i++)
    SIM_CHECK_EQUAL(returned_ns[i], begin_ns + EXPIRE_NS);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + 10 * IDS_S - 1);
  SIM_CHECK_EQUAL(idlesched_job_state_read(&job->job), IDLESCHED_JOB_CANCELLED);
  SIM_CHECK_EQUAL(idlesched_job_status(&job->job), -ETIMEDOUT);
  SIM_CHECK_EQUAL(job->dones_count, has_done);
  SIM_CHECK_EQUAL(sim_stats(the_pool).jobs_cancelled, 1);
  if (!has_done)
    job->drops_count = job->dones_count = 1; /* for the account */
  finish();
}

SPEC(who_waits_is_told_in_time,
     "G4 G6 a job that expires while every worker is busy never runs, and who waits for it is told "
     "at that moment; others when a worker comes by") {
  struct sim_plan plan = plan_of("nobody comes by", nobody_comes_by, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

static void resubmit_once(struct sim_trace *job) {
  if (job->submits_count == 1)
    SIM_CHECK_EQUAL(sim_submit_again(the_pool, (unsigned)(job - sim_jobs)), 0);
}

/* Several at a time, with done callbacks that submit, while others may be free or busy. */
static void several_expire(void *context) {
  const struct setting *setting = context;
  make_pool(setting);
  keep_busy(setting->busy_count);
  sim_jobs_tell(take_long, resubmit_once);
  for (unsigned i = 0; i < 3; i++)
    must_submit_timed(i, i == 2 ? EXPIRE_NS / 2 : EXPIRE_NS, EXPIRE_NS);
  sim_sleep_ns(2 * EXPIRE_NS + 1);
  if (setting->is_exact) {
    SIM_CHECK_EQUAL(sim_jobs[0].drops_count, 2);
    SIM_CHECK_EQUAL(sim_jobs[1].drops_count, 2);
    SIM_CHECK_EQUAL(sim_jobs[2].runs_count, 2);
  }
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count + sim_jobs[1].runs_count, 0);
  finish();
}

SPEC(expired_jobs_end_once,
     "G4 expired jobs end once, at their moment when a worker is free, and their done callbacks "
     "may submit them again; one whose delay is as long as that never runs") {
  for (unsigned i = 0; i < ids_countof(settings); i++) {
    struct setting setting = settings[i];
    struct sim_plan plan = plan_of("several expire", several_expire, &setting);
    plan.bound = 1;
    setting.is_exact = true;
    sim_spec_exhaust(&plan);
    setting.is_exact = false;
    plan.is_hostile = true;
    plan.strategy = SIM_RANDOM;
    plan.spurious_max = 1;
    sim_spec_sample(&plan, 40000);
  }
}

static void take_300_ms(struct sim_trace *job) {
  if (job == &sim_jobs[40])
    sim_sleep_ns(300 * IDS_MS);
}

static void retire_own_worker(struct sim_trace *job) {
  if (job == &sim_jobs[0])
    idlesched_worker_retire(idlesched_worker_current());
}

/* A worker comes from a job, tells of one that has expired, and is told to retire by that. */
static void told_to_retire(void *context) {
  (void)context;
  the_pool = SIM_POOL(.workers_max = 1);
  sim_jobs_tell(take_300_ms, retire_own_worker);
  sim_must_submit(the_pool, 40);
  sim_sleep_ns(1);
  must_submit_timed(0, 0, EXPIRE_NS);
  sim_must_submit(the_pool, 1);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[0].drops_count, 1);
  SIM_CHECK(sim_jobs[1].thread != sim_jobs[40].thread);
  sim_pool_finish(the_pool);
}

SPEC(told_to_retire_by_a_callback,
     "C18 a worker told to retire by the done callback of a job that expired takes no other job") {
  struct sim_plan plan = plan_of("told to retire", told_to_retire, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------- from jobs of the pool */

static void wait_inside(struct sim_trace *job) {
  if (job != &sim_jobs[40])
    return;
  uint64_t begin_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, DELAY_NS / 2), -ETIMEDOUT);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + DELAY_NS / 2);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, NEVER), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + DELAY_NS);
  ids_sleep_until(begin_ns + 2 * DELAY_NS);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, NEVER), 0); /* it has expired */
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[2].job, 2 * DELAY_NS), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + 3 * DELAY_NS);
}

/* The only worker waits for jobs that come later: it runs them itself, at their moment. */
static void waits_inside(void *context) {
  (void)context;
  the_pool = SIM_POOL(.workers_max = 1 + sim_choose(2, "workers"));
  sim_jobs_tell(wait_inside, NULL);
  must_submit_timed(0, DELAY_NS, sim_choose(2, "may expire") * 2 * DELAY_NS);
  uint64_t begin_ns = ids_now_ns();
  sim_must_submit(the_pool, 40);
  must_submit_timed(1, 10 * DELAY_NS, DELAY_NS);
  must_submit_timed(2, 10 * DELAY_NS, 3 * DELAY_NS);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + 3 * DELAY_NS);
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 1);
  SIM_CHECK_EQUAL(sim_jobs[0].started_at_ns, begin_ns + DELAY_NS);
  SIM_CHECK_EQUAL(sim_jobs[1].drops_count, 1);
  SIM_CHECK_EQUAL(sim_jobs[2].drops_count, 1);
  finish();
}

SPEC(waiting_inside_for_what_comes_later,
     "G9 a job waits for delayed jobs of its own pool: its worker runs them when they are due, if "
     "no other one does, and ends those that expire") {
  struct sim_plan plan = plan_of("waits inside", waits_inside, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------------------- the end */

static enum idlesched_close_mode close_mode;

static void close_now(void *context) {
  (void)context;
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(the_pool, close_mode, NEVER, &report), 0);
  SIM_CHECK_EQUAL(report.left_behind_count, 0);
  sim_check_closed(the_pool);
  SIM_CHECK_EQUAL(sim_stats(the_pool).jobs_delayed, 0);
}

static void submit_mixed(void) {
  (void)sim_submit_timed(the_pool, 0, DELAY_NS, 0);
  (void)sim_submit_timed(the_pool, 1, 0, DELAY_NS);
  (void)sim_submit_timed(the_pool, 2, 2 * DELAY_NS, DELAY_NS);
  (void)sim_submit_timed(the_pool, 3, DELAY_NS, 2 * DELAY_NS);
  (void)sim_submit(the_pool, 4);
}

static void close_at_a_step(void *context) {
  make_pool(context);
  sim_jobs_take(IDS_MS);
  sim_sweep_begin(close_now, NULL);
  submit_mixed();
  sim_sleep_ns(3 * DELAY_NS);
  sim_sweep_end();
  close_now(NULL);
  sim_pool_finish(the_pool);
}

SPEC(
  close_at_any_step,
  "G3 G4 a pool with delayed jobs, and such as may expire, is closed at any step: each ends once") {
  const struct setting all[] = { { .workers_max = 1 },
                                 { .workers_max = 2 },
                                 { .workers_max = 2, .is_dedicated = true },
                                 { .workers_max = 2, .idle_exit_ns = 1 } };
  for (unsigned i = 0; i < 2 * ids_countof(all); i++) {
    struct setting setting = all[i / 2];
    close_mode = i % 2 == 0 ? IDLESCHED_CLOSE_DRAIN : IDLESCHED_CLOSE_CANCEL;
    struct sim_plan plan = plan_of("close at a step", close_at_a_step, &setting);
    plan.strategy = SIM_RANDOM;
    plan.runs_max = 50;
    sim_spec_sweep(&plan);
    plan.is_hostile = true;
    sim_spec_sweep(&plan);
  }
}

struct limit {
  enum idlesched_close_mode mode;
  uint64_t timeout_ns, returns_after_ns;
  unsigned runs_count;
};

/* Jobs that are due in 1, 2 and 4 s, and one that expires before it is due. */
static void close_within(void *context) {
  const struct limit *limit = context;
  idlesched_close_report report;
  the_pool = SIM_POOL(.workers_max = 1);
  must_submit_timed(0, IDS_S, 0);
  must_submit_timed(1, 2 * IDS_S, 10 * IDS_S);
  must_submit_timed(2, 4 * IDS_S, 0);
  must_submit_timed(3, 4 * IDS_S, IDS_S);
  uint64_t begin_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_close(the_pool, limit->mode, limit->timeout_ns, &report), 0);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + limit->returns_after_ns);
  unsigned runs_count = 0;
  for (unsigned i = 0; i < 3; i++)
    runs_count += sim_jobs[i].runs_count;
  SIM_CHECK_EQUAL(runs_count, limit->runs_count);
  unsigned expired_count = idlesched_job_status(&sim_jobs[3].job) == -ETIMEDOUT;
  SIM_CHECK_EQUAL(expired_count, limit->runs_count > 0);
  SIM_CHECK_EQUAL(report.dropped_count + runs_count + expired_count, 4);
  sim_pool_finish(the_pool);
}

SPEC(close_does_not_wait_in_vain,
     "G3 a drain runs the delayed jobs that are due within its time limit, and drops the others as "
     "soon as only they are left; a cancel drops all of them at once") {
  static const struct limit limits[] = {
    { IDLESCHED_CLOSE_CANCEL, 0, 0, 0 },
    { IDLESCHED_CLOSE_DRAIN, IDS_MS, 0, 0 },
    { IDLESCHED_CLOSE_DRAIN, IDS_S + 1, IDS_S, 1 },
    { IDLESCHED_CLOSE_DRAIN, 3 * IDS_S, 2 * IDS_S, 2 },
    { IDLESCHED_CLOSE_DRAIN, NEVER, 4 * IDS_S, 3 },
  };
  for (unsigned i = 0; i < ids_countof(limits); i++) {
    struct limit limit = limits[i];
    struct sim_plan plan = plan_of("close within", close_within, &limit);
    plan.bound = 1;
    sim_spec_exhaust(&plan);
  }
}

/* ------------------------------------------------------------ what is refused */

static void submit_refusable(void *context) {
  unsigned i = 5 * (unsigned)(uintptr_t)context;
  const uint64_t delays_ns[] = { DELAY_NS, 0, 2 * DELAY_NS, 1, 0 };
  const uint64_t expires_ns[] = { 0, DELAY_NS, DELAY_NS, 0, 0 };
  for (unsigned n = 0; n < 5; n++) {
    int status = sim_submit_timed(the_pool, i + n, delays_ns[n], expires_ns[n]);
    SIM_CHECK(status == 0 || status == -EAGAIN || status == -ENOMEM);
  }
}

static void refused(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[2];
  the_pool = sim_pool_try_create(
    &(const idlesched_pool_config){ .workers_max = setting->workers_max,
                                    .is_dedicated = setting->is_dedicated,
                                    .idle_exit_ns = setting->idle_exit_ns });
  if (the_pool == NULL)
    return;
  sim_jobs_take(setting->busy_count * DELAY_NS);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_refusable, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  sim_pool_check(the_pool);
  /* Who is never given memory for the queue waits until the close. */
  (void)idlesched_pool_wait(the_pool, 5 * DELAY_NS);
  SIM_CHECK_EQUAL(idlesched_pool_close(the_pool, IDLESCHED_CLOSE_CANCEL, NEVER, NULL), 0);
  sim_pool_finish(the_pool);
}

SPEC(threads_and_memory_may_be_refused,
     "G2 G4 whatever is refused, a delayed job was taken in and ends once, or the submit says so "
     "and keeps nothing; without memory for the queue it begins later") {
  static const struct setting all[] = {
    { .workers_max = 1 },
    { .workers_max = 2 },
    { .workers_max = 2, .busy_count = 2 },
    { .workers_max = 2, .is_dedicated = true },
    { .workers_max = 3, .idle_exit_ns = 1 },
  };
  for (unsigned i = 0; i < ids_countof(all); i++) {
    struct setting setting = all[i];
    struct sim_plan plan = plan_of("refused", refused, &setting);
    plan.strategy = SIM_RANDOM;
    plan.runs_max = 100;
    sim_spec_faults(&plan);
    plan.is_hostile = true;
    sim_spec_faults(&plan);
    plan.fault_mode = SIM_FAULT_TENTH;
    sim_spec_sample(&plan, 100000);
  }
}

/* The thread that is to take the watch over is refused while the old one leaves. */
static void retired_and_refused(void *context) {
  (void)context;
  struct sim_client client;
  the_pool = sim_pool_try_create(&(const idlesched_pool_config){ .workers_max = 2 });
  if (the_pool == NULL)
    return;
  if (sim_submit_timed(the_pool, 0, DELAY_NS, 0) != 0)
    must_submit_timed(0, DELAY_NS, 0);
  sim_client_start(&client, retire_watcher, NULL);
  sim_client_join(&client);
  SIM_CHECK_EQUAL(idlesched_pool_wait(the_pool, NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 1);
  sim_pool_finish(the_pool);
}

SPEC(who_leaves_stays_for_an_alarm,
     "G2 the last worker does not leave an alarm to a thread that is then refused") {
  struct sim_plan plan = plan_of("retired and refused", retired_and_refused, NULL);
  plan.fault_mode = SIM_FAULT_CHOICE;
  plan.faults_max = 1;
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* ----------------------------------------------------------------- by chance */

static void be_a_crowd(void *context) {
  static const uint64_t pauses_ns[] = { 0, 1, 50 * IDS_MS, 120 * IDS_MS, 950 * IDS_MS };
  unsigned first = (unsigned)(uintptr_t)context * 4;
  for (unsigned i = first; i < first + 4; i++) {
    sim_sleep_ns(pauses_ns[sim_choose(ids_countof(pauses_ns), "pause")]);
    uint64_t delay_ns = pauses_ns[sim_choose(ids_countof(pauses_ns), "delay")];
    uint64_t expire_ns = pauses_ns[sim_choose(ids_countof(pauses_ns), "expiry")];
    must_submit_timed(i, delay_ns, expire_ns);
    unsigned what = sim_choose(5, "what");
    if (what == 0)
      (void)idlesched_job_cancel(&sim_jobs[i].job);
    else if (what == 1)
      SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[i].job, NEVER), 0);
    else if (what == 2)
      retire_watcher(NULL);
  }
}

static void crowd(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[3];
  make_pool(setting);
  sim_states(1, 2, IDS_MS);
  sim_jobs_take(sim_choose(2, "jobs take time") * 30 * IDS_MS);
  sim_heap_takes(sim_choose(2, "heaps take time") * 3 * IDS_MS);
  for (unsigned i = 0; i < 3; i++)
    sim_client_start(&clients[i], be_a_crowd, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 3; i++)
    sim_client_join(&clients[i]);
  sim_pool_finish(the_pool);
}

SPEC(crowds, "G4 G7 delays, expiries, cancels, waits and retirements by chance", .limit_s = 120) {
  for (unsigned i = 0; i < ids_countof(short_lives); i++) {
    struct setting setting = short_lives[i];
    struct sim_plan plan = plan_of("crowd with alarms", crowd, &setting);
    sim_pool_samples(&plan, 60000);
  }
}
