/* SPDX-License-Identifier: MIT */
/*
 * retention.c - what do compilers on worker threads keep when they have nothing to do, and
 * what does each remedy cost?
 *
 * One compile is a job for each worker.  It takes some 10 MiB of mixed small blocks from its
 * worker's heap, all workers at the same time, and frees them all; every fourth block is
 * its result, which the main thread frees afterwards.  Compiles follow one another with a
 * gap between them, then nothing follows.
 *
 * Each arm is a policy.  The allocator's settings that a pool makes (huge pages off, small
 * purge ranges) are in force in all of them.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "compare.h"
#include "idlesched.h"
#include "measure.h"

#define WORKERS_MAX 256
/* Blocks are freed list by list, and so not in the order in which they were made. */
#define LISTS_COUNT 8

enum arm { NONE, PARK, IDLE, EAGER, EXIT, CALLER };

static const struct bench_arm arms[] = {
  [NONE] = { .name = "none", .what = "no release, and threads stay" },
  [PARK] = { .name = "park", .what = "a worker releases each time it finds nothing to do" },
  [IDLE] = { .name = "idle", .what = "idle release after 100 ms, the default" },
  [EAGER] = { .name = "eager",
              .what = "as none, and the allocator's purge delay is 0 all the time",
              .environment = { "MIMALLOC_PURGE_DELAY=0" },
              .needs_mimalloc = true },
  [EXIT] = { .name = "exit", .what = "as none, and threads end after 1 s" },
  [CALLER] = { .name = "caller", .what = "no workers: the main thread compiles" },
};

static const struct bench_column columns[] = {
  { "start_mib", 1 },          { "warm_mib", 1 },         { "after_1_of_3_mib", 1 },
  { "after_2_of_3_mib", 1 },   { "after_3_of_3_mib", 1 }, { "above_warm_mib", 1 },
  { "idle_300_ms_mib", 1 },    { "idle_1_s_mib", 1 },     { "idle_3_s_mib", 1 },
  { "compile_ms", 2 },         { "compiles_wall_ms", 0 }, { "compiles_user_ms", 0 },
  { "compiles_system_ms", 0 }, { "compiles_madvise", 0 }, { "idle_cpu_ms", 1 },
  { "idle_madvise", 0 },       { "purges", 0 },
};

static struct bench_list workers_counts;
static unsigned compiles_count, burst_kib, gap_ms;

static const struct bench_option options[] = {
  { .name = "--workers",
    .what = "workers of the pool, a table for each number",
    .usual = "1,2,4,8,15,32",
    .quick = "1,4",
    .least = 1,
    .most = WORKERS_MAX,
    .list = &workers_counts },
  { .name = "--compiles",
    .what = "compiles after the first one, which warms up",
    .usual = "30",
    .quick = "3",
    .least = 3,
    .most = 10000,
    .number = &compiles_count },
  { .name = "--burst",
    .what = "KiB that a worker allocates for each",
    .usual = "10240",
    .quick = "10240",
    .least = 1,
    .most = 1024 * 1024,
    .number = &burst_kib },
  { .name = "--gap",
    .what = "ms from one compile to the next",
    .usual = "200",
    .quick = "200",
    .least = 0,
    .most = 250,
    .number = &gap_ms },
};

static struct bench bench = {
  .question = "what do compilers on worker threads keep when idle, and what does a remedy cost?",
  .reading =
    "  Anonymous memory.  start_mib: of the process before its pool has a thread.  The other\n"
    "  figures are above that: after one compile (warm), after a third, two thirds and all of\n"
    "  them, each read at the end of the gap; above_warm is the last one less warm.  Then\n"
    "  so long after the last compile.  compile_ms is the mean time of one; the costs are of\n"
    "  all compiles with their gaps, and of the 3 s that follow.\n",
  .arms = arms,
  .arms_count = sizeof arms / sizeof *arms,
  .columns = columns,
  .columns_count = sizeof columns / sizeof *columns,
  .options = options,
  .options_count = sizeof options / sizeof *options,
  .usual_runs = "5",
};

/* ------------------------------------------------------------------ the job */

struct block {
  struct block *next;
};

/* What one worker does for a compile. */
struct part {
  idlesched_job job;
  uint64_t random;
  pthread_barrier_t *all_have; /* NULL when nobody else takes part */
  struct block *own[LISTS_COUNT];
  struct block *results;
};

static struct part parts[WORKERS_MAX];

static void push(struct block **list, struct block *block) {
  block->next = *list;
  *list = block;
}

static void free_list(struct block **list) {
  while (*list != NULL) {
    struct block *block = *list;
    *list = block->next;
    idlesched_free(block);
  }
}

/* From 16 bytes to 4 KiB, each power of two as often as the other. */
static size_t any_size(struct part *part) {
  uint64_t random = bench_random(&part->random);
  size_t least = (size_t)16 << random % 8;
  return least + (random >> 8) % least;
}

static void allocate(struct part *part) {
  for (size_t bytes = 0; bytes < (size_t)burst_kib * 1024;) {
    size_t size = any_size(part);
    struct block *block = idlesched_realloc(NULL, size);
    if (block == NULL)
      bench_fail("no memory for a block of %zu bytes", size);
    ((volatile char *)block)[size - 1] = 1;
    uint64_t random = bench_random(&part->random);
    push(random % 4 == 0 ? &part->results : &part->own[random / 4 % LISTS_COUNT], block);
    bytes += size;
  }
}

static int compile_part(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  struct part *part = job->context;
  allocate(part);
  if (part->all_have != NULL)
    pthread_barrier_wait(part->all_have);
  for (unsigned i = 0; i < LISTS_COUNT; i++)
    free_list(&part->own[i]);
  return 0;
}

/* ----------------------------------------------------------------- the cell */

