/* SPDX-License-Identifier: MIT */
/*
 * test_sim_nested.c - jobs that wait for jobs of their own pool: it helps, and never hangs; a
 * circle is told to exactly one of those in it, and what is no circle to nobody.
 *
 * Method: each job waits for at most one other, as an array of arrows says, which is a part of
 * the schedule.  All are queued before the first of them begins, so the circles of the arrows
 * are those that the waits must close, whoever comes first.
 */
#include <errno.h>

#include "pool_sim.h"

enum { JOBS_MAX = 4, NOBODY = JOBS_MAX, BLOCKER = 8 };

static idlesched_pool *shared;
static unsigned arrows[JOBS_MAX];
static bool waits_when_done[JOBS_MAX];
static unsigned deadlocks_count, timeouts_count;
static uint64_t wait_timeout_ns;
static bool are_queued;

static unsigned number_of(const struct sim_trace *job) {
  return (unsigned)(job - sim_jobs);
}

static void follow_arrow(struct sim_trace *job) {
  unsigned target = arrows[number_of(job)];
  if (target == NOBODY)
    return;
  struct sim_trace *awaited = &sim_jobs[target];
  bool is_in_done = idlesched_worker_current()->is_in_done;
  int status = idlesched_job_wait(&awaited->job, wait_timeout_ns);
  SIM_CHECK(idlesched_worker_current()->is_in_done == is_in_done);
  if (status == -EDEADLK)
    deadlocks_count++;
  else if (status == -ETIMEDOUT)
    timeouts_count++;
  else
    SIM_CHECK_EQUAL(status, 0);
  if (status == 0)
    SIM_CHECK(ids_job_has_ended(&awaited->job));
}

static void begins(struct sim_trace *job) {
  unsigned i = number_of(job);
  while (i >= BLOCKER && !are_queued)
    sim_sleep_ns(IDS_MS);
  if (i < JOBS_MAX && !waits_when_done[i])
    follow_arrow(job);
}

static void is_done(struct sim_trace *job) {
  unsigned i = number_of(job);
  /* One that was cancelled is done on whatever thread. */
  if (i < JOBS_MAX && waits_when_done[i] && idlesched_worker_current() != NULL)
    follow_arrow(job);
}

/* Circles of the arrows, a job that waits for itself included. */
static unsigned circles_count(unsigned jobs_count) {
  unsigned count = 0;
  for (unsigned i = 0; i < jobs_count; i++) {
    /* Each is counted at its lowest job. */
    unsigned at = arrows[i], steps = 0;
    while (at != NOBODY && at > i && steps++ < jobs_count)
      at = arrows[at];
    count += at == i;
  }
  return count;
}

/* All workers are busy when the jobs are queued; if that is refused, so be it. */
static bool queue_jobs(unsigned workers_count, unsigned jobs_count) {
  deadlocks_count = timeouts_count = 0;
  are_queued = false;
  sim_jobs_tell(begins, is_done);
  for (unsigned i = 0; i < workers_count; i++)
    (void)sim_submit(shared, BLOCKER + i);
  sim_sleep_ns(1);
  bool are_all = true;
  for (unsigned i = 0; i < jobs_count; i++)
    are_all &= sim_submit_waitable(shared, i) == 0;
  are_queued = true;
  return are_all;
}

struct setting {
  unsigned workers_max, jobs_count;
  bool with_done; /* some wait in their done callback */
  bool is_dedicated;
  uint64_t timeout_ns;
};

