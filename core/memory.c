/* SPDX-License-Identifier: MIT */
/*
 * memory.c - see memory.h.  Stands in for one that knows the allocators.
 */
#include "memory.h"

#include "plat.h"

int ids_memory_read(idlesched_memory *out) {
  struct ids_residency residency;
  int status = ids_residency_read(&residency);
  *out = (idlesched_memory){ .resident_bytes = residency.resident_bytes,
                             .anonymous_bytes = residency.anonymous_bytes,
                             .threads_count = residency.threads_count };
  return status;
}
