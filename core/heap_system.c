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
#if defined(__GLIBC__)
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

static void purge(void) {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

const struct ids_heap_ops ids_heap_ops = {
  .name = name,
  .set_defaults = nothing,
  .resize = realloc,
  .free = free,
  .collect = nothing,
  .purge = purge,
  .own = own,
  .abandon = abandon,
  .thread_ends = nothing,
  .has_options = false,
};
