/* SPDX-License-Identifier: MIT */
/*
 * test_sim_guard.c - guards of eager purging, whose option the whole process shares, and
 * purges, of which there is one at a time.
 *
 * An invariant says what the allocator's readers see: 0 as long as anybody holds a guard.
 */
#include <string.h>

#include "option.h"
#include "pool_sim.h"

enum { CLIENTS_MAX = 4 };

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

static void run_clients(unsigned count, void (*main)(void *context)) {
  struct sim_client clients[CLIENTS_MAX];
  for (unsigned i = 0; i < count; i++)
    sim_client_start(&clients[i], main, (void *)(uintptr_t)i);
  for (unsigned i = 0; i < count; i++)
    sim_client_join(&clients[i]);
}

/* Something is freed in the caller's heap, and collected: a purge is due. */
static unsigned collect_something(void) {
  unsigned mark = sim_heap_free(ids_heap_own());
  ids_heap_collect();
  return mark;
}

/* ---------------------------------------------------------------------- guards */

/* Between the return of an enter and the call of a leave. */
static unsigned held_count;
static long users_delay_ms;

static void check_delay(void *context) {
  (void)context;
  if (held_count > 0 && users_delay_ms > 0 && sim_heap_delay_ms() != 0)
    sim_fail("%u guards are held and the delay is %ld ms; expected 0", held_count,
             sim_heap_delay_ms());
  if (sim_heap_delay_ms() != 0 && sim_heap_delay_ms() != users_delay_ms)
    sim_fail("the delay is %ld ms; expected 0, or the user's %ld", sim_heap_delay_ms(),
             users_delay_ms);
}

static void begin_guards(long delay_ms) {
  held_count = 0;
  users_delay_ms = delay_ms;
  sim_heap_set_delay_ms(delay_ms);
  sim_invariant(check_delay, NULL);
}

/* It was overridden and put back so often, or never. */
static void check_put_back(unsigned overrides_min, unsigned overrides_max) {
  unsigned writes_count = sim_heap_delay_writes_count();
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), users_delay_ms);
  SIM_CHECK_EQUAL(writes_count % 2, 0);
  SIM_CHECK_RELATION(writes_count / 2, >=, overrides_min);
  SIM_CHECK_RELATION(writes_count / 2, <=, overrides_max);
}

static void enter(void) {
  idlesched_eager_purge_enter();
  held_count++;
}

static void leave(void) {
  held_count--;
  idlesched_eager_purge_leave();
}

static void hold_a_guard(void *context) {
  (void)context;
  enter();
  ids_point("holding");
  leave();
}

static void hold_two_guards(void *context) {
  (void)context;
  enter();
  enter();
  leave();
  leave();
}

struct setting {
  unsigned clients;
  void (*main)(void *context);
};

static void guards_side_by_side(void *context) {
  const struct setting *setting = context;
  static const long delays_ms[] = { SIM_HEAP_DELAY_DEFAULT_MS, 7 };
  begin_guards(delays_ms[sim_choose(2, "the user's delay")]);
  run_clients(setting->clients, setting->main);
  check_put_back(1, setting->clients);
  SIM_CHECK_RELATION(sim_heap_purges_count(), >=, 1);
}

SPEC(guards_count, "B1 B2 B3 the delay is 0 while a guard lives, and put back by the last one") {
  struct setting setting = { .clients = 2, .main = hold_a_guard };
  struct sim_plan plan = plan_of("guard 2", guards_side_by_side, &setting);
  sim_pool_searches(&plan, 3, 500000);
  setting = (struct setting){ .clients = 2, .main = hold_two_guards };
  plan.name = "guard 2 nested";
  sim_pool_searches(&plan, 2, 300000);
  setting = (struct setting){ .clients = 4, .main = hold_two_guards };
  plan.name = "guard 4 nested";
  sim_pool_samples(&plan, 300000);
}

static void leave_one(void *context) {
  (void)context;
  leave();
}

/* Entered by one thread, left by others and in any order. */
static void left_by_others(void *context) {
  (void)context;
  begin_guards(SIM_HEAP_DELAY_DEFAULT_MS);
  for (unsigned i = 0; i < 3; i++)
    enter();
  SIM_CHECK_EQUAL(sim_heap_delay_writes_count(), 1);
  SIM_CHECK_EQUAL(sim_heap_purges_count(), 1);
  run_clients(3, leave_one);
  check_put_back(1, 1);
}

SPEC(in_any_order, "B3 B4 guards end in any order, on any thread, and only the last one writes") {
  struct sim_plan plan = plan_of("guard order", left_by_others, NULL);
  sim_pool_searches(&plan, 2, 100000);
}

/* Two guards held by jobs of two pools, one by a thread. */
static void hold_in_job(void *context) {
  (void)context;
  hold_a_guard(NULL);
}

