/* SPDX-License-Identifier: MIT */
/*
 * test_settings.c - what may be changed while a pool works, on real threads: its size, the
 * threads that it keeps, and whether it begins jobs.  (The order of things: test_sim_resize.c,
 * test_sim_pause.c.)
 */
#include <errno.h>
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

/* ------------------------------------------------------------------------ its size */

SPEC(grows, "G7 a pool that gets more workers runs what is queued on all of them") {
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_exit_ns = IDLESCHED_NEVER);
  for (unsigned i = 0; i < 20; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, door_pass, &door), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 7, 0), 0);
  WAIT_UNTIL(door_inside_count(&door) == 7, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 16, 3), 0);
  WAIT_UNTIL(door_inside_count(&door) == 16, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).threads, 16);
  CHECK_EQ_INT(stats_of(pool).workers_max, 16);
  CHECK_EQ_INT(stats_of(pool).workers_min, 3);
  idlesched_worker_row rows[16];
  CHECK_EQ_INT(idlesched_pool_workers_read(pool, rows, 16), 16);
  CHECK_EQ_INT(rows[15].state, IDLESCHED_WORKER_RUNNING);
  door_open(&door);
  must_wait(pool);
  check_tickets_add_up(pool);
  destroy(pool);
}

SPEC(shrinks, "G7 a pool that gets fewer workers ends those that are too many, parked or after "
              "their job, and the others run what is queued") {
  struct door doors[2] = { DOOR_CLOSED, DOOR_CLOSED };
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 6, .idle_exit_ns = IDLESCHED_NEVER);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 6), 0);
  WAIT_UNTIL(stats_of(pool).parked == 6, SOON_MS);
  keep_busy(pool, &doors[0], 3);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 4, 0), 0);
  WAIT_UNTIL(stats_of(pool).threads == 4, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 1, 1), 0);
  WAIT_UNTIL(stats_of(pool).threads == 3, SOON_MS);
  for (unsigned i = 0; i < 10; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  CHECK_EQ_INT(count, 0);
  door_open(&doors[0]);
  must_wait(pool);
  CHECK_EQ_INT(count, 10);
  WAIT_UNTIL(stats_of(pool).threads == 1, SOON_MS);
  WAIT_UNTIL(stats_of(pool).retires == 5, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_start_workers(pool, 100), 0);
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  check_tickets_add_up(pool);
  destroy(pool);
}

SPEC(sizes_out_of_range, "G7 a resize says what is wrong with it, and changes nothing") {
  idlesched_pool *pool = POOL(.workers_max = 2, .workers_min = 1);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 0, 0), -EINVAL);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 4097, 0), -EINVAL);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 2, 3), -EINVAL);
  CHECK_EQ_INT(idlesched_pool_resize(pool, IDLESCHED_NO_WORKERS, 0), -EINVAL);
  CHECK_EQ_INT(stats_of(pool).workers_max, 2);
  CHECK_EQ_INT(stats_of(pool).workers_min, 1);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 4096, 4096), 0);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 2, 2), 0);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), 0);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 2, 2), -ESHUTDOWN);
  destroy(pool);
}

SPEC(fields_out_of_range, "N5 a pool that would keep more threads than it may have is refused") {
  idlesched_pool *pool;
  CHECK_EQ_INT(
    idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 2, .workers_min = 3 }),
    -EINVAL);
  CHECK_EQ_INT(idlesched_pool_create(
                 &pool, &(idlesched_pool_config){ .workers_max = 2, .blocking_max = 4097 }),
               -EINVAL);
  CHECK_EQ_PTR(pool, NULL);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(resize_refused, "G2 a resize is refused memory or a condition: the pool is as it was") {
  static const char *const sites[] = { "group.table", "group.workers", "group.worker.wake" };
  idlesched_pool *pool = POOL(.workers_max = 1, .blocking_max = IDLESCHED_NO_WORKERS);
  for (unsigned i = 0; i < 3; i++) {
    fault_refuse(sites[i], i == 2 ? 2 : 1, FAULT_FOR_EVER);
    CHECK_EQ_INT(idlesched_pool_resize(pool, 5, 2), -ENOMEM);
    fault_refuse(FAULT_ANY_SITE, 0, 0);
    CHECK_EQ_INT(stats_of(pool).workers_max, 1);
    CHECK_EQ_INT(stats_of(pool).workers_min, 0);
    run_one_job(pool);
  }
  CHECK_EQ_INT(idlesched_pool_resize(pool, 5, 2), 0);
  destroy(pool);
}

