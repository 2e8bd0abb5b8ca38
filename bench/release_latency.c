/* SPDX-License-Identifier: MIT */
/*
 * release_latency.c - does a release slow down who submits meanwhile?
 *
 * Eight workers allocate and free a burst of small blocks each, 300 MiB in all, and park.
 * Then a job is submitted every 100 us, for as long as a release of those heaps takes that
 * another thread has asked for; for as long without any; and for as long while that other
 * thread only burns its CPU, which where there are two of them is most of the difference.
 * All in turns, in one pool.
 *
 *   submit  what the call takes
 *   start   from the call to the job's first instruction
 *
 * Prints `name value unit` for the 50th and 99th percentile of both, quiet, busy and released,
 * and the ratios of the 99th.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "idlesched.h"
#include "usage.h"

#define WORKERS_COUNT 8
#define BURST_BYTES ((size_t)300 * 1024 * 1024 / WORKERS_COUNT)
#define BLOCK_BYTES 1024
#define BLOCKS_COUNT (BURST_BYTES / BLOCK_BYTES)
#define PERIOD_NS (100 * IDLESCHED_US)
#define SAMPLES_MAX 100000

static const struct bench_usage usage = {
  .question = "does a release of 300 MiB slow down who submits meanwhile?",
  .argument = "ROUNDS",
  .what = "how often the memory is made, and released",
  .usual = 20,
  .reading =
    "  The last lines are the question: the 99th percentile while the release is under way, by\n"
    "  that of a quiet pool, and by that beside a thread that only computes.  submit is what\n"
    "  the call takes, start the time from the call to the job's begin.\n",
};

static idlesched_pool *pool;

/* ------------------------------------------------------------------ the bursts */

static pthread_barrier_t all_have_one;

static void burst(void *context) {
  void **blocks = context;
  for (size_t i = 0; i < BLOCKS_COUNT; i++)
    blocks[i] = memset(idlesched_realloc(NULL, BLOCK_BYTES), 1, BLOCK_BYTES);
  for (size_t i = 0; i < BLOCKS_COUNT; i++)
    idlesched_free(blocks[i]);
  pthread_barrier_wait(&all_have_one);
}

/* Each worker has its part of the 300 MiB, free. */
static void make_garbage(void) {
  static void *blocks[WORKERS_COUNT][BLOCKS_COUNT];
  for (unsigned i = 0; i < WORKERS_COUNT; i++)
    if (idlesched_pool_submit(pool, burst, blocks[i]) != 0)
      abort();
  idlesched_pool_wait(pool, IDLESCHED_NEVER);
}

/* --------------------------------------------------------------- the submitter */

struct samples {
  const char *name;
  uint64_t submit_ns[SAMPLES_MAX], start_ns[SAMPLES_MAX];
  unsigned count;
};
static struct samples quiet = { .name = "quiet" }, busy = { .name = "busy" },
                      released = { .name = "released" };

struct probe {
  uint64_t submitted_ns, started_ns;
};

static void start(void *context) {
  struct probe *probe = context;
  probe->started_ns = idlesched_now_ns();
}

static void sample(struct samples *self) {
  struct probe probe = { .submitted_ns = idlesched_now_ns() };
  if (self->count == SAMPLES_MAX || idlesched_pool_submit(pool, start, &probe) != 0)
    return;
  uint64_t returned_ns = idlesched_now_ns();
  idlesched_pool_wait(pool, IDLESCHED_NEVER);
  self->submit_ns[self->count] = returned_ns - probe.submitted_ns;
  self->start_ns[self->count++] = probe.started_ns - probe.submitted_ns;
  uint64_t took_ns = idlesched_now_ns() - probe.submitted_ns;
  if (took_ns < PERIOD_NS)
    idlesched_sleep(PERIOD_NS - took_ns);
}

static bool is_over;

static void *release(void *context) {
  uint64_t *out_ns = context;
  idlesched_release_report report;
  idlesched_pool_release(pool, 10 * IDLESCHED_S, &report);
  *out_ns = report.time_ns;
  __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
  return NULL;
}

static void *burn(void *context) {
  const uint64_t *duration_ns = context;
  uint64_t began_ns = idlesched_now_ns();
  while (idlesched_now_ns() < began_ns + *duration_ns)
    continue;
  __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
  return NULL;
}

static void sample_beside(void *(*main)(void *context), uint64_t *duration_ns,
                          struct samples *samples) {
  pthread_t thread;
  is_over = false;
  if (pthread_create(&thread, NULL, main, duration_ns) != 0)
    abort();
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE))
    sample(samples);
  pthread_join(thread, NULL);
}

static void sample_for(uint64_t duration_ns) {
  uint64_t began_ns = idlesched_now_ns();
  while (idlesched_now_ns() < began_ns + duration_ns)
    sample(&quiet);
}

/* ---------------------------------------------------------------------- figures */

static int compare(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static double percentile_us(uint64_t *values, unsigned count, unsigned percent) {
  if (count == 0)
    return 0;
  qsort(values, count, sizeof *values, compare);
  return (double)values[(uint64_t)count * percent / 100 - (percent == 100)] / 1e3;
}

static void print(struct samples *self) {
  printf("%s_samples %u\n", self->name, self->count);
  printf("%s_submit_p50 %.2f us\n", self->name, percentile_us(self->submit_ns, self->count, 50));
  printf("%s_submit_p99 %.2f us\n", self->name, percentile_us(self->submit_ns, self->count, 99));
  printf("%s_start_p50 %.2f us\n", self->name, percentile_us(self->start_ns, self->count, 50));
  printf("%s_start_p99 %.2f us\n", self->name, percentile_us(self->start_ns, self->count, 99));
}

static void print_ratio(const char *name, struct samples *left, struct samples *right) {
  printf("%s_submit_p99 %.2f\n", name,
         percentile_us(left->submit_ns, left->count, 99) /
           percentile_us(right->submit_ns, right->count, 99));
  printf("%s_start_p99 %.2f\n", name,
         percentile_us(left->start_ns, left->count, 99) /
           percentile_us(right->start_ns, right->count, 99));
}

int main(int argc, char **argv) {
  (void)argc;
  unsigned rounds_count = bench_usage_parse(&usage, argv);
  idlesched_pool_config config = { .workers_max = WORKERS_COUNT,
                                   .idle_release_ns = IDLESCHED_NEVER,
                                   .idle_exit_ns = IDLESCHED_NEVER };
  if (pthread_barrier_init(&all_have_one, NULL, WORKERS_COUNT) != 0 ||
      idlesched_pool_create(&pool, &config) != 0) {
    fprintf(stderr, "bench_release_latency: no memory for a pool\n");
    return 1;
  }
  uint64_t took_ns = 0;
  for (unsigned i = 0; i < rounds_count; i++) {
    uint64_t release_ns;
    make_garbage();
    sample_beside(release, &release_ns, &released);
    took_ns += release_ns;
    sample_for(release_ns);
    sample_beside(burn, &release_ns, &busy);
  }
  printf("release %.1f ms\n", (double)took_ns / rounds_count / 1e6);
  print(&quiet);
  print(&busy);
  print(&released);
  print_ratio("released_to_quiet", &released, &quiet);
  print_ratio("released_to_busy", &released, &busy);
  idlesched_pool_destroy(pool);
  return 0;
}
