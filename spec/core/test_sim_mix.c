/* SPDX-License-Identifier: MIT */
/*
 * test_sim_mix.c - what a pool can do, two or three things at a time: what is due is begun at
 * its moment, room is filled when there is some, and each job ends once.
 *
 * Method: on the fair clock the moments are met to the nanosecond, whatever comes together; the
 * other clock and refusals are for what must not be lost.  Last, clients do whatever they like.
 */
#include <errno.h>

#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER
#define DELAY_NS (100 * IDS_MS)

static idlesched_pool *shared;
static uint64_t begin_ns;

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

static unsigned number_of(const struct sim_trace *job) {
  return (unsigned)(job - sim_jobs);
}

static void must_submit_timed(unsigned i, uint64_t delay_ns, uint64_t expire_ns) {
  SIM_CHECK_EQUAL(sim_submit_timed(shared, i, delay_ns, expire_ns), 0);
}

static bool is_refusal(int status) {
  return status == -EAGAIN || status == -ENOMEM;
}

static void until(uint64_t after_begin_ns) {
  ids_sleep_until(begin_ns + after_begin_ns);
}

static void check_began(unsigned i, uint64_t after_begin_ns) {
  SIM_CHECK_EQUAL(sim_jobs[i].runs_count, 1);
  SIM_CHECK_EQUAL(sim_jobs[i].started_at_ns, begin_ns + after_begin_ns);
}

/* When jobs ended. */
static uint64_t ended_at_ns[SIM_JOBS_MAX];

static void note_end(struct sim_trace *job) {
  ended_at_ns[number_of(job)] = ids_now_ns();
}

static void open_shared(idlesched_pool_config config) {
  config.dropped = sim_job_dropped;
  shared = sim_pool_try_create(&config);
  begin_ns = ids_now_ns();
  sim_jobs_tell(NULL, note_end);
}

static void finish_shared(void) {
  sim_pool_finish(shared);
}

struct setting {
  unsigned workers_max, blocking_max;
  bool is_exact; /* fair clock, and nothing is refused */
  bool is_dedicated;
  uint64_t works_ns; /* the job that may go on meanwhile */
};

/* ----------------------------------------- a job waits for one that is not due yet */

static const struct setting *the_setting;

/* Job 0 waits for job 1, which is delayed; job 2 is beside them. */
static void wait_for_delayed(struct sim_trace *job) {
  unsigned i = number_of(job);
  if (i == 2 && the_setting->works_ns > 0)
    sim_sleep_ns(the_setting->works_ns);
  if (i != 0)
    return;
  int statuses[2] = { sim_submit_timed(shared, 1, DELAY_NS, 0), sim_submit_waitable(shared, 2) };
  int status = idlesched_job_wait(&sim_jobs[1].job, NEVER);
  if (statuses[0] == 0)
    SIM_CHECK(is_refusal(status) || sim_jobs[1].runs_count == 1);
  if (!the_setting->is_exact)
    return;
  SIM_CHECK_EQUAL(statuses[0], 0);
  SIM_CHECK_EQUAL(statuses[1], 0);
  SIM_CHECK_EQUAL(status, 0);
  SIM_CHECK_EQUAL(ids_now_ns(), job->started_at_ns + DELAY_NS);
}

static void nested_and_delayed(void *context) {
  const struct setting *setting = the_setting = context;
  open_shared((idlesched_pool_config){ .workers_max = setting->workers_max,
                                       .blocking_max = setting->blocking_max,
                                       .is_dedicated = setting->is_dedicated });
  if (shared == NULL)
    return;
  sim_jobs_tell(wait_for_delayed, NULL);
  if (sim_submit_waitable(shared, 0) == 0)
    SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  if (setting->is_exact) {
    bool has_room = setting->workers_max > 1 || setting->blocking_max != IDLESCHED_NO_WORKERS;
    check_began(1, DELAY_NS);
    check_began(2, has_room ? 0 : DELAY_NS);
  }
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 0);
  finish_shared();
}

static const struct setting nested_settings[] = {
  { .workers_max = 1, .blocking_max = IDLESCHED_NO_WORKERS },
  { .workers_max = 1, .blocking_max = 1 },
  { .workers_max = 1, .blocking_max = 1, .works_ns = IDS_S },
  { .workers_max = 2, .blocking_max = IDLESCHED_NO_WORKERS, .works_ns = IDS_S },
  { .workers_max = 1, .blocking_max = 1, .is_dedicated = true },
};

SPEC(a_job_waits_for_a_delayed_one,
     "G6 G9 G12 a job that waits for a delayed one of its pool goes on at its moment, with one "
     "worker too, and others go on meanwhile if there may be a worker for them") {
  for (unsigned i = 0; i < ids_countof(nested_settings); i++) {
    struct setting setting = nested_settings[i];
    struct sim_plan plan = plan_of("nested, delayed", nested_and_delayed, &setting);
    setting.is_exact = true;
    plan.bound = 1;
    sim_spec_exhaust(&plan);
    setting.is_exact = false;
    sim_pool_samples(&plan, 15000);
    plan.strategy = SIM_RANDOM;
    plan.runs_max = 20;
    sim_spec_faults(&plan);
  }
}