static void wait_along_arrows(void *context) {
  const struct setting *setting = context;
  shared = SIM_POOL(.workers_max = setting->workers_max, .is_dedicated = setting->is_dedicated);
  wait_timeout_ns = setting->timeout_ns;
  bool waits_in_done = false;
  for (unsigned i = 0; i < setting->jobs_count; i++) {
    arrows[i] = sim_choose(setting->jobs_count + 1, "arrow");
    if (arrows[i] == setting->jobs_count)
      arrows[i] = NOBODY;
    waits_when_done[i] = setting->with_done && sim_choose(2, "in done") == 1;
    waits_in_done |= waits_when_done[i];
  }
  SIM_CHECK(queue_jobs(setting->workers_max, setting->jobs_count));
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  unsigned circles = circles_count(setting->jobs_count);
  if (waits_in_done || timeouts_count > 0)
    SIM_CHECK_RELATION(deadlocks_count, <=, circles);
  else
    SIM_CHECK_EQUAL(deadlocks_count, circles);
  if (setting->timeout_ns == IDLESCHED_NEVER)
    SIM_CHECK_EQUAL(timeouts_count, 0);
  for (unsigned i = 0; i < setting->workers_max; i++)
    SIM_CHECK(sim_worker(shared, i)->awaited == NULL);
  SIM_CHECK_EQUAL(shared->jobs_inside_count, 0);
  sim_pool_finish(shared);
}

static void search(const char *name, struct setting setting, unsigned bound, uint64_t runs_count) {
  struct sim_plan plan = { .name = name, .scenario = wait_along_arrows, .context = &setting };
  sim_pool_searches(&plan, bound, runs_count);
}

SPEC(waits_along_arrows,
     "G9 jobs that wait for each other in any way end, with one worker and with more; each circle "
     "of one, two or three is told to one of it, and no other wait is refused") {
  search("arrows 1x2", (struct setting){ 1, 2, .timeout_ns = IDLESCHED_NEVER }, 2, 10000);
  search("arrows 1x3", (struct setting){ 1, 3, .timeout_ns = IDLESCHED_NEVER }, 1, 50000);
  search("arrows 2x2", (struct setting){ 2, 2, .timeout_ns = IDLESCHED_NEVER }, 1, 50000);
  search("arrows 2x3", (struct setting){ 2, 3, .timeout_ns = IDLESCHED_NEVER }, 1, 100000);
  search("arrows 2x2, each its own worker",
         (struct setting){ 2, 2, .timeout_ns = IDLESCHED_NEVER, .is_dedicated = true }, 0, 50000);
  struct setting many = { 3, 4, .timeout_ns = IDLESCHED_NEVER };
  struct sim_plan plan = { .name = "arrows 3x4", .scenario = wait_along_arrows, .context = &many };
  sim_pool_samples(&plan, 200000);
}

SPEC(waits_of_done_callbacks,
     "G9 a done callback waits as its job does: it helps, and never hangs") {
  search("done arrows 1x2", (struct setting){ 1, 2, true, .timeout_ns = IDLESCHED_NEVER }, 1,
         20000);
  search("done arrows 2x3", (struct setting){ 2, 3, true, .timeout_ns = IDLESCHED_NEVER }, 0,
         100000);
}

SPEC(waits_with_limits, "G9 waits with a limit: it is over, or a circle, or the job has ended") {
  search("limits 2x2", (struct setting){ 2, 2, .timeout_ns = IDS_MS }, 1, 20000);
  search("limits 2x3", (struct setting){ 2, 3, .timeout_ns = IDS_MS }, 0, 100000);
}

/* ------------------------------------------------------------- refused resources */

static void follow_arrow_refused(struct sim_trace *job) {
  unsigned i = number_of(job);
  if (i >= JOBS_MAX || arrows[i] == NOBODY)
    return;
  int status = idlesched_job_wait(&sim_jobs[arrows[i]].job, IDLESCHED_NEVER);
  SIM_CHECK(status == 0 || status == -EDEADLK || status == -EINVAL || status == -ENOMEM ||
            status == -EAGAIN);
}

static void submit_two_and_wait(struct sim_trace *job) {
  if (number_of(job) != 0)
    return;
  (void)sim_submit_waitable(shared, 4);
  if (sim_submit_waitable(shared, 5) == 0)
    (void)idlesched_job_wait(&sim_jobs[5].job, IDLESCHED_NEVER);
}

static void refused_along_arrows(void *context) {
  (void)context;
  shared = sim_pool_try_create(&(idlesched_pool_config){ .workers_max = 2 });
  if (shared == NULL)
    return;
  sim_jobs_tell(follow_arrow_refused, submit_two_and_wait);
  sim_jobs_take(IDS_MS);
  arrows[0] = 1;
  arrows[1] = 2;
  arrows[2] = 1;
  for (unsigned i = 0; i < 3; i++)
    (void)sim_submit_waitable(shared, 2 - i);
  sim_pool_finish(shared);
}

