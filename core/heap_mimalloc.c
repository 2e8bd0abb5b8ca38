/* SPDX-License-Identifier: MIT */
/*
 * heap_mimalloc.c - mimalloc 3.6 or newer; the only file that knows it.
 *
 * What is said here about its behaviour was measured on 3.6.0.
 */
#include "heap.h"

#include <mimalloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* More than a page of mimalloc's for small and medium blocks: it has pages of its own. */
#define ARMING_BYTES (300 * 1024)

static void name(char *text, size_t size) {
  int version = mi_version(); /* 30600 is 3.6.0 */
  snprintf(text, size, "mimalloc %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

/*
 * Whether malloc is this allocator's: where the host is linked to it, or it was preloaded.
 * Asked for once, as the answer takes a block, and a thread that has just given up its heap
 * would begin a new page for it (64 leaving threads: 0.6 MB left).
 */
static bool is_malloc(void) {
  enum { UNKNOWN, NO, YES };
  static _Atomic int answer; /* relaxed: whoever asks finds the same */
  if (atomic_load_explicit(&answer, memory_order_relaxed) == UNKNOWN) {
    void *volatile block = malloc(1);
    atomic_store_explicit(&answer, mi_is_in_heap_region(block) ? YES : NO, memory_order_relaxed);
    free(block);
  }
  return atomic_load_explicit(&answer, memory_order_relaxed) == YES;
}

/*
 * Each of these yields to what the user set in the environment or in code: that
 * is what "set default" means to mimalloc.
 *
 * Huge pages off: with them a purge of part of a huge page lowers the resident
 * size but the kernel keeps the page charged, and puts it together again within
 * minutes.  Only without them is what was returned really returned, or after they
 * were split, which costs more than they save in most heaps (bench/huge_pages.c).
 *
 * The smallest range that is purged, in KiB: one slice of an arena.  For good,
 * as a pass at a coarser range marks its leftovers as done, and a finer pass
 * after it would skip them.
 *
 * Freeing threads do not take over abandoned pages: nobody would release them
 * (measured after a release: 0.4 instead of 2.6 MB left).
 */
static void set_defaults(void) {
  mi_option_set_default(mi_option_allow_thp, 0);
  mi_option_set_default(mi_option_arena_purge_min_size, 64);
  mi_option_set_default(mi_option_page_reclaim_on_free, 0);
  (void)is_malloc(); /* on a thread that is not about to be idle */
}

/* The sizes come with the call: to look the block up once more takes as long as freeing it. */
static void *resize(void *block, size_t size, uint64_t *out_grown_bytes) {
  size_t before_bytes, after_bytes;
  void *resized = mi_urealloc(block, size, &before_bytes, &after_bytes);
  *out_grown_bytes = resized == NULL ? 0 : (uint64_t)after_bytes - before_bytes;
  return resized;
}

static void free_block(void *block, uint64_t *out_grown_bytes) {
  size_t bytes;
  mi_ufree(block, &bytes);
  *out_grown_bytes = -(uint64_t)bytes;
}

/*
 * Abandoning gives up every page, cheaper and more thoroughly than a forced
 * collect, which keeps pages that were used lately.  Blocks that live in them
 * stay where they are.  The thread may never have allocated: then there is no
 * heap yet, and it must be made before it can be asked for.
 */
static void *own(void) {
  mi_thread_init();
  return mi_theap_get_default();
}

static void abandon(void *heap) {
  mi_theap_quiescent_abandon(heap);
}

static void collect(void) {
  abandon(own());
}

/*
 * A pass takes an arena up only if something was freed into it since the last pass
 * began; what was freed while that one was under way, after its place was passed, is
 * marked but does not count.  So a block that goes straight back to the arena comes
 * first: then the pass looks at every mark, of whatever time.
 */
static void purge(void) {
  mi_free(mi_malloc(ARMING_BYTES));
  collect();
  mi_arenas_purge();
}

static const mi_option_t options[IDS_HEAP_OPTIONS] = {
  [IDS_HEAP_PURGE_DELAY_MS] = mi_option_purge_delay,
  [IDS_HEAP_PURGE_MIN_SIZE_KIB] = mi_option_arena_purge_min_size,
  [IDS_HEAP_PURGE_MULT] = mi_option_arena_purge_mult,
};

static long option_get(enum ids_heap_option option) {
  return mi_option_get(options[option]);
}

static void option_set(enum ids_heap_option option, long value) {
  mi_option_set(options[option], value);
}

/*
 * The allocator does not say whether it yielded.  That shows by a value which is not there
 * yet; where the wanted one is, its neighbour is there for a moment, if it may.
 */
static bool option_set_default(enum ids_heap_option option, long value) {
  mi_option_t number = options[option];
  long probe = mi_option_get(number) == value ? value + 1 : value;
  mi_option_set_default(number, probe);
  if (mi_option_get(number) != probe)
    return false;
  mi_option_set_default(number, value);
  return true;
}

/*
 * The allocator tells of an address whether it is in one of his pages, and pages are what has
 * blocks: the begin of an arena is in none, and of an arena that is all free no address is.
 * But arenas are asked for in this range of addresses, where Linux puts nothing by itself, so
 * a mapping there counts as his.  Elsewhere (a range that was refused, a block with a mapping
 * of its own) it is his if one of its pages is.
 */
#define HINTS_BEGIN (UINT64_C(2) << 40)
#define HINTS_END (UINT64_C(30) << 40)
/* No page is smaller.  An arena has at least 1 GiB, which is gone through in some 30 us. */
#define SLICE_BYTES (64 * 1024)
#define LOOKS_MAX 16384

static bool owns(uintptr_t begin, uintptr_t end) {
  if (begin >= HINTS_BEGIN && begin < HINTS_END)
    return true;
  for (unsigned i = 0; i < LOOKS_MAX && begin < end; i++, begin += SLICE_BYTES)
    if (mi_is_in_heap_region((const void *)begin))
      return true;
  return false;
}

static bool keeps_huge_pages(void) {
  return mi_option_get(mi_option_allow_thp) != 0;
}

/* 1 and not 2, with which the smallest range that it purges would be a huge page. */
static bool keep_huge_pages(void) {
  mi_option_set_default(mi_option_allow_thp, 1);
  return keeps_huge_pages();
}

static bool c_heap(struct ids_c_heap *out) {
  *out = (struct ids_c_heap){ 0 };
  return !is_malloc() && ids_libc_heap(out);
}

/* Where malloc is mimalloc's, its malloc_trim() does nothing; the C library's would be left
 * with what it took before, which is nothing. */
static void c_trim(void) {
  if (!is_malloc())
    ids_libc_trim();
}

const struct ids_heap_ops ids_heap_ops = {
  .name = name,
  .set_defaults = set_defaults,
  .resize = resize,
  .free = free_block,
  .collect = collect,
  .purge = purge,
  .own = own,
  .abandon = abandon,
  .thread_ends = mi_thread_done,
  .has_options = true,
  .option_get = option_get,
  .option_set = option_set,
  .option_set_default = option_set_default,
  .owns = owns,
  .keeps_huge_pages = keeps_huge_pages,
  .keep_huge_pages = keep_huge_pages,
  .c_heap = c_heap,
  .c_trim = c_trim,
};
