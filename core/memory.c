/* SPDX-License-Identifier: MIT */
/*
 * memory.c - see memory.h.
 */
#include "memory.h"

#include "counter.h"
#include "heap.h"

static void add_if_owned(void *resident_bytes, const struct ids_mapping *mapping) {
  bool is_owned = mapping->is_anonymous && mapping->resident_bytes > 0 &&
                  ids_heap_ops.owns(mapping->begin, mapping->end);
  if (is_owned)
    *(uint64_t *)resident_bytes += mapping->resident_bytes;
}

/* Blocks that were never touched are in use, and not in memory. */
static idlesched_heap_memory heap_of(const char *name, uint64_t resident_bytes,
                                     uint64_t live_bytes) {
  uint64_t live_in_memory_bytes = ids_smaller(live_bytes, resident_bytes);
  return (idlesched_heap_memory){ .name = name,
                                  .resident_bytes = resident_bytes,
                                  .live_bytes = live_in_memory_bytes,
                                  .free_bytes = resident_bytes - live_in_memory_bytes };
}

/* In its books what was trimmed is still held, and free.  So it is taken to have in memory no
 * more than the other heap leaves of the anonymous pages. */
static idlesched_heap_memory c_heap(const char *name, const struct ids_c_heap *heap,
                                    uint64_t rest_bytes) {
  return heap_of(name, ids_smaller(heap->held_bytes, rest_bytes), heap->live_bytes);
}

/* Together the heaps have no more in memory than most_bytes. */
static int read_heaps(idlesched_memory *out, uint64_t most_bytes) {
  struct ids_c_heap libc;
  bool has_libc = ids_heap_ops.c_heap(&libc);
  if (ids_heap_ops.owns == NULL) {
    out->heaps[0] = c_heap(ids_heap_name(), &libc, out->anonymous_bytes);
    return 0;
  }
  uint64_t resident_bytes = 0;
  int status = ids_mappings_read(add_if_owned, &resident_bytes);
  resident_bytes = ids_smaller(resident_bytes, most_bytes);
  out->heaps[0] = heap_of(ids_heap_name(), resident_bytes, out->live_bytes);
  if (has_libc)
    out->heaps[1] = c_heap(ids_heap_c_name(), &libc,
                           ids_less(out->anonymous_bytes, resident_bytes));
  return status;
}

/* What is free under a purge delay below 0 stays: the allocator does not even note it. */
static uint64_t releasable_bytes(const idlesched_memory *memory) {
  bool purges = !ids_heap_ops.has_options || ids_heap_ops.option_get(IDS_HEAP_PURGE_DELAY_MS) >= 0;
  uint64_t own_bytes = memory->heaps[0].free_bytes + memory->dead_bytes;
  return memory->heaps[1].free_bytes + (purges ? own_bytes : 0);
}

int ids_memory_measure(idlesched_memory *out) {
  struct ids_residency residency;
  int status = ids_residency_read(&residency);
  *out = (idlesched_memory){ .resident_bytes = residency.resident_bytes,
                             .anonymous_bytes = residency.anonymous_bytes,
                             .huge_bytes = residency.huge_bytes,
                             .threads_count = residency.threads_count,
                             .live_bytes = ids_counter_live_bytes(),
                             .dead_bytes = ids_counter_dead_bytes() };
  /* They are read one after the other, and what the process takes in between is in the second
   * figure alone. */
  int heaps_status = read_heaps(out, status == 0 ? residency.anonymous_bytes : UINT64_MAX);
  return status != 0 ? status : heaps_status;
}

int ids_memory_read(idlesched_memory *out) {
  int status = ids_memory_measure(out);
  out->releasable_bytes = releasable_bytes(out);
  return status;
}
