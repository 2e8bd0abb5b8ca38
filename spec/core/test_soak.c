/* SPDX-License-Identifier: MIT */
/*
 * test_soak.c - millions of jobs with every feature mixed at random: every job ends exactly
 * once, the books add up, and memory stays where it was.
 *
 * Three clients share two pools: one with a bounded queue, and one without workers.  Each
 * client has jobs of its own that it submits again and again, in all forms: plain, with
 * priorities, delays, expiry and tokens, blocking ones, and such as submit another one and
 * wait for it.  Between them it cancels, waits, resizes, pauses, releases, retires workers,
 * holds guards and asks for an audit.  A round ends with a close, in one mode or the other,
 * and with the accounts; the next one has new pools.
 *
 * IDLESCHED_SPEC_SOAK_JOBS says how many jobs; scripts/test sets it for the full run and the
 * night.  The seed is printed, and IDLESCHED_SPEC_SOAK_SEED repeats the choices.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rss_kit.h"

enum { CLIENTS = 3, SLOTS = 64, ROUNDS = 20 };
#define JOBS_DEFAULT UINT64_C(100000)
/* A sanitizer's allocator keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool has_figures = false;
#else
static const bool has_figures = true;
#endif

/* What may be left above the level after the first rounds. */
#define LEVEL_NOISE (2 * MIB)

/* ------------------------------------------------------------------- randomness */

static uint64_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *state >> 33;
}

static bool one_in(uint64_t *state, unsigned count) {
  return next_random(state) % count == 0;
}

/* ------------------------------------------------------------------- accounts */

enum kind { QUICK, FAILING, BLOCKING, NESTING, RETIRING, KINDS };

/* A job that is submitted again and again by its client; only that one writes the fields,
 * but those that end it. */
struct slot {
  idlesched_job job;
  idlesched_job child; /* of NESTING: submitted and waited for by the job */
  enum kind kind;
  uint64_t taken_count;          /* submits that were accepted */
  _Atomic uint64_t ran_count;    /* by run() */
  _Atomic uint64_t done_count;   /* by done() */
  _Atomic uint64_t failed_count; /* of those: by the status that done() saw */
  _Atomic uint64_t cancelled_count;
  _Atomic uint64_t child_taken_count, child_done_count;
};

struct client {
  struct slot slots[SLOTS];
  idlesched_token tokens[4];
  idlesched_pool *pool, *inline_pool;
  uint64_t random, jobs_count;
  uint64_t plain_taken_count;
  _Atomic uint64_t plain_ended_count; /* run or dropped */
  pthread_t thread;
};

static struct client clients[CLIENTS];

static void run_plain(void *context) {
  struct client *client = context;
  void *block = idlesched_realloc(NULL, 200);
  REQUIRE(block != NULL);
  idlesched_free(block);
  atomic_fetch_add(&client->plain_ended_count, 1);
}

static void plain_dropped(void (*run)(void *context), void *context) {
  struct client *client = context;
  CHECK(run == run_plain);
  atomic_fetch_add(&client->plain_ended_count, 1);
}

/* Let others go on for a while. */
static void give_way(void) {
  for (unsigned i = 0; i < 10; i++)
    ids_relax();
}

static int run_child(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  return idlesched_job_is_cancelled(job) ? -ECANCELED : 0;
}

static void child_done(idlesched_job *child) {
  struct slot *slot = ids_container_of(child, struct slot, child);
  atomic_fetch_add(&slot->child_done_count, 1);
}

static int nest(struct slot *self, idlesched_worker *worker) {
  self->child = (idlesched_job){ .run = run_child, .done = child_done };
  int status = idlesched_pool_submit_job(idlesched_worker_pool(worker), &self->child);
  if (status != 0) /* the queue is full, or the pool closes */
    return status == -ENOBUFS || status == -ESHUTDOWN ? 0 : status;
  atomic_fetch_add(&self->child_taken_count, 1);
  /* The child must have ended before the job has: it is part of it. */
  status = idlesched_job_wait(&self->child, IDLESCHED_NEVER);
  CHECK_EQ_INT(status, 0);
  uint64_t taken_count = atomic_load(&self->child_taken_count);
  WAIT_UNTIL(atomic_load(&self->child_done_count) == taken_count, SOON_MS);
  return 0;
}

static int run_slot(idlesched_job *job, idlesched_worker *worker) {
  struct slot *slot = ids_container_of(job, struct slot, job);
  atomic_fetch_add(&slot->ran_count, 1);
  switch (slot->kind) {
  case FAILING:
    return -EIO;
  case BLOCKING:
    idlesched_blocking_begin();
    give_way();
    idlesched_blocking_end();
    return 0;
  case NESTING:
    return nest(slot, worker);
  case RETIRING:
    idlesched_worker_retire(worker);
    return 0;
  default:
    return 0;
  }
}

