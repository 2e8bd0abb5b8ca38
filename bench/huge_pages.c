/* SPDX-License-Identifier: MIT */
/*
 * huge_pages.c - can the allocator keep its huge pages, and memory come back all the same?
 *
 * The blocks are fragment.c's.  With huge pages the usual pass lowers the resident size and
 * returns nothing: the kernel keeps a huge page whole until it is split, and puts it
 * together again when it has been.  The experiment splits them after the pass: one
 * MADV_COLD on a page that is present, in each 2 MiB of the allocator's mappings that is
 * present in part; and then forbids huge pages there, for all of a mapping or for those 2
 * MiB only.
 *
 * Outcome (512 MiB, Linux 6.18, a busy virtual machine with 2 CPUs, few runs: only large
 * differences count), above the level before the blocks:
 *
 *                              one block kept in 1 MiB         in 64 MiB
 *                              charged  CPU of pass + split    charged  CPU
 *   off                         34 MiB   35 ms                   2 MiB  33 ms
 *   keep                       521 MiB    8 ms                  20 MiB   3 ms
 *   split, split_regions        32 MiB    8 + 48..60 ms          0 MiB   2 + 5 ms
 *
 * The split holds: what it returns stays returned (90 s), and blocks are intact.  Without
 * it, memory that is used again is charged twice: 1011 MiB for 522 that are resident.
 *
 * Against small pages it costs 1.6 to 1.9 times as much CPU where blocks live all over the
 * heap, and a fifth where most of the heap is free.  Forbidding huge pages for the whole
 * mapping ends them for good: from the second burst on, a pass costs what it costs
 * without them.  Forbidding them where something was split keeps them elsewhere (4 + 3 ms
 * for the second pass of the second kind), for some three mappings more for each place.
 *
 * For an option huge_pages = "keep" that means: it can be had, as split_regions after each
 * pass that has returned something, where pagemap can be read; and not as keep alone.  It
 * pays for heaps that are nearly empty between bursts.  Making the blocks was no reason for
 * it: 125 to 190 ms of CPU with huge pages at hand, 240 without, and up to 1500 where the
 * kernel had to get them first.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compare.h"
#include "idlesched.h"
#include "measure.h"

#define HUGE_PAGE_BYTES (2 * BENCH_MIB)
#define PAGE_BYTES ((size_t)4096)
#define PAGES_PER_HUGE (HUGE_PAGE_BYTES / PAGE_BYTES)
#define SMAPS_BYTES_MAX (4 * BENCH_MIB)

enum arm { OFF, KEEP, SPLIT, SPLIT_REGIONS };

static const struct bench_arm arms[] = {
  [OFF] = { .name = "off",
            .what = "no huge pages, the default",
            .environment = { "MIMALLOC_ALLOW_THP=0" },
            .needs_mimalloc = true },
  [KEEP] = { .name = "keep",
             .what = "huge pages, and the usual pass",
             .environment = { "MIMALLOC_ALLOW_THP=2" },
             .needs_mimalloc = true },
  [SPLIT] = { .name = "split",
              .what = "the same, then split and no more huge pages in those mappings",
              .environment = { "MIMALLOC_ALLOW_THP=2" },
              .needs_mimalloc = true },
  [SPLIT_REGIONS] = { .name = "split_regions",
                      .what = "the same, then split and no more huge pages in what was split",
                      .environment = { "MIMALLOC_ALLOW_THP=2" },
                      .needs_mimalloc = true },
};

static const struct bench_column columns[] = {
  { "peak_mib", 1 },          { "charged_peak_mib", 1 },
  { "passed_mib", 1 },        { "charged_passed_mib", 1 },
  { "split_mib", 1 },         { "charged_split_mib", 1 },
  { "held_mib", 1 },          { "charged_held_mib", 1 },
  { "peak_again_mib", 1 },    { "charged_peak_again_mib", 1 },
  { "again_mib", 1 },         { "charged_again_mib", 1 },
  { "make_cpu_ms", 1 },       { "pass_cpu_ms", 2 },
  { "split_cpu_ms", 2 },      { "split_regions", 0 },
  { "mappings", 0 },          { "make_again_cpu_ms", 1 },
  { "pass_again_cpu_ms", 2 }, { "split_again_cpu_ms", 2 },
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
    "  them, after the pass, after the split, and so many seconds later.  Then as many blocks\n"
    "  are made again and freed likewise: again is what is left after the second pass and\n"
    "  split.  make: the CPU of making the blocks; mappings: of the process at the end.\n",
  .arms = arms,
  .arms_count = sizeof arms / sizeof *arms,
  .columns = columns,
  .columns_count = sizeof columns / sizeof *columns,
  .options = options,
  .options_count = sizeof options / sizeof *options,
  .has_charge = true,
  .usual_runs = "3",
};

/* ---------------------------------------------------------------- the split */

