/* SPDX-License-Identifier: MIT */
/*
 * test_stress.c - everything at once: parks, releases, exits and restarts all the time,
 * submits and closes from several threads, and every job ends exactly once.
 *
 * Method: real threads and the build's own platform and allocator, nothing in between,
 * so that the thread sanitizer sees what users run.  Delays of microseconds to a few
 * milliseconds, so that the workers go through all of their states thousands of times.
 */
#include <errno.h>
#include <stdlib.h>

#include "pool_kit.h"

enum { SUBMITTERS = 4, JOBS_EACH = 20000, JOBS_BETWEEN_RESTS = 1000 };

/* One of the submitters closes the pool at this job of its own: between two rests. */
enum { CLOSES_AT = JOBS_EACH / 2 + JOBS_BETWEEN_RESTS / 2 };

enum ending { AFTER_ALL, DRAIN_IN_THE_MIDDLE, CANCEL_IN_THE_MIDDLE };

enum slot_form { PLAIN, JOB };

/* A job's account: how often it was accepted and how often it came to an end. */
struct slot {
  idlesched_job job;
  _Atomic unsigned ran_count, dropped_count, done_count;
  bool is_accepted;
};

struct submitter {
  idlesched_pool *pool;
  pthread_barrier_t *barrier;
  enum ending ending;
  unsigned number;
  struct slot *slots;
  _Atomic unsigned accepted_count;
};

static void touch_memory(unsigned number) {
  void *block = idlesched_realloc(NULL, 64 + number % 5000);
  REQUIRE(block != NULL);
  *(volatile char *)block = 1;
  idlesched_free(block);
}

static void run_plain(void *context) {
  struct slot *slot = context;
  unsigned before = atomic_fetch_add(&slot->ran_count, 1);
  CHECK_EQ_INT(before, 0);
  touch_memory((unsigned)((uintptr_t)slot >> 4));
}

static int run_job(idlesched_job *job, idlesched_worker *worker) {
  struct slot *slot = ids_container_of(job, struct slot, job);
  CHECK_EQ_PTR(worker, idlesched_worker_current());
  run_plain(slot);
  return (uintptr_t)slot % 3 == 0 ? -EIO : 0;
}

static void job_done(idlesched_job *job) {
  struct slot *slot = ids_container_of(job, struct slot, job);
  unsigned before = atomic_fetch_add(&slot->done_count, 1);
  CHECK_EQ_INT(before, 0);
}

static void plain_dropped(void (*run)(void *context), void *context) {
  struct slot *slot = context;
  CHECK(run == run_plain);
  unsigned before = atomic_fetch_add(&slot->dropped_count, 1);
  CHECK_EQ_INT(before, 0);
}

static enum slot_form form_of(unsigned i) {
  return i % 2 == 0 ? JOB : PLAIN;
}

/* All stop submitting until the workers have gone, so that the next job starts them
 * again.  A pool that is closed meanwhile has none either. */
