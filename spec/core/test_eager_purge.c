/* SPDX-License-Identifier: MIT */
/*
 * test_eager_purge.c - guards: the first one overrides the delay of purges, the last one puts
 * back what was there, and between them nothing is written.  Overrides by name are in
 * test_option.c.
 *
 * Method: the fake heap has the option, counts what is written to it and in which order
 * with purges.  That the real allocator obeys is in test_heap.c and test_mimalloc.c.
 */
#include "eager_purge.h"

#include "heap_fake.h"
#include "option.h"
#include "plat_fault.h"
#include "pool_kit.h"

static void check_option(long delay_ms, unsigned writes_count) {
  CHECK_EQ_INT(heap_fake_delay_ms(), delay_ms);
  CHECK_EQ_INT(heap_fake_writes_count(), writes_count);
}

SPEC(a_guard_sets_the_delay_to_zero, "B1 while a guard lives the purge delay is 0") {
  idlesched_eager_purge_enter();
  check_option(0, 1);
  CHECK_EQ_INT(ids_eager_purge_holders(), 1);
  idlesched_eager_purge_leave();
}

SPEC(the_last_guard_puts_the_delay_back, "B2 the last guard puts the previous value back, once") {
  idlesched_eager_purge_enter();
  idlesched_eager_purge_leave();
  check_option(HEAP_FAKE_DELAY_DEFAULT_MS, 2);
  CHECK_EQ_INT(ids_eager_purge_holders(), 0);
}

SPEC(an_inner_guard_changes_nothing, "B3 guards count: an inner one writes nothing at either end") {
  idlesched_eager_purge_enter();
  for (unsigned i = 1; i <= 5; i++) {
    idlesched_eager_purge_enter();
    CHECK_EQ_INT(ids_eager_purge_holders(), i + 1);
  }
  check_option(0, 1);
  for (unsigned i = 5; i >= 1; i--) {
    idlesched_eager_purge_leave();
    CHECK_EQ_INT(ids_eager_purge_holders(), i);
  }
  check_option(0, 1);
  idlesched_eager_purge_leave();
  check_option(HEAP_FAKE_DELAY_DEFAULT_MS, 2);
}

SPEC(no_guard_no_write, "B3 with no guard there is not one option write in a pool's whole life") {
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_AT_ONCE,
                              .idle_exit_ns = IDLESCHED_MS);
  for (unsigned i = 0; i < 20; i++)
    run_one_job(pool);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, NULL), 0);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  idlesched_thread_idle();
  idlesched_pool_destroy(pool);
  check_option(HEAP_FAKE_DELAY_DEFAULT_MS, 0);
}

static void *leave_guard(void *context) {
  (void)context;
  idlesched_eager_purge_leave();
  return NULL;
}

/* Two scopes that overlap, and the one that entered first ends first, elsewhere. */
SPEC(guards_end_in_any_order, "B4 guards may end in any order, and on another thread") {
  idlesched_eager_purge_enter();
  idlesched_eager_purge_enter();
  thread_result(thread_run(leave_guard, NULL));
  check_option(0, 1);
  thread_result(thread_run(leave_guard, NULL));
  check_option(HEAP_FAKE_DELAY_DEFAULT_MS, 2);
}

static void delay_is_left_alone(long delay_ms) {
  heap_fake_set_delay_ms(delay_ms);
  idlesched_eager_purge_enter();
  idlesched_eager_purge_enter();
  check_option(delay_ms, 0);
  idlesched_eager_purge_leave();
  idlesched_eager_purge_leave();
  check_option(delay_ms, 0);
  CHECK_EQ_INT(ids_eager_purge_holders(), 0);
}

SPEC(a_delay_of_zero_is_left_alone, "B6 a delay of 0 is left alone: no write at either end") {
  delay_is_left_alone(0);
}

SPEC(a_negative_delay_is_left_alone,
     "B6 a negative delay is left alone: purging stays switched off") {
  delay_is_left_alone(-1);
}

SPEC(a_users_delay_is_put_back,
     "B6 a positive delay of the user's own is overridden and put back") {
  static const long delays_ms[] = { 1, 10, 123456 };
  for (unsigned i = 0; i < 3; i++) {
    heap_fake_set_delay_ms(delays_ms[i]);
    idlesched_eager_purge_enter();
    check_option(0, 2 * i + 1);
    idlesched_eager_purge_leave();
    check_option(delays_ms[i], 2 * i + 2);
  }
}

SPEC(without_options_a_guard_does_nothing,
     "B7 without such an option a guard succeeds, does nothing") {
  heap_fake_set_has_options(false);
  idlesched_eager_purge_enter();
  CHECK_EQ_INT(ids_eager_purge_holders(), 1);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(ids_eager_purge_holders(), 0);
  check_option(HEAP_FAKE_DELAY_DEFAULT_MS, 0);
  CHECK_EQ_STR(heap_fake_diary(), ""); /* neither purged, read nor written */
}

