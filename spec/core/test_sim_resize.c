/* SPDX-License-Identifier: MIT */
/*
 * test_sim_resize.c - a pool gets more workers or fewer while it works, and keeps some threads
 * beyond idle_exit.
 */
#include <errno.h>
#include <string.h>

#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER
#define EXIT_NS IDS_S

static idlesched_pool *shared;

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

/* Jobs that are under way, and how many may be when one begins. */
static unsigned at_work_count, at_work_max;
static bool retires[SIM_JOBS_MAX]; /* its worker after it */

static void begin_work(struct sim_trace *job) {
  if (retires[job - sim_jobs])
    idlesched_worker_retire(idlesched_worker_current());
  at_work_count++;
  SIM_CHECK_RELATION(at_work_count, <=, at_work_max);
}

static void end_work(struct sim_trace *job) {
  (void)job;
  at_work_count--;
}

static bool open_shared(unsigned workers_max, unsigned workers_min, uint64_t idle_exit_ns) {
  shared = sim_pool_try_create(&(const idlesched_pool_config){ .workers_max = workers_max,
                                                               .workers_min = workers_min,
                                                               .blocking_max = 1,
                                                               .idle_release_ns = NEVER,
                                                               .idle_exit_ns = idle_exit_ns });
  memset(retires, 0, sizeof retires);
  at_work_count = 0;
  at_work_max = 64;
  sim_jobs_tell(begin_work, end_work);
  return shared != NULL;
}

/* ------------------------------------------------------------------- more workers */

/* Three jobs and one worker; 1 ms later there may be three. */
static void more_workers(void *context) {
  (void)context;
  open_shared(1, 0, NEVER);
  sim_jobs_take(10 * IDS_MS);
  uint64_t begin_ns = ids_now_ns();
  for (unsigned i = 0; i < 3; i++)
    sim_must_submit(shared, i);
  sim_sleep_ns(IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 3, 0), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).workers_max, 3);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  for (unsigned i = 0; i < 3; i++)
    SIM_CHECK_EQUAL(sim_jobs[i].started_at_ns, begin_ns + (i == 0 ? 0 : IDS_MS));
  SIM_CHECK_EQUAL(sim_stats(shared).wakes, 3);
  sim_pool_finish(shared);
}

SPEC(more_workers_start_at_once,
     "G7 a resize to more workers wakes as many as the queue wants, 0 ms later, and no more") {
  struct sim_plan plan = plan_of("resize up", more_workers, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------------------ fewer workers */

/* Three have parked, one after the other; the last one is warm. */
static void fewer_parked(void *context) {
  bool has_state = context != NULL;
  sim_states(has_state ? 3 : 0, 1, 0);
  shared = SIM_POOL(.workers_max = 3, .idle_release_ns = NEVER, .idle_exit_ns = NEVER,
                    .hooks = sim_state_hooks);
  for (unsigned i = 0; i < 3; i++) {
    SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, i + 1), 0);
    sim_sleep_ns(1);
  }
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 1, 0), 0);
  sim_sleep_ns(1);
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK_EQUAL(stats.threads, 1);
  SIM_CHECK_EQUAL(stats.retires, 2);
  SIM_CHECK_EQUAL(stats.exits, 0);
  SIM_CHECK_EQUAL(sim_pool_threads_count(), 1);
  sim_work(shared, 0);
  SIM_CHECK_EQUAL(sim_jobs[0].worker, 2);
  SIM_CHECK_EQUAL(sim_stats(shared).starts, 3);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 3, 0), 0);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  sim_pool_finish(shared);
}

/* Three at a job each, and more are queued. */
static void fewer_running(void *context) {
  (void)context;
  open_shared(3, 0, NEVER);
  sim_jobs_take(10 * IDS_MS);
  uint64_t begin_ns = ids_now_ns();
  for (unsigned i = 0; i < 6; i++)
    SIM_CHECK_EQUAL(sim_submit_waitable(shared, i), 0);
  sim_sleep_ns(IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).running, 3);
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 1, 1), 0);
  at_work_max = 1;
  SIM_CHECK_EQUAL(sim_stats(shared).running, 3);
  ids_sleep_until(begin_ns + 11 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  SIM_CHECK_EQUAL(sim_stats(shared).retires, 2);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  for (unsigned i = 3; i < 6; i++)
    SIM_CHECK_EQUAL(sim_jobs[i].started_at_ns, begin_ns + (i - 2) * 10 * IDS_MS);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  sim_pool_finish(shared);
}

