/* SPDX-License-Identifier: MIT */
/*
 * plat_facts.c - facts of the system: what the kernel says of this process's memory, and how
 * many CPUs it may use.
 */
#include "plat.h"

#include "plat_cgroup.h"
#include "plat_file.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------- memory */

/* The number in a line "Key:   123"; 0 when there is no such line. */
static uint64_t field(const char *text, const char *key) {
  const char *line = strstr(text, key);
  return line == NULL ? 0 : (uint64_t)strtoull(line + strlen(key), NULL, 10);
}

int ids_residency_read(struct ids_residency *out) {
  char text[4096];
  *out = (struct ids_residency){ 0 };
  int length = ids_file_read("/proc/self/smaps_rollup", text, sizeof text);
  if (length < 0)
    return length == -ENOENT ? -ENOTSUP : length;
  out->resident_bytes = 1024 * field(text, "\nRss:");
  out->anonymous_bytes = 1024 * field(text, "\nAnonymous:");
  out->huge_bytes = 1024 * field(text, "\nAnonHugePages:");
  length = ids_file_read("/proc/self/status", text, sizeof text);
  if (length < 0)
    return length;
  out->threads_count = field(text, "\nThreads:");
  return out->resident_bytes == 0 ? -ENOTSUP : 0;
}

/* "55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0   [heap]" */
static void parse_mapping(const char *line, struct ids_mapping *out) {
  unsigned long long begin, end, inode;
  char may_share;
  if (sscanf(line, "%llx-%llx %*3s%c %*s %*s %llu", &begin, &end, &may_share, &inode) != 4)
    return;
  *out = (struct ids_mapping){ .begin = (uintptr_t)begin,
                               .end = (uintptr_t)end,
                               .is_anonymous = may_share == 'p' && inode == 0 };
}

int ids_mappings_read(void (*tell)(void *context, const struct ids_mapping *mapping),
                      void *context) {
  struct ids_lines lines;
  int status = ids_lines_open(&lines, "/proc/self/smaps");
  if (status != 0)
    return status == -ENOENT ? -ENOTSUP : status;
  struct ids_mapping mapping = { 0 };
  const char *line;
  while ((line = ids_lines_next(&lines)) != NULL) {
    if (strncmp(line, "Rss:", 4) == 0) {
      mapping.resident_bytes = 1024 * (uint64_t)strtoull(line + 4, NULL, 10);
    } else if (strncmp(line, "VmFlags:", 8) == 0) { /* the last one */
      mapping.forbids_huge_pages = strstr(line, " nh") != NULL;
      tell(context, &mapping);
    } else if (*line < 'A' || *line > 'Z') { /* names of fields begin so, and addresses do not */
      parse_mapping(line, &mapping);
    }
  }
  return ids_lines_close(&lines);
}

/* --------------------------------------------------------------------- CPUs */

/* Of 1024 CPUs each set: on a machine with more the kernel refuses less room. */
static unsigned cpus_by_affinity(void) {
  cpu_set_t sets[8];
  if (sched_getaffinity(0, sizeof sets, sets) == 0)
    return (unsigned)CPU_COUNT_S(sizeof sets, sets);
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online < 1 ? 1 : (unsigned)online;
}

unsigned ids_cpus_count(void) {
  unsigned affinity = cpus_by_affinity();
  unsigned quota = ids_cgroup_cpus("/proc/self");
  return affinity < quota ? affinity : quota;
}