/* Without a pool, the calling thread does all parts, one after another. */
static void compile(idlesched_pool *pool, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    if (pool != NULL)
      MUST(idlesched_pool_submit_job(pool, &parts[i].job));
    else
      compile_part(&parts[i].job, NULL);
  }
  for (unsigned i = 0; i < count; i++) {
    if (pool != NULL)
      MUST(idlesched_job_wait(&parts[i].job, IDLESCHED_NEVER));
    free_list(&parts[i].results);
  }
}

static idlesched_pool *make_pool(enum arm arm, unsigned workers_count) {
  idlesched_pool_config config = {
    .workers_max = workers_count,
    .idle_release_ns = IDLESCHED_NEVER,
    .idle_exit_ns = IDLESCHED_NEVER,
  };
  if (arm == PARK)
    config.idle_release_ns = IDLESCHED_AT_ONCE;
  if (arm == IDLE)
    config.idle_release_ns = 100 * IDLESCHED_MS;
  if (arm == EXIT)
    config.idle_exit_ns = IDLESCHED_S;
  idlesched_pool *pool;
  MUST(idlesched_pool_create(&pool, &config));
  return pool;
}

static void prepare_parts(unsigned count, pthread_barrier_t *barrier) {
  MUST(-pthread_barrier_init(barrier, NULL, count));
  for (unsigned i = 0; i < count; i++) {
    parts[i].job.run = compile_part;
    parts[i].job.context = &parts[i];
    parts[i].random = 88172645463325252U + i;
    parts[i].all_have = count > 1 ? barrier : NULL;
  }
}

/* What it has when idle, above where it began. */
static double start_mib;

static double tell_memory(const char *name) {
  double above_mib = bench_anonymous_mib() - start_mib;
  bench_tell(name, above_mib);
  return above_mib;
}

static uint64_t compile_all(idlesched_pool *pool, unsigned count) {
  static const char *const names[] = { "after_1_of_3_mib", "after_2_of_3_mib", "after_3_of_3_mib" };
  struct bench_cost began = bench_cost_now();
  uint64_t compiling_ns = 0, ended_ns = 0;
  double now_mib = 0;
  double warm_mib = bench_anonymous_mib() - start_mib;
  for (unsigned i = 1, third = 1; i <= compiles_count; i++) {
    uint64_t began_ns = idlesched_now_ns();
    compile(pool, count);
    ended_ns = idlesched_now_ns();
    compiling_ns += ended_ns - began_ns;
    bench_sleep_until(ended_ns + gap_ms * IDLESCHED_MS);
    if (i == compiles_count * third / 3)
      now_mib = tell_memory(names[third++ - 1]);
  }
  bench_tell("above_warm_mib", now_mib - warm_mib);
  bench_tell("compile_ms", (double)compiling_ns / compiles_count / 1e6);
  bench_tell_cost("compiles", &began);
  return ended_ns;
}

static void idle(uint64_t since_ns) {
  struct bench_cost began = bench_cost_now();
  bench_sleep_until(since_ns + 300 * IDLESCHED_MS);
  tell_memory("idle_300_ms_mib");
  bench_sleep_until(since_ns + IDLESCHED_S);
  tell_memory("idle_1_s_mib");
  bench_sleep_until(since_ns + 3 * IDLESCHED_S);
  tell_memory("idle_3_s_mib");
  bench_tell_cost("idle", &began);
}

static void run_cell(enum arm arm) {
  idlesched_process_defaults();
  unsigned count = workers_counts.of[0];
  pthread_barrier_t barrier;
  prepare_parts(count, &barrier);
  idlesched_pool *pool = make_pool(arm, count);
  idlesched_pool *compilers = arm == CALLER ? NULL : pool;
  if (arm == CALLER)
    for (unsigned i = 0; i < count; i++)
      parts[i].all_have = NULL;

  bench_tell("start_mib", bench_anonymous_mib()); /* the first line makes stdout's buffer */
  start_mib = bench_anonymous_mib();
  compile(compilers, count);
  idlesched_sleep(gap_ms * IDLESCHED_MS);
  tell_memory("warm_mib");
  idle(compile_all(compilers, count));
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool, &stats);
  bench_tell("purges", (double)stats.purges);
  idlesched_pool_destroy(pool);
  pthread_barrier_destroy(&barrier);
}

/* ------------------------------------------------------------- the question */

static double kept_mib[BENCH_LIST_MAX][sizeof arms / sizeof *arms];

static void print_kept(void) {
  printf("MiB above the start after all compiles, by workers\n");
  bench_print_label("");
  bench_print_arms(&bench);
  for (unsigned i = 0; i < workers_counts.count; i++) {
    char label[16];
    snprintf(label, sizeof label, "%u", workers_counts.of[i]);
    bench_print_label(label);
    for (unsigned arm = 0; arm < bench.arms_count; arm++)
      if (bench.is_chosen[arm])
        bench_print_number(kept_mib[i][arm], NAN, 1);
    putchar('\n');
  }
}

int main(int argc, char **argv) {
  (void)argc;
  bench_parse(&bench, argv);
  if (bench.cell >= 0) {
    run_cell((enum arm)bench.cell);
    return EXIT_SUCCESS;
  }
  for (unsigned i = 0; i < workers_counts.count; i++) {
    char number[16], group[32];
    snprintf(number, sizeof number, "%u", workers_counts.of[i]);
    snprintf(group, sizeof group, "workers=%s", number);
    bench_compare(&bench, group, (const char *const[]){ "--workers", number, NULL });
    for (unsigned arm = 0; arm < bench.arms_count; arm++)
      kept_mib[i][arm] = bench_mean(&bench, arm, "after_3_of_3_mib");
  }
  print_kept();
  return EXIT_SUCCESS;
}