/* Who has said that it blocks waits for job 1, and then runs it; with nobody else to be told of
 * the room that there is for a moment. */
static void block_and_wait(struct sim_trace *job) {
  unsigned i = number_of(job);
  if (i > 0) {
    SIM_CHECK(!idlesched_worker_current()->is_blocking);
    sim_sleep_ns(10 * IDS_MS);
    return;
  }
  bool says_so = sim_choose(2, "says so") == 1;
  if (says_so)
    idlesched_blocking_begin();
  must_submit_timed(1, sim_choose(2, "is delayed") * IDS_MS, 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, NEVER), 0);
  SIM_CHECK_EQUAL(idlesched_worker_current()->is_blocking, says_so);
  if (says_so)
    idlesched_blocking_end();
  sim_sleep_ns(10 * IDS_MS);
}

static void blocks_around_a_wait(void *context) {
  (void)context;
  open_shared((idlesched_pool_config){ .workers_max = 1, .blocking_max = 1 });
  sim_jobs_tell(block_and_wait, NULL);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  for (unsigned i = 2; i < 4; i++)
    sim_must_submit(shared, i);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 0);
  finish_shared();
}

SPEC(a_job_inside_one_that_blocks,
     "G9 G12 a job inside one that blocks does not block, and then the other one does again") {
  struct sim_plan plan = plan_of("blocks around a wait", blocks_around_a_wait, NULL);
  sim_pool_searches(&plan, 1, 40000);
}

/* Job 2 is queued while job 1, which job 0 waits for, runs inside it.  Nobody is told of that
 * before job 0 has ended: there is no room. */
static unsigned inside_count;

static void take_ten(struct sim_trace *job) {
  unsigned i = number_of(job);
  if (i == 1)
    sim_sleep_ns(10 * IDS_MS);
  if (i != 0)
    return;
  must_submit_timed(1, IDS_MS, 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, NEVER), 0);
  sim_sleep_ns(10 * IDS_MS);
}

static void queued_meanwhile(void *context) {
  (void)context;
  open_shared((idlesched_pool_config){ .workers_max = 1, .idle_exit_ns = NEVER });
  sim_jobs_tell(take_ten, NULL);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  until(5 * IDS_MS);
  uint64_t wakes_count = sim_stats(shared).wakes;
  bool is_inside = shared->jobs_inside_count > 0; /* else the other worker was faster */
  sim_must_submit(shared, 2);
  until(20 * IDS_MS);
  if (is_inside)
    SIM_CHECK_EQUAL(sim_stats(shared).wakes, wakes_count);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  if (is_inside)
    check_began(2, 21 * IDS_MS);
  inside_count += is_inside;
  finish_shared();
}

SPEC(no_room_after_a_job_inside,
     "G7 G9 G12 a job that has waited, and run what it waited for, wakes nobody there is no room "
     "for") {
  struct sim_plan plan = plan_of("queued meanwhile", queued_meanwhile, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  CHECK_GE_INT(inside_count, 1);
}

/* ------------------------------------------------------------------------- pauses */

/* Job 0 is delayed, 1 expires in the queue, 2 expires after it is due, 3 before. */
static void paused_and_timed(void *context) {
  (void)context;
  unsigned workers_max = 1 + sim_choose(2, "workers");
  open_shared((idlesched_pool_config){ .workers_max = workers_max, .idle_exit_ns = 30 * IDS_MS });
  if (sim_choose(2, "has threads") == 1)
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, workers_max), 0);
  idlesched_pool_pause(shared);
  must_submit_timed(0, DELAY_NS, 0);
  must_submit_timed(1, 0, DELAY_NS / 2);
  must_submit_timed(2, DELAY_NS, DELAY_NS * 3 / 2);
  must_submit_timed(3, DELAY_NS, DELAY_NS / 4);
  until(2 * DELAY_NS);
  static const uint64_t ends_ns[] = { 0, DELAY_NS / 2, DELAY_NS * 3 / 2, DELAY_NS / 4 };
  for (unsigned i = 1; i < 4; i++) {
    SIM_CHECK_EQUAL(idlesched_job_status(&sim_jobs[i].job), -ETIMEDOUT);
    SIM_CHECK_EQUAL(ended_at_ns[i], begin_ns + ends_ns[i]);
  }
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count, 0);
  until(3 * DELAY_NS); /* nothing is due any more: the threads end */
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 0);
  SIM_CHECK_EQUAL(idlesched_pool_resume(shared), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  check_began(0, 3 * DELAY_NS);
  finish_shared();
}

