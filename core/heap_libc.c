/* SPDX-License-Identifier: MIT */
/*
 * heap_libc.c - the C library's heap, whichever allocator the build has: what it says of
 * itself, and to trim it.
 *
 * glibc counts as in use what threads keep in their caches of small blocks, and as free also
 * what was trimmed.  To ask costs 2..50 us, and 3 ms after 400,000 blocks of the smallest
 * sizes were freed, which it lists one by one until the next trim.
 */
#include "heap.h"

#include <stdio.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#include <malloc.h>
#if __GLIBC_PREREQ(2, 33) /* before that its numbers have 32 bits */
#define HAS_MALLINFO2
#endif
#endif

void ids_libc_name(char *text, size_t size) {
#if defined(__GLIBC__)
  snprintf(text, size, "glibc %s", gnu_get_libc_version());
#else
  snprintf(text, size, "%s", "the C library");
#endif
}

bool ids_libc_heap(struct ids_c_heap *out) {
  *out = (struct ids_c_heap){ 0 };
#if defined(HAS_MALLINFO2)
  /* Blocks with a mapping of their own are held apart from the arenas. */
  const struct mallinfo2 info = mallinfo2();
  out->held_bytes = info.arena + info.hblkhd;
  out->live_bytes = info.uordblks + info.hblkhd;
  out->free_bytes = info.fordblks;
  return true;
#else
  return false;
#endif
}

void ids_libc_trim(void) {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}
