/* SPDX-License-Identifier: MIT */
/*
 * heap_fake.c - see heap_fake.h.  The linker gives it to the core instead of
 * ids_heap_ops (--wrap).
 */
#include "heap_fake.h"

#include <stdio.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "heap.h"

/* Not const: whether there are options is a case's choice. */
extern struct ids_heap_ops __wrap_ids_heap_ops;

static _Atomic unsigned collects_count, abandons_count, purges_count, purging_count, purging_max,
  writes_count;
static _Atomic unsigned freed_number, purged_number;

static _Atomic bool has_c_heap = true;
static _Atomic uint64_t c_held_bytes, c_live_bytes, c_free_bytes;
static _Atomic unsigned trims_count;
static _Atomic bool has_huge_pages, may_have_huge_pages = true;

/* A plain variable, like the real one's: writers must not race.  Readers do. */
static _Atomic long options[IDS_HEAP_OPTIONS] = {
  [IDS_HEAP_PURGE_DELAY_MS] = HEAP_FAKE_DELAY_DEFAULT_MS,
  [IDS_HEAP_PURGE_MIN_SIZE_KIB] = HEAP_FAKE_MIN_SIZE_DEFAULT_KIB,
  [IDS_HEAP_PURGE_MULT] = HEAP_FAKE_MULT_DEFAULT,
};
static _Atomic bool is_set_by_user[IDS_HEAP_OPTIONS];
static unsigned unguarded_writes_count;

/* Touched by every purge without any lock: the thread sanitizer sees two at once. */
static unsigned unguarded_purges_count;

static pthread_mutex_t diary_lock = PTHREAD_MUTEX_INITIALIZER;
static char diary[1024];
static size_t diary_length;

/* ------------------------------------------------------------------- diary */

void heap_fake_diary_add(char letter) {
  pthread_mutex_lock(&diary_lock);
  if (diary_length < sizeof diary - 1)
    diary[diary_length++] = letter;
  pthread_mutex_unlock(&diary_lock);
}

const char *heap_fake_diary(void) {
  static _Thread_local char copy[sizeof diary];
  pthread_mutex_lock(&diary_lock);
  for (size_t i = 0; i < diary_length; i++)
    copy[i] = diary[i];
  copy[diary_length] = '\0';
  pthread_mutex_unlock(&diary_lock);
  return copy;
}

void heap_fake_diary_clear(void) {
  pthread_mutex_lock(&diary_lock);
  diary_length = 0;
  pthread_mutex_unlock(&diary_lock);
}

/* ---------------------------------------------------------- what it counts */

unsigned heap_fake_collects_count(void) {
  return atomic_load(&collects_count);
}

unsigned heap_fake_abandons_count(void) {
  return atomic_load(&abandons_count);
}

unsigned heap_fake_purges_count(void) {
  return atomic_load(&purges_count);
}

unsigned heap_fake_purges_at_once_max(void) {
  return atomic_load(&purging_max);
}

unsigned heap_fake_free(void) {
  return atomic_fetch_add(&freed_number, 1) + 1;
}

bool heap_fake_is_purged(unsigned number) {
  return atomic_load(&purged_number) >= number;
}

unsigned heap_fake_writes_count(void) {
  return atomic_load(&writes_count);
}

void heap_fake_user_forbids_huge_pages(void) {
  atomic_store(&may_have_huge_pages, false);
}

long heap_fake_delay_ms(void) {
  return heap_fake_option(IDS_HEAP_PURGE_DELAY_MS);
}

void heap_fake_set_delay_ms(long value_ms) {
  heap_fake_user_sets(IDS_HEAP_PURGE_DELAY_MS, value_ms);
}

long heap_fake_option(enum ids_heap_option option) {
  return atomic_load(&options[option]);
}

void heap_fake_user_sets(enum ids_heap_option option, long value) {
  atomic_store(&is_set_by_user[option], true);
  atomic_store(&options[option], value);
}

void heap_fake_set_c_heap(uint64_t held_bytes, uint64_t live_bytes, uint64_t free_bytes) {
  atomic_store(&c_held_bytes, held_bytes);
  atomic_store(&c_live_bytes, live_bytes);
  atomic_store(&c_free_bytes, free_bytes);
}

void heap_fake_set_no_c_heap(void) {
  atomic_store(&has_c_heap, false);
}

unsigned heap_fake_trims_count(void) {
  return atomic_load(&trims_count);
}

void heap_fake_set_has_options(bool has_options) {
  __wrap_ids_heap_ops.has_options = has_options;
}

