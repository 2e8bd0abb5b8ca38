/* SPDX-License-Identifier: MIT */
/*
 * test_sim_pressure.c - when an event of memory pressure is followed by a release, in
 * virtual time, and starts and stops that meet each other, events and forks.
 *
 * What follows an event takes no time here unless the allocator is told to be slow: so a
 * scenario that sleeps sees what there was to do done, on the fair clock.
 */
#include <errno.h>

#include "pool_sim.h"
#include "release.h"

#define WINDOW_NS (1 * IDS_S)
#define COOLDOWN_NS (10 * IDS_S)
#define STALL_NS (100 * IDS_MS)

static struct sim_plan plan_of(const char *name, void (*scenario)(void *context), void *context) {
  return (struct sim_plan){ .name = name, .scenario = scenario, .context = context };
}

static const idlesched_pressure_config config = { .stall_ns = STALL_NS,
                                                  .window_ns = WINDOW_NS,
                                                  .cooldown_ns = COOLDOWN_NS };

static idlesched_pressure_stats stats_now(void) {
  idlesched_pressure_stats stats;
  idlesched_pressure_stats_read(&stats);
  return stats;
}

static void check_counts(uint64_t events_count, uint64_t releases_count) {
  idlesched_pressure_stats stats = stats_now();
  SIM_CHECK_EQUAL(stats.events_count, events_count);
  SIM_CHECK_EQUAL(stats.releases_count, releases_count);
}

static void stall_and_sleep(uint64_t stall_ns, uint64_t duration_ns) {
  sim_psi_stall(stall_ns);
  sim_sleep_ns(duration_ns);
}

/* -------------------------------------------------------------------- hysteresis */

static void pressure_lasts(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  sim_sleep_ns(WINDOW_NS);
  unsigned purges_count = sim_heap_purges_count();
  /* At 0 s, and then as the kernel tells, once a window and a bit. */
  for (unsigned i = 0; i < 9; i++) {
    stall_and_sleep(STALL_NS, WINDOW_NS + 10 * IDS_MS);
    check_counts(i + 1, 1);
  }
  /* At 9.09 s; the next one is past the cooldown. */
  stall_and_sleep(STALL_NS, WINDOW_NS + 10 * IDS_MS);
  check_counts(10, 1);
  stall_and_sleep(STALL_NS, WINDOW_NS);
  check_counts(11, 2);
  SIM_CHECK_RELATION(sim_heap_purges_count(), >=, purges_count + 2);
  idlesched_pressure_stop();
}

static void pressure_comes_back(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  stall_and_sleep(STALL_NS, 2 * WINDOW_NS);
  check_counts(1, 1);
  stall_and_sleep(STALL_NS, 2 * WINDOW_NS + 1); /* two windows later: it lasts */
  check_counts(2, 1);
  stall_and_sleep(STALL_NS, 1); /* a bit more than that: it is new */
  check_counts(3, 2);
  idlesched_pressure_stop();
}

static void less_than_a_stall(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  for (unsigned i = 0; i < 5; i++)
    stall_and_sleep(STALL_NS - 1, WINDOW_NS);
  check_counts(0, 0);
  idlesched_pressure_stop();
}

/* Told three times within a window: one event, and one more when the window is over. */
static void at_most_one_in_a_window(void *context) {
  (void)context;
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  for (unsigned i = 0; i < 3; i++)
    stall_and_sleep(STALL_NS, 100 * IDS_MS);
  check_counts(1, 1);
  sim_sleep_ns(WINDOW_NS - 300 * IDS_MS + 1);
  check_counts(2, 1);
  sim_sleep_ns(5 * WINDOW_NS);
  check_counts(2, 1);
  idlesched_pressure_stop();
}

/* What comes during a long release is of the pressure that it is for. */
static void a_long_release(void *context) {
  (void)context;
  sim_heap_configure(&(const struct sim_heap_config){ .purge_ns = 20 * IDS_S });
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  stall_and_sleep(STALL_NS, IDS_S);
  check_counts(1, 0);
  stall_and_sleep(STALL_NS, 19 * IDS_S + WINDOW_NS / 2);
  check_counts(1, 1); /* and rests for a window */
  sim_sleep_ns(WINDOW_NS);
  check_counts(2, 1);
  idlesched_pressure_stop();
}

static void no_cooldown(void *context) {
  (void)context;
  idlesched_pressure_config eager = config;
  eager.cooldown_ns = IDLESCHED_AT_ONCE;
  SIM_CHECK_EQUAL(idlesched_pressure_start(&eager), 0);
  for (unsigned i = 1; i <= 3; i++) {
    stall_and_sleep(STALL_NS, WINDOW_NS + 1);
    check_counts(i, i);
  }
  idlesched_pressure_stop();
}