SPEC(paused_while_jobs_are_due,
     "G6 G7 in a paused pool jobs expire at their moments, what is due waits for the resume, and "
     "then threads end as in any pool") {
  struct sim_plan plan = plan_of("paused, timed", paused_and_timed, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

static void pause_and_wait(struct sim_trace *job) {
  if (number_of(job) != 0)
    return;
  idlesched_pool_pause(shared);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  sim_must_submit(shared, 2);
  must_submit_timed(3, DELAY_NS / 2, 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, NEVER), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[3].job, NEVER), 0);
}

static void paused_and_nested(void *context) {
  bool is_exact = context != NULL;
  open_shared((idlesched_pool_config){ .workers_max = 1 + sim_choose(2, "workers") });
  sim_jobs_tell(pause_and_wait, NULL);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  until(DELAY_NS);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, NEVER), 0);
  SIM_CHECK_EQUAL(sim_jobs[2].runs_count, 0);
  SIM_CHECK_EQUAL(idlesched_pool_resume(shared), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  if (is_exact) {
    check_began(1, 0);
    check_began(2, DELAY_NS);
    check_began(3, DELAY_NS / 2);
  }
  finish_shared();
}

SPEC(paused_while_a_job_waits,
     "G7 G9 in a paused pool a job that runs goes on: what it waits for runs inside it, and "
     "nothing else does") {
  static char is_exact;
  struct sim_plan plan = plan_of("paused, nested", paused_and_nested, &is_exact);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan = plan_of("paused, nested, any clock", paused_and_nested, NULL);
  sim_pool_samples(&plan, 40000);
}

static void block_ten(struct sim_trace *job) {
  if (number_of(job) != 0)
    return;
  idlesched_blocking_begin();
  sim_sleep_ns(10 * IDS_MS);
  idlesched_blocking_end();
}

/* Job 0 blocks until 10 ms; paused from the begin, and resumed before that or after. */
static void paused_and_blocking(void *context) {
  (void)context;
  uint64_t resumed_ns = sim_choose(2, "late") == 1 ? 15 * IDS_MS : 5 * IDS_MS;
  open_shared((idlesched_pool_config){ .workers_max = 1 });
  sim_jobs_tell(block_ten, NULL);
  sim_must_submit(shared, 0);
  until(1);
  idlesched_pool_pause(shared);
  sim_must_submit(shared, 1);
  until(resumed_ns);
  SIM_CHECK_EQUAL(sim_jobs[1].runs_count, 0);
  SIM_CHECK_EQUAL(idlesched_pool_resume(shared), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  check_began(1, resumed_ns);
  finish_shared();
}

SPEC(paused_while_a_job_blocks,
     "G7 G12 no job begins in place of one that blocks while the pool is paused; it does when the "
     "pool is resumed") {
  struct sim_plan plan = plan_of("paused, blocking", paused_and_blocking, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* ----------------------------------------------------------------------- its size */

static const uint64_t moments_ns[] = { 0, DELAY_NS / 4, DELAY_NS - 1, DELAY_NS };

static void resize_to(unsigned workers_max, unsigned workers_min) {
  int status = idlesched_pool_resize(shared, workers_max, workers_min);
  SIM_CHECK(status == 0 || is_refusal(status));
}

/* All are parked, or all but one, which then is the only one that may be; or the only one is
 * busy, and there may be more. */
static void resized_and_timed(void *context) {
  bool is_exact = context != NULL;
  unsigned busy_count = sim_choose(2, "busy"), from = 1 + 2 * sim_choose(2, "from");
  uint64_t moment_ns = moments_ns[sim_choose(ids_countof(moments_ns), "moment")];
  unsigned to = from == 1 ? 2 : 1;
  open_shared((idlesched_pool_config){ .workers_max = from, .idle_exit_ns = 40 * IDS_MS });
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, from), 0);
  sim_jobs_take(0);
  if (busy_count > 0) {
    sim_jobs_tell(block_ten, NULL);
    sim_must_submit(shared, 0);
  }
  must_submit_timed(1, DELAY_NS, 0);
  must_submit_timed(2, 3 * DELAY_NS, 2 * DELAY_NS);
  until(moment_ns);
  resize_to(to, 0);
  resize_to(from, sim_choose(2, "stays"));
  resize_to(to, 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  if (is_exact) {
    check_began(1, DELAY_NS);
    SIM_CHECK_EQUAL(idlesched_job_status(&sim_jobs[2].job), -ETIMEDOUT);
    sim_sleep_ns(IDS_S);
    SIM_CHECK_EQUAL(sim_stats(shared).threads, 0);
  }
  finish_shared();
}

SPEC(resized_while_somebody_watches,
     "G6 G7 a pool is resized while jobs are delayed, also by the worker that watches: they begin "
     "at their moment, and then threads end in time") {
  static char is_exact;
  struct sim_plan plan = plan_of("resized, timed", resized_and_timed, &is_exact);
  sim_spec_exhaust(&plan);
  plan = plan_of("resized, timed, any clock", resized_and_timed, NULL);
  sim_pool_samples(&plan, 60000);
}

/* The only worker is at a job of 10 s when a delayed one is due, and there may be two of them. */
static void take_long(struct sim_trace *job) {
  if (number_of(job) == 0)
    sim_sleep_ns(10 * IDS_S);
}

static void grows_for_an_alarm(void *context) {
  (void)context;
  bool is_late = sim_choose(2, "late") == 1;
  open_shared((idlesched_pool_config){ .workers_max = 1, .idle_exit_ns = 20 * IDS_MS });
  sim_jobs_tell(take_long, NULL);
  sim_must_submit(shared, 0);
  must_submit_timed(1, DELAY_NS, 0);
  until(is_late ? 2 * DELAY_NS : DELAY_NS / 2);
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 2, 0), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  check_began(1, is_late ? 2 * DELAY_NS : DELAY_NS);
  SIM_CHECK_RELATION(sim_stats(shared).wakes, <=, 3); /* and who watches stays */
  finish_shared();
}

SPEC(one_more_may_be,
     "G6 G7 when there may be one worker more, somebody watches, and does what is due already") {
  struct sim_plan plan = plan_of("grows for an alarm", grows_for_an_alarm, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* One thread stays; others stay for the alarm at most. */
static void stays_and_watches(void *context) {
  (void)context;
  unsigned workers_min = sim_choose(3, "stay"), cancels = sim_choose(2, "cancels");
  open_shared((idlesched_pool_config){
    .workers_max = 3, .workers_min = workers_min, .idle_exit_ns = 20 * IDS_MS });
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 3), 0);
  must_submit_timed(0, DELAY_NS, 0);
  must_submit_timed(1, 4 * DELAY_NS, 2 * DELAY_NS);
  until(DELAY_NS / 2);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, workers_min > 0 ? workers_min : 1);
  if (cancels)
    SIM_CHECK_EQUAL(idlesched_job_cancel(&sim_jobs[0].job), 0);
  until(3 * DELAY_NS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, workers_min);
  SIM_CHECK_EQUAL(ended_at_ns[1], begin_ns + 2 * DELAY_NS);
  if (!cancels)
    check_began(0, DELAY_NS);
  finish_shared();
}