SPEC(fewer_workers_leave,
     "G7 a resize to fewer workers has parked ones end at once, the cold ones first, and others "
     "after their job; what is queued goes on with the rest") {
  static char something;
  struct sim_plan plan = plan_of("resize down, parked", fewer_parked, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan = plan_of("resize down, parked with a state", fewer_parked, &something);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan = plan_of("resize down, running", fewer_running, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* While a pass has them in hand, or their own release is under way. */
static void fewer_releasing(void *context) {
  bool has_state = context != NULL;
  sim_states(has_state ? 2 : 0, 2, 5 * IDS_MS);
  shared = SIM_POOL(.workers_max = 2, .idle_exit_ns = NEVER, .hooks = sim_state_hooks);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  sim_await_parked(shared, 2);
  sim_heap_takes(5 * IDS_MS);
  static const uint64_t moments_ns[] = {
    100 * IDS_MS, 102 * IDS_MS, 107 * IDS_MS,     112 * IDS_MS,
    117 * IDS_MS, 122 * IDS_MS, 100 * IDS_MS + 1, 105 * IDS_MS
  };
  ids_sleep_until(sim_worker(shared, 0)->parked_at_ns +
                  moments_ns[sim_choose(ids_countof(moments_ns), "moment")]);
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 1, 0), 0);
  sim_sleep_ns(200 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  SIM_CHECK_EQUAL(sim_stats(shared).retires, 1);
  sim_work(shared, 0);
  sim_pool_finish(shared);
}

SPEC(fewer_workers_while_they_release,
     "G7 a resize to fewer workers while they release has those leave that are too many") {
  static char something;
  struct sim_plan plan = plan_of("resize in a pass", fewer_releasing, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan = plan_of("resize in a release", fewer_releasing, &something);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
}

/* --------------------------------------------------------------- while others submit */

struct setting {
  unsigned sizes_count, sizes[3];
  unsigned clients, jobs_of_each;
  bool is_slow;
  bool retires; /* the first job of each client has its worker retire */
};

static unsigned jobs_of_each;

static void submit_some(void *context) {
  unsigned first = (unsigned)(uintptr_t)context * jobs_of_each;
  for (unsigned i = 0; i < jobs_of_each; i++)
    (void)sim_submit_waitable(shared, first + i);
}

static void resize_all(void *context) {
  const struct setting *setting = context;
  for (unsigned i = 1; i < setting->sizes_count; i++) {
    unsigned before = sim_stats(shared).workers_max;
    int status = idlesched_pool_resize(shared, setting->sizes[i], 0);
    SIM_CHECK(status == 0 || status == -ENOMEM || status == -EAGAIN);
    SIM_CHECK_EQUAL(sim_stats(shared).workers_max, status == 0 ? setting->sizes[i] : before);
  }
}

static void resize_among_submits(void *context) {
  struct setting *setting = context;
  struct sim_client resizer, clients[3];
  if (!open_shared(setting->sizes[0], 0, NEVER))
    return;
  jobs_of_each = setting->jobs_of_each;
  if (setting->is_slow)
    sim_jobs_take(IDS_MS);
  for (unsigned i = 0; i < setting->clients; i++)
    retires[i * jobs_of_each] = setting->retires;
  sim_client_start(&resizer, resize_all, setting);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_start(&clients[i], submit_some, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < setting->clients; i++)
    sim_client_join(&clients[i]);
  sim_client_join(&resizer);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  /* Those that are too many leave, and no job has to come for that. */
  while (sim_stats(shared).threads > sim_stats(shared).workers_max)
    sim_sleep_ns(IDS_MS);
  sim_pool_finish(shared);
}

SPEC(resize_at_any_moment,
     "G7 G8 a resize at any moment loses no job, strands none, and leaves no thread too many") {
  struct setting up = { .sizes_count = 2, .sizes = { 1, 2 }, .clients = 1, .jobs_of_each = 2 };
  struct sim_plan plan = plan_of("resize 1 2", resize_among_submits, &up);
  sim_pool_searches(&plan, 2, 200000);
  struct setting down = { .sizes_count = 2, .sizes = { 2, 1 }, .clients = 1, .jobs_of_each = 2 };
  plan = plan_of("resize 2 1", resize_among_submits, &down);
  sim_pool_searches(&plan, 2, 200000);
  struct setting both = {
    .sizes_count = 3, .sizes = { 2, 1, 3 }, .clients = 2, .jobs_of_each = 2, .is_slow = true
  };
  plan = plan_of("resize 2 1 3", resize_among_submits, &both);
  sim_pool_samples(&plan, 400000);
  struct setting more = {
    .sizes_count = 3, .sizes = { 1, 3, 1 }, .clients = 3, .jobs_of_each = 2, .is_slow = true
  };
  plan = plan_of("resize 1 3 1", resize_among_submits, &more);
  sim_pool_samples(&plan, 400000);
}

SPEC(resize_while_some_retire,
     "G7 C18 a resize while workers retire, and others take their places, leaves none too many") {
  struct setting down = {
    .sizes_count = 2, .sizes = { 2, 1 }, .clients = 1, .jobs_of_each = 3, .retires = true
  };
  struct sim_plan plan = plan_of("resize 2 1, retire", resize_among_submits, &down);
  sim_pool_searches(&plan, 1, 400000);
  struct setting many = { .sizes_count = 3,
                          .sizes = { 3, 2, 1 },
                          .clients = 3,
                          .jobs_of_each = 2,
                          .retires = true,
                          .is_slow = true };
  plan = plan_of("resize 3 2 1, retire", resize_among_submits, &many);
  sim_pool_samples(&plan, 400000);
}

SPEC(a_resize_is_refused,
     "G2 a resize that the system refuses leaves the pool as it was, and it goes on") {
  struct setting both = {
    .sizes_count = 3, .sizes = { 1, 4, 1 }, .clients = 1, .jobs_of_each = 3, .is_slow = true
  };
  struct sim_plan plan = plan_of("resize refused", resize_among_submits, &both);
  plan.strategy = SIM_RANDOM;
  plan.runs_max = 300;
  sim_spec_faults(&plan);
  plan.is_hostile = true;
  sim_spec_faults(&plan);
}

/* -------------------------------------------------------------- threads that stay */

static void idle_pool_keeps_some(void *context) {
  unsigned workers_min = *(unsigned *)context;
  uint64_t quiet_steps = sim_steps_of_sleep(IDS_S);
  shared = SIM_POOL(.workers_max = 3, .workers_min = workers_min, .idle_exit_ns = EXIT_NS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 3), 0);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(shared).workers_min, workers_min);
  sim_sleep_ns(EXIT_NS);
  idlesched_pool_stats stats = sim_stats(shared);
  SIM_CHECK_EQUAL(stats.threads, workers_min);
  SIM_CHECK_EQUAL(stats.exits, 3 - workers_min);
  SIM_CHECK_EQUAL(stats.releases, 3); /* those that stay have released as well */
  sim_sleep_ns(IDS_S);                /* the later pass of those that have left */
  SIM_CHECK_EQUAL(sim_steps_of_sleep(3600 * IDS_S), quiet_steps);
  SIM_CHECK_EQUAL(idlesched_pool_release(shared, NEVER, NULL), 0);
  sim_sleep_ns(IDS_S); /* and the one of that */
  SIM_CHECK_EQUAL(sim_steps_of_sleep(3600 * IDS_S), quiet_steps);
  for (unsigned i = 0; i < workers_min; i++)
    sim_must_submit(shared, i);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  sim_check_jobs_started_at_once();
  SIM_CHECK_EQUAL(sim_stats(shared).starts, 3);
  sim_sleep_ns(2 * EXIT_NS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, workers_min);
  SIM_CHECK_EQUAL(idlesched_pool_resize(shared, 3, 0), 0);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 0);
  SIM_CHECK_EQUAL(sim_stats(shared).exits, 3);
  sim_pool_finish(shared);
}

