/* SPDX-License-Identifier: MIT */
/*
 * test_sim_jobs.c - which job is begun next, and those that are not wanted any more: whoever
 * cancels, closes, submits or runs them at the same moment, each ends once, and all are told
 * the same.
 */
#include <errno.h>

#include "pool_sim.h"

static idlesched_pool *shared, *other;

/* ------------------------------------------------------------------ priorities */

static unsigned begun[SIM_JOBS_MAX], begun_count;

static void note_begin(struct sim_trace *job) {
  begun[begun_count++] = (unsigned)(job - sim_jobs);
}

static void order_of_priorities(void *context) {
  enum { JOBS = 4 };
  static const int priorities[] = { IDLESCHED_PRIORITY_MOST, 0, -IDLESCHED_PRIORITY_MOST };
  int priority_of[1 + JOBS];
  (void)context;
  shared = SIM_POOL(.workers_max = 1);
  sim_jobs_tell(note_begin, NULL);
  begun_count = 0;
  sim_jobs_take(IDS_MS);
  sim_must_submit(shared, 0);
  sim_sleep_ns(1); /* it runs, and the others queue */
  for (unsigned i = 1; i <= JOBS; i++) {
    priority_of[i] = priorities[sim_choose(ids_countof(priorities), "priority")];
    int status = priority_of[i] == 0 && i % 2 == 0
                   ? sim_submit(shared, i)
                   : sim_submit_like(shared, i, &(idlesched_job){ .priority = priority_of[i] });
    SIM_CHECK_EQUAL(status, 0);
  }
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  SIM_CHECK_EQUAL(begun_count, 1 + JOBS);
  SIM_CHECK_EQUAL(begun[0], 0);
  for (unsigned i = 2; i <= JOBS; i++) {
    int before = priority_of[begun[i - 1]], after = priority_of[begun[i]];
    SIM_CHECK(before > after || (before == after && begun[i - 1] < begun[i]));
  }
  sim_pool_finish(shared);
}

SPEC(priorities_in_order,
     "G4 G7 queued jobs are begun by priority, and inside one in the order of their submits") {
  struct sim_plan plan = { .name = "priorities", .scenario = order_of_priorities };
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------------------- cancel */

struct setting {
  unsigned workers_max;
  bool cancels_twice, closes, resubmits, takes_time;
};

static const struct setting *shared_setting;
static unsigned cancelled_count, asked_count, resubmits_left;
static bool has_asked;

/* What the one that cancels is told is true, at that moment. */
static void cancel_first(void *context) {
  (void)context;
  struct sim_trace *self = &sim_jobs[0];
  unsigned drops_count = self->drops_count;
  int status = idlesched_job_cancel(&self->job);
  if (status == 0) {
    cancelled_count++;
    SIM_CHECK_RELATION(self->drops_count, >, drops_count);
  } else if (status == -EBUSY) {
    asked_count++;
    has_asked = true;
  } else {
    SIM_CHECK_EQUAL(status, -EALREADY);
  }
  if (!shared_setting->resubmits && !shared_setting->closes && !shared_setting->cancels_twice)
    SIM_CHECK(status == -EBUSY || self->dones_count == 1 ||
              idlesched_job_state_read(&self->job) == IDLESCHED_JOB_DONE);
}

/* Who was asked sees it, and nobody else: nor the same job when it runs once more. */
static void look_at_the_request(struct sim_trace *job) {
  if (job != &sim_jobs[0])
    return;
  bool is_cancelled = idlesched_job_is_cancelled(&job->job);
  if (is_cancelled)
    SIM_CHECK(!has_asked || asked_count > 0);
  if (has_asked && !shared_setting->resubmits)
    SIM_CHECK(is_cancelled);
}

static void submit_when_done(struct sim_trace *job) {
  if (job != &sim_jobs[0] || resubmits_left == 0)
    return;
  resubmits_left--;
  int status = sim_submit_again(shared, 0);
  SIM_CHECK(status == 0 || (shared_setting->closes && status == -ESHUTDOWN));
}

static void close_beside(void *context) {
  idlesched_close_report *report = context;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, report), 0);
}