static void slot_done(idlesched_job *job) {
  struct slot *slot = ids_container_of(job, struct slot, job);
  enum idlesched_job_state state = idlesched_job_state_read(job);
  if (state == IDLESCHED_JOB_CANCELLED) {
    int status = idlesched_job_status(job);
    CHECK(status == -ECANCELED || status == -ETIMEDOUT);
    atomic_fetch_add(&slot->cancelled_count, 1);
  } else if (state == IDLESCHED_JOB_FAILED) {
    atomic_fetch_add(&slot->failed_count, 1);
  } else {
    CHECK_EQ_INT(state, IDLESCHED_JOB_DONE);
  }
  atomic_fetch_add(&slot->done_count, 1); /* from here on the client may submit it again */
}

static void check_audit(idlesched_pool *pool) {
  idlesched_audit audit;
  if (idlesched_pool_audit(pool, &audit) == 0)
    return;
  const idlesched_finding *first = &audit.findings[0];
  printf("%s: %" PRIu64 ", %" PRIu64 "\n", first->rule, first->left, first->right);
  CHECK_EQ_INT(audit.broken_count, 0);
}

/* ---------------------------------------------------------------------- clients */

static bool is_known(int status) {
  return status == 0 || status == -ESHUTDOWN || status == -ENOBUFS || status == -ECANCELED ||
         status == -EAGAIN;
}

static void submit_plain(struct client *self) {
  idlesched_pool *pool = one_in(&self->random, 50) ? self->inline_pool : self->pool;
  int status = idlesched_pool_submit(pool, run_plain, self);
  CHECK(is_known(status));
  self->plain_taken_count += status == 0;
}

static bool is_free(const struct slot *self) {
  return atomic_load(&self->done_count) == self->taken_count;
}

static void submit_slot(struct client *self, struct slot *slot) {
  if (!is_free(slot))
    return;
  uint64_t *random = &self->random;
  static const enum kind kinds[] = { QUICK, QUICK, QUICK, QUICK, QUICK, QUICK, FAILING, NESTING };
  slot->kind = kinds[next_random(random) % ids_countof(kinds)];
  if (one_in(random, 200))
    slot->kind = BLOCKING;
  if (one_in(random, 2000))
    slot->kind = RETIRING;
  slot->job = (idlesched_job){ .run = run_slot, .done = slot_done };
  if (one_in(random, 2))
    slot->job.priority = (int)(next_random(random) % 15) - IDLESCHED_PRIORITY_MOST;
  if (one_in(random, 8))
    slot->job.delay_ns = next_random(random) % (200 * IDLESCHED_US);
  if (one_in(random, 8))
    slot->job.expire_ns = 1 + next_random(random) % (300 * IDLESCHED_US);
  if (one_in(random, 8))
    slot->job.token = &self->tokens[next_random(random) % ids_countof(self->tokens)];
  slot->taken_count++;
  bool is_inline = slot->kind != RETIRING && slot->job.delay_ns == 0 && one_in(random, 50);
  int status = idlesched_pool_submit_job(is_inline ? self->inline_pool : self->pool, &slot->job);
  CHECK(is_known(status));
  if (status != 0)
    slot->taken_count--;
}

static void disturb(struct client *self) {
  uint64_t *random = &self->random;
  struct slot *slot = &self->slots[next_random(random) % SLOTS];
  idlesched_token *token = &self->tokens[next_random(random) % ids_countof(self->tokens)];
  int status;
  switch (next_random(random) % 12) {
  case 0:
  case 1:
  case 2:
    status = idlesched_job_cancel(&slot->job);
    CHECK(status == 0 || status == -EBUSY || status == -EALREADY);
    break;
  case 3:
    (void)idlesched_job_wait(&slot->job, 100 * IDLESCHED_US);
    break;
  case 4:
    (void)idlesched_pool_wait(self->pool, 100 * IDLESCHED_US);
    break;
  case 5:
    status = idlesched_pool_resize(self->pool, 1 + (unsigned)(next_random(random) % 4),
                                   (unsigned)(next_random(random) % 2));
    CHECK(status == 0 || status == -ESHUTDOWN);
    break;
  case 6:
    idlesched_pool_pause(self->pool);
    give_way();
    idlesched_pool_resume(self->pool);
    break;
  case 7:
    if (one_in(random, 20))
      (void)idlesched_pool_release(self->pool, IDLESCHED_MS, NULL);
    break;
  case 8:
    check_audit(self->pool);
    break;
  case 9:
    check_stats_add_up(self->pool);
    break;
  case 10:
    if (one_in(random, 20)) {
      idlesched_eager_purge_enter();
      idlesched_eager_purge_leave();
    }
    break;
  default:
    (void)idlesched_token_cancel(token);
    /* A token stays cancelled: a new one takes its place when nobody has it any more. */
    for (unsigned i = 0; i < SLOTS; i++)
      if (self->slots[i].job.token == token)
        WAIT_UNTIL(is_free(&self->slots[i]), SOON_MS);
    *token = (idlesched_token){ 0 };
    break;
  }
}

static void *client_main(void *context) {
  struct client *self = context;
  for (uint64_t i = 0; i < self->jobs_count; i++) {
    if (one_in(&self->random, 4))
      submit_plain(self);
    else
      submit_slot(self, &self->slots[next_random(&self->random) % SLOTS]);
    if (one_in(&self->random, 100))
      disturb(self);
  }
  return NULL;
}

