/* SPDX-License-Identifier: MIT */
/*
 * test_sim_room.c - a queue with a limit: it is never longer, nobody waits while there is room,
 * who came first gets in first, and a job that submits does not wait at all.
 */
#include <errno.h>

#include "pool_sim.h"

struct setting {
  unsigned workers_max, queue_max, clients;
  uint64_t timeout_ns;
  bool is_dedicated;
  enum idlesched_close_mode mode;
};

static idlesched_pool *shared;
/* Jobs in the order in which they began. */
static unsigned order[SIM_JOBS_MAX], order_count;

static void note_order(struct sim_trace *job) {
  order[order_count++] = (unsigned)(job - sim_jobs);
}

/* At every step at which nobody is in the middle of a change. */
static void check_room(void *context) {
  const struct setting *setting = context;
  if (shared == NULL || sim_is_locked(&shared->group.lock))
    return;
  SIM_CHECK_RELATION(shared->queue.count, <=, setting->queue_max);
  if (!ids_line_is_empty(&shared->line))
    SIM_CHECK_EQUAL(shared->queue.count, setting->queue_max);
}

static bool open_shared(const struct setting *setting) {
  shared = NULL;
  order_count = 0;
  sim_invariant(check_room, (void *)(uintptr_t)setting);
  idlesched_pool *pool = sim_pool_try_create(&(idlesched_pool_config){
    .workers_max = setting->workers_max,
    .is_dedicated = setting->is_dedicated,
    .queue_max = setting->queue_max,
    .queue_timeout_ns = setting->timeout_ns,
    .dropped = sim_job_dropped,
  });
  if (pool == NULL)
    return false;
  sim_jobs_tell(note_order, NULL);
  shared = pool;
  return true;
}

static void finish(void) {
  idlesched_pool *pool = shared;
  SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  SIM_CHECK(ids_line_is_empty(&pool->line));
  shared = NULL;
  sim_pool_finish(pool);
}

/* ------------------------------------------------------------- submit and pop */

static void must_submit_three(void *context) {
  unsigned first = 3 * (unsigned)(uintptr_t)context;
  SIM_CHECK_EQUAL(sim_submit(shared, first), 0);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, first + 1), 0);
  SIM_CHECK_EQUAL(sim_submit(shared, first + 2), 0);
}

static void submit_beside_pops(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[3];
  open_shared(setting);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], must_submit_three, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  finish();
  SIM_CHECK_EQUAL(order_count, 3 * setting->clients);
}

SPEC(everybody_gets_in,
     "G11 submits that wait for room all get in, nobody waits while there is some, and the queue "
     "is never longer than its limit") {
  struct setting one = {
    .workers_max = 1, .queue_max = 1, .clients = 2, .timeout_ns = IDLESCHED_NEVER
  };
  struct sim_plan plan = { .name = "room 1x1", .scenario = submit_beside_pops, .context = &one };
  sim_pool_searches(&plan, 1, 200000);
  struct setting two = {
    .workers_max = 2, .queue_max = 1, .clients = 3, .timeout_ns = IDLESCHED_NEVER
  };
  plan = (struct sim_plan){ .name = "room 2x1", .scenario = submit_beside_pops, .context = &two };
  sim_pool_samples(&plan, 200000);
  struct setting retiring = { .workers_max = 2,
                              .queue_max = 2,
                              .clients = 3,
                              .timeout_ns = IDLESCHED_NEVER,
                              .is_dedicated = true };
  plan = (struct sim_plan){ .name = "room, dedicated",
                            .scenario = submit_beside_pops,
                            .context = &retiring };
  sim_pool_samples(&plan, 200000);
}

/* ---------------------------------------------------------------- who is first */

static uint64_t begun_ns;

static void submit_at_moment(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  sim_sleep_ns(i * IDS_MS);
  SIM_CHECK_EQUAL(sim_submit(shared, i), 0);
  /* The first runs, two are queued; each of the others is in when one more is taken. */
  uint64_t taken_at_ns = i < 3 ? i * IDS_MS : (i - 2) * 100 * IDS_MS;
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + taken_at_ns);
}

