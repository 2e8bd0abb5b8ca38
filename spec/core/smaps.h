/* SPDX-License-Identifier: MIT */
/*
 * smaps.h - what the kernel says of this process's pages, for specs and for programs that
 * specs start.
 */
#ifndef IDLESCHED_SPEC_SMAPS_H
#define IDLESCHED_SPEC_SMAPS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One of the sums in smaps_rollup, as "AnonHugePages:"; UINT64_MAX where there is none. */
static inline uint64_t smaps_bytes(const char *name) {
  char line[256];
  unsigned long long kib = 0;
  uint64_t bytes = UINT64_MAX;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "%llu", &kib) == 1)
      bytes = 1024 * (uint64_t)kib;
  if (file != NULL)
    fclose(file);
  return bytes;
}

#endif
