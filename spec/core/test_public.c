/* SPDX-License-Identifier: MIT */
/*
 * test_public.c - the public header by itself: defaults, limits, wrong arguments, and
 * misuse, which aborts with a message that says what is wrong.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool_kit.h"

/* ------------------------------------------------------------- the process */

SPEC(the_version_is_the_headers, "public: the library's version is the header's") {
  char text[32];
  CHECK_EQ_INT(idlesched_version(), IDLESCHED_VERSION_NUMBER);
  snprintf(text, sizeof text, "%u.%u.%u", idlesched_version() / 10000,
           idlesched_version() / 100 % 100, idlesched_version() % 100);
  CHECK_EQ_STR(text, IDLESCHED_VERSION_STRING);
}

SPEC(the_allocator_has_a_name, "A16 the allocator of the build is told by name") {
  const char *name = idlesched_allocator();
  CHECK(strncmp(name, "mimalloc 3.", 11) == 0 || strcmp(name, "system") == 0);
  CHECK_EQ_PTR(idlesched_allocator(), name);
}

SPEC(memory_is_what_the_kernel_says, "N4 memory is what the kernel says: it rises with a block") {
  enum { SIZE = 64 << 20 };
  idlesched_memory before, after;
  if (idlesched_memory_read(&before) == -ENOTSUP)
    SKIP("this system does not tell how much memory a process has");
  CHECK_GT_U64(before.anonymous_bytes, 0);
  CHECK_GE_U64(before.resident_bytes, before.anonymous_bytes);
  CHECK_GE_U64(before.threads_count, 1);
  char *block = malloc(SIZE);
  REQUIRE(block != NULL);
  memset(block, 1, SIZE);
  CHECK_EQ_INT(idlesched_memory_read(&after), 0);
  CHECK_GE_U64(after.anonymous_bytes, before.anonymous_bytes + SIZE);
  CHECK_EQ_INT(block[SIZE / 2], 1);
  free(block);
}

SPEC(the_time_units_are_nanoseconds, "public: durations are in ns, and never is none of them") {
  CHECK_EQ_U64(IDLESCHED_S, UINT64_C(1000000000));
  CHECK_EQ_U64(1000 * IDLESCHED_MS, IDLESCHED_S);
  CHECK_EQ_U64(1000 * IDLESCHED_US, IDLESCHED_MS);
  CHECK_EQ_U64(IDLESCHED_NEVER, IDS_NEVER);
  CHECK_EQ_U64(ids_after_ns(IDS_NEVER - 1, 2), IDS_NEVER);
  CHECK_EQ_U64(ids_after_ns(5, IDS_NEVER), IDS_NEVER);
  CHECK_EQ_U64(ids_after_ns(5, 2), 7);
}

/* ---------------------------------------------------------------- creating */

SPEC(zero_means_the_default, "A1 defaults: release after 100 ms, A13 exit after 10 s") {
  idlesched_pool *without = NULL;
  REQUIRE_EQ_INT(idlesched_pool_create(&without, NULL), 0);
  idlesched_pool *pools[] = { POOL(.workers_max = 0), without };
  for (int i = 0; i < 2; i++) {
    const struct ids_group_config *config = &pools[i]->group.config;
    CHECK_EQ_INT(config->workers_max, idlesched_cpus());
    CHECK_EQ_U64(config->idle_release_ns, 100 * IDLESCHED_MS);
    CHECK_EQ_U64(config->idle_exit_ns, 10 * IDLESCHED_S);
    CHECK_EQ_INT(config->stack_size, 1024 * 1024);
    CHECK_EQ_STR(config->name, "idlesched");
    idlesched_pool_destroy(pools[i]);
  }
}

static void check_refused(idlesched_pool_config config) {
  idlesched_pool *pool = (idlesched_pool *)&config;
  CHECK_EQ_INT(idlesched_pool_create(&pool, &config), -EINVAL);
  CHECK_EQ_PTR(pool, NULL);
}

SPEC(what_is_out_of_range_is_refused, "public: a field out of its range is refused") {
  check_refused((idlesched_pool_config){ .workers_max = 4097 });
  check_refused((idlesched_pool_config){ .workers_max = IDLESCHED_NO_WORKERS - 1 });
  check_refused((idlesched_pool_config){ .stack_size = 1 });
  check_refused((idlesched_pool_config){ .stack_size = 64 * 1024 - 1 });
  idlesched_pool_destroy(POOL(.workers_max = 4096, .stack_size = 64 * 1024));
}

SPEC(the_smallest_stack_is_enough, "public: the smallest stack that is allowed runs a job") {
  idlesched_pool *pool = POOL(.workers_max = 1, .stack_size = 64 * 1024);
  run_one_job(pool);
  idlesched_pool_destroy(pool);
}

