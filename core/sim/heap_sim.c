/* SPDX-License-Identifier: MIT */
/*
 * heap_sim.c - an allocator for the simulated machine, which keeps books: see sim.h.
 */
#include "heap.h"

#include <stdio.h>

#include "inside.h"

#define HEAPS_MAX 4096
#define MARKS_MAX 256

/* A thread's heap, known by the number of the thread's birth. */
struct heap {
  uint64_t run; /* of another run: not made yet */
  unsigned slot, number;
  unsigned marks_count; /* of them not collected yet */
  struct sim_heap_counts counts;
};

enum mark_state { MARK_FREED, MARK_COLLECTED, MARK_RETURNED };

struct mark {
  struct heap *heap;
  enum mark_state state;
  uint64_t at; /* when it came into this state: calls are numbered */
};

static struct heap heaps[HEAPS_MAX];

static struct {
  struct sim_heap_config config;
  struct sim_heap_counts all;
  struct mark marks[MARKS_MAX];
  unsigned marks_count;
  uint64_t clock; /* numbers what happens */
  unsigned purges_count, trims_count;
  uint64_t purged_at_ns;
  bool is_purging;
  bool is_writing; /* the option */
  unsigned writes_count;
  long options[IDS_HEAP_OPTIONS];
  bool is_set_by_user[IDS_HEAP_OPTIONS];
} books;

void sim_heap_begin_run(void) {
  books.config = (struct sim_heap_config){ 0 };
  books.all = (struct sim_heap_counts){ 0 };
  books.marks_count = 0;
  books.clock = 0;
  books.purges_count = books.trims_count = 0;
  books.purged_at_ns = 0;
  books.is_purging = books.is_writing = false;
  books.writes_count = 0;
  static const long defaults[IDS_HEAP_OPTIONS] = {
    [IDS_HEAP_PURGE_DELAY_MS] = SIM_HEAP_DELAY_DEFAULT_MS,
    [IDS_HEAP_PURGE_MIN_SIZE_KIB] = SIM_HEAP_MIN_SIZE_DEFAULT_KIB,
    [IDS_HEAP_PURGE_MULT] = SIM_HEAP_MULT_DEFAULT,
  };
  for (unsigned i = 0; i < IDS_HEAP_OPTIONS; i++) {
    books.options[i] = defaults[i];
    books.is_set_by_user[i] = false;
  }
}

void sim_heap_configure(const struct sim_heap_config *config) {
  books.config = *config;
}

/* ----------------------------------------------------------- what is allowed */

void sim_heap_owner_moved(const char *what) {
  sim_fail("%s %s while another thread abandons its heap; expected it to sleep",
           sim_thread_name(sim.current), what);
}

void sim_heap_owner_woke(void) {
  if (books.config.must_sleep_on && !sim.is_passive)
    sim_heap_owner_moved("wakes up");
}

static struct heap *heap_of(const void *handle, const char *call) {
  if ((uintptr_t)handle < (uintptr_t)heaps || (uintptr_t)handle >= (uintptr_t)(heaps + HEAPS_MAX))
    sim_fail("%s: %p is no heap; expected what ids_heap_own() gave", call,
             (void *)(uintptr_t)handle);
  struct heap *heap = &heaps[(const struct heap *)handle - heaps];
  if (heap->run != sim.run_number)
    sim_fail("%s: the heap is one of an earlier run", call);
  return heap;
}

static struct heap *my_heap(void) {
  unsigned number = sim_me()->number;
  if (number >= HEAPS_MAX)
    sim_fail("more than %d threads in a run", HEAPS_MAX);
  struct heap *heap = &heaps[number];
  if (heap->run != sim.run_number)
    *heap = (struct heap){ .run = sim.run_number, .slot = sim.current, .number = number };
  return heap;
}

/* --------------------------------------------------------------------- books */

unsigned sim_heap_free(void *handle) {
  struct heap *heap = heap_of(handle, "sim_heap_free");
  if (books.marks_count == MARKS_MAX)
    sim_fail("sim_heap_free: more than %d in a run", MARKS_MAX);
  books.marks[books.marks_count] =
    (struct mark){ .heap = heap, .state = MARK_FREED, .at = ++books.clock };
  return books.marks_count++;
}

bool sim_heap_is_returned(unsigned number) {
  if (number >= books.marks_count)
    sim_fail("sim_heap_is_returned: nothing was freed as number %u", number);
  return books.marks[number].state == MARK_RETURNED;
}

/* What came into its state before this moment has now come into the next. */
static void advance_marks(const struct heap *heap, enum mark_state from, uint64_t before) {
  uint64_t now = ++books.clock;
  for (unsigned i = 0; i < books.marks_count; i++) {
    struct mark *mark = &books.marks[i];
    if ((heap == NULL || mark->heap == heap) && mark->state == from && mark->at < before) {
      mark->state = from + 1;
      mark->at = now;
    }
  }
}

struct sim_heap_counts sim_heap_counts(const void *handle) {
  return heap_of(handle, "sim_heap_counts")->counts;
}

struct sim_heap_counts sim_heap_counts_all(void) {
  return books.all;
}

unsigned sim_heap_purges_count(void) {
  return books.purges_count;
}

unsigned sim_heap_trims_count(void) {
  return books.trims_count;
}

uint64_t sim_heap_purged_at_ns(void) {
  return books.purged_at_ns;
}

long sim_heap_delay_ms(void) {
  return books.options[IDS_HEAP_PURGE_DELAY_MS];
}

void sim_heap_set_delay_ms(long delay_ms) {
  books.options[IDS_HEAP_PURGE_DELAY_MS] = delay_ms;
}