static void guards_of_pools(void *context) {
  (void)context;
  begin_guards(SIM_HEAP_DELAY_DEFAULT_MS);
  idlesched_pool *pools[2];
  for (unsigned i = 0; i < 2; i++)
    pools[i] = SIM_POOL(.workers_max = 1, .idle_release_ns = IDS_MS);
  for (unsigned i = 0; i < 2; i++)
    SIM_CHECK_EQUAL(idlesched_pool_submit(pools[i], hold_in_job, NULL), 0);
  hold_two_guards(NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_pool_finish(pools[i]);
  check_put_back(1, 3);
}

SPEC(across_pools, "B3 guards of jobs of two pools and of a thread count together") {
  struct sim_plan plan = plan_of("guard pools", guards_of_pools, NULL);
  sim_pool_samples(&plan, 200000);
}

static void left_alone(void *context) {
  (void)context;
  begin_guards(sim_choose(2, "the user's delay") == 0 ? 0 : -1);
  run_clients(2, hold_two_guards);
  SIM_CHECK_EQUAL(sim_heap_delay_writes_count(), 0);
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), users_delay_ms);
}

SPEC(zero_or_below, "B6 a delay of 0 or below is not written, at either end") {
  struct sim_plan plan = plan_of("guard alone", left_alone, NULL);
  sim_pool_searches(&plan, 2, 100000);
}

static void no_guard(void *context) {
  (void)context;
  begin_guards(SIM_HEAP_DELAY_DEFAULT_MS);
  idlesched_pool *pool = SIM_POOL(.workers_max = 1, .idle_release_ns = IDS_MS);
  sim_must_submit(pool, 0);
  idlesched_pool_release(pool, IDLESCHED_NEVER, NULL);
  sim_sleep_ns(2 * IDS_S);
  sim_pool_finish(pool);
  SIM_CHECK_EQUAL(sim_heap_delay_writes_count(), 0);
}

SPEC(without_a_guard, "B3 without a guard no option is written") {
  struct sim_plan plan = plan_of("guard none", no_guard, NULL);
  sim_pool_searches(&plan, 1, 50000);
}

static void leave_without_enter(void *context) {
  hold_a_guard(context);
  idlesched_eager_purge_leave();
}

SPEC(ends_once, "B5 a guard that ends twice trips an assertion") {
  struct sim_plan plan = plan_of("guard twice", leave_without_enter, NULL);
  struct sim_result result;
  sim_search(&plan, &result);
  CHECK(result.failed);
  CHECK_CONTAINS(result.message, "crowd->count > 0");
}

/* ------------------------------------------------------- overrides of other values */

enum { OTHER_MS = 7 };

/* What holders and lifts that are there for sure make of the delay. */
static struct {
  unsigned zero_begun_count, other_begun_count; /* from the call of enter to the return of leave */
  unsigned lifted_count; /* between the return of lift and the call of unlift */
} seen;

static void check_values(void *context) {
  (void)context;
  long delay_ms = sim_heap_delay_ms();
  bool may_be = delay_ms == 0          ? seen.zero_begun_count > 0
                : delay_ms == OTHER_MS ? seen.other_begun_count > 0
                                       : delay_ms == SIM_HEAP_DELAY_DEFAULT_MS;
  if (!may_be)
    sim_fail("the delay is %ld ms, which nobody asked for who is here", delay_ms);
  if (seen.lifted_count > 0 && delay_ms != SIM_HEAP_DELAY_DEFAULT_MS)
    sim_fail("overrides are lifted and the delay is %ld ms", delay_ms);
}

static void override_with_other(void *context) {
  (void)context;
  idlesched_override self;
  seen.other_begun_count++;
  SIM_CHECK_EQUAL(idlesched_override_enter(&self, "purge_delay", OTHER_MS, "other"), 0);
  ids_point("holding");
  idlesched_override_leave(&self);
  seen.other_begun_count--;
}

static void override_with_zero(void *context) {
  (void)context;
  seen.zero_begun_count++;
  idlesched_eager_purge_enter();
  ids_point("holding");
  idlesched_eager_purge_leave();
  seen.zero_begun_count--;
}

/* As a release does it. */
static void lift_and_purge(void *context) {
  (void)context;
  unsigned mark = collect_something();
  (void)ids_options_lift();
  seen.lifted_count++;
  ids_heap_purge_and_wait();
  seen.lifted_count--;
  ids_options_unlift();
  SIM_CHECK(sim_heap_is_returned(mark));
}

