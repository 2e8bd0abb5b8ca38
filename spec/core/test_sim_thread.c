/* SPDX-License-Identifier: MIT */
/*
 * test_sim_thread.c - the host's own threads: parked, claimed by passes and releases, given
 * back, gone.
 *
 * The simulated allocator fails a run in which a thread uses its heap while somebody else
 * gives it up; so each thread uses it right after park_end.  A thread waits, parked, on a
 * condition of the scenario's, as a host would.
 */
#include "heap.h"
#include "host_thread.h"
#include "pool_sim.h"

#define NEVER IDLESCHED_NEVER

static idlesched_pool *the_pool;

/* ------------------------------------------------------------ a host's thread */

static struct ids_mutex gate = IDS_MUTEX_STATIC;
static struct ids_cond gate_opened = IDS_COND_STATIC; /* broadcast */
static bool is_open;

static void close_gate(void) {
  is_open = false;
}

static void open_gate(void) {
  ids_mutex_lock(&gate);
  is_open = true;
  ids_cond_broadcast(&gate_opened);
  ids_mutex_unlock(&gate);
}

static void await_gate(uint64_t deadline_ns) {
  ids_mutex_lock(&gate);
  while (!is_open && ids_now_ns() < deadline_ns)
    ids_cond_wait(&gate_opened, &gate, deadline_ns);
  ids_mutex_unlock(&gate);
}

struct host {
  struct sim_client client;
  unsigned parks_count; /* to make */
  uint64_t park_ns;     /* each takes so long, unless the gate is open */
  uint64_t release_ns;  /* nobody gives up what has been parked for less */
  void *heap;
  unsigned given_up_count;
  uint64_t parked_at_ns, back_at_ns; /* of the last park */
};

/* Parked once: it is given up at most once, not too early, and is whole when it is back. */
static void park_once(struct host *self, idlesched_thread *record) {
  struct sim_heap_counts before = sim_heap_counts(self->heap);
  self->parked_at_ns = ids_now_ns();
  idlesched_thread_park_begin(record);
  await_gate(ids_after_ns(self->parked_at_ns, self->park_ns));
  idlesched_thread_park_end(record);
  self->back_at_ns = ids_now_ns();
  struct sim_heap_counts after = sim_heap_counts(self->heap);
  ids_heap_collect();
  unsigned count = after.abandoned - before.abandoned;
  SIM_CHECK_RELATION(count, <=, 1);
  if (count == 1)
    SIM_CHECK_RELATION(after.last_at_ns, >=, self->parked_at_ns + self->release_ns);
  self->given_up_count += count;
}

/* The record goes with the thread, at once after it has left. */
static void host_main(void *context) {
  struct host *self = context;
  idlesched_thread *record = ids_alloc(sizeof *record, "record");
  SIM_CHECK(record != NULL);
  self->heap = ids_heap_own();
  idlesched_thread_enter(record);
  for (unsigned i = 0; i < self->parks_count; i++)
    park_once(self, record);
  idlesched_thread_leave(record);
  ids_free(record);
}

static void host_start(struct host *self, unsigned parks_count, uint64_t park_ns,
                       uint64_t release_ns) {
  *self = (struct host){ .parks_count = parks_count, .park_ns = park_ns, .release_ns = release_ns };
  sim_client_start(&self->client, host_main, self);
}

static void release(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pool_release(the_pool, NEVER, NULL), 0);
}

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

/* -------------------------------------------------------- claims by a release */

struct setting {
  unsigned hosts, parks_of_each, releasers;
};

static void released_while_parked(void *context) {
  const struct setting *setting = context;
  struct host hosts[3];
  struct sim_client clients[3];
  close_gate();
  the_pool = SIM_POOL(.workers_max = 1);
  for (unsigned i = 0; i < setting->hosts; i++)
    host_start(&hosts[i], setting->parks_of_each, IDS_MS, 0);
  for (unsigned i = 0; i < setting->releasers; i++)
    sim_client_start(&clients[i], release, NULL);
  for (unsigned i = 0; i < setting->releasers; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; i < setting->hosts; i++) {
    sim_client_join(&hosts[i].client);
    SIM_CHECK_RELATION(hosts[i].given_up_count, <=, setting->releasers);
  }
  sim_pool_finish(the_pool);
}