long sim_heap_option(enum ids_heap_option option) {
  return books.options[option];
}

void sim_heap_user_sets(enum ids_heap_option option, long value) {
  books.is_set_by_user[option] = true;
  books.options[option] = value;
}

unsigned sim_heap_delay_writes_count(void) {
  return books.writes_count;
}

/* ------------------------------------------------------- what the core calls */

static void name(char *text, size_t size) {
  snprintf(text, size, "%s", "simulated");
}

static void nothing(void) {
}

static void *resize(void *block, size_t size, uint64_t *out_grown_bytes) {
  sim_check_owner("allocates");
  uint64_t before_bytes = sim_memory_size(block);
  void *resized = sim_memory_resize(block, size, "heap.resize");
  *out_grown_bytes = resized == NULL ? 0 : sim_memory_size(resized) - before_bytes;
  return resized;
}

static void free_block(void *block, uint64_t *out_grown_bytes) {
  *out_grown_bytes = -sim_memory_size(block);
  if (block == NULL)
    return;
  sim_check_owner("frees");
  ids_free(block);
}

/* Others move in the middle, and time may pass. */
static void take_time(uint64_t duration_ns) {
  if (duration_ns > 0)
    sim_sleep_ns(duration_ns);
  else
    sim_step();
}

static void note_finished(unsigned *count, unsigned *count_all, struct sim_heap_counts *counts) {
  (*count)++;
  (*count_all)++;
  counts->last_at_ns = books.all.last_at_ns = sim.now_ns;
}

static void collect(void) {
  sim_check_owner("collects");
  struct heap *heap = my_heap();
  sim_do("heap collect", "begins");
  uint64_t begun = ++books.clock;
  take_time(books.config.collect_ns);
  advance_marks(heap, MARK_FREED, begun);
  note_finished(&heap->counts.collected, &books.all.collected, &heap->counts);
  sim_do("heap collect", "ends");
}

static void *own(void) {
  sim_check_owner("asks for its heap");
  return my_heap();
}

static struct sim_thread *sleeping_owner(const struct heap *heap) {
  struct sim_thread *owner = &sim.threads[heap->slot];
  if (!(sim.alive & SIM_BIT(heap->slot)) || owner->number != heap->number)
    sim_fail("abandon: the heap's thread has ended");
  if (heap->slot == sim.current)
    sim_fail("abandon: the heap is the caller's own");
  /* Also when it was woken and has not moved yet. */
  if (books.config.must_sleep_on && !owner->is_in_wait)
    sim_fail("abandon: %s does not sleep in a condition or futex wait; its last call was %s %s",
             sim_thread_name(heap->slot), owner->did,
             owner->did_with == NULL ? "" : owner->did_with);
  return owner;
}

static void abandon(void *handle) {
  sim_check_owner("abandons");
  struct heap *heap = heap_of(handle, "abandon");
  struct sim_thread *owner = sleeping_owner(heap);
  sim_do("heap abandon", owner->name);
  if (owner->abandoning_count > 0)
    sim_fail("abandon: the heap of %s is being abandoned by another thread",
             sim_thread_name(heap->slot));
  owner->abandoning_count++;
  uint64_t begun = ++books.clock;
  take_time(books.config.abandon_ns);
  owner->abandoning_count--;
  advance_marks(heap, MARK_FREED, begun);
  note_finished(&heap->counts.abandoned, &books.all.abandoned, &heap->counts);
  sim_do("heap abandon: ends", owner->name);
}

static void purge(void) {
  sim_check_owner("purges");
  sim_do("heap purge", "begins");
  if (books.is_purging)
    sim_fail("purge: another purge is under way; expected one at a time");
  books.is_purging = true;
  uint64_t begun = ++books.clock;
  take_time(books.config.purge_ns);
  books.is_purging = false;
  advance_marks(NULL, MARK_COLLECTED, begun);
  books.purges_count++;
  books.purged_at_ns = sim.now_ns;
  sim_do("heap purge", "ends");
}

static long option_get(enum ids_heap_option option) {
  return books.options[option];
}

/* The real one's is a plain variable: writers must not meet. */
static void option_set(enum ids_heap_option option, long value) {
  if (books.is_writing)
    sim_fail("option_set: another thread sets an option; expected one at a time");
  books.is_writing = true;
  sim_step();
  books.is_writing = false;
  books.options[option] = value;
  books.writes_count++;
}

static bool option_set_default(enum ids_heap_option option, long value) {
  if (books.is_set_by_user[option])
    return false;
  option_set(option, value);
  return true;
}

/* Its blocks lie in no mapping that anybody is told of. */
static bool owns(uintptr_t begin, uintptr_t end) {
  (void)begin;
  (void)end;
  return false;
}

/* The C library's heap has what the scenario says, and keeps it. */
static bool c_heap(struct ids_c_heap *out) {
  *out = (struct ids_c_heap){ .held_bytes = books.config.c_free_bytes,
                              .free_bytes = books.config.c_free_bytes };
  return true;
}

static void c_trim(void) {
  sim_check_owner("trims");
  sim_do("heap trim", NULL);
  books.trims_count++;
}

void ids_libc_name(char *text, size_t size) {
  snprintf(text, size, "%s", "simulated C library");
}

const struct ids_heap_ops ids_heap_ops = {
  .name = name,
  .set_defaults = nothing,
  .resize = resize,
  .free = free_block,
  .collect = collect,
  .purge = purge,
  .own = own,
  .thread_ends = nothing,
  .abandon = abandon,
  .has_options = true,
  .option_get = option_get,
  .option_set = option_set,
  .option_set_default = option_set_default,
  .owns = owns,
  .c_heap = c_heap,
  .c_trim = c_trim,
};
