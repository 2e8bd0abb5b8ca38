/* SPDX-License-Identifier: MIT */
/*
 * fragment.c - does memory come back when what is free lies between blocks that live, and
 * what does the pass cost?
 *
 * 512 MiB of 1 KiB blocks, of which one per MiB is kept.  What is left is read twice: as the
 * resident size, and as what the kernel charges the process's memory cgroup.  With huge
 * pages the two differ, and the charge is the truth.
 *
 * The price that the pass is compared with is the kernel's own: what it costs to unmap as
 * much touched memory, of the same kind of pages, in the same process.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "compare.h"
#include "idlesched.h"
#include "measure.h"

#define HUGE_PAGE_BYTES (2 * BENCH_MIB)

enum arm { NONE, COLLECT, COLLECT_PURGE_ALL, RELEASE, PURGE_ALL };

static const struct bench_arm arms[] = {
  [NONE] = { .name = "none", .what = "nothing is done, with the allocator's own settings" },
  [COLLECT] = { .name = "collect",
                .what = "the allocator's forced collection, with its own settings",
                .needs_mimalloc = true },
  [COLLECT_PURGE_ALL] = { .name = "collect+purge",
                          .what = "the same, and idlesched_purge_all() after it",
                          .needs_mimalloc = true },
  [RELEASE] = { .name = "release", .what = "idlesched_pool_release()" },
  [PURGE_ALL] = { .name = "purge_all", .what = "idlesched_purge_all()" },
};

static const struct bench_column columns[] = {
  { "peak_mib", 1 },         { "left_mib", 1 },
  { "held_mib", 1 },         { "held_max_mib", 1 },
  { "charged_peak_mib", 1 }, { "charged_left_mib", 1 },
  { "charged_held_mib", 1 }, { "charged_held_max_mib", 1 },
  { "free_cpu_ms", 1 },      { "pass_wall_ms", 2 },
  { "pass_cpu_ms", 2 },      { "pass_madvise", 0 },
  { "unmapped_mib", 1 },     { "unmap_cpu_ms", 2 },
  { "pass_to_unmap", 2 },
};

static unsigned mib, hold_s;
static struct bench_list huge;

static const struct bench_option options[] = {
  { .name = "--mib",
    .what = "MiB of blocks",
    .usual = "512",
    .quick = "64",
    .least = 1,
    .most = 1024 * 1024,
    .number = &mib },
  { .name = "--hold",
    .what = "seconds that the process goes on doing nothing, to show that it stays so",
    .usual = "2",
    .quick = "1",
    .least = 0,
    .most = 86400,
    .number = &hold_s },
  { .name = "--huge",
    .what = "0: without huge pages, 1: with them; a table for each",
    .usual = "0,1",
    .quick = "0,1",
    .least = 0,
    .most = 1,
    .list = &huge },
};

static struct bench bench = {
  .question = "does memory come back from between blocks that live, and at what price?",
  .reading =
    "  left_mib: resident above the level before the blocks, after the pass; held: the same so\n"
    "  many seconds later, and the highest meanwhile.  charged: as the kernel charges it.\n"
    "  unmap_cpu_ms: the CPU of unmapping as much as the pass has returned (by the resident\n"
    "  size), all of it touched; pass_to_unmap: the CPU of the pass divided by that.\n",
  .arms = arms,
  .arms_count = sizeof arms / sizeof *arms,
  .columns = columns,
  .columns_count = sizeof columns / sizeof *columns,
  .options = options,
  .options_count = sizeof options / sizeof *options,
  .has_charge = true,
  .usual_runs = "5",
};

/* ----------------------------------------------------------------- the cell */

static struct bench_level start; /* before the blocks */

static void pass(enum arm arm, idlesched_pool *pool) {
  if (arm == COLLECT || arm == COLLECT_PURGE_ALL)
    bench_collect_by_force();
  if (arm == RELEASE)
    MUST(idlesched_pool_release(pool, 0, NULL));
  if (arm == PURGE_ALL || arm == COLLECT_PURGE_ALL)
    idlesched_purge_all(NULL);
}

/* The CPU of unmapping so much, in ms. */
static double unmap_cpu_ms(size_t size, bool has_huge_pages) {
  char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    bench_fail("%zu bytes cannot be mapped", size);
  /* Refused by a kernel without huge pages: then it is the other kind anyway. */
  (void)madvise(memory, size, has_huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  memset(memory, 1, size);
  struct bench_cost began = bench_cost_now();
  munmap(memory, size);
  return (double)(bench_cost_now().cpu_ns - began.cpu_ns) / 1e6;
}

static void compare_with_unmap(double returned_mib, double pass_cpu_ms) {
  if (returned_mib < 1)
    return;
  size_t size = (size_t)(returned_mib * BENCH_MIB) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  if (size == 0)
    return;
  double cpu_ms = unmap_cpu_ms(size, huge.of[0] != 0);
  bench_tell("unmapped_mib", (double)size / BENCH_MIB);
  bench_tell("unmap_cpu_ms", cpu_ms);
  bench_tell("pass_to_unmap", pass_cpu_ms / cpu_ms);
}

static void hold(void) {
  struct bench_level most = bench_level_above(start), now = most;
  for (uint64_t since_ns = idlesched_now_ns(), second = 1; second <= hold_s; second++) {
    bench_sleep_until(since_ns + second * IDLESCHED_S);
    now = bench_level_above(start);
    most.resident_mib = fmax(most.resident_mib, now.resident_mib);
    most.charged_mib = fmax(most.charged_mib, now.charged_mib);
  }
  bench_tell_level("held", now);
  bench_tell_level("held_max", most);
}

static void run_cell(enum arm arm) {
  bool has_pool = arm == RELEASE;
  if (has_pool || arm == PURGE_ALL)
    idlesched_process_defaults();
  idlesched_pool *pool = NULL;
  if (has_pool)
    MUST(idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 1 }));
  bench_tell("start_mib", bench_resident_mib()); /* the first line makes stdout's buffer */
  start = bench_level_above(start);

  struct bench_blocks *blocks = bench_blocks_make(mib);
  struct bench_level peak = bench_level_above(start);
  bench_tell_level("peak", peak);
  struct bench_cost began = bench_cost_now();
  blocks = bench_blocks_thin_out(blocks, 1);
  bench_tell_cost("free", &began);
  double before_mib = bench_resident_mib();
  began = bench_cost_now();
  pass(arm, pool);
  double pass_cpu_ms = (double)(bench_cost_now().cpu_ns - began.cpu_ns) / 1e6;
  bench_tell_cost("pass", &began);
  struct bench_level left = bench_level_above(start);
  bench_tell_level("left", left);
  hold();
  if (!bench_blocks_are_intact(blocks))
    bench_fail("arm %s: a block that lives is not what it was", arms[arm].name);
  compare_with_unmap(before_mib - start.resident_mib - left.resident_mib, pass_cpu_ms);
  bench_blocks_free(blocks);
  idlesched_pool_destroy(pool);
}

int main(int argc, char **argv) {
  (void)argc;
  bench_parse(&bench, argv);
  if (bench.cell >= 0) {
    run_cell((enum arm)bench.cell);
    return EXIT_SUCCESS;
  }
  bench_compare_huge(&bench, &huge);
  return EXIT_SUCCESS;
}