SPEC(some_threads_stay,
     "A13 G8 workers_min threads stay when they are idle for long; they release all the same, and "
     "nothing moves; others leave, and these, too, when they are to stay no more") {
  for (unsigned workers_min = 1; workers_min <= 3; workers_min++) {
    struct sim_plan plan = plan_of("some stay", idle_pool_keeps_some, &workers_min);
    sim_spec_exhaust(&plan);
    plan.strategy = SIM_RANDOM;
    sim_spec_sample(&plan, 5000);
  }
}

/* One stays and is past its exit; then another one comes. */
static void one_more_comes(void *context) {
  (void)context;
  open_shared(2, 1, EXIT_NS);
  sim_work(shared, 0);
  sim_sleep_ns(2 * EXIT_NS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  sim_sleep_ns(1);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  sim_work(shared, 1);
  SIM_CHECK_EQUAL(sim_jobs[1].worker, 1); /* the cold one has left */
  sim_pool_finish(shared);
}

static void release_shared(void *context) {
  (void)context;
  idlesched_pool_release(shared, NEVER, NULL);
}

/* The same while a visitor has its heap in hand. */
static void one_more_comes_in_a_visit(void *context) {
  (void)context;
  struct sim_client releaser;
  open_shared(2, 1, EXIT_NS);
  sim_work(shared, 0);
  sim_sleep_ns(2 * EXIT_NS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  sim_heap_takes(10 * IDS_MS);
  sim_client_start(&releaser, release_shared, NULL);
  sim_sleep_ns(IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).releasing, 1);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  sim_sleep_ns(100 * IDS_MS);
  SIM_CHECK_EQUAL(sim_stats(shared).threads, 1);
  sim_client_join(&releaser);
  sim_pool_finish(shared);
}

SPEC(the_cold_one_leaves, "G7 A13 of more threads than workers_min a cold one that had stayed "
                          "leaves as another one comes, and the warm one stays") {
  struct sim_plan plan = plan_of("one more comes", one_more_comes, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
  plan = plan_of("one more comes in a visit", one_more_comes_in_a_visit, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* Never fewer than workers_min have a thread, once they have. */
static void check_some_stay(void *context) {
  (void)context;
  if (shared == NULL || sim_is_locked(&shared->group.lock))
    return;
  SIM_CHECK_RELATION(ids_group_live_count_locked(&shared->group), >=, 1);
}

static uint64_t exit_at_ns;

static void submit_at_exit(void *context) {
  ids_sleep_until(exit_at_ns);
  sim_must_submit(shared, (unsigned)(uintptr_t)context);
}

static void jobs_come_at_the_exit(void *context) {
  unsigned clients_count = *(unsigned *)context;
  struct sim_client clients[2];
  idlesched_pool *pool;
  open_shared(2, 1, 50 * IDS_MS);
  SIM_CHECK_EQUAL(idlesched_pool_start_workers(shared, 2), 0);
  while (sim_stats(shared).starts < 2)
    sim_sleep_ns(1);
  exit_at_ns = sim_worker(shared, 0)->parked_at_ns + 50 * IDS_MS;
  sim_invariant(check_some_stay, NULL);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_start(&clients[i], submit_at_exit, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(idlesched_pool_wait(shared, NEVER), 0);
  pool = shared;
  while (sim_stats(pool).threads != 1) /* the others leave, and one does not */
    sim_sleep_ns(10 * IDS_MS);
  shared = NULL;
  sim_pool_finish(pool);
}

SPEC(jobs_come_as_some_leave,
     "A13 A14 jobs at the instant of the exit: none is lost, one thread stays, and no more") {
  unsigned one = 1, two = 2;
  struct sim_plan plan = plan_of("jobs at an exit 2x1", jobs_come_at_the_exit, &one);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  sim_pool_samples(&plan, 200000);
  plan = plan_of("jobs at an exit 2x2", jobs_come_at_the_exit, &two);
  sim_pool_samples(&plan, 200000);
}