/* ----------------------------------------------------- what the core calls */

static void name(char *text, size_t size) {
  snprintf(text, size, "%s", "fake");
}

static void collect(void) {
  atomic_fetch_add(&collects_count, 1);
  heap_fake_diary_add('c');
}

/* A thread's heap is a number of the thread's own. */
static void *own(void) {
  static _Thread_local char heap;
  return &heap;
}

static void thread_ends(void) {
}

static void abandon(void *heap) {
  (void)heap;
  atomic_fetch_add(&abandons_count, 1);
  heap_fake_diary_add('a');
}

static void purge(void) {
  unsigned purges_up_to = atomic_load(&freed_number);
  unsigned purging = atomic_fetch_add_explicit(&purging_count, 1, memory_order_relaxed) + 1;
  unsigned max = atomic_load_explicit(&purging_max, memory_order_relaxed);
  while (purging > max && !atomic_compare_exchange_weak(&purging_max, &max, purging))
    continue;
  unguarded_purges_count++;
  /* Others get the chance to come in while this one is under way; not always, as on a
   * busy machine it takes milliseconds. */
  if (purges_up_to % 4 == 0 || unguarded_purges_count % 4 == 0)
    sched_yield();
  heap_fake_diary_add('p');
  atomic_store(&purged_number, purges_up_to);
  atomic_fetch_sub_explicit(&purging_count, 1, memory_order_relaxed);
  atomic_fetch_add(&purges_count, 1);
}

static void *resize(void *block, size_t size, uint64_t *out_grown_bytes) {
  *out_grown_bytes = 0;
  return realloc(block, size);
}

static void free_block(void *block, uint64_t *out_grown_bytes) {
  *out_grown_bytes = 0;
  free(block);
}

static bool owns(uintptr_t begin, uintptr_t end) {
  return HEAP_FAKE_BEGIN <= begin && end <= HEAP_FAKE_END;
}

static bool keeps_huge_pages(void) {
  return atomic_load(&has_huge_pages);
}

static bool keep_huge_pages(void) {
  atomic_store(&has_huge_pages, atomic_load(&may_have_huge_pages));
  return keeps_huge_pages();
}

static bool c_heap(struct ids_c_heap *out) {
  *out = (struct ids_c_heap){ 0 };
  if (!atomic_load(&has_c_heap))
    return false;
  *out = (struct ids_c_heap){ .held_bytes = atomic_load(&c_held_bytes),
                              .live_bytes = atomic_load(&c_live_bytes),
                              .free_bytes = atomic_load(&c_free_bytes) };
  return true;
}

static void c_trim(void) {
  atomic_fetch_add(&trims_count, 1);
  heap_fake_diary_add('t');
}

static long option_get(enum ids_heap_option option) {
  heap_fake_diary_add('g');
  return atomic_load(&options[option]);
}

static void option_set(enum ids_heap_option option, long value) {
  unguarded_writes_count++;
  atomic_fetch_add(&writes_count, 1);
  heap_fake_diary_add('s');
  atomic_store(&is_set_by_user[option], true); /* as far as the allocator knows */
  atomic_store(&options[option], value);
}

static bool option_set_default(enum ids_heap_option option, long value) {
  unguarded_writes_count++;
  heap_fake_diary_add('d');
  if (atomic_load(&is_set_by_user[option]))
    return false;
  atomic_fetch_add(&writes_count, 1);
  atomic_store(&options[option], value);
  return true;
}

/* Neither in the diary nor counted: it is no override. */
static void set_defaults(void) {
  unguarded_writes_count++;
  if (!atomic_load(&is_set_by_user[IDS_HEAP_PURGE_MIN_SIZE_KIB]))
    atomic_store(&options[IDS_HEAP_PURGE_MIN_SIZE_KIB], HEAP_FAKE_MIN_SIZE_OURS_KIB);
}

struct ids_heap_ops __wrap_ids_heap_ops = {
  .name = name,
  .set_defaults = set_defaults,
  .resize = resize,
  .free = free_block,
  .collect = collect,
  .own = own,
  .abandon = abandon,
  .thread_ends = thread_ends,
  .purge = purge,
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

void heap_fake_be_the_c_heap(void) {
  __wrap_ids_heap_ops.owns = NULL;
  __wrap_ids_heap_ops.keeps_huge_pages = NULL;
  __wrap_ids_heap_ops.keep_huge_pages = NULL;
  __wrap_ids_heap_ops.c_trim = NULL;
}