/* ------------------------------------------------------------------------ rounds */

static void close_pool(idlesched_pool *pool, bool drains) {
  idlesched_close_report report;
  int status = idlesched_pool_close(pool, drains ? IDLESCHED_CLOSE_DRAIN : IDLESCHED_CLOSE_CANCEL,
                                    30 * IDLESCHED_S, &report);
  CHECK_EQ_INT(status, 0);
  CHECK_EQ_INT(report.left_behind_count, 0);
  check_audit(pool);
}

/* What both pools say, against what the clients have seen. */
static void check_accounts(idlesched_pool *pool, idlesched_pool *inline_pool) {
  idlesched_pool_stats one = stats_of(pool), other = stats_of(inline_pool);
  uint64_t taken = 0, ended = 0, failed = 0, cancelled = 0, children = 0;
  for (unsigned c = 0; c < CLIENTS; c++) {
    struct client *client = &clients[c];
    taken += client->plain_taken_count;
    ended += atomic_load(&client->plain_ended_count);
    CHECK_EQ_U64(client->plain_taken_count, atomic_load(&client->plain_ended_count));
    for (unsigned i = 0; i < SLOTS; i++) {
      struct slot *slot = &client->slots[i];
      CHECK_EQ_U64(slot->taken_count, atomic_load(&slot->done_count));
      CHECK_EQ_U64(slot->taken_count,
                   atomic_load(&slot->ran_count) + atomic_load(&slot->cancelled_count));
      CHECK_EQ_U64(atomic_load(&slot->child_taken_count), atomic_load(&slot->child_done_count));
      taken += slot->taken_count;
      ended += atomic_load(&slot->done_count);
      failed += atomic_load(&slot->failed_count);
      cancelled += atomic_load(&slot->cancelled_count);
      children += atomic_load(&slot->child_done_count);
    }
  }
  CHECK_EQ_U64(taken, ended);
  CHECK_EQ_U64(one.jobs_submitted + other.jobs_submitted, taken + children);
  CHECK_EQ_U64(one.jobs_done + other.jobs_done + one.jobs_failed + other.jobs_failed +
                 one.jobs_cancelled + other.jobs_cancelled,
               ended + children);
  CHECK_LE_U64(failed, one.jobs_failed + other.jobs_failed);
  CHECK_LE_U64(cancelled, one.jobs_cancelled + other.jobs_cancelled);
}

static void run_round(unsigned round, uint64_t jobs_count, uint64_t seed) {
  idlesched_pool *pool = POOL(.workers_max = 3, .blocking_max = 3, .queue_max = 256,
                              .queue_timeout_ns = 20 * IDLESCHED_US,
                              .idle_release_ns = 200 * IDLESCHED_US,
                              .idle_exit_ns = 2 * IDLESCHED_MS, .dropped = plain_dropped);
  idlesched_pool *inline_pool = POOL(.workers_max = IDLESCHED_NO_WORKERS, .dropped = plain_dropped);
  for (unsigned c = 0; c < CLIENTS; c++) {
    struct client *client = &clients[c];
    memset(client, 0, sizeof *client);
    client->pool = pool;
    client->inline_pool = inline_pool;
    client->random = seed + round * CLIENTS + c;
    client->jobs_count = jobs_count / CLIENTS;
    client->thread = thread_run(client_main, client);
  }
  for (unsigned c = 0; c < CLIENTS; c++)
    thread_result(clients[c].thread);
  close_pool(pool, round % 2 == 0);
  close_pool(inline_pool, round % 2 == 1);
  check_accounts(pool, inline_pool);
  idlesched_pool_destroy(pool);
  idlesched_pool_destroy(inline_pool);
}

static uint64_t setting(const char *name, uint64_t absent) {
  const char *text = getenv(name);
  return text == NULL ? absent : strtoull(text, NULL, 10);
}

static void soak(void (*after_round)(unsigned round)) {
  uint64_t jobs_count = setting("IDLESCHED_SPEC_SOAK_JOBS", JOBS_DEFAULT);
  uint64_t seed = setting("IDLESCHED_SPEC_SOAK_SEED", spec_now_ns());
  printf("%" PRIu64 " jobs, IDLESCHED_SPEC_SOAK_SEED=%" PRIu64 "\n", jobs_count, seed);
  fflush(stdout);
  for (unsigned round = 0; round < ROUNDS; round++) {
    run_round(round, jobs_count / ROUNDS, seed);
    after_round(round);
  }
}

static uint64_t first_level, last_level;

static void note_level(unsigned round) {
  idlesched_purge_all(NULL);
  idlesched_memory memory;
  if (idlesched_memory_read(&memory) != 0)
    return;
  if (round == ROUNDS / 10)
    first_level = memory.anonymous_bytes;
  last_level = memory.anonymous_bytes;
}

SPEC(every_feature_at_once, "G4 G7 N5 every feature mixed at random: every job ends once",
     .limit_s = 3000) {
  soak(note_level);
  print_level("after the last round, above that after the first ones", last_level, first_level);
  if (has_figures && !is_system_allocator())
    CHECK_LE_U64(last_level, first_level + LEVEL_NOISE);
}
