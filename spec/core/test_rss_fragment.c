/* SPDX-License-Identifier: MIT */
/*
 * test_rss_fragment.c - small free ranges between blocks that live on, with huge pages and
 * without, as the kernel counts and charges them: given back for good, or told as kept.
 *
 * 512 MiB of 1 KiB blocks, of which one stays in each MiB.  The least that can be left is
 * then a page of the allocator's for each of those, 64 KiB: 32 MiB, and what the allocator
 * keeps to know it all.
 */
#include <stdlib.h>

#include "charge_kit.h"
#include "rss_kit.h"
#include "smaps.h"

#define TAKEN (512 * MIB)
#define LEFT_MAX (42 * MIB)
/* What the kernel's per-CPU batches make uncertain, and page tables. */
#define CHARGE_NOISE (4 * MIB)

static const struct fragments one_in_a_mib = { .bytes = TAKEN, .run_count = MIB / KIB };

/* What the kernel has chosen of "always", "madvise" and "never". */
static bool kernel_gives_huge_pages(const char *when) {
  char text[100] = "";
  FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  if (file == NULL)
    return strcmp(when, "[never]") == 0;
  bool is_chosen = fgets(text, sizeof text, file) != NULL && strstr(text, when) != NULL;
  fclose(file);
  return is_chosen;
}

static void need_huge_pages(void) {
  if (kernel_gives_huge_pages("[never]"))
    SKIP("this kernel has no transparent huge pages");
}

/* ----------------------------------------------------------- huge pages off, as we set it */

SPEC(small_ranges_come_back, "B21 one block in each MiB of 512, huge pages off: 42 MiB are left",
     .limit_s = 60) {
  need_figures_to_the_page();
  uint64_t start = anonymous_bytes();
  struct fragments fragments = one_in_a_mib;
  fragment(&fragments);
  if (!kernel_gives_huge_pages("[always]"))
    CHECK_EQ_U64(smaps_bytes("AnonHugePages:"), 0);
  CHECK_GE_U64(anonymous_bytes(), start + TAKEN);
  idlesched_purge_all(NULL);
  uint64_t level = anonymous_bytes();
  print_level("left", level, start);
  CHECK_LE_U64(level, start + LEFT_MAX);
  give_blocks(fragments.kept);
}

/* -------------------------------------------------- huge pages on, the default range limit */

/* Before anybody sets the process defaults, as in a host that makes its pools late. */
static const struct variable huge_pages_on[] = { { "MIMALLOC_ALLOW_THP", "2" }, { NULL, NULL } };

static void check_small_ranges_in_huge_pages(bool has_failed_collect_before) {
  uint64_t start = anonymous_bytes();
  struct fragments fragments = one_in_a_mib;
  fragment(&fragments);
  CHECK_GE_U64(smaps_bytes("AnonHugePages:"), TAKEN / 2);
  CHECK_GE_U64(anonymous_bytes(), start + TAKEN);
  if (has_failed_collect_before) {
    forced_collect();
    uint64_t kept = anonymous_bytes();
    print_level("left by a forced collect", kept, start);
    CHECK_GE_U64(kept, start + TAKEN / 2);
  }
  idlesched_purge_all(NULL);
  /* What is left of huge pages is charged in whole until the kernel splits them, so this
   * is the resident size, and no more. */
  uint64_t level = anonymous_bytes();
  print_level("left", level, start);
  CHECK_LE_U64(level, start + LEFT_MAX);
  give_blocks(fragments.kept);
}

SPEC(small_ranges_in_huge_pages_come_back,
     "B21 one block in each MiB of 512, huge pages on, default range: purge_all leaves 42 MiB",
     .limit_s = 60) {
  need_figures_to_the_page();
  need_huge_pages();
  if (!passes_in_process("small_ranges_in_huge_pages_come_back", huge_pages_on))
    check_small_ranges_in_huge_pages(false);
}

SPEC(small_ranges_come_back_after_a_coarse_collect,
     "B21 a forced collect leaves them all, and purge_all gives them back right after it",
     .limit_s = 60) {
  need_figures_to_the_page();
  need_huge_pages();
  if (!passes_in_process("small_ranges_come_back_after_a_coarse_collect", huge_pages_on))
    check_small_ranges_in_huge_pages(true);
}

/* ------------------------------------------------------------------ real and durable */

/* How long it has to stay so: IDLESCHED_SPEC_HOLD_S seconds, 360 at night (scripts/test). */
static uint64_t hold_ns(void) {
  const char *text = getenv("IDLESCHED_SPEC_HOLD_S");
  return (text == NULL ? 2 : strtoull(text, NULL, 10)) * IDLESCHED_S;
}