/* A stack that no address space has room for: the system says so at the first job. */
SPEC(a_stack_that_cannot_be, "G2 a stack larger than the machine: the submit tells") {
  _Atomic unsigned count = 0;
  idlesched_pool *pool = POOL(.workers_max = 1, .stack_size = (size_t)1 << 60);
  int status = idlesched_pool_submit(pool, count_up, &count);
  CHECK(status == -EAGAIN || status == -ENOMEM || status == -EINVAL);
  CHECK_EQ_U64(stats_of(pool).jobs_submitted, 0);
  idlesched_pool_destroy(pool);
  CHECK_EQ_INT(count, 0);
}

/* ------------------------------------------------------------ wrong arguments */

SPEC(wrong_arguments_are_refused, "public: arguments out of their range are refused") {
  idlesched_job job = { .run = NULL };
  idlesched_pool *pool = POOL(.workers_max = 1);
  CHECK_EQ_INT(idlesched_pool_submit(pool, NULL, NULL), -EINVAL);
  CHECK_EQ_INT(idlesched_pool_submit_job(pool, &job), -EINVAL);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), -EINVAL);
  CHECK_EQ_INT(idlesched_pool_close(pool, (enum idlesched_close_mode)2, 0, NULL), -EINVAL);
  CHECK_EQ_U64(stats_of(pool).jobs_submitted, 0);
  CHECK_EQ_INT(stats_of(pool).threads, 0);
  run_one_job(pool); /* still open */
  idlesched_pool_destroy(pool);
}

SPEC(waits_without_an_end_do_not_wrap, "public: waiting for ever does not wrap around") {
  struct door door = DOOR_CLOSED;
  idlesched_job job = { .run = door_pass_job, .context = &door };
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER - 1,
                              .idle_exit_ns = IDLESCHED_NEVER - 1);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_job_wait(&job, 1), -ETIMEDOUT);
  door_open(&door);
  CHECK_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER - 1), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER - 1), 0);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);
  idlesched_pool_destroy(pool);
}

/* -------------------------------------------------------------------- misuse */

static _Atomic(idlesched_worker *) seen_worker;

static int show_worker(idlesched_job *job, idlesched_worker *worker) {
  (void)job;
  CHECK_EQ_INT(idlesched_worker_index(worker), 0);
  seen_worker = worker;
  return 0;
}

static idlesched_worker *worker_of_another_thread(void) {
  idlesched_job job = { .run = show_worker };
  idlesched_pool *pool = POOL(.workers_max = 1);
  REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  REQUIRE_EQ_INT(idlesched_job_wait(&job, IDLESCHED_NEVER), 0);
  return seen_worker;
}

SPEC(setting_data_elsewhere_aborts, "public: setting worker data on another thread aborts",
     .aborts_with = "assertion failed: worker != NULL && worker == ids_worker_current()") {
  idlesched_worker_set_data(worker_of_another_thread(), NULL);
}

SPEC(reading_data_elsewhere_aborts, "public: reading worker data on another thread aborts",
     .aborts_with = "assertion failed: worker != NULL && worker == ids_worker_current()") {
  idlesched_worker_data(worker_of_another_thread());
}

static void destroy_pool(void *pool) {
  idlesched_pool_destroy(pool);
}

SPEC(destroying_from_a_job_aborts, "public: destroying a pool from its own job aborts",
     .aborts_with = "assertion failed: !ids_pool_is_mine(pool)") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, destroy_pool, pool), 0);
  (void)idlesched_pool_wait(pool, IDLESCHED_NEVER);
}

SPEC(no_pool_aborts, "public: NULL where a pool is expected aborts",
     .aborts_with = "assertion failed: self != NULL") {
  (void)idlesched_pool_wait(NULL, 0);
}

/* Not a pool, but memory that may be looked at. */
SPEC(something_else_aborts, "public: something else where a pool is expected aborts",
     .aborts_with = "self->tag == POOL_TAG") {
  static const char something[sizeof(struct idlesched_pool)] = "something";
  (void)idlesched_pool_close((idlesched_pool *)(void *)something, IDLESCHED_CLOSE_DRAIN, 0, NULL);
}

#ifndef __SANITIZE_ADDRESS__ /* which has a message of its own for it */
SPEC(a_destroyed_pool_aborts, "public: a pool that was destroyed aborts",
     .aborts_with = "self->tag == POOL_TAG") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_pool_destroy(pool);
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool, &stats);
}
#endif

static void wait_for_another_pool(void *other) {
  CHECK_EQ_INT(idlesched_pool_wait(other, 0), 0);
  CHECK_EQ_INT(idlesched_pool_release(other, 0, NULL), 0);
}

SPEC(a_job_may_use_another_pool, "G9 a job may wait for, and release, a pool that is not its own") {
  idlesched_pool *pool = POOL(.workers_max = 1), *other = POOL(.workers_max = 1);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, wait_for_another_pool, other), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
  idlesched_pool_destroy(other);
  idlesched_pool_destroy(pool);
}

SPEC(small_things, "public: the clock moves on, and a block of no bytes is a block") {
  uint64_t before_ns = idlesched_now_ns();
  WAIT_UNTIL(idlesched_now_ns() > before_ns, SOON_MS);
  void *block = idlesched_realloc(NULL, 0);
  CHECK(block != NULL);
  idlesched_free(block);
}
