/* SPDX-License-Identifier: MIT */
/*
 * test_rss_pass.c - what the passes of a pool's timer give back, as the kernel counts it,
 * and what they cost: nobody has called anything.
 */
#include "rss_kit.h"

#define BURST (10 * MIB)

/* ------------------------------------------------------------------------ bursts */

/* 300 ms: idle_release, the window in which workers wait for each other, and the pass. */
static void check_bursts_come_back(unsigned workers_count) {
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(workers_count, 0, 0);
  uint64_t before = anonymous_bytes();
  for (unsigned round = 1; round <= 3; round++) {
    burst_on_all_workers(pool, BURST);
    uint64_t level = level_within_ms(before + MIB, 300);
    CHECK_LE_U64(level, before + MIB);
    print_level("above the level before", level, before);
  }
  CHECK_EQ_INT(stats_of(pool).threads, workers_count);
  idlesched_pool_destroy(pool);
}

SPEC(bursts_of_15_workers_come_back, "A1 10 MB on each of 15 workers: back in 300 ms, to 1 MiB",
     .limit_s = 60) {
  check_bursts_come_back(15);
}

SPEC(bursts_of_32_workers_come_back, "A1 10 MB on each of 32 workers: back in 300 ms, to 1 MiB",
     .limit_s = 60) {
  check_bursts_come_back(32);
}

/* ----------------------------------------------------------------- freed by others */

enum { OWNERS = 8 };
#define KEPT (20 * MIB)
/* Above the level before.  A thread that frees pages which nobody owns keeps some 5 % of
 * them, until it is idle itself. */
#define LEFT_BY_MAIN (2 * MIB)

/* Blocks that each of the workers has taken, for others to free. */
struct owners {
  pthread_barrier_t barrier;
  _Atomic unsigned next;
  void *blocks[OWNERS];
};

static void own_blocks(void *context) {
  struct owners *self = context;
  self->blocks[self->next++] = take_blocks(KEPT / OWNERS);
  pthread_barrier_wait(&self->barrier);
}

static void own_blocks_on_all(idlesched_pool *pool, struct owners *owners) {
  owners->next = 0;
  pthread_barrier_init(&owners->barrier, NULL, OWNERS);
  for (unsigned i = 0; i < OWNERS; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, own_blocks, owners), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  pthread_barrier_destroy(&owners->barrier);
}

static void give_blocks_of_all(struct owners *owners) {
  for (unsigned owner = 0; owner < OWNERS; owner++)
    give_blocks(owners->blocks[owner]);
}

/* Every worker has released, and no pass is to come. */
static bool is_at_rest(idlesched_pool *pool) {
  struct ids_group *group = &pool->group;
  ids_group_lock(group);
  bool is_resting = group->active_count == 0 && group->awaiting_count == 0 &&
                    group->later_count == 0 && !group->owes_purge && !group->is_passing;
  ids_group_unlock(group);
  return is_resting;
}

/* None has begun after the first so many. */
static bool has_begun_no_pass(idlesched_pool *pool, uint64_t passes_count) {
  struct ids_group *group = &pool->group;
  ids_group_lock(group);
  bool has_begun_none = group->counters.passes == passes_count && !group->is_passing;
  ids_group_unlock(group);
  return has_begun_none;
}

/* How often threads slept, as the kernel counts it, and what the pool's own book says. */
struct wakes {
  struct sleeps sleeps;
  uint64_t wakes, polls;
};

static struct wakes wakes_of(idlesched_pool *pool) {
  struct wakes wakes;
  idlesched_pool_stats stats = stats_of(pool);
  sleeps_read(&wakes.sleeps, stats.threads);
  wakes.wakes = stats.wakes;
  wakes.polls = stats.polls;
  return wakes;
}

/* A thread that meets a lock in use also sleeps and wakes up: it is in use now and then, as
 * the case looks at the pool. */
#define LOCKS_MET_MAX 3