static void rest(struct submitter *self) {
  if (pthread_barrier_wait(self->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
    WAIT_UNTIL(stats_of(self->pool).threads == 0, 6 * SOON_MS);
  pthread_barrier_wait(self->barrier);
}

static void close_in_the_middle(struct submitter *self) {
  if (self->ending == DRAIN_IN_THE_MIDDLE)
    CHECK_EQ_INT(idlesched_pool_close(self->pool, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);
  if (self->ending == CANCEL_IN_THE_MIDDLE)
    CHECK_EQ_INT(idlesched_pool_close(self->pool, IDLESCHED_CLOSE_CANCEL, IDLESCHED_NEVER, NULL),
                 0);
}

static void *submit_many(void *context) {
  struct submitter *self = context;
  uint64_t random = self->number * 2 + 1;
  for (unsigned i = 0; i < JOBS_EACH; i++) {
    if (i % JOBS_BETWEEN_RESTS == 0)
      rest(self);
    if (i == CLOSES_AT && self->number == 0)
      close_in_the_middle(self);
    struct slot *slot = &self->slots[i];
    slot->job = (idlesched_job){ .run = run_job, .done = job_done };
    int status = form_of(i) == JOB ? idlesched_pool_submit_job(self->pool, &slot->job)
                                   : idlesched_pool_submit(self->pool, run_plain, slot);
    REQUIRE(status == 0 || status == -ESHUTDOWN);
    slot->is_accepted = status == 0;
    if (status == 0)
      count_up(&self->accepted_count);

    random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    switch ((random >> 33) % 256) {
    case 0: /* let the pool run dry: workers park, release, leave */
      (void)idlesched_pool_wait(self->pool, IDLESCHED_MS);
      break;
    case 1:
      if (form_of(i) == JOB && status == 0)
        (void)idlesched_job_wait(&slot->job, IDLESCHED_MS);
      break;
    case 2:
      (void)idlesched_pool_start_workers(self->pool, 3);
      break;
    case 3:
      if ((random >> 41) % 8 == 0)
        (void)idlesched_pool_release(self->pool, IDLESCHED_MS, NULL);
      break;
    case 4:
      check_stats_add_up(self->pool);
      break;
    default:
      break;
    }
  }
  return NULL;
}

struct totals {
  uint64_t ran, dropped;
};

/* Each accepted job ran or was dropped, once; each refused one neither. */
static struct totals check_slots(const struct submitter *self) {
  struct totals totals = { 0, 0 };
  for (unsigned i = 0; i < JOBS_EACH; i++) {
    const struct slot *slot = &self->slots[i];
    enum idlesched_job_state state = idlesched_job_state_read(&slot->job);
    unsigned ran = slot->ran_count, done = slot->done_count, dropped = slot->dropped_count;
    if (form_of(i) == JOB) {
      CHECK_EQ_INT(done, slot->is_accepted);
      if (!slot->is_accepted)
        CHECK_EQ_INT(state, IDLESCHED_JOB_NEW);
      else if (ran == 0)
        CHECK_EQ_INT(state, IDLESCHED_JOB_CANCELLED);
      else
        CHECK(state == IDLESCHED_JOB_DONE || state == IDLESCHED_JOB_FAILED);
      dropped = done - ran;
    }
    CHECK_EQ_INT(ran + dropped, slot->is_accepted);
    totals.ran += ran;
    totals.dropped += dropped;
  }
  return totals;
}

static uint64_t accepted_count(struct submitter *submitters) {
  uint64_t count = 0;
  for (unsigned i = 0; i < SUBMITTERS; i++)
    count += submitters[i].accepted_count;
  return count;
}

static void play(enum ending ending, uint64_t idle_release_ns, uint64_t idle_exit_ns) {
  struct submitter submitters[SUBMITTERS];
  pthread_t threads[SUBMITTERS];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, SUBMITTERS);
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = idle_release_ns,
                              .idle_exit_ns = idle_exit_ns, .dropped = plain_dropped);
  for (unsigned i = 0; i < SUBMITTERS; i++) {
    submitters[i] =
      (struct submitter){ .pool = pool, .barrier = &barrier, .ending = ending, .number = i };
    submitters[i].slots = calloc(JOBS_EACH, sizeof(struct slot));
    REQUIRE(submitters[i].slots != NULL);
  }
  for (unsigned i = 0; i < SUBMITTERS; i++)
    threads[i] = thread_run(submit_many, &submitters[i]);

  for (unsigned i = 0; i < SUBMITTERS; i++)
    thread_result(threads[i]);
  if (ending == AFTER_ALL)
    CHECK_EQ_U64(accepted_count(submitters), SUBMITTERS * JOBS_EACH);
  CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);

  struct totals totals = { 0, 0 };
  for (unsigned i = 0; i < SUBMITTERS; i++) {
    struct totals part = check_slots(&submitters[i]);
    totals.ran += part.ran;
    totals.dropped += part.dropped;
  }
  idlesched_pool_stats stats = stats_of(pool);
  check_tickets_add_up(pool);
  CHECK_EQ_U64(stats.jobs_submitted, accepted_count(submitters));
  CHECK_EQ_U64(stats.jobs_done + stats.jobs_failed, totals.ran);
  CHECK_EQ_U64(stats.jobs_cancelled, totals.dropped);
  CHECK_EQ_INT(stats.threads, 0);
  CHECK_EQ_U64(stats.starts_refused, 0);
  CHECK_GT_U64(stats.jobs_failed, 0);
  printf("%llu jobs, %llu dropped, %llu wakes, %llu starts, %llu exits, %llu releases\n",
         (unsigned long long)stats.jobs_submitted, (unsigned long long)stats.jobs_cancelled,
         (unsigned long long)stats.wakes, (unsigned long long)stats.starts,
         (unsigned long long)stats.exits, (unsigned long long)stats.releases);
  idlesched_pool_destroy(pool);
  pthread_barrier_destroy(&barrier);
  for (unsigned i = 0; i < SUBMITTERS; i++)
    free(submitters[i].slots);
}

