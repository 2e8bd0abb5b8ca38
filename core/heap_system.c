/* SPDX-License-Identifier: MIT */
/*
 * heap_system.c - the C library's malloc.
 *
 * It has no heap of a thread that the thread could give up, and one call that
 * returns what is free in all of its arenas, from any thread: about 1.3 ms for
 * each 10 MB, at a granularity of one page.  A C library without that call can
 * return nothing, and a release then reports what it measured: 0.
 */
#include "heap.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <malloc.h>
#endif

static void name(char *text, size_t size) {
  strncpy(text, "system", size);
}

static void nothing(void) {
}

/* No thread has a heap of its own to give up: nothing to point to. */
static void *own(void) {
  return NULL;
}

static void abandon(void *heap) {
  (void)heap;
}

/* Where the size of a block is not to be had, none is counted. */
static uint64_t bytes_of(void *block) {
#if defined(__linux__)
  return malloc_usable_size(block);
#else
  (void)block;
  return 0;
#endif
}

static void *resize(void *block, size_t size, uint64_t *out_grown_bytes) {
  uint64_t before_bytes = bytes_of(block);
  void *resized = realloc(block, size);
  *out_grown_bytes = resized == NULL ? 0 : bytes_of(resized) - before_bytes;
  return resized;
}

static void free_block(void *block, uint64_t *out_grown_bytes) {
  *out_grown_bytes = -bytes_of(block);
  free(block);
}

const struct ids_heap_ops ids_heap_ops = {
  .name = name,
  .set_defaults = nothing,
  .resize = resize,
  .free = free_block,
  .collect = nothing,
  .purge = ids_libc_trim,
  .own = own,
  .abandon = abandon,
  .thread_ends = nothing,
  .has_options = false,
  .owns = NULL,
  .keeps_huge_pages = NULL,
  .keep_huge_pages = NULL,
  .c_heap = ids_libc_heap,
  .c_trim = NULL,
};