SPEC(those_that_stay_watch,
     "G6 G8 threads that stay, and one that stays for an alarm, begin what is due at its moment; "
     "then as many are there as are to stay") {
  struct sim_plan plan = plan_of("stays and watches", stays_and_watches, NULL);
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
}

/* --------------------------------------------------------------------------- room */

enum way_out { BEGINS, EXPIRES, EXPIRES_WAITED_FOR, IS_CANCELLED, TOKEN_IS_CANCELLED, WAYS_OUT };
static idlesched_token token;

/* At 20 ms, while the queue is full. */
static uint64_t second_delay_ns;
static bool second_is_plain;

static void submit_second(void *context) {
  (void)context;
  until(20 * IDS_MS);
  int status = second_is_plain ? sim_submit(shared, 1)
                               : sim_submit_timed(shared, 1, second_delay_ns, 0);
  SIM_CHECK_EQUAL(status, 0);
}

static void await_first(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, NEVER), 0);
}

/* Job 0 is delayed and fills the queue.  It leaves it at 40 ms, and job 1 gets in. */
static void filled_by_a_delayed_job(void *context) {
  bool is_exact = context != NULL;
  struct sim_client client, waiter;
  enum way_out way = sim_choose(WAYS_OUT, "way out");
  bool has_thread = sim_choose(2, "has a thread");
  second_is_plain = sim_choose(2, "plain") == 1;
  second_delay_ns = second_is_plain ? 0 : sim_choose(2, "delayed") * IDS_MS;
  token = (idlesched_token){ 0 };
  open_shared((idlesched_pool_config){ .workers_max = 2,
                                       .queue_max = 1,
                                       .queue_timeout_ns = NEVER,
                                       .idle_exit_ns = has_thread ? 0 : 1 });
  if (has_thread)
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  idlesched_job first = { .delay_ns = way == BEGINS ? 40 * IDS_MS : IDS_S,
                          .token = &token,
                          .expire_ns = way == EXPIRES || way == EXPIRES_WAITED_FOR ? 40 * IDS_MS
                                                                                   : 0 };
  SIM_CHECK_EQUAL(sim_submit_like(shared, 0, &first), 0);
  bool has_done = sim_choose(2, "has done");
  if (!has_done)
    sim_jobs[0].job.done = NULL;
  sim_client_start(&client, submit_second, NULL);
  if (way == EXPIRES_WAITED_FOR)
    sim_client_start(&waiter, await_first, NULL);
  until(40 * IDS_MS);
  if (way == IS_CANCELLED) {
    int status = idlesched_job_cancel(&sim_jobs[0].job);
    SIM_CHECK(status == 0 || !is_exact);
  } else if (way == TOKEN_IS_CANCELLED) {
    (void)idlesched_token_cancel(&token);
  }
  sim_client_join(&client);
  if (way == EXPIRES_WAITED_FOR)
    sim_client_join(&waiter);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  if (is_exact)
    check_began(1, 40 * IDS_MS + second_delay_ns);
  struct sim_trace *job = &sim_jobs[0];
  if (!has_done) { /* nobody was told of its end */
    job->dones_count = 1;
    job->drops_count = 1 - job->runs_count;
  }
  finish_shared();
}