/* Anybody may change the size at any time, while others submit. */
struct storm {
  idlesched_pool *pool;
  _Atomic unsigned ran_count, is_over;
};

static void *submit_for_a_while(void *context) {
  struct storm *storm = context;
  for (unsigned i = 0; i < 20000; i++) {
    REQUIRE_EQ_INT(idlesched_pool_submit(storm->pool, count_up, &storm->ran_count), 0);
    if (i % 128 == 0)
      CHECK_EQ_INT(idlesched_pool_wait(storm->pool, SOON_MS * IDLESCHED_MS), 0);
  }
  return NULL;
}

static void *resize_until_it_is_over(void *context) {
  struct storm *storm = context;
  for (unsigned i = 0; storm->is_over == 0; i++) {
    unsigned workers_max = 1 + i * 7 % 11;
    CHECK_EQ_INT(idlesched_pool_resize(storm->pool, workers_max, i % 3 % (workers_max + 1)), 0);
    if (i % 5 == 0) {
      idlesched_pool_pause(storm->pool);
      sched_yield();
      CHECK_EQ_INT(idlesched_pool_resume(storm->pool), 0);
    }
    for (unsigned j = 0; j < 20; j++)
      sched_yield();
  }
  return NULL;
}

SPEC(changed_while_others_submit,
     "G7 C10 sizes and pauses that change all the time lose no job, and leave no thread too many",
     .limit_s = 60) {
  struct storm storm = { .pool = POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_AT_ONCE,
                                      .idle_exit_ns = 200 * IDLESCHED_US) };
  pthread_t submitters[3];
  for (unsigned i = 0; i < 3; i++)
    submitters[i] = thread_run(submit_for_a_while, &storm);
  pthread_t resizer = thread_run(resize_until_it_is_over, &storm);
  for (unsigned i = 0; i < 3; i++)
    thread_result(submitters[i]);
  storm.is_over = 1;
  thread_result(resizer);
  must_wait(storm.pool);
  CHECK_EQ_INT(storm.ran_count, 60000);
  CHECK_EQ_INT(idlesched_pool_resize(storm.pool, 3, 2), 0);
  WAIT_UNTIL(stats_of(storm.pool).threads <= 3, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_resize(storm.pool, 3, 0), 0);
  WAIT_UNTIL(stats_of(storm.pool).threads == 0, SOON_MS);
  destroy(storm.pool);
}

/* -------------------------------------------------------------- threads that stay */

SPEC(keeps_some_threads, "A13 G8 workers_min threads outlive idle_exit, and have released") {
  idlesched_pool *pool = POOL(.workers_max = 4, .workers_min = 2, .idle_release_ns = IDLESCHED_MS,
                              .idle_exit_ns = 20 * IDLESCHED_MS);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
  WAIT_UNTIL(stats_of(pool).exits == 2, SOON_MS);
  WAIT_UNTIL(stats_of(pool).releases >= 2, SOON_MS); /* an exit that comes first is none */
  CHECK_EQ_INT(stats_of(pool).threads, 2);
  run_one_job(pool);
  CHECK_EQ_U64(stats_of(pool).starts, 4);
  CHECK_EQ_INT(idlesched_pool_resize(pool, 4, 1), 0);
  WAIT_UNTIL(stats_of(pool).exits == 3, SOON_MS);
  CHECK_EQ_INT(stats_of(pool).threads, 1);
  destroy(pool);
}

/* --------------------------------------------------------------- pause and resume */

SPEC(pauses, "G7 a paused pool takes jobs in and begins none until it is resumed") {
  _Atomic unsigned count = 0;
  struct door door = DOOR_CLOSED;
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_exit_ns = IDLESCHED_AT_ONCE);
  keep_busy(pool, &door, 1);
  idlesched_pool_pause(pool);
  for (unsigned i = 0; i < 5; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  door_open(&door);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  CHECK(stats_of(pool).is_paused);
  CHECK_EQ_INT(idlesched_pool_wait(pool, 5 * IDLESCHED_MS), -ETIMEDOUT);
  CHECK_EQ_INT(count, 0);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 5);
  CHECK_EQ_INT(idlesched_pool_resume(pool), 0);
  must_wait(pool);
  CHECK_EQ_INT(count, 5);
  check_tickets_add_up(pool);
  destroy(pool);
}

