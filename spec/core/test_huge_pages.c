/* SPDX-License-Identifier: MIT */
/*
 * test_huge_pages.c - when huge pages are kept, and when they are split, on an allocator
 * and a kernel that only keep books.
 */
#include "heap_fake.h"
#include "pool_kit.h"

static bool are_usual, can_be_split = true;
static unsigned looks_count, splits_count, kept_splits_count, allows_count;

bool __wrap_ids_huge_pages_are_usual(void);
bool __wrap_ids_huge_pages_can_split(void);
int __wrap_ids_huge_pages_split(bool (*is_ours)(uintptr_t begin, uintptr_t end), bool keeps);
void __wrap_ids_huge_pages_allow(bool (*is_ours)(uintptr_t begin, uintptr_t end));

bool __wrap_ids_huge_pages_are_usual(void) {
  looks_count++;
  return are_usual;
}

bool __wrap_ids_huge_pages_can_split(void) {
  return can_be_split;
}

static void check_is_ours(bool (*is_ours)(uintptr_t begin, uintptr_t end)) {
  CHECK(is_ours(HEAP_FAKE_BEGIN, HEAP_FAKE_END));
  CHECK(!is_ours(HEAP_FAKE_END, HEAP_FAKE_END + 1));
}

int __wrap_ids_huge_pages_split(bool (*is_ours)(uintptr_t begin, uintptr_t end), bool keeps) {
  check_is_ours(is_ours);
  heap_fake_diary_add('/');
  splits_count++;
  kept_splits_count += keeps;
  return 0;
}

void __wrap_ids_huge_pages_allow(bool (*is_ours)(uintptr_t begin, uintptr_t end)) {
  check_is_ours(is_ours);
  allows_count++;
}

SPEC(nothing_is_split_by_default, "B22 huge pages are off by default, and no purge looks for any") {
  CHECK(!idlesched_keeps_huge_pages());
  idlesched_purge_all(NULL);
  idlesched_purge_all(NULL);
  CHECK_EQ_INT(splits_count, 0);
  CHECK_EQ_INT(looks_count, 1);
}

SPEC(a_purge_splits_what_is_kept, "B22 kept huge pages are split by each purge, after it") {
  CHECK_EQ_INT(idlesched_keep_huge_pages(), 0);
  CHECK_EQ_INT(idlesched_keep_huge_pages(), 0);
  CHECK(idlesched_keeps_huge_pages());
  CHECK_EQ_INT(allows_count, 2);
  heap_fake_diary_clear();
  idlesched_purge_all(NULL);
  CHECK_EQ_STR(heap_fake_diary(), "gcp/t");
  CHECK_EQ_INT(kept_splits_count, 1);
}

SPEC(usual_huge_pages_are_split,
     "B22 where the kernel makes huge pages by itself, a purge splits them, and keeps none") {
  are_usual = true;
  idlesched_purge_all(NULL);
  idlesched_purge_all(NULL);
  CHECK_EQ_INT(splits_count, 2);
  CHECK_EQ_INT(kept_splits_count, 0);
  CHECK_EQ_INT(looks_count, 1);
}

SPEC(a_users_will_is_kept, "B10 a user who wants no huge pages has none") {
  heap_fake_user_forbids_huge_pages();
  CHECK_EQ_INT(idlesched_keep_huge_pages(), -EPERM);
  CHECK(!idlesched_keeps_huge_pages());
  CHECK_EQ_INT(allows_count, 0);
}

SPEC(what_cannot_be_split_is_not_kept,
     "B22 huge pages that the kernel would not split are not kept") {
  can_be_split = false;
  CHECK_EQ_INT(idlesched_keep_huge_pages(), -ENOTSUP);
  CHECK(!idlesched_keeps_huge_pages());
}

SPEC(the_c_librarys_heap_keeps_none, "A16 the C library's allocator has no huge pages to keep") {
  heap_fake_be_the_c_heap();
  are_usual = true;
  CHECK_EQ_INT(idlesched_keep_huge_pages(), -ENOTSUP);
  CHECK(!idlesched_keeps_huge_pages());
  idlesched_purge_all(NULL);
  CHECK_EQ_INT(splits_count, 0);
}