static char smaps[SMAPS_BYTES_MAX];

/* All of it: the kernel gives a page of it at a time. */
static void read_smaps(void) {
  int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  size_t length = 0;
  ssize_t more = file < 0 ? -1 : 1;
  while (more > 0 && length < sizeof smaps - 1) {
    more = read(file, smaps + length, sizeof smaps - 1 - length);
    length += more > 0 ? (size_t)more : 0;
  }
  if (more < 0)
    bench_fail("/proc/self/smaps cannot be read: %s", strerror(errno));
  if (more > 0)
    bench_fail("/proc/self/smaps is longer than %zu bytes", sizeof smaps);
  smaps[length] = '\0';
  close(file);
}

/* The first page that is present in a huge page's worth of memory that is present in part;
 * 0 if it is not there, or all of it is. */
static uintptr_t find_present(int pagemap, uintptr_t region) {
  uint64_t entries[PAGES_PER_HUGE];
  off_t offset = (off_t)(region / PAGE_BYTES * sizeof *entries);
  if (pread(pagemap, entries, sizeof entries, offset) != sizeof entries)
    bench_fail("/proc/self/pagemap cannot be read: %s", strerror(errno));
  uintptr_t first = 0;
  unsigned present_count = 0;
  for (unsigned i = 0; i < PAGES_PER_HUGE; i++)
    if (entries[i] >> 63 != 0) {
      present_count++;
      if (first == 0)
        first = region + i * PAGE_BYTES;
    }
  return present_count < PAGES_PER_HUGE ? first : 0;
}

static void forbid_huge_pages(uintptr_t begin, uintptr_t end) {
  if (madvise((void *)begin, end - begin, MADV_NOHUGEPAGE) != 0)
    bench_fail("MADV_NOHUGEPAGE is refused: %s", strerror(errno));
}

static unsigned split_mapping(enum arm arm, int pagemap, uintptr_t begin, uintptr_t end) {
  unsigned count = 0;
  uintptr_t region = (begin + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  for (; region + HUGE_PAGE_BYTES <= end; region += HUGE_PAGE_BYTES) {
    uintptr_t page = find_present(pagemap, region);
    if (page == 0)
      continue;
    if (madvise((void *)page, PAGE_BYTES, MADV_COLD) != 0)
      bench_fail("MADV_COLD is refused: %s; it needs Linux 5.4 or newer", strerror(errno));
    if (arm == SPLIT_REGIONS)
      forbid_huge_pages(region, region + HUGE_PAGE_BYTES);
    count++;
  }
  if (arm == SPLIT)
    forbid_huge_pages(begin, end);
  return count;
}

/* In every mapping that has asked for huge pages: nobody but the allocator does. */
static unsigned split(enum arm arm) {
  int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (pagemap < 0)
    bench_fail("/proc/self/pagemap cannot be opened: %s", strerror(errno));
  read_smaps();
  unsigned count = 0;
  uintptr_t begin = 0, end = 0;
  for (char *line = smaps, *next; line != NULL && *line != '\0'; line = next) {
    next = strchr(line, '\n');
    if (next != NULL)
      *next++ = '\0';
    uintptr_t low, high;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2) {
      begin = low;
      end = high;
    } else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL) {
      count += split_mapping(arm, pagemap, begin, end);
    }
  }
  close(pagemap);
  return count;
}

static unsigned count_mappings(void) {
  read_smaps();
  unsigned count = 0;
  for (const char *flags = smaps; (flags = strstr(flags, "VmFlags:")) != NULL; flags++)
    count++;
  return count;
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

static void split_if_told(enum arm arm, const char *prefix) {
  if (arm != SPLIT && arm != SPLIT_REGIONS)
    return;
  struct bench_cost began = bench_cost_now();
  unsigned count = split(arm);
  bench_tell_cost(prefix, &began);
  if (strcmp(prefix, "split") == 0)
    bench_tell("split_regions", count);
}

static void run_cell(enum arm arm) {
  idlesched_process_defaults();
  idlesched_pool *pool;
  MUST(idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 1 }));
  bench_tell("start_mib", bench_resident_mib()); /* the first line makes stdout's buffer */
  memset(smaps, 0, sizeof smaps);                /* resident from now on */
  start = bench_level_above(start);

  struct bench_blocks *blocks = make_blocks("make");
  tell_level("peak");
  blocks = bench_blocks_thin_out(blocks, every_mib.of[0]);
  pass("pass", pool);
  tell_level("passed");
  split_if_told(arm, "split");
  tell_level("split");
  idlesched_sleep(hold_s * IDLESCHED_S);
  tell_level("held");

  struct bench_blocks *more = make_blocks("make_again");
  tell_level("peak_again");
  more = bench_blocks_thin_out(more, every_mib.of[0]);
  pass("pass_again", pool);
  split_if_told(arm, "split_again");
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