SPEC(a_resume_is_refused, "G2 a resume is refused a thread: the pool is still paused; a close then "
                          "drops what is queued, and one that gets a thread runs it") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 2);
  idlesched_pool_pause(pool);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  fault_refuse("worker.thread", 1, 1);
  CHECK_EQ_INT(idlesched_pool_resume(pool), -EAGAIN);
  CHECK(stats_of(pool).is_paused);
  CHECK_EQ_INT(idlesched_pool_resume(pool), 0);
  must_wait(pool);
  CHECK_EQ_INT(count, 1);
  destroy(pool);

  for (unsigned i = 0; i < 2; i++) {
    idlesched_close_report report;
    pool = POOL(.workers_max = 2);
    idlesched_pool_pause(pool);
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    fault_refuse("worker.thread", i, i);
    CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, &report), 0);
    CHECK_EQ_U64(report.dropped_count, i);
    CHECK_EQ_INT(count, 2);
    destroy(pool);
  }
}

SPEC(a_resume_is_refused_a_second_thread, "G2 a resume that is refused a thread while there is "
                                          "another one is no error: the jobs wait for that one") {
  struct door door = DOOR_CLOSED;
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 2);
  keep_busy(pool, &door, 1);
  idlesched_pool_pause(pool);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  fault_refuse("worker.thread", 1, 1);
  CHECK_EQ_INT(idlesched_pool_resume(pool), 0);
  CHECK_EQ_INT(fault_refused_count(), 1);
  CHECK(!stats_of(pool).is_paused);
  CHECK_EQ_U64(stats_of(pool).jobs_queued, 1);
  door_open(&door);
  must_wait(pool);
  CHECK_EQ_INT(count, 1);
  destroy(pool);
}

static void *resume_it(void *pool) {
  CHECK_EQ_INT(idlesched_pool_resume(pool), 0);
  return NULL;
}

SPEC(paused_anew_while_it_resumes,
     "G2 a resume is refused its thread after the pool was paused anew: it does not need one") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 2);
  idlesched_pool_pause(pool);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  fault_refuse("worker.thread", 1, 1);
  hold_at("worker.thread");
  pthread_t resumer = thread_run(resume_it, pool);
  WAIT_UNTIL(hold_count("worker.thread") == 1, SOON_MS);
  idlesched_pool_pause(pool);
  hold_open("worker.thread");
  thread_result(resumer);
  CHECK(stats_of(pool).is_paused);
  CHECK_EQ_INT(idlesched_pool_resume(pool), 0);
  must_wait(pool);
  CHECK_EQ_INT(count, 1);
  destroy(pool);
}

/* A submit starts the second thread, and is refused it after the pool was paused and the
 * first thread has left. */
static void *submit_one(void *context) {
  struct storm *storm = context;
  CHECK_EQ_INT(idlesched_pool_submit(storm->pool, count_up, &storm->ran_count), 0);
  return NULL;
}

SPEC(paused_while_a_thread_is_started,
     "G2 C14 a thread is refused while the pool is paused, and nobody is left: the jobs wait for "
     "the resume") {
  struct door door = DOOR_CLOSED;
  struct storm storm = { .pool = POOL(.workers_max = 2, .idle_exit_ns = IDLESCHED_AT_ONCE) };
  keep_busy(storm.pool, &door, 1);
  fault_refuse("worker.thread", 1, 1);
  hold_at("worker.thread");
  pthread_t submitter = thread_run(submit_one, &storm);
  WAIT_UNTIL(hold_count("worker.thread") == 1, SOON_MS);
  REQUIRE_EQ_INT(idlesched_pool_submit(storm.pool, count_up, &storm.ran_count), 0);
  idlesched_pool_pause(storm.pool);
  door_open(&door);
  WAIT_UNTIL(stats_of(storm.pool).threads == 1, SOON_MS); /* the one that is starting */
  hold_open("worker.thread");
  thread_result(submitter);
  CHECK_EQ_INT(fault_refused_count(), 1);
  CHECK_EQ_INT(stats_of(storm.pool).threads, 0);
  CHECK_EQ_U64(stats_of(storm.pool).jobs_queued, 2);
  CHECK_EQ_INT(idlesched_pool_resume(storm.pool), 0);
  must_wait(storm.pool);
  CHECK_EQ_INT(storm.ran_count, 2);
  destroy(storm.pool);
}
