/* SPDX-License-Identifier: MIT */
/*
 * gaps.c - is prompt work free?  A job that allocates, and then a gap that is too short for a
 * release, over and over; with releases switched on and off, in turns.
 *
 * Prints `name value unit`: what the job takes from its submit to its end, for both, and the
 * mean of the paired ratios; and how often workers have released, which should be never.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "idlesched.h"
#include "usage.h"

#define GAP_NS (20 * IDLESCHED_MS)
#define TURNS_COUNT 50
#define BLOCKS_COUNT 20000

static const struct bench_usage usage = {
  .question = "is prompt work free: a job, a gap of 20 ms, with releases switched on and off?",
  .argument = "PAIRS",
  .what = "how often each of the two is run",
  .usual = 10,
  .reading =
    "  paired_ratio is the question, and should be 1: the job's time with releases by that\n"
    "  without, pair by pair.  releases should be 0: the gap is too short for one.\n",
};

static void work(void *context) {
  void **blocks = context;
  for (unsigned i = 0; i < BLOCKS_COUNT; i++)
    blocks[i] = memset(idlesched_realloc(NULL, 16 + i % 500), 1, 16);
  for (unsigned i = 0; i < BLOCKS_COUNT; i++)
    idlesched_free(blocks[i]);
}

/* Mean time of a turn without its gap. */
static double run(uint64_t idle_release_ns, uint64_t *out_releases_count) {
  static void *blocks[BLOCKS_COUNT];
  idlesched_pool *pool;
  if (idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 1,
                                                             .idle_release_ns = idle_release_ns,
                                                             .idle_exit_ns = IDLESCHED_NEVER }))
    abort();
  uint64_t sum_ns = 0;
  for (unsigned i = 0; i < TURNS_COUNT; i++) {
    uint64_t began_ns = idlesched_now_ns();
    if (idlesched_pool_submit(pool, work, blocks) != 0)
      abort();
    idlesched_pool_wait(pool, IDLESCHED_NEVER);
    sum_ns += idlesched_now_ns() - began_ns;
    idlesched_sleep(GAP_NS);
  }
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool, &stats);
  *out_releases_count += stats.releases;
  idlesched_pool_destroy(pool);
  return (double)sum_ns / TURNS_COUNT;
}

int main(int argc, char **argv) {
  (void)argc;
  unsigned pairs_count = bench_usage_parse(&usage, argv);
  uint64_t releases_count = 0, none_count = 0;
  double on_ns = 0, off_ns = 0, ratio = 0;
  for (unsigned i = 0; i < pairs_count; i++) {
    double on, off;
    if (i % 2 == 0) {
      on = run(100 * IDLESCHED_MS, &releases_count);
      off = run(IDLESCHED_NEVER, &none_count);
    } else {
      off = run(IDLESCHED_NEVER, &none_count);
      on = run(100 * IDLESCHED_MS, &releases_count);
    }
    on_ns += on;
    off_ns += off;
    ratio += on / off;
  }
  printf("releases %llu\n", (unsigned long long)releases_count);
  printf("with_releases %.1f us\n", on_ns / pairs_count / 1e3);
  printf("without %.1f us\n", off_ns / pairs_count / 1e3);
  printf("paired_ratio %.3f\n", ratio / pairs_count);
  return 0;
}
