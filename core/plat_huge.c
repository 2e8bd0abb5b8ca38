/* SPDX-License-Identifier: MIT */
/*
 * plat_huge.c - huge pages of which a part was given back, split.
 *
 * The kernel charges a huge page whole until it is split, whatever part of it is still
 * mapped, and splits it by itself only when memory runs short.  The advice MADV_COLD it can
 * follow for a part of a huge page only after splitting it, and what is not mapped is free
 * from then on.
 *
 * Measured on Linux 6.18, 512 MiB of which one block stays in each MiB: 8 ms for the purge,
 * which returns nothing, and 48..60 ms for the split, after which 32 MiB are charged.
 * MADV_PAGEOUT and MADV_FREE split as well, and cost as much or more; mprotect() does not.
 */
#include "plat.h"

#include "plat_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SYSFS "/sys/kernel/mm/transparent_hugepage/"

bool ids_huge_pages_are_usual(void) {
  char text[64];
  return ids_file_read(SYSFS "enabled", text, sizeof text) > 0 && strstr(text, "[always]") != NULL;
}

/* 0, or -errno; -ENOTSUP where there are none. */
static int read_huge_page_size(size_t *out_bytes) {
  char text[32];
  int length = ids_file_read(SYSFS "hpage_pmd_size", text, sizeof text);
  if (length < 0)
    return length == -ENOENT ? -ENOTSUP : length;
  *out_bytes = strtoull(text, NULL, 10);
  return *out_bytes == 0 ? -ENOTSUP : 0;
}

struct split {
  bool (*is_ours)(uintptr_t begin, uintptr_t end);
  bool keeps;
  size_t huge_bytes, page_bytes;
  int pagemap;
  int count;
};

enum presence { ABSENT, IN_PART, WHOLE };

/* Of a stretch as large as a huge page. */
static enum presence presence_at(const struct split *self, uintptr_t begin) {
  uint64_t entries[512]; /* one for each page; the highest bit says that it is present */
  size_t left_count = self->huge_bytes / self->page_bytes;
  off_t offset = (off_t)(begin / self->page_bytes * sizeof *entries);
  bool has_present = false, has_absent = false;
  while (left_count > 0 && !(has_present && has_absent)) {
    size_t count = left_count < ids_countof(entries) ? left_count : ids_countof(entries);
    size_t size = count * sizeof *entries;
    if (pread(self->pagemap, entries, size, offset) != (ssize_t)size)
      return ABSENT;
    for (size_t i = 0; i < count; i++)
      *(entries[i] >> 63 != 0 ? &has_present : &has_absent) = true;
    left_count -= count;
    offset += (off_t)size;
  }
  if (!has_present)
    return ABSENT;
  return has_absent ? IN_PART : WHOLE;
}

/* Who is refused it (the kernel has a limit for the number of mappings) leaves the pages as
 * they are, and comes by again at the next purge. */
static void advise(uintptr_t begin, uintptr_t end, int advice) {
  (void)madvise((void *)begin, end - begin, advice);
}

/* In two parts, neither of which is a whole huge page. */
static void split_at(struct split *self, uintptr_t begin) {
  uintptr_t second = begin + self->page_bytes;
  advise(begin, second, MADV_COLD);
  advise(second, begin + self->huge_bytes, MADV_COLD);
  self->count++;
}

/* Huge pages are forbidden where one was split, or the kernel would put it together again
 * within minutes. */
static void split_mapping(struct split *self, uintptr_t begin, uintptr_t end) {
  if (!self->keeps)
    advise(begin, end, MADV_NOHUGEPAGE);
  uintptr_t at = (begin + self->huge_bytes - 1) / self->huge_bytes * self->huge_bytes;
  for (; at < end && end - at >= self->huge_bytes; at += self->huge_bytes) {
    enum presence presence = presence_at(self, at);
    if (presence == ABSENT || (self->keeps && presence == WHOLE))
      continue;
    if (self->keeps)
      advise(at, at + self->huge_bytes, MADV_NOHUGEPAGE);
    split_at(self, at);
  }
}

static void split_if_ours(void *context, const struct ids_mapping *mapping) {
  struct split *self = context;
  uintptr_t begin = mapping->begin, end = mapping->end;
  bool is_present = mapping->resident_bytes > 0;
  bool is_split = mapping->forbids_huge_pages;
  if (is_present == is_split || !mapping->is_anonymous || !self->is_ours(begin, end))
    return;
  if (is_present)
    split_mapping(self, begin, end);
  else if (self->keeps)
    advise(begin, end, MADV_HUGEPAGE); /* what was split there is free, all of it */
}

int ids_huge_pages_split(bool (*is_ours)(uintptr_t begin, uintptr_t end), bool keeps) {
  struct split self = { .is_ours = is_ours,
                        .keeps = keeps,
                        .page_bytes = (size_t)sysconf(_SC_PAGESIZE) };
  int status = read_huge_page_size(&self.huge_bytes);
  if (status != 0)
    return status;
  self.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (self.pagemap < 0)
    return -errno;
  status = ids_mappings_read(split_if_ours, &self);
  close(self.pagemap);
  return status < 0 ? status : self.count;
}

bool ids_huge_pages_can_split(void) {
  size_t bytes;
  return read_huge_page_size(&bytes) == 0 && access("/proc/self/pagemap", R_OK) == 0 &&
         madvise(NULL, 0, MADV_COLD) == 0;
}

static void allow_if_ours(void *context, const struct ids_mapping *mapping) {
  const struct split *self = context;
  if (mapping->is_anonymous && self->is_ours(mapping->begin, mapping->end))
    advise(mapping->begin, mapping->end, MADV_HUGEPAGE);
}

void ids_huge_pages_allow(bool (*is_ours)(uintptr_t begin, uintptr_t end)) {
  struct split self = { .is_ours = is_ours };
  (void)ids_mappings_read(allow_if_ours, &self);
}
