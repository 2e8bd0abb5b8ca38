/* SPDX-License-Identifier: MIT */
/*
 * test_blocking.c - jobs that say that they block, on real threads.  (The order of things:
 * test_sim_blocking.c.)
 */
#include <sched.h>

#include "plat_fault.h"
#include "pool_kit.h"

static void destroy(idlesched_pool *pool) {
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

static void must_wait(idlesched_pool *pool) {
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
}

static void block_at_door(void *door) {
  idlesched_blocking_begin();
  door_pass(door);
  idlesched_blocking_end();
}

/* -------------------------------------------------------------------- others go on */

SPEC(others_run_in_its_place, "G12 while all workers' jobs block, others run, also when the pool "
                              "is dedicated; afterwards the threads fall back") {
  for (unsigned is_dedicated = 0; is_dedicated < 2; is_dedicated++) {
    struct door door = DOOR_CLOSED;
    _Atomic unsigned count = 0;
    idlesched_pool *pool = POOL(.workers_max = 2, .is_dedicated = is_dedicated,
                                .idle_exit_ns = 50 * IDLESCHED_MS);
    for (unsigned i = 0; i < 2; i++)
      REQUIRE_EQ_INT(idlesched_pool_submit(pool, block_at_door, &door), 0);
    WAIT_UNTIL(door_inside_count(&door) == 2, SOON_MS);
    CHECK_EQ_INT(stats_of(pool).blocking, 2);
    for (unsigned i = 0; i < 50; i++)
      REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    WAIT_UNTIL(count == 50, SOON_MS);
    CHECK_EQ_INT(stats_of(pool).blocking, 2);
    CHECK_LE_INT(stats_of(pool).threads, 4);
    CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
    door_open(&door);
    must_wait(pool);
    CHECK_EQ_INT(stats_of(pool).blocking, 0);
    WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
    check_tickets_add_up(pool);
    destroy(pool);
  }
}

SPEC(no_more_than_asked_for, "G12 no more threads than blocking_max are there in place of others") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .blocking_max = 2);
  for (unsigned i = 0; i < 3; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, block_at_door, &door), 0);
  WAIT_UNTIL(door_inside_count(&door) == 3, SOON_MS);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(stats_of(pool).threads, 3);
  CHECK_EQ_INT(stats_of(pool).active, 3);
  CHECK_EQ_INT(count, 0);
  door_open(&door);
  must_wait(pool);
  CHECK_EQ_INT(count, 1);
  CHECK_EQ_U64(stats_of(pool).starts, 3);
  destroy(pool);
}

/* ------------------------------------------------------------------------ come back */

struct comeback {
  struct door blocks, works;
};

static void block_and_work(void *context) {
  struct comeback *self = context;
  block_at_door(&self->blocks);
  door_pass(&self->works);
}

SPEC(who_is_too_many_takes_no_job,
     "G12 G8 when a job goes on, the worker that ran in its place takes no other, and parks") {
  struct comeback comeback = { DOOR_CLOSED, DOOR_CLOSED };
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_exit_ns = IDLESCHED_NEVER,
                              .idle_release_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, block_and_work, &comeback), 0);
  WAIT_UNTIL(door_inside_count(&comeback.blocks) == 1, SOON_MS);
  keep_busy(pool, &door, 1);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  door_open(&comeback.blocks);
  WAIT_UNTIL(door_inside_count(&comeback.works) == 1, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).running, 2);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  CHECK_EQ_INT(count, 0);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 1);
  idlesched_release_report report;
  CHECK_EQ_INT(idlesched_pool_release(pool, IDLESCHED_MS, &report), -ETIMEDOUT);
  CHECK_EQ_INT(report.visited_count, 1);
  CHECK_EQ_INT(report.missed_running_count, 1);
  door_open(&comeback.works);
  must_wait(pool);
  CHECK_EQ_INT(count, 1);
  destroy(pool);
}

SPEC(a_thread_is_refused, "G12 G2 when no thread can be had in its place, the others wait for it") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  fault_refuse("worker.thread", 1, FAULT_FOR_EVER);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, block_at_door, &door), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(fault_refused_count(), 1);
  CHECK_EQ_INT(count, 0);
  door_open(&door);
  must_wait(pool);
  CHECK_EQ_INT(count, 1);
  fault_refuse(FAULT_ANY_SITE, 0, 0);
  destroy(pool);
}

/* ----------------------------------------------------------------------- many at once */

static void block_shortly(void *count) {
  idlesched_blocking_begin();
  for (unsigned i = 0; i < 20; i++)
    sched_yield();
  idlesched_blocking_end();
  count_up(count);
}

SPEC(many_block_and_go_on, "G12 C10 thousands of jobs that block and go on, of many submitters",
     .limit_s = 60) {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 2, .blocking_max = 3,
                              .idle_release_ns = IDLESCHED_AT_ONCE,
                              .idle_exit_ns = 100 * IDLESCHED_US);
  for (unsigned i = 0; i < 6000; i++) {
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, i % 3 == 0 ? count_up : block_shortly, &count), 0);
    if (i % 100 == 0)
      must_wait(pool);
    CHECK_LE_INT(stats_of(pool).threads, 5);
  }
  must_wait(pool);
  CHECK_EQ_INT(count, 6000);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  destroy(pool);
}

/* ---------------------------------------------------------------------------- misuse */

static void block_twice(void *context) {
  (void)context;
  idlesched_blocking_begin();
  idlesched_blocking_begin();
}

static void end_alone(void *context) {
  (void)context;
  idlesched_blocking_end();
}

static void never_end(void *context) {
  (void)context;
  idlesched_blocking_begin();
}

static void run_misuse(void (*misuse)(void *context)) {
  idlesched_pool *pool = POOL(.workers_max = 1);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, misuse, NULL), 0);
  must_wait(pool);
}

SPEC(nested_aborts, "G12 N5 a second begin before the end is an assertion that says so",
     .aborts_with = "idlesched_blocking_begin() is not nested") {
  run_misuse(block_twice);
}

SPEC(end_without_begin_aborts, "G12 N5 an end without its begin is an assertion that says so",
     .aborts_with = "idlesched_blocking_end() follows its begin") {
  run_misuse(end_alone);
}

SPEC(begin_without_end_aborts,
     "G12 N5 a job that ends and still blocks is an assertion that says "
     "so",
     .aborts_with = "a job that has begun to block says when that is over, before it ends") {
  run_misuse(never_end);
}

SPEC(elsewhere_it_does_nothing, "G12 on a thread that is no worker's it does nothing") {
  idlesched_blocking_end();
  idlesched_blocking_begin();
  idlesched_blocking_begin();
}