/* Also the longest of all cooldowns: a release for each pressure. */
static void cooldown_for_ever(void *context) {
  (void)context;
  idlesched_pressure_config shy = config;
  shy.cooldown_ns = IDLESCHED_NEVER;
  SIM_CHECK_EQUAL(idlesched_pressure_start(&shy), 0);
  for (unsigned i = 1; i <= 30; i++) {
    stall_and_sleep(STALL_NS, WINDOW_NS + 1);
    check_counts(i, 1);
  }
  sim_sleep_ns(WINDOW_NS + 1);
  stall_and_sleep(STALL_NS, 1);
  check_counts(31, 2);
  idlesched_pressure_stop();
}

/* The same without a trigger: it looks once a window. */
static void reads_once_a_window(void *context) {
  (void)context;
  sim_psi_configure(&(const struct sim_psi_config){ .takes_no_trigger = true });
  sim_psi_stall(50 * IDS_S); /* before */
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  SIM_CHECK(!stats_now().has_trigger);
  sim_sleep_ns(10 * IDS_MS);
  check_counts(0, 0);
  /* Half of it in each of two windows is not enough, both in one is. */
  stall_and_sleep(STALL_NS / 2, WINDOW_NS);
  stall_and_sleep(STALL_NS / 2, WINDOW_NS);
  check_counts(0, 0);
  sim_psi_stall(STALL_NS / 2);
  stall_and_sleep(STALL_NS / 2, WINDOW_NS);
  check_counts(1, 1);
  for (unsigned i = 2; i <= 10; i++) {
    stall_and_sleep(STALL_NS, WINDOW_NS);
    check_counts(i, 1);
  }
  stall_and_sleep(STALL_NS, WINDOW_NS);
  check_counts(11, 2);
  sim_sleep_ns(2 * WINDOW_NS);
  stall_and_sleep(STALL_NS, WINDOW_NS);
  check_counts(12, 3);
  idlesched_pressure_stop();
}

static void on_the_fair_clock(const char *name, void (*scenario)(void *context)) {
  struct sim_plan plan = plan_of(name, scenario, NULL);
  plan.strategy = SIM_DFS;
  plan.bound = 1;
  sim_spec_exhaust(&plan);
  plan.spurious_max = 1;
  sim_spec_exhaust(&plan);
}

SPEC(not_again_within_the_cooldown, "N8 while pressure lasts, a release each cooldown") {
  on_the_fair_clock("pressure lasts", pressure_lasts);
}

SPEC(new_pressure_at_once, "N8 pressure that was gone for two windows releases at once") {
  on_the_fair_clock("pressure new", pressure_comes_back);
}

SPEC(less_is_nothing, "N8 a stall below the limit is none") {
  on_the_fair_clock("pressure small", less_than_a_stall);
}

SPEC(one_event_in_a_window, "N8 one event in a window, however often the kernel tells") {
  on_the_fair_clock("pressure storm", at_most_one_in_a_window);
}

SPEC(told_during_a_release, "N8 what is told during a long release does not ask for the next one") {
  on_the_fair_clock("pressure slow", a_long_release);
}

SPEC(cooldowns, "N8 the shortest cooldown and the longest") {
  on_the_fair_clock("pressure eager", no_cooldown);
  on_the_fair_clock("pressure shy", cooldown_for_ever);
}

SPEC(without_a_trigger, "N8 without a trigger it looks once a window, with the same rules") {
  on_the_fair_clock("pressure read", reads_once_a_window);
}

/* -------------------------------------------------------------- start, stop, events */

static void start_and_stop(void *context) {
  (void)context;
  int status = idlesched_pressure_start(&config);
  SIM_CHECK(status == 0 || status == -EALREADY);
  idlesched_pressure_stop();
}

static void make_pressure(void *context) {
  (void)context;
  sim_psi_stall(STALL_NS);
}

static void all_at_once(void *context) {
  unsigned clients_count = *(unsigned *)context;
  struct sim_client clients[2];
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_start(&clients[i], start_and_stop, NULL);
  start_and_stop(NULL);
  for (unsigned i = 0; i < clients_count; i++)
    sim_client_join(&clients[i]);
  SIM_CHECK(!stats_now().is_watching);
}

SPEC(starts_and_stops_meet, "N8 starts and stops of several threads end with nothing watched") {
  unsigned clients_count = 1;
  struct sim_plan plan = plan_of("pressure starts 2", all_at_once, &clients_count);
  sim_pool_searches(&plan, 2, 100000);
  clients_count = 2;
  plan.name = "pressure starts 3";
  sim_pool_searches(&plan, 1, 100000);
}

static void stop_only(void *context) {
  (void)context;
  idlesched_pressure_stop();
}

