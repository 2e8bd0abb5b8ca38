/* SPDX-License-Identifier: MIT */
/*
 * test_plat_huge.c - huge pages of the kernel's, split and allowed again.
 *
 * Whether it has one at hand is its own affair; a case that gets none is skipped.
 */
#include "harness.h"
#include "plat.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)
enum { HUGE_PAGES = 4 };

static char *ours; /* so many huge pages, and a part of one before and after them */

static bool is_ours(uintptr_t begin, uintptr_t end) {
  uintptr_t first = (uintptr_t)ours;
  return begin >= first - HUGE_BYTES && end <= first + (HUGE_PAGES + 1) * HUGE_BYTES;
}

/* Of all mappings of ours. */
struct sum {
  uint64_t resident_bytes, forbidden_bytes;
};

static void add_mapping(void *context, const struct ids_mapping *mapping) {
  struct sum *self = context;
  if (!is_ours(mapping->begin, mapping->end))
    return;
  self->resident_bytes += mapping->resident_bytes;
  if (mapping->forbids_huge_pages)
    self->forbidden_bytes += mapping->end - mapping->begin;
}

static struct sum sum_of_ours(void) {
  struct sum sum = { 0 };
  REQUIRE_EQ_INT(ids_mappings_read(add_mapping, &sum), 0);
  return sum;
}

static uint64_t huge_bytes(void) {
  struct ids_residency residency;
  REQUIRE_EQ_INT(ids_residency_read(&residency), 0);
  return residency.huge_bytes;
}

/* All of it in use, in huge pages. */
static void take_huge_pages(void) {
  if (!ids_huge_pages_can_split())
    SKIP("this kernel has no huge pages, or splits none when it is asked to");
  char *all = mmap(NULL, (HUGE_PAGES + 2) * HUGE_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(all != MAP_FAILED);
  /* Alone, so that no neighbour is in the same mapping. */
  uintptr_t at = ((uintptr_t)all + HUGE_BYTES) / HUGE_BYTES * HUGE_BYTES;
  ours = (char *)at;
  REQUIRE_EQ_INT(mprotect(all, (size_t)(ours - all) - 4096, PROT_NONE), 0);
  uint64_t before = huge_bytes();
  ids_huge_pages_allow(is_ours);
  for (size_t i = 0; i < HUGE_PAGES * HUGE_BYTES; i++)
    ours[i] = (char)(i / 4096 + i);
  if (huge_bytes() < before + HUGE_PAGES * HUGE_BYTES)
    SKIP("the kernel has no huge pages at hand: %zu bytes of them",
         (size_t)(huge_bytes() - before));
}

static void check_intact(size_t begin, size_t end) {
  for (size_t i = begin; i < end; i++)
    if (ours[i] != (char)(i / 4096 + i))
      REQUIRE_EQ_INT(ours[i], (char)(i / 4096 + i));
}

static void give_back(size_t begin, size_t end) {
  REQUIRE_EQ_INT(madvise(ours + begin, end - begin, MADV_DONTNEED), 0);
}

SPEC(whole_ones_are_kept, "B22 a huge page that is all in use stays one") {
  take_huge_pages();
  uint64_t before = huge_bytes();
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), 0);
  CHECK_EQ_U64(huge_bytes(), before);
  CHECK_EQ_U64(sum_of_ours().forbidden_bytes, 0);
}

SPEC(partly_free_ones_are_split,
     "B22 a huge page of which a part is free is split, and no other is made there") {
  take_huge_pages();
  give_back(4096, HUGE_BYTES / 2);
  give_back(3 * HUGE_BYTES - 4096, 3 * HUGE_BYTES);
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), 2);
  CHECK_EQ_U64(sum_of_ours().forbidden_bytes, 2 * HUGE_BYTES);
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), 0); /* once is enough */
  check_intact(0, 4096);
  check_intact(HUGE_BYTES / 2, 3 * HUGE_BYTES - 4096);
  check_intact(3 * HUGE_BYTES, HUGE_PAGES * HUGE_BYTES);
}

SPEC(free_ones_are_allowed_again, "B22 where all is free again, huge pages may be made anew") {
  take_huge_pages();
  uint64_t before = huge_bytes();
  give_back(0, HUGE_BYTES / 2);
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), 1);
  give_back(0, HUGE_BYTES);
  CHECK_EQ_U64(sum_of_ours().forbidden_bytes, HUGE_BYTES);
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), 0);
  CHECK_EQ_U64(sum_of_ours().forbidden_bytes, 0);
  memset(ours, 1, HUGE_BYTES);
  if (huge_bytes() < before)
    SKIP("the kernel has no huge page at hand");
}

SPEC(all_can_be_split, "B22 without any to be kept all are split, and no other is made") {
  take_huge_pages();
  uint64_t before = huge_bytes();
  give_back(HUGE_BYTES, 2 * HUGE_BYTES);
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, false), HUGE_PAGES - 1);
  CHECK_EQ_U64(huge_bytes(), before - HUGE_PAGES * HUGE_BYTES);
  CHECK_GE_U64(sum_of_ours().forbidden_bytes, HUGE_PAGES * HUGE_BYTES);
  CHECK_EQ_U64(sum_of_ours().resident_bytes, (HUGE_PAGES - 1) * HUGE_BYTES);
  check_intact(0, HUGE_BYTES);
  memset(ours + HUGE_BYTES, 1, HUGE_BYTES);
  CHECK_EQ_U64(huge_bytes(), before - HUGE_PAGES * HUGE_BYTES);
}

static bool is_nobodys(uintptr_t begin, uintptr_t end) {
  (void)begin;
  (void)end;
  return false;
}

SPEC(others_are_left_alone, "B22 only our own mappings are touched") {
  take_huge_pages();
  uint64_t before = huge_bytes();
  give_back(0, HUGE_BYTES / 2);
  CHECK_EQ_INT(ids_huge_pages_split(is_nobodys, false), 0);
  CHECK_EQ_U64(sum_of_ours().forbidden_bytes, 0);
  CHECK_EQ_U64(huge_bytes(), before - HUGE_BYTES); /* it does not look like one any more */
}

SPEC(no_descriptor_to_look_with,
     "B22 without a descriptor nothing is split, and the refusal told") {
  take_huge_pages();
  give_back(0, HUGE_BYTES / 2);
  int last, first = -1;
  while ((last = dup(STDIN_FILENO)) >= 0)
    first = first < 0 ? last : first;
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), -EMFILE);
  close(first);
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), -EMFILE); /* it takes two */
  CHECK_EQ_U64(sum_of_ours().forbidden_bytes, 0);
  close(first + 1);
  CHECK_EQ_INT(ids_huge_pages_split(is_ours, true), 1);
}