static void check_returned_is_free(bool has_huge_pages, uint64_t watch_ns) {
  idlesched_pool *pool = started_pool(1, IDLESCHED_NEVER, IDLESCHED_NEVER);
  uint64_t start = anonymous_bytes(), start_charge = charged_bytes();
  struct fragments fragments = one_in_a_mib;
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, fragment, &fragments), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  uint64_t peak_charge = charged_bytes();
  CHECK_GE_U64(peak_charge, start_charge + TAKEN);
  if (has_huge_pages)
    CHECK_GE_U64(smaps_bytes("AnonHugePages:"), TAKEN / 2);

  idlesched_release_report report;
  CHECK_EQ_INT(idlesched_pool_release(pool, SOON_MS * IDLESCHED_MS, &report), 0);
  uint64_t charge = charged_bytes();
  print_level("reported", report.returned_bytes, 0);
  print_level("charged", charge, start_charge);
  print_level("resident", anonymous_bytes(), start);
  CHECK_GE_U64(report.returned_bytes, TAKEN - LEFT_MAX);
  CHECK_GE_U64(peak_charge - charge + CHARGE_NOISE, report.returned_bytes);

  uint64_t charge_max = charge, level_max = 0, end_ns = spec_now_ns() + watch_ns;
  while (spec_now_ns() < end_ns) {
    uint64_t next_ns = spec_now_ns() + 50 * IDLESCHED_MS;
    WAIT_UNTIL(spec_now_ns() >= next_ns, SOON_MS);
    uint64_t level = anonymous_bytes();
    charge = charged_bytes();
    level_max = level > level_max ? level : level_max;
    charge_max = charge > charge_max ? charge : charge_max;
  }
  printf("for %.0f s:\n", (double)watch_ns / 1e9);
  print_level("charged at most", charge_max, start_charge);
  print_level("resident at most", level_max, start);
  CHECK_LE_U64(charge_max, start_charge + LEFT_MAX);
  CHECK_LE_U64(level_max, start + LEFT_MAX);
  give_blocks(fragments.kept);
  idlesched_pool_destroy(pool);
}

static void check_without_huge_pages(void) {
  check_returned_is_free(false, hold_ns());
}

static void check_with_huge_pages(void) {
  CHECK_EQ_INT(idlesched_keep_huge_pages(), 0);
  check_returned_is_free(true, hold_ns());
}

/* They are split by the same code: for how long it holds is known. */
static void check_with_huge_pages_of_a_user(void) {
  CHECK(idlesched_keeps_huge_pages());
  check_returned_is_free(true, IDLESCHED_S);
}

SPEC(what_is_returned_is_free_to_the_system,
     "B22 what a release reports is not charged any more, and stays so: 42 MiB of 512 are left",
     .limit_s = 480) {
  need_figures_to_the_page();
  run_charged(check_without_huge_pages);
}

SPEC(what_is_returned_of_kept_huge_pages_is_free,
     "B22 and so it is where huge pages are kept, and split by the release", .limit_s = 480) {
  need_figures_to_the_page();
  need_huge_pages();
  run_charged(check_with_huge_pages);
}

/* What the user sets in the environment is as good as the call. */
SPEC(what_a_user_has_of_huge_pages_is_free,
     "B10 B22 and where the user has set that there are huge pages", .limit_s = 480) {
  need_figures_to_the_page();
  need_huge_pages();
  if (!passes_in_process("what_a_user_has_of_huge_pages_is_free", huge_pages_on))
    run_charged(check_with_huge_pages_of_a_user);
}

/* ------------------------------------------------------------------- inside used pages */

SPEC(what_lies_in_used_pages_is_told, "B30 free runs inside used pages are reported as kept") {
  need_figures_to_the_page();
  struct fragments fragments = { .bytes = 64 * MIB, .run_count = 32 };
  uint64_t start = anonymous_bytes();
  fragment(&fragments);
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_release_report report;
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, &report), 0);
  uint64_t level = anonymous_bytes();
  print_level("left", level, start);
  print_level("reported as free in used pages", report.kept_free_bytes, 0);
  CHECK_GE_U64(level, start + 60 * MIB);
  CHECK_GE_U64(report.kept_free_bytes, 58 * MIB);
  CHECK_GE_U64(report.kept_live_bytes, 2 * MIB);
  give_blocks(fragments.kept);
  idlesched_pool_destroy(pool);
}

/* ------------------------------------------------------------------ a host's first line */

static const struct variable no_settings[] = { { NULL, NULL } };
static const struct variable user_setting[] = { { "MIMALLOC_ALLOW_THP", "1" }, { NULL, NULL } };

SPEC(a_host_has_no_huge_pages,
     "B22 process_defaults in the first line of main: 64 MiB without a huge page") {
  need_figures_to_the_page();
  need_huge_pages();
  if (kernel_gives_huge_pages("[always]"))
    SKIP("this kernel makes huge pages for everybody, until the first purge forbids them");
  CHECK_GE_U64(number_from_program(HUGE_PAGES_HOST, "without", no_settings), 32 * MIB);
  CHECK_EQ_U64(number_from_program(HUGE_PAGES_HOST, NULL, no_settings), 0);
}

SPEC(a_user_has_huge_pages,
     "B10 a user's MIMALLOC_ALLOW_THP=1 is left alone by process_defaults in main") {
  need_figures_to_the_page();
  need_huge_pages();
  CHECK_GE_U64(number_from_program(HUGE_PAGES_HOST, NULL, user_setting), 32 * MIB);
}