/* Nobody got a ticket; so many threads woke up, and so often, at most. */
static void check_wakes(idlesched_pool *pool, const struct wakes *before, unsigned woken_max,
                        unsigned wakes_max) {
  struct wakes after = wakes_of(pool);
  uint64_t wakes_count = 0;
  unsigned woken_count = 0;
  REQUIRE_EQ_INT(after.sleeps.threads_count, before->sleeps.threads_count);
  for (unsigned i = 0; i < after.sleeps.threads_count; i++) {
    wakes_count += after.sleeps.counts[i] - before->sleeps.counts[i];
    woken_count += after.sleeps.counts[i] != before->sleeps.counts[i];
  }
  printf("%u threads woke up, %d times in all\n", woken_count, (int)wakes_count);
  CHECK_LE_INT(woken_count, woken_max);
  CHECK_LE_U64(wakes_count, wakes_max + LOCKS_MET_MAX);
  CHECK_EQ_U64(after.wakes, before->wakes);
  CHECK_EQ_U64(after.polls, before->polls);
}

SPEC(freed_before_the_release, "A19 what others free before a release comes back with it") {
  static struct owners owners;
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(OWNERS, 3 * IDLESCHED_S, IDLESCHED_NEVER);
  uint64_t before = anonymous_bytes();
  own_blocks_on_all(pool, &owners);
  give_blocks_of_all(&owners); /* the workers are parked, and stay so */
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  CHECK_GE_U64(anonymous_bytes(), before + KEPT);
  uint64_t polls = stats_of(pool).polls;
  WAIT_UNTIL(stats_of(pool).releases == OWNERS, SOON_MS);
  CHECK_LE_U64(level_within_ms(before + MIB, 200), before + MIB); /* before a later pass */
  CHECK_EQ_U64(stats_of(pool).polls, polls);
  idlesched_pool_destroy(pool);
}

SPEC(freed_after_the_release,
     "N1 what main frees 0.2 s after a release is back 1 s after it, for one wake", .limit_s = 60) {
  static struct owners owners;
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(OWNERS, 0, IDLESCHED_NEVER);
  uint64_t before = anonymous_bytes();
  bool is_in_time = false;
  for (unsigned attempt = 1; !is_in_time; attempt++) {
    if (attempt > 10)
      FAIL("main could not free %d blocks within 0.9 s in %u attempts", OWNERS, attempt - 1);
    WAIT_UNTIL(is_at_rest(pool), SOON_MS);
    uint64_t passes = stats_of(pool).passes;
    own_blocks_on_all(pool, &owners);
    WAIT_UNTIL(stats_of(pool).passes > passes, SOON_MS);
    uint64_t released_ns = spec_now_ns();
    CHECK_GE_U64(anonymous_bytes(), before + KEPT); /* it is all in use */
    struct wakes wakes = wakes_of(pool);
    WAIT_UNTIL(spec_now_ns() >= released_ns + 200 * IDLESCHED_MS, SOON_MS);
    give_blocks_of_all(&owners);
    uint64_t kept = anonymous_bytes();
    /* The later pass must not have come before: this machine was too slow. */
    is_in_time = has_begun_no_pass(pool, passes + 1);
    if (is_in_time) {
      CHECK_GE_U64(kept, before + KEPT);
      uint64_t spent_ms = (spec_now_ns() - released_ns) / IDLESCHED_MS;
      uint64_t level = level_within_ms(before + LEFT_BY_MAIN,
                                       spent_ms < 1000 ? 1000 - spent_ms : 0);
      CHECK_LE_U64(level, before + LEFT_BY_MAIN);
      print_level("above the level before", level, before);
      check_wakes(pool, &wakes, 1, 1);
    }
  }
  idlesched_pool_destroy(pool);
}

SPEC(freed_long_after_the_release,
     "N1 what is freed later stays, and is back at the next pass, or at a release on demand",
     .limit_s = 60) {
  static struct owners owners;
  need_figures_to_the_page();
  idlesched_pool *pool = started_pool(OWNERS, 0, IDLESCHED_NEVER);
  uint64_t before = anonymous_bytes();
  for (unsigned way = 0; way < 2; way++) {
    own_blocks_on_all(pool, &owners);
    WAIT_UNTIL(is_at_rest(pool), SOON_MS);
    give_blocks_of_all(&owners);
    CHECK_GE_U64(level_within_ms(before + KEPT / 2, 300), before + KEPT); /* nobody does it */
    if (way == 0)
      run_one_job(pool);
    else
      CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, NULL), 0);
    uint64_t level = level_within_ms(before + LEFT_BY_MAIN, way == 0 ? 300 : 0);
    CHECK_LE_U64(level, before + LEFT_BY_MAIN);
    print_level("above the level before", level, before);
  }
  idlesched_pool_destroy(pool);
}