static void in_turn(void *context) {
  enum { CLIENTS = 6 };
  const struct setting *setting = context;
  struct sim_client clients[CLIENTS];
  open_shared(setting);
  begun_ns = ids_now_ns();
  sim_jobs_take(100 * IDS_MS);
  for (unsigned i = 0; i < CLIENTS; i++)
    sim_client_start(&clients[i], submit_at_moment, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < CLIENTS; i++)
    sim_client_join(&clients[i]);
  finish();
  for (unsigned i = 0; i < CLIENTS; i++)
    SIM_CHECK_EQUAL(order[i], i);
}

SPEC(first_come_first_in, "G11 who waits first for room gets in first, as soon as there is some") {
  struct setting setting = { .workers_max = 1, .queue_max = 2, .timeout_ns = IDLESCHED_NEVER };
  struct sim_plan plan = { .name = "room, in turn", .scenario = in_turn, .context = &setting };
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* -------------------------------------------------------------- the time limit */

static int submit_waiting(unsigned i) {
  int status = i % 2 == 0 ? sim_submit(shared, i) : sim_submit_waitable(shared, i);
  if (status != 0)
    SIM_CHECK_EQUAL(sim_jobs[i].runs_count, 0);
  return status;
}

static void full_for_a_while(void *context) {
  const struct setting *setting = context;
  open_shared(setting);
  sim_jobs_take(100 * IDS_MS);
  sim_must_submit(shared, 0);
  sim_sleep_ns(1); /* it runs */
  sim_must_submit(shared, 1);
  begun_ns = ids_now_ns();
  SIM_CHECK_EQUAL(submit_waiting(2), -ENOBUFS);
  SIM_CHECK_EQUAL(submit_waiting(3), -ENOBUFS);
  SIM_CHECK_EQUAL(ids_now_ns(), begun_ns + 2 * setting->timeout_ns);
  ids_sleep_until(begun_ns + 95 * IDS_MS);
  SIM_CHECK_EQUAL(submit_waiting(5), setting->timeout_ns > 0 ? 0 : -ENOBUFS);
  finish();
}

SPEC(to_the_nanosecond,
     "G11 a submit into a full queue fails after its time limit, or at once without one, and keeps "
     "nothing") {
  static const uint64_t timeouts_ns[] = { 0, 10 * IDS_MS, 40 * IDS_MS };
  for (unsigned i = 0; i < ids_countof(timeouts_ns); i++) {
    struct setting setting = { .workers_max = 1, .queue_max = 1, .timeout_ns = timeouts_ns[i] };
    struct sim_plan plan = { .name = "room, in time",
                             .scenario = full_for_a_while,
                             .context = &setting };
    plan.bound = 1;
    sim_spec_exhaust(&plan);
  }
}

/* The job that is run ends in the same moment as the time that the others wait. */
static void may_submit_two(void *context) {
  unsigned first = 2 * (unsigned)(uintptr_t)context;
  (void)submit_waiting(first);
  (void)submit_waiting(first + 1);
}

static void full_until_the_limit(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[3];
  if (!open_shared(setting))
    return;
  sim_jobs_take(10 * IDS_MS);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], may_submit_two, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  finish();
}

SPEC(room_at_the_last_moment,
     "G11 room that comes as the time is over: the job is in and runs, or it is neither") {
  struct setting setting = {
    .workers_max = 1, .queue_max = 1, .clients = 2, .timeout_ns = 10 * IDS_MS
  };
  struct sim_plan plan = { .name = "room, last moment",
                           .scenario = full_until_the_limit,
                           .context = &setting };
  sim_pool_searches(&plan, 1, 200000);
}

SPEC(room_and_refusals, "G11 G2 whatever is refused, who waits for room is told, or gets in") {
  struct setting setting = {
    .workers_max = 2, .queue_max = 1, .clients = 3, .timeout_ns = 10 * IDS_MS
  };
  struct sim_plan plan = { .name = "room, refusals",
                           .scenario = full_until_the_limit,
                           .context = &setting };
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 50;
  sim_spec_faults(&plan);
  setting.is_dedicated = true;
  plan.name = "room, refusals, dedicated";
  sim_spec_faults(&plan);
}

/* ------------------------------------------------------------ close and cancel */