static void an_event_as_it_stops(void *context) {
  (void)context;
  struct sim_client clients[2];
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  sim_client_start(&clients[0], stop_only, NULL);
  sim_client_start(&clients[1], stop_only, NULL);
  make_pressure(NULL);
  for (unsigned i = 0; i < 2; i++)
    sim_client_join(&clients[i]);
  idlesched_pressure_stats stats = stats_now();
  SIM_CHECK(!stats.is_watching);
  SIM_CHECK_RELATION(stats.events_count, <=, 1);
  SIM_CHECK_EQUAL(stats.releases_count, stats.events_count);
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  idlesched_pressure_stop();
}

SPEC(events_and_stops_meet, "N8 a stop that meets an event: it releases, or not at all") {
  struct sim_plan plan = plan_of("pressure stop", an_event_as_it_stops, NULL);
  sim_pool_searches(&plan, 2, 100000);
}

static void a_stop_takes_no_time(void *context) {
  (void)context;
  bool reads = sim_choose(2, "reads") == 1;
  sim_psi_configure(&(const struct sim_psi_config){ .takes_no_trigger = reads });
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  sim_sleep_ns(sim_choose(3, "when") * 500 * IDS_MS);
  uint64_t began_ns = ids_now_ns();
  idlesched_pressure_stop();
  SIM_CHECK_EQUAL(ids_now_ns(), began_ns);
}

SPEC(a_stop_is_prompt, "N8 a stop waits for no window") {
  on_the_fair_clock("pressure prompt", a_stop_takes_no_time);
}

/* The stop comes in the middle of a release. */
static void stop_waits(void *context) {
  (void)context;
  sim_heap_configure(&(const struct sim_heap_config){ .purge_ns = IDS_S });
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  stall_and_sleep(STALL_NS, IDS_S / 2);
  uint64_t began_ns = ids_now_ns();
  idlesched_pressure_stop();
  SIM_CHECK_EQUAL(ids_now_ns() - began_ns, IDS_S / 2);
  check_counts(1, 1);
}

SPEC(a_stop_waits_for_the_release, "N8 a stop waits for the release that is under way, no longer") {
  on_the_fair_clock("pressure wait", stop_waits);
}

static void the_file_goes(void *context) {
  (void)context;
  sim_psi_configure(&(const struct sim_psi_config){ .takes_no_trigger = sim_choose(2, "reads") });
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  sim_psi_remove();
  sim_sleep_ns(2 * WINDOW_NS);
  SIM_CHECK(!stats_now().is_watching);
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), -ENOTSUP);
  idlesched_pressure_stop();
}

SPEC(a_file_that_goes, "N8 a file that goes ends the watch, and leaves nothing behind") {
  on_the_fair_clock("pressure gone", the_file_goes);
}

/* ------------------------------------------------------------- refusals and forks */

static void start_where_refused(void *context) {
  (void)context;
  int status = idlesched_pressure_start(&config);
  SIM_CHECK(status == 0 || status == -EAGAIN || status == -ENOMEM);
  SIM_CHECK_EQUAL(stats_now().is_watching, status == 0);
  sim_psi_stall(STALL_NS);
  idlesched_pressure_stop();
}

SPEC(whatever_is_refused, "N8 a start of which anything is refused leaves nothing behind") {
  struct sim_plan plan = plan_of("pressure refused", start_where_refused, NULL);
  plan.strategy = SIM_DFS;
  plan.bound = 1;
  sim_spec_faults(&plan);
}

static void live_in_child(void *context) {
  (void)context;
  sim_fork();
  SIM_CHECK(!stats_now().is_watching);
  idlesched_pressure_stop();
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  SIM_CHECK(stats_now().is_watching);
  sim_psi_stall(STALL_NS);
  idlesched_pressure_stop();
  idlesched_release_report report; /* also what a release of the parent's was in the middle of */
  SIM_CHECK_EQUAL(ids_release_all(IDS_S, &report), 0);
}

static void fork_somewhere(void *context) {
  (void)context;
  idlesched_pressure_stop(); /* in order, whatever the last run has forked in the middle of */
  if (sim_sweep_step() > 0)
    sim_post_at_step(sim_steps_count() + sim_sweep_step(), live_in_child, NULL);
  start_and_stop(NULL);
  SIM_CHECK_EQUAL(idlesched_pressure_start(&config), 0);
  sim_psi_stall(STALL_NS);
  sim_sleep_ns(WINDOW_NS);
  idlesched_pressure_stop();
}

SPEC(a_fork_at_any_step, "N8 a child that was forked at any step watches nothing, and may start") {
#ifdef IDLESCHED_SPEC_TSAN
  SKIP("the thread sanitizer takes the parent's threads for the child's");
#endif
  struct sim_plan plan = plan_of("pressure fork", fork_somewhere, NULL);
  plan.forks = true;
  plan.strategy = SIM_DFS;
  plan.bound = 1;
  sim_spec_sweep(&plan);
}