/* If something of the first guard were left, the second would put back a stale value. */
SPEC(no_guard_leaves_nothing_over, "B8 after the last guard nothing of it is left over") {
  idlesched_eager_purge_enter();
  idlesched_eager_purge_leave();
  heap_fake_set_delay_ms(-1);
  idlesched_eager_purge_enter(); /* declines */
  idlesched_eager_purge_leave();
  check_option(-1, 2);
  heap_fake_set_delay_ms(77);
  idlesched_eager_purge_enter();
  idlesched_eager_purge_leave();
  check_option(77, 4);
}

SPEC(one_leave_too_many_aborts, "B8 one leave too many is an assertion",
     .aborts_with = "assertion failed: crowd->count > 0") {
  idlesched_eager_purge_enter();
  idlesched_eager_purge_leave();
  idlesched_eager_purge_leave();
}

SPEC(nameless_holders_have_one_place, "B4 nameless holders are one: the latest sets the value") {
  ids_option_hold(IDS_HEAP_PURGE_DELAY_MS, 5);
  CHECK_EQ_INT(heap_fake_delay_ms(), 5);
  ids_option_hold(IDS_HEAP_PURGE_DELAY_MS, 6);
  ids_option_hold(IDS_HEAP_PURGE_DELAY_MS, 6);
  check_option(6, 2);
  ids_option_drop(IDS_HEAP_PURGE_DELAY_MS);
  ids_option_drop(IDS_HEAP_PURGE_DELAY_MS);
  check_option(6, 2);
  ids_option_drop(IDS_HEAP_PURGE_DELAY_MS);
  check_option(HEAP_FAKE_DELAY_DEFAULT_MS, 3);
}

/* A purge after the write would look past what was scheduled before it. */
SPEC(entering_purges_first, "B12 entering purges once, before the delay becomes 0") {
  idlesched_eager_purge_enter();
  CHECK_EQ_STR(heap_fake_diary(), "gpggs");
  heap_fake_diary_clear();
  idlesched_eager_purge_enter();
  idlesched_eager_purge_leave();
  CHECK_EQ_STR(heap_fake_diary(), "g");
  idlesched_eager_purge_leave();
  CHECK_EQ_STR(heap_fake_diary(), "gs");
}

/* Each guard waits for a turn of the others: many of them take long on a busy machine. */
enum { THREADS = 8, GUARDS_EACH = 100 };

static void *enter_and_leave(void *context) {
  (void)context;
  for (unsigned i = 0; i < GUARDS_EACH; i++) {
    unsigned depth = 1 + i % 3;
    for (unsigned j = 0; j < depth; j++)
      idlesched_eager_purge_enter();
    CHECK_EQ_INT(heap_fake_delay_ms(), 0);
    for (unsigned j = 0; j < depth; j++)
      idlesched_eager_purge_leave();
  }
  return NULL;
}

SPEC(guards_of_many_threads_do_not_race,
     "B13 guards of many threads: writers take turns, 0 while held", .limit_s = 60) {
  pthread_t threads[THREADS];
  for (unsigned i = 0; i < THREADS; i++)
    threads[i] = thread_run(enter_and_leave, NULL);
  for (unsigned i = 0; i < THREADS; i++)
    thread_result(threads[i]);
  CHECK_EQ_INT(ids_eager_purge_holders(), 0);
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
  CHECK_EQ_INT(heap_fake_writes_count() % 2, 0);
}

static void hold_guard_in_a_job(void *context) {
  idlesched_eager_purge_enter();
  door_pass(context);
  CHECK_EQ_INT(heap_fake_delay_ms(), 0);
  idlesched_eager_purge_leave();
}

SPEC(guards_are_shared_between_pools, "B3 guards of jobs in several pools are one override") {
  struct door doors[2] = { DOOR_CLOSED, DOOR_CLOSED };
  idlesched_pool *pools[2];
  for (unsigned i = 0; i < 2; i++) {
    pools[i] = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER);
    REQUIRE_EQ_INT(idlesched_pool_submit(pools[i], hold_guard_in_a_job, &doors[i]), 0);
    WAIT_UNTIL(door_inside_count(&doors[i]) == 1, SOON_MS);
  }
  check_option(0, 1);
  door_open(&doors[0]);
  CHECK_EQ_INT(idlesched_pool_wait(pools[0], IDLESCHED_NEVER), 0);
  idlesched_pool_destroy(pools[0]); /* a pool that ends takes no guard of others along */
  check_option(0, 1);
  door_open(&doors[1]);
  CHECK_EQ_INT(idlesched_pool_wait(pools[1], IDLESCHED_NEVER), 0);
  check_option(HEAP_FAKE_DELAY_DEFAULT_MS, 2);
  idlesched_pool_destroy(pools[1]);
}
