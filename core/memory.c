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

static idlesched_heap_memory heap_of(const char *name, uint64_t resident_bytes,
                                     uint64_t live_bytes) {
  return (idlesched_heap_memory){ .name = name,
                                  .resident_bytes = resident_bytes,
                                  .live_bytes = live_bytes,
                                  .free_bytes = ids_less(resident_bytes, live_bytes) };
}

/* In its books what was trimmed is still held, and free.  So it is taken to have in memory no
 * more than the other heap leaves of the anonymous pages. */
static idlesched_heap_memory c_heap(const char *name, const struct ids_c_heap *heap,
                                    uint64_t rest_bytes) {
  return heap_of(name, ids_smaller(heap->held_bytes, rest_bytes), heap->live_bytes);
}

static int read_heaps(idlesched_memory *out) {
  struct ids_c_heap libc;
  bool has_libc = ids_heap_ops.c_heap(&libc);
  if (ids_heap_ops.owns == NULL) {
    out->heaps[0] = c_heap(ids_heap_name(), &libc, out->anonymous_bytes);
    return 0;
  }
  uint64_t resident_bytes = 0;
  int status = ids_mappings_read(add_if_owned, &resident_bytes);
  out->heaps[0] = heap_of(ids_heap_name(), resident_bytes, out->live_bytes);
  if (has_libc)
    out->heaps[1] = c_heap(ids_heap_c_name(), &libc,
                           ids_less(out->anonymous_bytes, resident_bytes));
  return status;
}

int ids_memory_read(idlesched_memory *out) {
  struct ids_residency residency;
  int status = ids_residency_read(&residency);
  *out = (idlesched_memory){ .resident_bytes = residency.resident_bytes,
                             .anonymous_bytes = residency.anonymous_bytes,
                             .huge_bytes = residency.huge_bytes,
                             .threads_count = residency.threads_count,
                             .live_bytes = ids_counter_live_bytes(),
                             .dead_bytes = ids_counter_dead_bytes() };
  int heaps_status = read_heaps(out);
  out->releasable_bytes = out->heaps[0].free_bytes + out->heaps[1].free_bytes + out->dead_bytes;
  return status != 0 ? status : heaps_status;
}
