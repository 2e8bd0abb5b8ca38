/* SPDX-License-Identifier: MIT */
/*
 * huge_pages.c - can the allocator keep its huge pages, and memory come back all the same?
 *
 * The blocks are fragment.c's.  With huge pages a purge lowers the resident size and returns
 * nothing: the kernel keeps a huge page whole until it is split, and puts it together again
 * when it has been.  idlesched_keep_huge_pages() has each purge split those of which a part
 * is free, and forbid huge pages there.
 *
 * Outcome (512 MiB, Linux 6.18, a busy virtual machine with 2 CPUs, few runs: only large
 * differences count), above the level before the blocks:
 *
 *             one block kept in 1 MiB             in 64 MiB
 *             charged   CPU of the first pass     charged   CPU of each pass
 *   off        34 MiB    38 ms                      1 MiB    28..38 ms
 *   unsplit   521 MiB    12 ms                     20 MiB     4 ms
 *   keep       34 MiB    89 ms                      2 MiB     7 ms
 *
 * What the split returns stays returned, and blocks are intact.  Without it, memory that is
 * used again is charged twice: 1011 MiB for 524 that are resident.
 *
 * Against small pages it costs twice as much CPU where blocks live all over the heap, once:
 * where something was split there are small pages from then on, and a pass costs what it
 * costs without huge ones.  It costs a fifth where most of the heap is free, for some three
 * mappings more for each place with blocks that live on.  Making the blocks was no reason
 * for it: 280 to 370 ms of CPU either way, and up to 2300 where the kernel had to get huge
 * pages first.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "compare.h"
#include "idlesched.h"
#include "measure.h"

enum arm { OFF, UNSPLIT, KEEP };

static const struct bench_arm arms[] = {
  [OFF] = { .name = "off", .what = "no huge pages, the default", .needs_mimalloc = true },
  [UNSPLIT] = { .name = "unsplit",
                .what = "huge pages, and nothing splits them: the allocator by itself",
                .needs_mimalloc = true },
  [KEEP] = { .name = "keep",
             .what = "huge pages, and each purge splits them: idlesched_keep_huge_pages()",
             .needs_mimalloc = true },
};

static const struct bench_column columns[] = {
  { "peak_mib", 1 },          { "charged_peak_mib", 1 },
  { "passed_mib", 1 },        { "charged_passed_mib", 1 },
  { "held_mib", 1 },          { "charged_held_mib", 1 },
  { "peak_again_mib", 1 },    { "charged_peak_again_mib", 1 },
  { "again_mib", 1 },         { "charged_again_mib", 1 },
  { "make_cpu_ms", 1 },       { "pass_cpu_ms", 2 },
  { "make_again_cpu_ms", 1 }, { "pass_again_cpu_ms", 2 },
  { "mappings", 0 },
};

static unsigned mib, hold_s;
static struct bench_list every_mib;

static const struct bench_option options[] = {
  { .name = "--mib",
    .what = "MiB of blocks",
    .usual = "512",
    .quick = "64",
    .least = 1,
    .most = 1024 * 1024,
    .number = &mib },
  { .name = "--every",
    .what = "one block is kept in so many MiB, a table for each number",
    .usual = "1,64",
    .quick = "1,16",
    .least = 1,
    .most = 1024 * 1024,
    .list = &every_mib },
  { .name = "--hold",
    .what = "seconds that the process goes on doing nothing",
    .usual = "90",
    .quick = "1",
    .least = 0,
    .most = 86400,
    .number = &hold_s },
};

static struct bench bench = {
  .question = "can huge pages be kept, and memory come back all the same?",
  .reading =
    "  Resident, and as the kernel charges it, above the level before the blocks: with all of\n"
    "  them, after the pass, and so many seconds later.  Then as many blocks are made again and\n"
    "  freed likewise: again is what is left after the second pass.  make: the CPU of making\n"
    "  the blocks; pass: that of the release; mappings: of the process at the end.\n",
  .arms = arms,
  .arms_count = sizeof arms / sizeof *arms,
  .columns = columns,
  .columns_count = sizeof columns / sizeof *columns,
  .options = options,
  .options_count = sizeof options / sizeof *options,
  .has_charge = true,
  .usual_runs = "3",
};

/* ------------------------------------------------------------------ mappings */