SPEC(nested_with_refusals, "G9 G2 whatever is refused to jobs that wait, they end") {
  struct sim_plan plan = { .name = "nested, refusals",
                           .scenario = refused_along_arrows,
                           .strategy = SIM_RANDOM,
                           .runs_max = 50 };
  sim_spec_faults(&plan);
}

/* ------------------------------------------------------------------ close, cancel */

static void close_it(void *context) {
  idlesched_close_report report;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, (enum idlesched_close_mode)(uintptr_t)context,
                                       IDLESCHED_NEVER, &report),
                  0);
  SIM_CHECK_EQUAL(report.left_behind_count, 0);
}

static void cancel_it(void *context) {
  int status = idlesched_job_cancel(&sim_jobs[(uintptr_t)context].job);
  SIM_CHECK(status == 0 || status == -EBUSY || status == -EALREADY);
}

static void close_beside_waits(void *context) {
  const struct setting *setting = context;
  struct sim_client closer, canceller;
  shared = SIM_POOL(.workers_max = setting->workers_max, .dropped = sim_job_dropped);
  wait_timeout_ns = IDLESCHED_NEVER;
  for (unsigned i = 0; i < JOBS_MAX; i++)
    waits_when_done[i] = false;
  arrows[0] = 1;
  arrows[1] = 2;
  arrows[2] = sim_choose(2, "a circle") == 1 ? 0 : NOBODY;
  SIM_CHECK(queue_jobs(setting->workers_max, 3));
  enum idlesched_close_mode mode = sim_choose(2, "drain") == 1 ? IDLESCHED_CLOSE_DRAIN
                                                               : IDLESCHED_CLOSE_CANCEL;
  sim_client_start(&closer, close_it, (void *)(uintptr_t)mode);
  sim_client_start(&canceller, cancel_it, (void *)(uintptr_t)1);
  sim_client_join(&closer);
  sim_client_join(&canceller);
  SIM_CHECK_RELATION(deadlocks_count, <=, arrows[2] == 0);
  sim_check_closed(shared);
  sim_pool_finish(shared);
}

SPEC(close_and_cancel_beside_waits,
     "G9 G3 G4 a pool is closed and an awaited job cancelled while jobs wait for jobs: each ends "
     "once, and whoever waited goes on") {
  struct setting settings[] = { { 1, 3, .timeout_ns = 0 }, { 2, 3, .timeout_ns = 0 } };
  for (unsigned i = 0; i < ids_countof(settings); i++) {
    struct sim_plan plan = { .name = "close beside waits",
                             .scenario = close_beside_waits,
                             .context = &settings[i] };
    sim_pool_searches(&plan, 1, 100000);
  }
}

/* One worker runs a job inside another one, and one is parked and slow to leave: a close whose
 * time is up waits for the second and not for the first. */
static unsigned left_with_two_count;

static void submit_and_run_inside(struct sim_trace *job) {
  if (number_of(job) != 0) {
    sim_sleep_ns(500 * IDS_MS);
    return;
  }
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, IDLESCHED_NEVER), 0);
}

static void close_leaves_one_behind(void *context) {
  idlesched_close_report report;
  (void)context;
  shared = SIM_POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER);
  sim_jobs_tell(submit_and_run_inside, NULL);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  sim_await_parked(shared, 2);
  sim_heap_configure(&(struct sim_heap_config){ .purge_ns = 50 * IDS_MS });
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  sim_sleep_ns(IDS_MS);
  if (sim_stats(shared).running == 1) { /* else the other one was faster */
    left_with_two_count++;
    SIM_CHECK_EQUAL(shared->jobs_inside_count, 1);
    uint64_t begun_ns = ids_now_ns();
    SIM_CHECK_EQUAL(idlesched_pool_close(shared, IDLESCHED_CLOSE_DRAIN, 10 * IDS_MS, &report),
                    -ETIMEDOUT);
    SIM_CHECK_EQUAL(report.left_behind_count, 1);
    SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + 60 * IDS_MS);
  }
  sim_sleep_ns(2 * IDS_S);
  sim_pool_finish(shared);
}