SPEC(claimed_by_releases,
     "N12 a parked thread is given up at most once in each park, and never runs "
     "beside it") {
  struct setting setting = { .hosts = 1, .parks_of_each = 1, .releasers = 1 };
  struct sim_plan plan = plan_of("thread 1x1", released_while_parked, &setting);
  sim_pool_searches(&plan, 3, 200000);
  setting = (struct setting){ .hosts = 1, .parks_of_each = 2, .releasers = 2 };
  plan.name = "thread 1x2";
  sim_pool_searches(&plan, 2, 500000);
  setting = (struct setting){ .hosts = 2, .parks_of_each = 1, .releasers = 2 };
  plan.name = "thread 2x2";
  sim_pool_searches(&plan, 1, 500000);
  setting = (struct setting){ .hosts = 3, .parks_of_each = 2, .releasers = 3 };
  plan.name = "thread 3x3";
  sim_pool_samples(&plan, 200000);
}

/* A release takes 20 ms for a heap that is parked for 10, of which 5 are over. */
static void park_end_waits(void *context) {
  (void)context;
  struct host host, other;
  close_gate();
  the_pool = SIM_POOL(.workers_max = 1);
  sim_heap_configure(&(const struct sim_heap_config){ .abandon_ns = 20 * IDS_MS });
  uint64_t begin_ns = ids_now_ns();
  host_start(&host, 1, 10 * IDS_MS, 0);
  sim_sleep_ns(5 * IDS_MS);
  unsigned mark = sim_heap_free(host.heap);
  release(NULL);
  SIM_CHECK_EQUAL(ids_now_ns(), begin_ns + 25 * IDS_MS);
  sim_client_join(&host.client);
  SIM_CHECK_EQUAL(host.given_up_count, 1);
  SIM_CHECK_EQUAL(host.back_at_ns, begin_ns + 25 * IDS_MS);
  SIM_CHECK(sim_heap_is_returned(mark));
  host_start(&other, 1, 10 * IDS_MS, 0);
  sim_client_join(&other.client);
  SIM_CHECK_EQUAL(other.given_up_count, 0);
  SIM_CHECK_EQUAL(other.back_at_ns, begin_ns + 35 * IDS_MS);
  sim_pool_finish(the_pool);
}

SPEC(the_end_waits_for_the_claim, "N12 park_end returns when the claim ends, and at once without") {
  struct sim_plan plan = plan_of("thread end", park_end_waits, NULL);
  plan.bound = 3;
  sim_spec_exhaust(&plan);
}

/* In one park, and in the next. */
static void once_in_each_park(void *context) {
  (void)context;
  struct host host;
  close_gate();
  the_pool = SIM_POOL(.workers_max = 1);
  host_start(&host, 2, 10 * IDS_MS, 0);
  sim_sleep_ns(IDS_MS);
  for (unsigned i = 1; i <= 2; i++) {
    release(NULL);
    release(NULL);
    SIM_CHECK_EQUAL(sim_heap_counts(host.heap).abandoned, i);
    sim_sleep_ns(10 * IDS_MS);
  }
  sim_client_join(&host.client);
  sim_pool_finish(the_pool);
}