/* How many there are; *out_begin and *out_end: of the one that an address is in. */
static unsigned find_mapping(const void *address, uintptr_t *out_begin, uintptr_t *out_end) {
  FILE *file = fopen("/proc/self/maps", "re");
  if (file == NULL)
    bench_fail("/proc/self/maps cannot be read: %s", strerror(errno));
  char line[4096];
  unsigned count = 0;
  uintptr_t begin, end;
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) != 2)
      continue;
    count++;
    if ((uintptr_t)address >= begin && (uintptr_t)address < end) {
      *out_begin = begin;
      *out_end = end;
    }
  }
  fclose(file);
  return count;
}

/* As the allocator does it when it is let. */
static void ask_for_huge_pages(void) {
  void *block = idlesched_realloc(NULL, BENCH_MIB);
  uintptr_t begin = 0, end = 0;
  find_mapping(block, &begin, &end);
  if (madvise((void *)begin, end - begin, MADV_HUGEPAGE) != 0)
    bench_fail("MADV_HUGEPAGE is refused: %s", strerror(errno));
  idlesched_free(block);
}

static unsigned count_mappings(void) {
  uintptr_t begin, end;
  return find_mapping(NULL, &begin, &end);
}

/* ----------------------------------------------------------------- the cell */

static struct bench_level start; /* before the blocks */

static void tell_level(const char *name) {
  bench_tell_level(name, bench_level_above(start));
}

static struct bench_blocks *make_blocks(const char *prefix) {
  struct bench_cost began = bench_cost_now();
  struct bench_blocks *blocks = bench_blocks_make(mib);
  bench_tell_cost(prefix, &began);
  return blocks;
}

static void pass(const char *prefix, idlesched_pool *pool) {
  struct bench_cost began = bench_cost_now();
  MUST(idlesched_pool_release(pool, 0, NULL));
  bench_tell_cost(prefix, &began);
}

static void run_cell(enum arm arm) {
  idlesched_process_defaults();
  if (arm == UNSPLIT)
    ask_for_huge_pages();
  else if (arm == KEEP)
    MUST(idlesched_keep_huge_pages());
  idlesched_pool *pool;
  MUST(idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 1 }));
  bench_tell("start_mib", bench_resident_mib()); /* the first line makes stdout's buffer */
  start = bench_level_above(start);

  struct bench_blocks *blocks = make_blocks("make");
  tell_level("peak");
  blocks = bench_blocks_thin_out(blocks, every_mib.of[0]);
  pass("pass", pool);
  tell_level("passed");
  idlesched_sleep(hold_s * IDLESCHED_S);
  tell_level("held");

  struct bench_blocks *more = make_blocks("make_again");
  tell_level("peak_again");
  more = bench_blocks_thin_out(more, every_mib.of[0]);
  pass("pass_again", pool);
  tell_level("again");
  bench_tell("mappings", count_mappings());
  if (!bench_blocks_are_intact(blocks) || !bench_blocks_are_intact(more))
    bench_fail("arm %s: a block that lives is not what it was", arms[arm].name);
  bench_blocks_free(blocks);
  bench_blocks_free(more);
  idlesched_pool_destroy(pool);
}

int main(int argc, char **argv) {
  (void)argc;
  bench_parse(&bench, argv);
  if (bench.cell >= 0) {
    run_cell((enum arm)bench.cell);
    return EXIT_SUCCESS;
  }
  for (unsigned i = 0; i < every_mib.count; i++) {
    char number[16], group[32];
    snprintf(number, sizeof number, "%u", every_mib.of[i]);
    snprintf(group, sizeof group, "every_mib=%s", number);
    bench_compare(&bench, group, (const char *const[]){ "--every", number, NULL });
  }
  return EXIT_SUCCESS;
}