SPEC(close_beside_a_job_inside_another,
     "G9 G3 a job inside another one is one worker's: who leaves beside it is waited for") {
  struct sim_plan plan = { .name = "left with two jobs", .scenario = close_leaves_one_behind };
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  CHECK_GE_INT(left_with_two_count, 1);
}

/* ------------------------------------------------------------ who is warm, and waits */

/* The job's done callback submits two jobs, and waits for the second: the first, which was
 * this worker's to take, has to go to another one. */
static void submit_and_stay(struct sim_trace *job) {
  if (number_of(job) != 0)
    return;
  sim_jobs_take(10 * IDS_MS);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 2), 0);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 3), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[3].job, 0), -ETIMEDOUT);
  SIM_CHECK(idlesched_worker_current()->is_finishing);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[3].job, IDLESCHED_NEVER), 0);
  SIM_CHECK(!idlesched_worker_current()->is_finishing);
}

static void done_submits_and_waits(void *context) {
  (void)context;
  shared = SIM_POOL(.workers_max = 4);
  sim_jobs_tell(NULL, submit_and_stay);
  sim_work(shared, 9);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  sim_check_jobs_started_at_once();
  SIM_CHECK_RELATION(sim_stats(shared).wakes, <=, 5);
  sim_pool_finish(shared);
}

SPEC(a_done_callback_that_stays,
     "G9 G7 a done callback that waits hands the jobs that it has submitted to other workers; one "
     "that only looks keeps them") {
  struct sim_plan plan = { .name = "done stays", .scenario = done_submits_and_waits };
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
}

/* Inside another job, a job's done callback is not about to poll: what it submits is for
 * another worker at once. */
static void submit_from_inside(struct sim_trace *job) {
  if (number_of(job) == 1)
    SIM_CHECK_EQUAL(sim_submit(shared, 5), 0);
}

static void inside_then_work(struct sim_trace *job) {
  if (number_of(job) != 0)
    return;
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&sim_jobs[1].job, IDLESCHED_NEVER), 0);
  sim_sleep_ns(10 * IDS_MS);
}

static void done_inside_submits(void *context) {
  (void)context;
  shared = SIM_POOL(.workers_max = 2);
  sim_jobs_tell(inside_then_work, submit_from_inside);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  sim_check_jobs_started_at_once();
  sim_pool_finish(shared);
}

SPEC(a_done_callback_inside_a_job,
     "G9 G7 what is submitted by the done callback of a job inside another one waits for neither") {
  struct sim_plan plan = { .name = "done inside", .scenario = done_inside_submits };
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------------------ all of a list */

static void wait_for_list(struct sim_trace *job) {
  idlesched_job *jobs[3];
  if (number_of(job) != 0)
    return;
  for (unsigned i = 0; i < 3; i++) {
    SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1 + i), 0);
    jobs[i] = &sim_jobs[1 + i].job;
  }
  SIM_CHECK_EQUAL(idlesched_jobs_wait(jobs, 3, IDLESCHED_NEVER), 0);
  for (unsigned i = 0; i < 3; i++)
    SIM_CHECK(ids_job_has_ended(jobs[i]));
  jobs[1] = &job->job;
  SIM_CHECK_EQUAL(idlesched_jobs_wait(jobs, 3, IDLESCHED_NEVER), -EDEADLK);
}

static void wait_for_all(void *context) {
  const struct setting *setting = context;
  shared = SIM_POOL(.workers_max = setting->workers_max);
  sim_jobs_tell(wait_for_list, NULL);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 0), 0);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  sim_pool_finish(shared);
}

SPEC(wait_for_a_list, "G9 a job submits others and waits for all of them, also with one worker") {
  for (unsigned workers = 1; workers <= 2; workers++) {
    struct setting setting = { .workers_max = workers };
    struct sim_plan plan = { .name = "wait for a list",
                             .scenario = wait_for_all,
                             .context = &setting };
    sim_pool_searches(&plan, 1, 40000);
  }
}
