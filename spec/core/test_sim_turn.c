/* SPDX-License-Identifier: MIT */
/*
 * test_sim_turn.c - whose turn it is: the worker that has just finished goes on, one to which a
 * job was handed is busy, and one that is slow to leave keeps no job waiting.
 */
#include <errno.h>

#include "pool_sim.h"

/* -------------------------------------------------------- the warm one goes on */

static idlesched_pool *shared;

struct turn {
  const char *name;
  bool by_callback; /* the next job comes from the done callback, else from who waited */
  bool has_done;    /* who waited may be faster than the callback */
};

static idlesched_job first, next;
static const struct ids_worker *workers[2];

static int note_worker(idlesched_job *job, idlesched_worker *worker) {
  const struct ids_worker **place = &workers[job == &next];
  SIM_CHECK(*place == NULL);
  *place = worker;
  return 0;
}

static void submit_next(idlesched_job *job) {
  SIM_CHECK(job == &first);
  SIM_CHECK_EQUAL(idlesched_pool_submit_job(shared, &next), 0);
}

static void do_nothing(idlesched_job *job) {
  SIM_CHECK(job == &first);
}

static void one_after_the_other(void *context) {
  const struct turn *turn = context;
  first = next = (idlesched_job){ .run = note_worker };
  workers[0] = workers[1] = NULL;
  if (turn->has_done)
    first.done = turn->by_callback ? submit_next : do_nothing;
  shared = SIM_POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER,
                    .idle_exit_ns = IDLESCHED_NEVER);
  unsigned ahead_count = 1 + sim_choose(2, "a second worker is parked");
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, ahead_count), 0);
  sim_await_parked(shared, ahead_count);

  SIM_CHECK_EQUAL(idlesched_pool_submit_job(shared, &first), 0);
  SIM_CHECK_EQUAL(idlesched_job_wait(&first, IDLESCHED_NEVER), 0);
  if (!turn->by_callback)
    submit_next(&first);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  SIM_CHECK(workers[1] != NULL && workers[1] == workers[0]);
  /* Nobody else was told; nor the worker itself, unless it had parked before. */
  uint64_t told_count = sim_stats(shared).wakes - ahead_count;
  SIM_CHECK_EQUAL(workers[0]->given_count, told_count + 1);
  SIM_CHECK_RELATION(told_count, <=, turn->by_callback ? 1 : 2);
  sim_pool_finish(shared);
}

static struct sim_plan plan_of_turn(struct turn *turn) {
  return (struct sim_plan){ .name = turn->name, .scenario = one_after_the_other, .context = turn };
}

SPEC(the_warm_worker_goes_on,
     "C10 a job submitted by a done callback, or by a waiter as soon as the job has ended, runs on "
     "the worker that just finished, and wakes nobody else") {
  struct turn turns[] = { { .name = "from done", .by_callback = true, .has_done = true },
                          { .name = "after wait" } };
  for (unsigned i = 0; i < ids_countof(turns); i++) {
    struct sim_plan plan = plan_of_turn(&turns[i]);
    sim_pool_searches(&plan, 2, 200000);
  }
  struct turn beside_done = { .name = "after wait, beside done", .has_done = true };
  struct sim_plan plan = plan_of_turn(&beside_done); /* in their order: the callback is no wait */
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------- busy at hand-over */

/* Each worker's, of the job that runs on it. */
static const void *keys[2];
static const char one_key;

static void take_key(struct sim_trace *job) {
  SIM_CHECK(keys[job->worker] == NULL);
  keys[job->worker] = &one_key;
}

static void drop_key(struct sim_trace *job) {
  SIM_CHECK(keys[job->worker] == &one_key);
  keys[job->worker] = NULL;
}

static void hand_over(void *context) {
  (void)context;
  keys[0] = keys[1] = NULL;
  shared = SIM_POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER,
                    .idle_exit_ns = IDLESCHED_NEVER);
  sim_jobs_tell(take_key, drop_key);
  sim_jobs_take(10 * IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  sim_await_parked(shared, 2);
  for (unsigned i = 0; i < 2; i++) {
    SIM_CHECK_EQUAL(sim_submit_waitable(shared, i), 0);
    idlesched_pool_stats stats = sim_stats(shared);
    SIM_CHECK_RELATION(stats.active, >=, 1);
    SIM_CHECK_EQUAL(stats.jobs_queued + stats.jobs_running, i + 1);
  }
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, IDLESCHED_NEVER), 0);
  SIM_CHECK(sim_jobs[0].thread != sim_jobs[1].thread);
  SIM_CHECK(sim_jobs[0].worker != sim_jobs[1].worker);
  sim_check_jobs_started_at_once();
  sim_pool_finish(shared);
}

SPEC(busy_at_hand_over,
     "C15 C9 a worker is busy from the moment a job is given to it: the next job goes to the other "
     "one, and the two jobs of one key are kept apart") {
  struct sim_plan plan = { .name = "hand-over", .scenario = hand_over, .bound = 2 };
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 100000);
}