SPEC(a_delayed_job_takes_room,
     "G6 G11 a delayed job takes room in the queue; when it begins, expires or is cancelled, who "
     "waits gets in at once and is begun at its moment, in a pool that is idle too") {
  static char is_exact;
  struct sim_plan plan = plan_of("filled by a delayed job", filled_by_a_delayed_job, &is_exact);
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
  plan = plan_of("filled by a delayed job, any clock", filled_by_a_delayed_job, NULL);
  sim_pool_samples(&plan, 40000);
}

/* The worker that takes job 1 stands for it from the done callback of job 0 on.  Job 2, which
 * is delayed until 30 ms, gets in as it does; somebody else has to watch. */
static void submit_when_done(struct sim_trace *job) {
  if (number_of(job) != 0)
    return;
  sim_must_submit(shared, 1);
  sim_sleep_ns(10 * IDS_MS);
}

static void take_a_while(struct sim_trace *job) {
  if (number_of(job) == 1)
    sim_sleep_ns(IDS_S);
}

static void submit_third(void *context) {
  (void)context;
  until(5 * IDS_MS);
  must_submit_timed(2, 20 * IDS_MS, 0);
}

static void delayed_gets_in_by_a_poll(void *context) {
  (void)context;
  struct sim_client client;
  open_shared(
    (idlesched_pool_config){ .workers_max = 2, .queue_max = 1, .queue_timeout_ns = NEVER });
  sim_jobs_tell(take_a_while, submit_when_done);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  sim_client_start(&client, submit_third, NULL);
  sim_client_join(&client);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  check_began(1, 10 * IDS_MS);
  check_began(2, 30 * IDS_MS);
  finish_shared();
}

SPEC(a_poll_lets_a_delayed_job_in,
     "G6 G11 a delayed job that gets in as another one is taken is watched from then on") {
  struct sim_plan plan = plan_of("let in by a poll", delayed_gets_in_by_a_poll, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* Paused, and without a thread: job 0 fills the queue, and others wait, some of them delayed. */
static void submit_and_note(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  int status = i % 2 == 1 ? sim_submit_timed(shared, i, IDS_MS, 0) : sim_submit(shared, i);
  SIM_CHECK(status == 0 || status == -ESHUTDOWN || is_refusal(status));
}

static void must_resume_some_time(void) {
  int status;
  while ((status = idlesched_pool_resume(shared)) != 0) {
    SIM_CHECK(is_refusal(status));
    SIM_CHECK(sim_stats(shared).is_paused);
    if (sim_stats(shared).starts_refused > 20)
      return; /* all is refused: it is closed instead */
    sim_sleep_ns(IDS_MS);
  }
}

static void paused_and_full(void *context) {
  (void)context;
  struct sim_client clients[3];
  bool closes = sim_choose(2, "closes") == 1;
  token = (idlesched_token){ 0 };
  open_shared(
    (idlesched_pool_config){ .workers_max = 2, .queue_max = 2, .queue_timeout_ns = NEVER });
  if (shared == NULL)
    return;
  idlesched_pool_pause(shared);
  for (unsigned i = 4; i < 6; i++)
    (void)sim_submit_like(shared, i, &(const idlesched_job){ .token = &token });
  for (unsigned i = 0; i < 3; i++)
    sim_client_start(&clients[i], submit_and_note, (void *)(uintptr_t)(i + 1));
  sim_sleep_ns(IDS_MS);
  (void)idlesched_job_cancel(&sim_jobs[4].job);
  (void)idlesched_token_cancel(&token);
  must_resume_some_time();
  /* Beside those that still wait; if nobody can be had, it is the only way out. */
  if (closes || sim_stats(shared).is_paused)
    SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, NEVER, NULL), 0);
  for (unsigned i = 0; i < 3; i++)
    sim_client_join(&clients[i]);
  finish_shared();
}

SPEC(paused_full_and_refused,
     "G2 G6 G7 G11 a paused pool without threads is full, jobs are cancelled, delayed ones get in, "
     "and threads are refused: who got in is begun after the resume, or dropped by the close") {
  struct sim_plan plan = plan_of("paused, full", paused_and_full, NULL);
  sim_pool_samples(&plan, 60000);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 100;
  sim_spec_faults(&plan);
}