/* ------------------------------------------------------------- what it costs */

enum { WAVE = 16 };

/* Jobs that use some memory, and end one after the other: within less than the window. */
struct wave {
  pthread_barrier_t barrier;
  _Atomic unsigned next;
  _Atomic uint64_t began_ns;
};

static void end_in_turn(void *context) {
  struct wave *self = context;
  unsigned turn = self->next++;
  give_blocks(take_blocks(MIB));
  if (pthread_barrier_wait(&self->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
    self->began_ns = spec_now_ns();
  pthread_barrier_wait(&self->barrier);
  uint64_t end_ns = self->began_ns + turn * 2 * IDLESCHED_MS;
  WAIT_UNTIL(spec_now_ns() >= end_ns, SOON_MS);
}

static void make_wave(idlesched_pool *pool) {
  struct wave wave = { .next = 0 };
  pthread_barrier_init(&wave.barrier, NULL, WAVE);
  for (unsigned i = 0; i < WAVE; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, end_in_turn, &wave), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  pthread_barrier_destroy(&wave.barrier);
}

/* From the first that went idle to the last. */
static uint64_t spread_ns(idlesched_pool *pool) {
  uint64_t first_ns = UINT64_MAX, last_ns = 0;
  for (unsigned i = 0; i < WAVE; i++) {
    uint64_t at_ns = worker_of(pool, i).release_at_ns;
    first_ns = at_ns < first_ns ? at_ns : first_ns;
    last_ns = at_ns > last_ns ? at_ns : last_ns;
  }
  return last_ns - first_ns;
}

/*
 * All workers go idle within 50 ms: false when this machine did not let them, or
 * did not let us look before their release.
 */
static bool is_one_wave(idlesched_pool *pool, struct wakes *out_wakes,
                        idlesched_pool_stats *out_stats) {
  WAIT_UNTIL(is_at_rest(pool), SOON_MS);
  uint64_t passes = stats_of(pool).passes;
  make_wave(pool);
  WAIT_UNTIL(stats_of(pool).parked == WAVE, SOON_MS);
  printf("idle within %.1f ms\n", (double)spread_ns(pool) / 1e6);
  bool is_short = spread_ns(pool) < 50 * IDLESCHED_MS;
  *out_wakes = wakes_of(pool);
  *out_stats = stats_of(pool);
  return is_short && has_begun_no_pass(pool, passes);
}

/* One thread wakes up at the end of the window, and for the later pass. */
#define WAKES_MAX 2
/* The timer is handed over at most once: to one that parked as its holder was preempted. */
#define WOKEN_MAX 2

SPEC(a_wave_costs_one_purge,
     "N2 16 workers that go idle together: one pass and a later one, each of one purge",
     .limit_s = 120) {
  need_figures_to_the_page();
  struct wakes wakes;
  idlesched_pool_stats before;
  idlesched_pool *pool = started_pool(WAVE, 250 * IDLESCHED_MS, IDLESCHED_NEVER);
  for (unsigned attempt = 1; !is_one_wave(pool, &wakes, &before); attempt++)
    if (attempt == 20)
      FAIL("%d workers did not go idle within 50 ms in %u attempts", WAVE, attempt);
  WAIT_UNTIL(stats_of(pool).passes > before.passes, SOON_MS);
  idlesched_pool_stats after = stats_of(pool);
  CHECK_EQ_U64(after.releases - before.releases, WAVE);
  CHECK_EQ_U64(after.passes - before.passes, 1);
  CHECK_EQ_U64(after.purges - before.purges, 1);
  WAIT_UNTIL(is_at_rest(pool), SOON_MS);
  after = stats_of(pool);
  CHECK_EQ_U64(after.releases - before.releases, WAVE);
  CHECK_EQ_U64(after.passes - before.passes, 2);
  CHECK_EQ_U64(after.purges - before.purges, 2);
  check_wakes(pool, &wakes, WOKEN_MAX, WAKES_MAX);
  idlesched_pool_destroy(pool);
}