static void cancel_beside_all(void *context) {
  const struct setting *setting = shared_setting = context;
  struct sim_client canceller, closer;
  idlesched_close_report report = { 0 };
  cancelled_count = asked_count = 0;
  has_asked = false;
  resubmits_left = setting->resubmits ? 2 : 0;
  shared = SIM_POOL(.workers_max = setting->workers_max, .dropped = sim_job_dropped);
  sim_jobs_tell(look_at_the_request, submit_when_done);
  sim_jobs_take(setting->takes_time ? IDS_MS : 0);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  sim_client_start(&canceller, cancel_first, NULL);
  if (setting->closes)
    sim_client_start(&closer, close_beside, &report);
  if (setting->cancels_twice)
    cancel_first(NULL);
  if (!setting->resubmits)
    SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, IDLESCHED_NEVER), 0);
  sim_client_join(&canceller);
  if (setting->closes)
    sim_client_join(&closer);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK_EQUAL(stats.jobs_cancelled, cancelled_count + report.dropped_count);
  SIM_CHECK_EQUAL(stats.jobs_submitted, stats.jobs_done + stats.jobs_cancelled);
  SIM_CHECK_RELATION(stats.wakes, <=, stats.jobs_submitted + stats.polls);
  sim_pool_finish(shared);
}

SPEC(cancel_against_all,
     "G4 a job is cancelled while it starts, ends, is closed, is cancelled by another thread, or "
     "submits itself again: it ends once each time, and whoever is told 0 has ended it") {
  struct setting settings[] = {
    { .workers_max = 1 },
    { .workers_max = 2 },
    { .workers_max = 1, .cancels_twice = true },
    { .workers_max = 1, .closes = true },
    { .workers_max = 1, .resubmits = true },
    { .workers_max = 2, .cancels_twice = true, .closes = true, .resubmits = true },
    { .workers_max = 1, .closes = true, .cancels_twice = true, .takes_time = true },
  };
  for (unsigned i = 0; i < ids_countof(settings); i++) {
    struct sim_plan plan = { .name = "cancel",
                             .scenario = cancel_beside_all,
                             .context = &settings[i] };
    sim_pool_searches(&plan, 1, 60000);
  }
}

/* A job that is asked to stop while it works ends early, as it likes. */
static void stop_when_asked(struct sim_trace *job) {
  while (!idlesched_job_is_cancelled(&job->job))
    sim_sleep_ns(IDS_MS);
}

static void ask_to_stop(void *context) {
  (void)context;
  shared = SIM_POOL(.workers_max = 1);
  sim_jobs_tell(stop_when_asked, NULL);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  sim_sleep_ns(10 * IDS_MS);
  uint64_t begun_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_job_cancel(&sim_jobs[0].job), -EBUSY);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[0].job, IDLESCHED_NEVER), 0);
  SIM_CHECK_RELATION(ids_now_ns() - begun_ns, <=, IDS_MS);
  SIM_CHECK_EQUAL(idlesched_job_state_read(&sim_jobs[0].job), IDLESCHED_JOB_DONE);
  SIM_CHECK_EQUAL(idlesched_job_cancel(&sim_jobs[0].job), -EALREADY);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_cancelled, 0);
  sim_pool_finish(shared);
}

SPEC(asked_to_stop, "G4 a job that runs is asked to stop, sees it, and ends as it likes") {
  struct sim_plan plan = { .name = "asked to stop", .scenario = ask_to_stop };
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* A job that a slow worker was called for is gone; the next one does not wait for that
 * worker. */
static void cancel_then_submit(void *context) {
  (void)context;
  sim_states(1, 1, 10 * IDS_MS);
  shared = SIM_POOL(.workers_max = 1, .hooks = sim_state_hooks, .idle_release_ns = IDS_MS,
                    .idle_exit_ns = IDLESCHED_NEVER);
  sim_jobs_take(0);
  sim_work(shared, 2);
  sim_sleep_ns(3 * IDS_MS); /* it collects, for 10 ms */
  SIM_CHECK_EQUAL(sim_stats(shared).releasing, 1);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_job_cancel(&sim_jobs[0].job), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_queued, 0);
  SIM_CHECK_EQUAL(shared->group.slow_jobs_count, 0);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  sim_pool_finish(shared);
}

SPEC(cancelled_before_a_slow_worker,
     "G7 G4 a cancelled job leaves nobody who seems to be on the way to the next one") {
  struct sim_plan plan = { .name = "cancelled, slow", .scenario = cancel_then_submit };
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------------------- tokens */

static idlesched_token token;
static uint64_t token_drops_count;

static void cancel_token(void *context) {
  (void)context;
  token_drops_count += idlesched_token_cancel(&token);
  SIM_CHECK(idlesched_token_is_cancelled(&token));
  /* From here on none of its jobs is queued, and none can be. */
  for (unsigned i = 0; i < 4; i++)
    if (sim_jobs[i].is_waitable && sim_jobs[i].job.token == &token)
      SIM_CHECK(idlesched_job_state_read(&sim_jobs[i].job) != IDLESCHED_JOB_QUEUED);
  SIM_CHECK_EQUAL(sim_submit_like(shared, 8, &(idlesched_job){ .token = &token }), -ECANCELED);
}

static void submit_with_token(void *context) {
  unsigned i = 2 * (unsigned)(uintptr_t)context;
  const idlesched_job with = { .token = &token }, without = { .priority = 1 };
  idlesched_pool *pool = i == 0 ? shared : other;
  int status = sim_submit_like(pool, i, &with);
  SIM_CHECK(status == 0 || status == -ECANCELED);
  if (status == 0) {
    SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[i].job, IDLESCHED_NEVER), 0);
    /* It need not have been cancelled, but has ended. */
  }
  SIM_CHECK_EQUAL(sim_submit_like(pool, i + 1, &without), 0);
}