/* A job submits into a full queue, and waits for what it has submitted. */
static void submit_two_and_wait(struct sim_trace *job) {
  unsigned i = number_of(job);
  if (i >= 4)
    return;
  for (unsigned child = 4 + 2 * i; child < 6 + 2 * i; child++)
    SIM_CHECK_EQUAL(sim_submit_timed(shared, child, 0, i == 3 ? IDS_S : 0), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[5 + 2 * i].job, NEVER), 0);
}

static void submit_pair(void *context) {
  unsigned first = 2 * (unsigned)(uintptr_t)context;
  for (unsigned i = first; i < first + 2; i++)
    SIM_CHECK_EQUAL(sim_submit_waitable(shared, i), 0);
}

static void full_and_nested(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[2];
  open_shared((idlesched_pool_config){ .workers_max = setting->workers_max,
                                       .blocking_max = setting->blocking_max,
                                       .queue_max = 1,
                                       .queue_timeout_ns = NEVER });
  sim_jobs_tell(submit_two_and_wait, NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_pair, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 0);
  SIM_CHECK_RELATION(sim_stats(shared).jobs_done, >=, 10); /* two may expire on a slow clock */
  finish_shared();
}

SPEC(full_while_jobs_wait, "G9 G11 G12 jobs submit into a full queue and wait for what they have "
                           "submitted, while others wait for room: all run") {
  for (unsigned i = 0; i < 2; i++) {
    struct setting setting = { .workers_max = 1 + i, .blocking_max = i == 0 ? UINT32_MAX : 1 };
    struct sim_plan plan = plan_of("full, nested", full_and_nested, &setting);
    plan.bound = 0;
    if (i == 0)
      sim_spec_exhaust(&plan);
    sim_pool_samples(&plan, 60000);
  }
}

/* The same for jobs that block meanwhile: the submit is between begin and end. */
static void block_and_submit(struct sim_trace *job) {
  unsigned i = number_of(job);
  SIM_CHECK(!idlesched_worker_current()->is_blocking);
  idlesched_blocking_begin();
  for (unsigned child = 4 + 2 * i; i < 4 && child < 6 + 2 * i; child++)
    SIM_CHECK_EQUAL(sim_submit(shared, child), 0);
  if (i % 2 == 1)
    sim_sleep_ns(IDS_MS);
  SIM_CHECK(idlesched_worker_current()->is_blocking);
  idlesched_blocking_end();
}

static void full_and_blocking(void *context) {
  const struct setting *setting = context;
  struct sim_client client;
  open_shared((idlesched_pool_config){ .workers_max = setting->workers_max,
                                       .blocking_max = setting->blocking_max,
                                       .queue_max = 1,
                                       .queue_timeout_ns = NEVER });
  sim_jobs_tell(block_and_submit, NULL);
  sim_client_start(&client, submit_pair, (void *)1);
  submit_pair((void *)0);
  sim_client_join(&client);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 0);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_done, 12);
  finish_shared();
}

SPEC(blocks_while_the_queue_is_full,
     "G11 G12 a job that blocks and submits into a full queue runs another one inside, which does "
     "not block unless it says so, and blocks on") {
  for (unsigned i = 0; i < 2; i++) {
    struct setting setting = { .workers_max = 1, .blocking_max = i == 0 ? UINT32_MAX : 1 };
    struct sim_plan plan = plan_of("full, blocking", full_and_blocking, &setting);
    sim_spec_exhaust(&plan);
    sim_pool_samples(&plan, 40000);
  }
}

/* -------------------------------------------------------------- waits, elsewhere */

/* Job 0 expires; whoever tells waits for job 1, which is delayed, and has the only thread. */
static void wait_when_told(struct sim_trace *job) {
  note_end(job);
  if (number_of(job) == 0)
    SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, NEVER), 0);
}

static void told_and_waits(void *context) {
  (void)context;
  open_shared((idlesched_pool_config){
    .workers_max = 1, .blocking_max = IDLESCHED_NO_WORKERS, .idle_exit_ns = 1 });
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 1), 0);
  sim_jobs_tell(NULL, wait_when_told);
  must_submit_timed(1, DELAY_NS, 0);
  must_submit_timed(0, 2 * DELAY_NS, DELAY_NS / 2);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  SIM_CHECK_EQUAL(ended_at_ns[0], begin_ns + DELAY_NS / 2);
  check_began(1, DELAY_NS);
  SIM_CHECK_EQUAL(sim_stats(shared).blocking, 0);
  finish_shared();
}

