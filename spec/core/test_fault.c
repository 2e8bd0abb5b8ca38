/* SPDX-License-Identifier: MIT */
/*
 * test_fault.c - whatever call may fail does fail once: a thread, memory, a mutex, a
 * condition; the result is clean, nothing leaks, and the next try works.
 *
 * Method: the same short life of a pool again and again, with the first, the second, the
 * third, ... call refused, until none is left to refuse; then at random.
 */
#include <errno.h>

#include "plat_fault.h"
#include "pool_kit.h"

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* ------------------------------------------------------------ one by one */

/*
 * One life of a pool with each kind of call in it.  Every step copes with a refusal,
 * and checks that it left things as they were.
 */
static void live_once(bool is_refused_for_ever) {
  struct door door = DOOR_CLOSED;
  idlesched_job job = { .run = door_pass_job, .context = &door };
  _Atomic unsigned count = 0;
  unsigned accepted = 0;
  idlesched_pool *pool = (idlesched_pool *)&door;

  int status = idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 2 });
  if (status != 0) {
    CHECK(status == -ENOMEM || status == -EAGAIN);
    CHECK_EQ_PTR(pool, NULL);
    CHECK_NOTHING_IS_LEFT();
    if (is_refused_for_ever)
      return;
    REQUIRE_EQ_INT(idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 2 }), 0);
  }

  status = idlesched_pool_submit_job(pool, &job);
  if (status != 0) {
    CHECK(status == -ENOMEM || status == -EAGAIN);
    CHECK_EQ_INT(idlesched_job_state_read(&job), IDLESCHED_JOB_NEW);
    CHECK_EQ_U64(stats_of(pool).jobs_submitted, 0);
    if (!is_refused_for_ever)
      REQUIRE_EQ_INT(idlesched_pool_submit_job(pool, &job), 0);
  }
  bool is_running = idlesched_job_state_read(&job) != IDLESCHED_JOB_NEW;
  if (is_running) {
    WAIT_UNTIL(door_inside_count(&door) == 1, SOON_MS);
    status = idlesched_job_wait(&job, 0);
    CHECK(status == -ETIMEDOUT || status == -ENOMEM);
  }
  for (int i = 0; i < 2; i++) {
    status = idlesched_pool_submit(pool, count_up, &count);
    CHECK(status == 0 || status == -EAGAIN || status == -ENOMEM);
    accepted += status == 0;
  }
  door_open(&door);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(count, accepted);
  CHECK_EQ_INT(idlesched_job_state_read(&job), is_running ? IDLESCHED_JOB_DONE : IDLESCHED_JOB_NEW);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), 0);
  destroy(pool);
}

SPEC(each_call_refused_once,
     "G2 each call that may fail fails once: clean, no leak, and it goes on") {
  unsigned number = 0;
  do {
    number++;
    fault_refuse(FAULT_ANY_SITE, number, number);
    live_once(false);
  } while (fault_refused_count() > 0);
  /* pool, lock, changed, table, workers, 4 wakes, segment, 2 threads, 1 waiter. */
  CHECK_EQ_INT(number - 1, 13);
}

SPEC(each_call_and_all_after_it_refused, "G2 each call and all after it fail: clean, and no leak") {
  unsigned number = 0;
  do {
    number++;
    fault_refuse(FAULT_ANY_SITE, number, FAULT_FOR_EVER);
    live_once(true);
  } while (fault_refused_count() > 0);
  CHECK_EQ_INT(number - 1, 13);
}

/* -------------------------------------------------------------- at random */

enum { SUBMITTERS = 4, JOBS_EACH = 3000 };

struct random_round {
  idlesched_pool *pool;
  _Atomic unsigned ran_count, accepted_count, refused_count;
};

static void *submit_many(void *context) {
  struct random_round *round = context;
  for (unsigned i = 0; i < JOBS_EACH; i++) {
    int status = idlesched_pool_submit(round->pool, count_up, &round->ran_count);
    REQUIRE(status == 0 || status == -EAGAIN || status == -ENOMEM || status == -ESHUTDOWN);
    count_up(status == 0 ? &round->accepted_count : &round->refused_count);
    /* Now and then let the workers run dry, park and leave. */
    if (i % 64 == 0)
      (void)idlesched_pool_wait(round->pool, IDLESCHED_NEVER);
  }
  return NULL;
}

SPEC(refusals_at_random_lose_nothing, "G2 refusals at random lose no job and keep none",
     .limit_s = 60) {
  for (unsigned seed = 1; seed <= 6; seed++) {
    struct random_round round = { .pool = POOL(.workers_max = 3,
                                               .idle_release_ns = IDLESCHED_AT_ONCE,
                                               .idle_exit_ns = 20 * IDLESCHED_US) };
    pthread_t threads[SUBMITTERS];
    fault_refuse_at_random(FAULT_ANY_SITE, 2, seed);
    for (int i = 0; i < SUBMITTERS; i++)
      threads[i] = thread_run(submit_many, &round);
    for (int i = 0; i < SUBMITTERS; i++)
      thread_result(threads[i]);
    CHECK_EQ_INT(idlesched_pool_wait(round.pool, IDLESCHED_NEVER), 0);
    CHECK_EQ_INT(round.accepted_count + round.refused_count, SUBMITTERS * JOBS_EACH);
    CHECK_EQ_INT(round.ran_count, round.accepted_count);
    CHECK_GT_INT(fault_refused_count(), 0);
    fault_refuse(FAULT_ANY_SITE, 0, 0);
    destroy(round.pool);
  }
}