static void overrides_side_by_side(void *context) {
  static void (*const mains[])(void *) = { override_with_zero, override_with_other, lift_and_purge,
                                           lift_and_purge };
  unsigned count = *(unsigned *)context;
  struct sim_client clients[CLIENTS_MAX];
  memset(&seen, 0, sizeof seen);
  sim_invariant(check_values, NULL);
  for (unsigned i = 0; i < count; i++)
    sim_client_start(&clients[i], mains[i], NULL);
  for (unsigned i = 0; i < count; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK_EQUAL(sim_heap_delay_ms(), SIM_HEAP_DELAY_DEFAULT_MS);
  SIM_CHECK_EQUAL(ids_option_holders(IDS_HEAP_PURGE_DELAY_MS), 0);
}

SPEC(of_several_values, "B4 B13 B27 holders of several values and lifts side by side: the delay is "
                        "always somebody's, and nobody's while it is lifted") {
  unsigned clients_count = 2;
  struct sim_plan plan = plan_of("override 2", overrides_side_by_side, &clients_count);
  sim_pool_searches(&plan, 3, 300000);
  clients_count = 3;
  plan.name = "override 3";
  sim_pool_searches(&plan, 2, 300000);
  clients_count = 4;
  plan.name = "override 4";
  sim_pool_samples(&plan, 300000);
}

/* ------------------------------------------------------------- the purge before */

/* What is due when the delay becomes 0 would be passed over from then on. */
static void check_purged_before(void *context) {
  const unsigned *mark = context;
  if (sim_heap_delay_ms() == 0 && !sim_heap_is_returned(*mark))
    sim_fail("the delay is 0, and what was due before was not purged");
}

static void purge_comes_first(void *context) {
  (void)context;
  static unsigned mark;
  begin_guards(SIM_HEAP_DELAY_DEFAULT_MS);
  mark = collect_something();
  sim_invariant(check_purged_before, &mark);
  run_clients(2, hold_a_guard);
  check_put_back(1, 2);
}

SPEC(purges_first, "B12 what was due before a guard is purged before the delay is 0") {
  struct sim_plan plan = plan_of("guard purges first", purge_comes_first, NULL);
  sim_pool_searches(&plan, 2, 100000);
}

/* The guard that lived when this one entered may end before it counts. */
static void enter_late(void *context) {
  (void)context;
  unsigned mark = collect_something();
  enter();
  if (sim_heap_delay_writes_count() == 3)
    SIM_CHECK(sim_heap_is_returned(mark));
  leave();
}

static void enter_as_another_leaves(void *context) {
  (void)context;
  struct sim_client client;
  begin_guards(SIM_HEAP_DELAY_DEFAULT_MS);
  enter();
  sim_client_start(&client, enter_late, NULL);
  leave();
  sim_client_join(&client);
  check_put_back(1, 2);
}

SPEC(purges_before_it_writes, "B12 the guard that sets the delay has purged, also when another one "
                              "lived as it came: it had not") {
  struct sim_plan plan = plan_of("guard late", enter_as_another_leaves, NULL);
  sim_pool_searches(&plan, 3, 100000);
}

/* ---------------------------------------------------------------------- purges */

#define PURGE_NS (10 * IDS_MS)

static unsigned marks[CLIENTS_MAX];
static bool is_slow;

/* Asks once for a purge that somebody promises, and once for one that is over. */
static void ask_for_purges(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  if (is_slow)
    sim_sleep_ns(sim_choose(4, "begin") * 4 * IDS_MS);
  marks[i] = collect_something();
  uint64_t asked_at_ns = ids_now_ns();
  if (i % 2 == 0) {
    ids_heap_purge_and_wait();
    SIM_CHECK(sim_heap_is_returned(marks[i]));
  } else {
    ids_heap_purge();
  }
  if (is_slow)
    SIM_CHECK_RELATION(ids_now_ns() - asked_at_ns, <=, 3 * PURGE_NS);
}

static void purges_side_by_side(void *context) {
  unsigned clients_count = *(unsigned *)context;
  is_slow = false;
  run_clients(clients_count, ask_for_purges);
  for (unsigned i = 0; i < clients_count; i++)
    SIM_CHECK(sim_heap_is_returned(marks[i]));
  SIM_CHECK_RELATION(sim_heap_purges_count(), <=, clients_count);
  SIM_CHECK_RELATION(sim_heap_purges_count(), >=, 1);
}

SPEC(whoever_asked_is_served, "B17 B13 purges come one at a time, and whoever asked is served") {
  unsigned clients_count = 2;
  struct sim_plan plan = plan_of("purge 2", purges_side_by_side, &clients_count);
  sim_pool_searches(&plan, 4, 200000);
  clients_count = 3;
  plan.name = "purge 3";
  sim_pool_searches(&plan, 2, 300000);
  clients_count = 4;
  plan.name = "purge 4";
  sim_pool_samples(&plan, 300000);
}

static void slow_purges(void *context) {
  unsigned clients_count = *(unsigned *)context;
  is_slow = true;
  sim_heap_configure(&(const struct sim_heap_config){ .purge_ns = PURGE_NS });
  run_clients(clients_count, ask_for_purges);
  for (unsigned i = 0; i < clients_count; i++)
    SIM_CHECK(sim_heap_is_returned(marks[i]));
}

SPEC(nobody_purges_for_ever, "B17 who asks for a purge waits for three of them at most") {
  unsigned clients_count = 3;
  struct sim_plan plan = plan_of("purge slowly 3", slow_purges, &clients_count);
  sim_spec_exhaust(&plan);
  clients_count = 4;
  plan.name = "purge slowly 4";
  plan.strategy = SIM_RANDOM;
  sim_spec_sample(&plan, 200000);
}