SPEC(a_callback_of_an_expired_job_waits,
     "G6 G9 the done callback of a job that has expired waits for a delayed one, on the thread "
     "that watches: it runs at its moment") {
  struct sim_plan plan = plan_of("told, and waits", told_and_waits, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* Without workers: job 0 takes so long that job 1 expires in the queue; it waits for that, or
 * not.  Jobs 2 and 3, queued behind it, run. */
static void outlast(struct sim_trace *job) {
  if (number_of(job) != 0)
    return;
  must_submit_timed(1, 0, DELAY_NS / 2);
  sim_must_submit(shared, 2);
  must_submit_timed(3, 0, IDS_S);
  sim_sleep_ns(DELAY_NS);
  if (sim_choose(2, "waits") == 1)
    SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, NEVER), 0);
}

static void expires_inline(void *context) {
  (void)context;
  open_shared((idlesched_pool_config){ .workers_max = IDLESCHED_NO_WORKERS });
  sim_jobs_tell(outlast, note_end);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_job_status(&sim_jobs[1].job), -ETIMEDOUT);
  SIM_CHECK_EQUAL(ended_at_ns[1], begin_ns + DELAY_NS);
  check_began(2, DELAY_NS);
  check_began(3, DELAY_NS);
  finish_shared();
}

SPEC(expires_without_workers,
     "G6 a job that expires in the queue of a pool without workers ends, and is told of, before "
     "the next one runs") {
  struct sim_plan plan = plan_of("expires inline", expires_inline, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* -------------------------------------------------------------- blocking, and the end */

static void retire_worker(void *context) {
  unsigned index = (unsigned)(uintptr_t)context;
  ids_group_lock(&shared->group);
  struct ids_worker *worker = index < shared->group.workers_count ? shared->group.workers[index]
                                                                  : NULL;
  ids_group_unlock(&shared->group);
  if (worker != NULL)
    idlesched_worker_retire(worker);
}

static void blocks_and_retires(void *context) {
  (void)context;
  struct sim_client client;
  enum idlesched_close_mode mode = sim_choose(2, "drains") == 1 ? IDLESCHED_CLOSE_DRAIN
                                                                : IDLESCHED_CLOSE_CANCEL;
  open_shared((idlesched_pool_config){ .workers_max = 1, .blocking_max = 1 });
  sim_jobs_tell(block_ten, NULL);
  sim_must_submit(shared, 0);
  sim_must_submit(shared, 1);
  sim_client_start(&client, retire_worker, (void *)(uintptr_t)sim_choose(2, "whom"));
  (void)sim_submit_timed(shared, 2, 5 * IDS_MS, 0);
  if (sim_choose(2, "closes late") == 1)
    sim_sleep_ns(7 * IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, mode, NEVER, NULL), 0);
  sim_client_join(&client);
  SIM_CHECK_EQUAL(sim_jobs[0].runs_count + sim_jobs[0].drops_count, 1);
  if (mode == IDLESCHED_CLOSE_DRAIN)
    SIM_CHECK_EQUAL(sim_stats(shared).jobs_done, 3);
  sim_check_closed(shared);
  finish_shared();
}

SPEC(retired_and_closed_while_a_job_blocks,
     "G3 G12 C1 a pool is closed, and a worker retires, while a job blocks: none is stranded, and "
     "no thread is left") {
  struct sim_plan plan = plan_of("blocks, retires, closes", blocks_and_retires, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  sim_pool_samples(&plan, 100000);
}

/* -------------------------------------------------------------------- all of it */

enum { CLIENTS = 2, JOBS_OF_EACH = 6, CHILD = 32 };
enum deed {
  SUBMIT_PLAIN,
  SUBMIT_JOB,
  SUBMIT_DELAYED,
  SUBMIT_EXPIRING,
  CANCEL,
  CANCEL_TOKEN,
  RESIZE,
  PAUSE,
  RESUME,
  WAIT,
  RELEASE,
  RETIRE,
  DEEDS
};

static bool is_known[SIM_JOBS_MAX]; /* it may be waited for, and cancelled */
static unsigned next_number[CLIENTS];
static unsigned deeds_count;

/* By its number: some wait for another one, some block, some take a while. */
static void do_whatever(struct sim_trace *job) {
  unsigned i = number_of(job);
  if (i >= CHILD)
    return;
  if (i % 4 == 1) {
    uint64_t delay_ns = i % 8 == 5 ? IDS_MS : 0;
    if (sim_submit_timed(shared, CHILD + i, delay_ns, 0) != 0)
      return;
    int status = idlesched_job_wait(&sim_jobs[CHILD + i].job, NEVER);
    SIM_CHECK(status == 0 || status == -EINVAL || is_refusal(status));
  } else if (i % 4 == 2) {
    idlesched_blocking_begin();
    sim_sleep_ns(IDS_MS);
    idlesched_blocking_end();
  } else if (i % 4 == 3) {
    sim_sleep_ns(IDS_MS);
  }
}

static void submit_whatever(unsigned client, enum deed deed) {
  if (next_number[client] == JOBS_OF_EACH)
    return;
  unsigned i = client * JOBS_OF_EACH + next_number[client]++;
  if (deed == SUBMIT_PLAIN) {
    (void)sim_submit(shared, i);
    return;
  }
  idlesched_job like = { .priority = (int)sim_choose(3, "priority") - 1 };
  if (sim_choose(3, "has the token") == 2)
    like.token = &token;
  if (deed == SUBMIT_DELAYED)
    like.delay_ns = IDS_MS << sim_choose(2, "delay");
  if (deed == SUBMIT_EXPIRING || (deed == SUBMIT_DELAYED && sim_choose(3, "expires") == 2))
    like.expire_ns = IDS_MS << sim_choose(3, "expiry");
  is_known[i] = sim_submit_like(shared, i, &like) == 0;
}

/* One of those that are known, or NULL. */
static idlesched_job *any_job(void) {
  unsigned i = sim_choose(CLIENTS * JOBS_OF_EACH, "which");
  return is_known[i] ? &sim_jobs[i].job : NULL;
}

static void do_deed(unsigned client) {
  idlesched_job *job;
  enum deed deed = sim_choose(DEEDS, "deed");
  switch (deed) {
  case CANCEL:
    if ((job = any_job()) != NULL)
      (void)idlesched_job_cancel(job);
    break;
  case CANCEL_TOKEN:
    (void)idlesched_token_cancel(&token);
    break;
  case RESIZE: {
    unsigned workers_max = 1 + sim_choose(3, "workers");
    (void)idlesched_pool_resize(shared, workers_max, sim_choose(2, "stay"));
    break;
  }
  case PAUSE:
    idlesched_pool_pause(shared);
    break;
  case RESUME:
    (void)idlesched_pool_resume(shared);
    break;
  case WAIT:
    if ((job = any_job()) != NULL)
      (void)idlesched_job_wait(job, sim_choose(3, "limit") * IDS_MS);
    break;
  case RELEASE:
    (void)idlesched_pool_release(shared, IDS_MS, NULL);
    break;
  case RETIRE:
    retire_worker((void *)(uintptr_t)sim_choose(3, "whom"));
    break;
  default:
    submit_whatever(client, deed);
  }
  if (sim_choose(4, "rests") == 3)
    sim_sleep_ns(IDS_MS);
}

static void do_deeds(void *context) {
  unsigned client = (unsigned)(uintptr_t)context;
  for (unsigned i = 0; i < deeds_count; i++)
    do_deed(client);
}

static void whatever_they_like(void *context) {
  struct sim_client clients[CLIENTS];
  deeds_count = *(unsigned *)context;
  token = (idlesched_token){ 0 };
  for (unsigned i = 0; i < SIM_JOBS_MAX; i++)
    is_known[i] = false;
  unsigned workers_max = 1 + sim_choose(2, "workers");
  bool is_bounded = sim_choose(2, "bounded") == 1;
  open_shared((idlesched_pool_config){
    .workers_max = workers_max,
    .workers_min = sim_choose(2, "stay"),
    .blocking_max = sim_choose(2, "compensates") == 1 ? 1 : IDLESCHED_NO_WORKERS,
    .queue_max = is_bounded ? 2 : 0,
    .queue_timeout_ns = is_bounded ? 2 * IDS_MS : 0,
    .idle_exit_ns = sim_choose(2, "exits") == 1 ? IDS_MS : NEVER,
    .idle_release_ns = IDS_MS,
    .is_dedicated = sim_choose(4, "dedicated") == 3 });
  if (shared == NULL)
    return;
  sim_jobs_tell(do_whatever, NULL);
  for (unsigned i = 0; i < CLIENTS; i++) {
    next_number[i] = 0;
    sim_client_start(&clients[i], do_deeds, (void *)(uintptr_t)i);
  }
  unsigned end = sim_choose(4, "end");
  if (end < 2) /* beside them */
    SIM_CHECK_EQUAL(idlesched_pool_close(shared, (enum idlesched_close_mode)end, NEVER, NULL), 0);
  for (unsigned i = 0; i < CLIENTS; i++)
    sim_client_join(&clients[i]);
  if (end == 2)
    SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, NEVER, NULL), 0);
  else if (end == 3)
    must_resume_some_time();
  if (sim_stats(shared).is_paused)
    SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, NEVER, NULL), 0);
  finish_shared();
}

SPEC(whatever_clients_like,
     "G1 G3 G4 clients do whatever they like with a pool, and close it: each job ends once, and "
     "the books are right",
     .limit_s = 120) {
  unsigned few = 4, many = 9;
  struct sim_plan plan = plan_of("whatever, few", whatever_they_like, &few);
  sim_pool_samples(&plan, 150000);
  plan = plan_of("whatever, many", whatever_they_like, &many);
  sim_pool_samples(&plan, 100000);
  plan.strategy = SIM_RANDOM;
  plan.fault_mode = SIM_FAULT_TENTH;
  plan.is_hostile = true;
  sim_spec_sample(&plan, 50000);
}