SPEC(every_job_ends_once, "G4 80000 jobs of both forms: every one ends exactly once",
     .limit_s = 90) {
  play(AFTER_ALL, 2 * IDLESCHED_MS, 4 * IDLESCHED_MS);
}

SPEC(every_job_ends_once_without_pause, "G4 the same with delays that are over at once",
     .limit_s = 90) {
  play(AFTER_ALL, IDLESCHED_AT_ONCE, 30 * IDLESCHED_US);
}

SPEC(every_job_ends_once_when_drained, "G4 the same, drained and closed in the middle",
     .limit_s = 90) {
  play(DRAIN_IN_THE_MIDDLE, 50 * IDLESCHED_US, 200 * IDLESCHED_US);
}

SPEC(every_job_ends_once_when_cancelled, "G4 the same, cancelled and closed in the middle",
     .limit_s = 90) {
  play(CANCEL_IN_THE_MIDDLE, 50 * IDLESCHED_US, 200 * IDLESCHED_US);
}

/* ------------------------------------------------ pools that come and go */

static void *live_and_die(void *context) {
  for (unsigned i = 0; i < 150; i++) {
    _Atomic unsigned count = 0;
    idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_AT_ONCE,
                                .idle_exit_ns = IDLESCHED_MS);
    for (unsigned j = 0; j < 1 + i % 5; j++)
      REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    if (i % 3 == 0)
      REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
    if (i % 3 == 1)
      CHECK_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);
    idlesched_pool_destroy(pool);
    if (i % 3 != 2)
      CHECK_EQ_INT(count, 1 + i % 5);
  }
  return context;
}

SPEC(pools_come_and_go, "G3 pools made, used and destroyed on four threads, 600 times",
     .limit_s = 60) {
  pthread_t threads[4];
  for (unsigned i = 0; i < 4; i++)
    threads[i] = thread_run(live_and_die, NULL);
  for (unsigned i = 0; i < 4; i++)
    thread_result(threads[i]);
}

/* --------------------------------------------------- wakes among releases */

/* One job at a time, at another moment of the release each time.  The workers do not
 * leave, so no deadline of theirs mends a wake that was lost. */
static void *submit_into_releases(void *pool) {
  for (unsigned i = 0; i < 4000; i++) {
    _Atomic unsigned count = 0;
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
    REQUIRE_EQ_INT(idlesched_pool_wait(pool, SOON_MS * IDLESCHED_MS), 0);
    CHECK_EQ_INT(count, 1);
    for (uint64_t end_ns = spec_now_ns() + i % 80 * IDLESCHED_US; spec_now_ns() < end_ns;)
      continue;
  }
  return NULL;
}

SPEC(wakes_among_releases_are_not_lost, "A8 8000 wakes at all moments of a release: none is lost",
     .limit_s = 60) {
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = 20 * IDLESCHED_US,
                              .idle_exit_ns = IDLESCHED_NEVER);
  pthread_t threads[2];
  for (unsigned i = 0; i < 2; i++)
    threads[i] = thread_run(submit_into_releases, pool);
  for (unsigned i = 0; i < 2; i++)
    thread_result(threads[i]);
  CHECK_GT_U64(stats_of(pool).releases, 0);
  idlesched_pool_destroy(pool);
}