/* -------------------------------------------------------------- a slow leaver */

enum { BY_EXIT, BY_RETIRING, BY_RELEASING, WAYS };

/* Jobs take 60 ms.  Job 0 runs from 10 ms on; at 50 ms the other worker begins something that
 * takes a second, and gets the ticket for job 1. */
static void beside_a_slow_one(void *context) {
  (void)context;
  unsigned way = sim_choose(WAYS, "way");
  uint64_t idle_ns[WAYS] = { IDLESCHED_NEVER, IDLESCHED_NEVER, IDLESCHED_NEVER };
  idle_ns[way] = 50 * IDS_MS;
  sim_states(2, 1, IDS_S);
  shared = SIM_POOL(.workers_max = 2, .idle_release_ns = idle_ns[BY_RELEASING],
                    .idle_exit_ns = idle_ns[BY_EXIT], .hooks = sim_state_hooks);
  uint64_t begin_ns = ids_now_ns();
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  sim_heap_takes(IDS_S);
  sim_jobs_take(60 * IDS_MS);
  ids_sleep_until(begin_ns + 10 * IDS_MS);
  sim_must_submit(shared, 0);
  ids_sleep_until(begin_ns + 51 * IDS_MS);
  struct ids_worker *slow = sim_worker(shared, 1 - sim_jobs[0].worker);
  if (way == BY_RETIRING) {
    idlesched_worker_retire(slow);
    sim_sleep_ns(1);
  }
  SIM_CHECK_EQUAL(slow->state, way == BY_RELEASING ? IDS_WORKER_RELEASING : IDS_WORKER_EXITING);
  sim_must_submit(shared, 1);
  SIM_CHECK(slow->has_ticket);

  ids_sleep_until(begin_ns + 131 * IDS_MS);
  SIM_CHECK_EQUAL(sim_jobs[1].started_at_ns, begin_ns + 70 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).parked, 1);
  SIM_CHECK(slow->has_ticket);
  sim_must_submit(shared, 2);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_jobs[2].runs_count, 1);
  SIM_CHECK_EQUAL(sim_jobs[2].started_at_ns, sim_jobs[2].submitted_at_ns);
  sim_sleep_ns(5 * IDS_S);
  sim_pool_finish(shared);
}

SPEC(no_job_waits_behind_a_slow_one,
     "N3 A15 a job does not wait behind a slow leaver, or a slow release: what has a ticket there "
     "is taken by the other worker, and the next job starts on that at once") {
  struct sim_plan plan = { .name = "beside a slow one", .scenario = beside_a_slow_one, .bound = 1 };
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 20000);
}

/* ------------------------------------------------------------- twice the same */

/* One job that two clients submit, to a pool each, again and again. */
static idlesched_job twin;
static idlesched_pool *twin_pools[2];
static uint32_t twin_runs_count;
static unsigned accepted_count[2];

static int run_twin(idlesched_job *job, idlesched_worker *worker) {
  SIM_CHECK(job == &twin);
  SIM_CHECK_EQUAL(idlesched_worker_index(worker), 0);
  ids_store_release(&twin_runs_count, ids_load_acquire(&twin_runs_count) + 1);
  return 0;
}

static void submit_twin(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  for (unsigned n = 0; n < 2; n++) {
    int status = idlesched_pool_submit_job(twin_pools[i], &twin);
    SIM_CHECK(status == 0 || status == -EALREADY);
    accepted_count[i] += status == 0;
  }
}

static void one_job_twice(void *context) {
  struct sim_client clients[2];
  (void)context;
  twin = (idlesched_job){ .run = run_twin };
  twin_runs_count = accepted_count[0] = accepted_count[1] = 0;
  for (unsigned i = 0; i < 2; i++)
    twin_pools[i] = SIM_POOL(.workers_max = 1, .is_dedicated = i == 1);
  for (unsigned i = 0; i < 2; i++)
    sim_client_start(&clients[i], submit_twin, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; i < 2; i++) {
    SIM_CHECK_EQUAL(idlesched_pool_wait(twin_pools[i], IDLESCHED_NEVER), 0);
    SIM_CHECK_EQUAL(sim_stats(twin_pools[i]).jobs_done, accepted_count[i]);
  }
  SIM_CHECK_EQUAL(twin_runs_count, accepted_count[0] + accepted_count[1]);
  for (unsigned i = 0; i < 2; i++)
    sim_pool_finish(twin_pools[i]);
}

SPEC(same_id_twice,
     "C9 G4 one job given to two pools, whose workers have the same index and name, runs as often "
     "as it was accepted; it was claimed twice when it ended and came back between two looks") {
  struct sim_plan plan = { .name = "same id twice", .scenario = one_job_twice };
  sim_pool_samples(&plan, 200000);
}