SPEC(once_in_each, "N12 a heap is given up once in each park, and again in the next") {
  struct sim_plan plan = plan_of("thread once", once_in_each_park, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* A thread comes back as its claim ends, and parks again at once, while who had claimed it may
 * not be done. */
static struct {
  struct sim_client client;
  void *heap;
  unsigned given_up_count; /* before the second park */
} returner;

static void park_twice(void *context) {
  idlesched_thread record;
  (void)context;
  returner.heap = ids_heap_own();
  idlesched_thread_enter(&record);
  idlesched_thread_park_begin(&record);
  await_gate(ids_now_ns() + 2 * IDS_MS);
  idlesched_thread_park_end(&record);
  returner.given_up_count = sim_heap_counts(returner.heap).abandoned;
  idlesched_thread_park_begin(&record);
  await_gate(NEVER);
  idlesched_thread_park_end(&record);
  idlesched_thread_leave(&record);
}

static void parks_again(void *context) {
  (void)context;
  close_gate();
  sim_heap_configure(&(const struct sim_heap_config){ .abandon_ns = IDS_MS });
  sim_client_start(&returner.client, park_twice, NULL);
  sim_sleep_ns(IDS_MS);
  ids_host_threads_give_up(ids_now_ns(), 0);
  sim_sleep_ns(1);
  ids_host_threads_give_up(ids_now_ns(), 0);
  SIM_CHECK_EQUAL(sim_heap_counts(returner.heap).abandoned, returner.given_up_count + 1);
  open_gate();
  sim_client_join(&returner.client);
}

SPEC(again_in_the_next_park,
     "N12 a thread that parks again before its claimer is done with it is given up in that park") {
  struct sim_plan plan = plan_of("thread parks again", parks_again, NULL);
  plan.bound = 3;
  sim_spec_exhaust(&plan);
}

static void nobody_claims(void *context) {
  (void)context;
  idlesched_thread record;
  idlesched_thread_enter(&record);
  idlesched_thread_park_begin(&record);
  uint64_t steps = sim_steps_count();
  idlesched_thread_park_end(&record);
  SIM_CHECK_RELATION(sim_steps_count() - steps, <=, 1);
  idlesched_thread_leave(&record);
}

SPEC(one_store_without_a_claim, "N12 park_end is one compare-and-store when nobody claims") {
  struct sim_plan plan = plan_of("thread step", nobody_claims, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------- claims by passes */

/* The worker parks at 0 and releases at 100 ms: its pass gives up the host's heap if that
 * has been parked for as long, or else the later pass, 900 ms after it. */
static void a_pass_gives_up(void *context) {
  (void)context;
  struct host host;
  bool is_early = sim_choose(2, "parked before the worker") == 1;
  close_gate();
  the_pool = SIM_POOL(.workers_max = 1);
  uint64_t begin_ns = ids_now_ns();
  if (is_early)
    host_start(&host, 1, NEVER, 100 * IDS_MS);
  sim_sleep_ns(1);
  sim_must_submit(the_pool, 0);
  sim_sleep_ns(IDS_MS);
  if (!is_early)
    host_start(&host, 1, NEVER, 100 * IDS_MS);
  sim_sleep_ns(98 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_counts(host.heap).abandoned, 0);
  sim_sleep_ns(2 * IDS_MS);
  SIM_CHECK_EQUAL(sim_heap_counts(host.heap).abandoned, is_early);
  sim_sleep_ns(IDS_S);
  SIM_CHECK_EQUAL(sim_heap_counts(host.heap).abandoned, 1);
  uint64_t pass_ns = begin_ns + 1 + 100 * IDS_MS;
  SIM_CHECK_EQUAL(sim_heap_counts(host.heap).last_at_ns,
                  is_early ? pass_ns : pass_ns + 900 * IDS_MS);
  open_gate();
  sim_client_join(&host.client);
  sim_pool_finish(the_pool);
}

SPEC(claimed_by_a_pass,
     "N12 a pass gives up who has been parked for idle_release, and nobody else") {
  struct sim_plan plan = plan_of("thread pass", a_pass_gives_up, NULL);
  plan.bound = 2;
  sim_spec_exhaust(&plan);
}

static void submit_one(void *context) {
  (void)context;
  sim_must_submit(the_pool, 1);
}

/* Passes on the hostile clock, while the worker gets work and the host comes and goes. */
static void passes_and_parks(void *context) {
  const struct setting *setting = context;
  struct host hosts[2];
  struct sim_client clients[3];
  close_gate();
  the_pool = SIM_POOL(.workers_max = 2, .idle_release_ns = 2 * IDS_MS, .idle_exit_ns = 9 * IDS_MS);
  sim_must_submit(the_pool, 0);
  for (unsigned i = 0; i < setting->hosts; i++)
    host_start(&hosts[i], setting->parks_of_each, 3 * IDS_MS, 2 * IDS_MS * !setting->releasers);
  sim_client_start(&clients[0], submit_one, NULL);
  for (unsigned i = 1; i <= setting->releasers; i++)
    sim_client_start(&clients[i], release, NULL);
  for (unsigned i = 0; i <= setting->releasers; i++)
    sim_client_join(&clients[i]);
  for (unsigned i = 0; i < setting->hosts; i++)
    sim_client_join(&hosts[i].client);
  sim_pool_finish(the_pool);
}

SPEC(passes_beside_parks, "N12 passes, parks, jobs and exits side by side") {
  struct setting setting = { .hosts = 1, .parks_of_each = 2, .releasers = 0 };
  struct sim_plan plan = plan_of("thread passes", passes_and_parks, &setting);
  sim_pool_samples(&plan, 400000);
  setting = (struct setting){ .hosts = 2, .parks_of_each = 2, .releasers = 1 };
  plan.name = "thread passes and releases";
  sim_pool_samples(&plan, 300000);
}

/* Both pools' workers parked together, so both passes come at once. */
static void two_passes_at_once(void *context) {
  (void)context;
  struct host host;
  close_gate();
  idlesched_pool *pools[2];
  for (unsigned i = 0; i < 2; i++)
    pools[i] = SIM_POOL(.workers_max = 1, .idle_release_ns = 100 * IDS_MS);
  host_start(&host, 1, 150 * IDS_MS, 100 * IDS_MS);
  sim_sleep_ns(0);
  for (unsigned i = 0; i < 2; i++)
    sim_must_submit(pools[i], i);
  sim_sleep_ns(200 * IDS_MS);
  for (unsigned i = 0; i < 2; i++)
    SIM_CHECK_EQUAL(sim_stats(pools[i]).passes, 1);
  SIM_CHECK_EQUAL(host.given_up_count, 1);
  sim_client_join(&host.client);
  for (unsigned i = 0; i < 2; i++)
    sim_pool_finish(pools[i]);
}

SPEC(several_pools, "N12 passes of two pools at once give a thread up once, and both end") {
  struct sim_plan plan = plan_of("thread two pools", two_passes_at_once, NULL);
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 300000);
}

/* -------------------------------------------------------------------- misuse */

enum misuse { ALLOCATES, FREES, PARKS_TWICE, ENDS_UNPARKED, LEAVES_PARKED, ENTERS_TWICE };

static void misuse(void *context) {
  idlesched_thread record, second;
  void *block = idlesched_realloc(NULL, 8);
  idlesched_thread_enter(&record);
  enum misuse what = *(enum misuse *)context;
  if (what == ENTERS_TWICE)
    idlesched_thread_enter(&second);
  if (what == ENDS_UNPARKED)
    idlesched_thread_park_end(&record);
  idlesched_thread_park_begin(&record);
  if (what == ALLOCATES)
    idlesched_realloc(NULL, 8);
  else if (what == FREES)
    idlesched_free(block);
  else if (what == PARKS_TWICE)
    idlesched_thread_park_begin(&record);
  else if (what == LEAVES_PARKED)
    idlesched_thread_leave(&record);
  sim_fail("the misuse went unnoticed");
}

/* The first search that fails is the last one of its process: so each has a case. */
static void must_be_noticed(enum misuse what, const char *assertion) {
  struct sim_plan plan = plan_of("thread misuse", misuse, &what);
  struct sim_result result;
  sim_search(&plan, &result);
  CHECK(result.failed);
  CHECK_CONTAINS(result.message, assertion);
}

#ifdef IDS_PARANOID
SPEC(no_allocation_while_parked, "N12 a parked thread that allocates trips an assertion, "
                                 "in its first wait, too") {
  must_be_noticed(ALLOCATES, "self == NULL || ids_load_acquire(&self->state_) == RUNNING");
}

SPEC(no_free_while_parked, "N12 a parked thread that frees trips an assertion") {
  must_be_noticed(FREES, "self == NULL || ids_load_acquire(&self->state_) == RUNNING");
}
#endif

SPEC(parked_twice, "N12 park_begin of a parked thread trips an assertion") {
  must_be_noticed(PARKS_TWICE, "ids_load_acquire(&self->state_) == RUNNING");
}

SPEC(ends_no_park, "N12 park_end of a thread that runs trips an assertion") {
  must_be_noticed(ENDS_UNPARKED, "ids_load_acquire(&self->state_) != RUNNING");
}

SPEC(leaves_parked, "N12 a thread that leaves while it is parked trips an assertion") {
  must_be_noticed(LEAVES_PARKED, "ids_load_acquire(&self->state_) == RUNNING");
}

SPEC(enters_twice, "N12 a thread that enters twice trips an assertion") {
  must_be_noticed(ENTERS_TWICE, "ids_tls_get(IDS_TLS_HOST_THREAD) == NULL");
}