static void close_shared(void *context) {
  const struct setting *setting = context;
  SIM_CHECK_EQUAL(idlesched_pool_close(shared, setting->mode, IDLESCHED_NEVER, NULL), 0);
  SIM_CHECK(ids_line_is_empty(&shared->line));
  sim_check_closed(shared);
}

static void submit_until_shut(void *context) {
  unsigned first = 3 * (unsigned)(uintptr_t)context;
  for (unsigned i = first; i < first + 3; i++) {
    int status = submit_waiting(i);
    SIM_CHECK(status == 0 || status == -ESHUTDOWN);
  }
}

static void closed_while_full(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[2], closer;
  open_shared(setting);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_until_shut, (void *)(uintptr_t)i);
  sim_client_start(&closer, close_shared, context);
  sim_client_join(&closer);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  finish();
}

SPEC(a_close_wakes_who_waits_for_room,
     "G11 G3 a close tells everybody who waits for room, and what was taken in ends once") {
  struct setting setting = {
    .workers_max = 1, .queue_max = 1, .clients = 2, .timeout_ns = IDLESCHED_NEVER
  };
  struct sim_plan plan = { .name = "room, drain",
                           .scenario = closed_while_full,
                           .context = &setting };
  sim_pool_searches(&plan, 1, 100000);
  setting.mode = IDLESCHED_CLOSE_CANCEL;
  plan.name = "room, cancel";
  sim_pool_samples(&plan, 100000);
}

static void cancel_one(void *context) {
  (void)context;
  int status = idlesched_job_cancel(&sim_jobs[1].job);
  SIM_CHECK(status == 0 || status == -EBUSY || status == -EALREADY);
}

static void room_by_a_cancel(void *context) {
  const struct setting *setting = context;
  struct sim_client canceller, client;
  open_shared(setting);
  sim_jobs_take(100 * IDS_MS);
  sim_must_submit(shared, 0);
  SIM_CHECK_EQUAL(sim_submit_waitable(shared, 1), 0);
  sim_client_start(&client, must_submit_three, (void *)(uintptr_t)1);
  sim_client_start(&canceller, cancel_one, NULL);
  sim_client_join(&canceller);
  sim_client_join(&client);
  finish();
}

SPEC(a_cancel_makes_room, "G11 a queued job that is cancelled makes room for who waits") {
  struct setting setting = { .workers_max = 1, .queue_max = 1, .timeout_ns = IDLESCHED_NEVER };
  struct sim_plan plan = { .name = "room, job cancelled",
                           .scenario = room_by_a_cancel,
                           .context = &setting };
  sim_pool_searches(&plan, 1, 100000);
}

/* ------------------------------------------------------------ jobs that submit */

static unsigned inner_count;

/* A tree of jobs: each of the first few submits two more. */
static void submit_children(struct sim_trace *job) {
  unsigned i = (unsigned)(job - sim_jobs);
  note_order(job);
  for (unsigned child = 2 * i + 2; child < 2 * i + 4; child++) {
    if (child >= inner_count)
      continue;
    if (child % 3 == 0)
      SIM_CHECK_EQUAL(sim_submit_waitable(shared, child), 0);
    else
      sim_must_submit(shared, child);
  }
}

static void submit_one(void *context) {
  sim_must_submit(shared, (unsigned)(uintptr_t)context);
}

static void jobs_submit_jobs(void *context) {
  const struct setting *setting = context;
  struct sim_client clients[2];
  open_shared(setting);
  inner_count = 14;
  sim_jobs_tell(submit_children, NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_one, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  finish();
  SIM_CHECK_EQUAL(order_count, inner_count);
}

SPEC(jobs_do_not_wait_for_room,
     "G11 G9 jobs that submit into a full queue run what is queued instead of waiting, and none "
     "is lost, whatever else submits") {
  struct setting setting = { .workers_max = 1, .queue_max = 1, .timeout_ns = IDLESCHED_NEVER };
  struct sim_plan plan = { .name = "room in jobs 1x1",
                           .scenario = jobs_submit_jobs,
                           .context = &setting };
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  sim_pool_samples(&plan, 100000);
  struct setting more = { .workers_max = 2, .queue_max = 2, .timeout_ns = IDLESCHED_NEVER };
  plan.context = &more;
  plan.name = "room in jobs 2x2";
  sim_pool_samples(&plan, 100000);
}