static void token_beside_submits(void *context) {
  struct sim_client clients[2];
  (void)context;
  token = (idlesched_token){ 0 };
  token_drops_count = 0;
  shared = SIM_POOL(.workers_max = 1);
  other = SIM_POOL(.workers_max = 1);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_with_token, (void *)(uintptr_t)i);
  cancel_token(NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(other, IDLESCHED_NEVER), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_cancelled + sim_stats(other).jobs_cancelled,
                  token_drops_count);
  SIM_CHECK_EQUAL(sim_jobs[1].drops_count + sim_jobs[3].drops_count, 0);
  sim_pool_finish(shared);
  sim_pool_finish(other);
}

SPEC(token_against_submits,
     "G4 a token is cancelled beside submits in two pools: each job that has it is refused, or "
     "cancelled, or was begun before; when the call returns none is queued") {
  struct sim_plan plan = { .name = "token beside submits", .scenario = token_beside_submits };
  sim_pool_searches(&plan, 1, 200000);
}

/* Two that cancel, one job, and a close: whoever takes a job ends it. */
static void cancel_token_too(void *context) {
  (void)context;
  token_drops_count += idlesched_token_cancel(&token);
}

static void token_beside_closes(void *context) {
  struct sim_client clients[2];
  idlesched_close_report report = { 0 };
  (void)context;
  token = (idlesched_token){ 0 };
  token_drops_count = cancelled_count = asked_count = 0;
  shared_setting = &(const struct setting){ .workers_max = 1, .closes = true };
  resubmits_left = 0;
  shared = SIM_POOL(.workers_max = 1, .dropped = sim_job_dropped);
  for (unsigned i = 0; i < 4; i++)
    SIM_CHECK_EQUAL(sim_submit_like(shared, i, &(idlesched_job){ .token = i < 3 ? &token : NULL }),
                    0);
  sim_client_start(&clients[0], cancel_token_too, NULL);
  sim_client_start(&clients[1], cancel_first, NULL);
  close_beside(&report);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(sim_stats(shared).jobs_cancelled,
                  token_drops_count + cancelled_count + report.dropped_count);
  sim_pool_finish(shared);
}

SPEC(token_against_close,
     "G4 G3 a token, a cancel and a close at once: each queued job is ended by one of them, and "
     "counted by that one") {
  struct sim_plan plan = { .name = "token beside close", .scenario = token_beside_closes };
  sim_pool_searches(&plan, 1, 200000);
}

/* The last thread is about to leave, and stays for a job that is then cancelled. */
static void cancel_at_a_step_of_leaving(void *context) {
  const uint64_t *begins_ns = context;
  shared = sim_pool_try_create(&(idlesched_pool_config){
    .workers_max = 2, .idle_release_ns = IDLESCHED_NEVER, .idle_exit_ns = 10 * IDS_MS });
  if (shared == NULL)
    return;
  sim_heap_takes(IDS_MS);
  (void)sim_submit(shared, 2);
  sim_sleep_ns(*begins_ns);
  int status = sim_submit_waitable(shared, 0);
  SIM_CHECK(status == 0 || status == -EAGAIN || status == -ENOMEM);
  if (status == 0) {
    status = idlesched_job_cancel(&sim_jobs[0].job);
    SIM_CHECK(status == 0 || status == -EBUSY || status == -EALREADY);
  }
  sim_sleep_ns(IDS_S);
  SIM_CHECK_EQUAL(sim_pool_threads_count(), 0);
  sim_pool_finish(shared);
}

SPEC(cancel_and_exit,
     "G2 G4 a job is cancelled whose worker exits, and whose new thread is refused or not: the "
     "threads end all the same") {
  for (uint64_t begins_ns = 10 * IDS_MS - 2; begins_ns < 14 * IDS_MS; begins_ns += IDS_MS / 2) {
    struct sim_plan plan = { .name = "cancel and exit",
                             .scenario = cancel_at_a_step_of_leaving,
                             .context = &begins_ns,
                             .bound = 1,
                             .fault_mode = SIM_FAULT_CHOICE,
                             .faults_max = 1 };
    sim_spec_exhaust(&plan);
  }
}
