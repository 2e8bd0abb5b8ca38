/* SPDX-License-Identifier: MIT */
/*
 * plat_facts.c - facts of the system: what the kernel says of this process's memory, and how
 * many CPUs it may use.
 */
#include "plat.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------- a file */

/* Read a small file of the kernel's whole: the length, or -errno. */
static int read_small_file(const char *path, char *buffer, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return -errno;
  size_t length = 0;
  int status = 0;
  while (length < size - 1) {
    ssize_t count = read(file, buffer + length, size - 1 - length);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      status = -errno;
    if (count <= 0)
      break;
    length += (size_t)count;
  }
  close(file);
  buffer[length] = '\0';
  return status < 0 ? status : (int)length;
}

/* ------------------------------------------------------------------- memory */

/* The number in a line "Key:   123"; 0 when there is no such line. */
static uint64_t field(const char *text, const char *key) {
  const char *line = strstr(text, key);
  return line == NULL ? 0 : (uint64_t)strtoull(line + strlen(key), NULL, 10);
}

int ids_residency_read(struct ids_residency *out) {
  char text[4096];
  *out = (struct ids_residency){ 0 };
  int length = read_small_file("/proc/self/smaps_rollup", text, sizeof text);
  if (length < 0)
    return length == -ENOENT ? -ENOTSUP : length;
  out->resident_bytes = 1024 * field(text, "\nRss:");
  out->anonymous_bytes = 1024 * field(text, "\nAnonymous:");
  out->huge_bytes = 1024 * field(text, "\nAnonHugePages:");
  length = read_small_file("/proc/self/status", text, sizeof text);
  if (length < 0)
    return length;
  out->threads_count = field(text, "\nThreads:");
  return out->resident_bytes == 0 ? -ENOTSUP : 0;
}

/* A text of the kernel's, line by line. */
struct line_reader {
  int file;
  int status;        /* -errno after a failed read */
  size_t begin, end; /* what was read, and not handed out, lies between */
  bool was_cut;      /* the rest of a line follows, that was handed out in part */
  char buffer[8192];
};

/* Move what is left to the front and read on; false at the end. */
static bool read_more(struct line_reader *self) {
  memmove(self->buffer, self->buffer + self->begin, self->end - self->begin);
  self->end -= self->begin;
  self->begin = 0;
  ssize_t count;
  do
    count = read(self->file, self->buffer + self->end, sizeof self->buffer - 1 - self->end);
  while (count < 0 && errno == EINTR);
  if (count < 0)
    self->status = -errno;
  if (count <= 0)
    return false;
  self->end += (size_t)count;
  return true;
}

/* The next line, without its end and without what does not fit into the buffer, which only
 * the name of a file is long enough for; NULL when there is none. */
static char *next_line(struct line_reader *self) {
  for (;;) {
    char *line = self->buffer + self->begin;
    size_t length = self->end - self->begin;
    char *end = memchr(line, '\n', length);
    bool is_cut = end == NULL;
    if (is_cut && length < sizeof self->buffer - 1) {
      if (!read_more(self))
        return NULL;
      continue;
    }
    if (is_cut)
      end = line + length - 1;
    *end = '\0';
    self->begin += (size_t)(end - line) + 1;
    bool is_rest = self->was_cut;
    self->was_cut = is_cut;
    if (!is_rest)
      return line;
  }
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
  struct line_reader reader = { .file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC) };
  if (reader.file < 0)
    return errno == ENOENT ? -ENOTSUP : -errno;
  struct ids_mapping mapping = { 0 };
  const char *line;
  while ((line = next_line(&reader)) != NULL) {
    if (strncmp(line, "Rss:", 4) == 0) {
      mapping.resident_bytes = 1024 * (uint64_t)strtoull(line + 4, NULL, 10);
    } else if (strncmp(line, "VmFlags:", 8) == 0) { /* the last one */
      mapping.forbids_huge_pages = strstr(line, " nh") != NULL;
      tell(context, &mapping);
    } else if (*line < 'A' || *line > 'Z') { /* names of fields begin so, and addresses do not */
      parse_mapping(line, &mapping);
    }
  }
  close(reader.file);
  return reader.status;
}

/* --------------------------------------------------------------------- CPUs */

static unsigned cpus_by_affinity(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return (unsigned)CPU_COUNT(&set);
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online < 1 ? 1 : (unsigned)online;
}

/*
 * CPUs that the cgroup's quota is worth, rounded up; UINT32_MAX without a quota.
 * Version 2 says "quota period" or "max period" in one file, version 1 keeps
 * two files and says -1 for no quota.
 */
static unsigned cpus_by_quota(void) {
  char text[128];
  long long quota = -1, period = -1;
  if (read_small_file("/sys/fs/cgroup/cpu.max", text, sizeof text) > 0) {
    if (sscanf(text, "%lld %lld", &quota, &period) != 2)
      quota = -1;
  } else if (read_small_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text) > 0) {
    quota = strtoll(text, NULL, 10);
    if (read_small_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text) > 0)
      period = strtoll(text, NULL, 10);
  }
  if (quota <= 0 || period <= 0)
    return UINT32_MAX;
  return (unsigned)((quota + period - 1) / period);
}

unsigned ids_cpus_count(void) {
  unsigned affinity = cpus_by_affinity();
  unsigned quota = cpus_by_quota();
  unsigned count = affinity < quota ? affinity : quota;
  return count < 1 ? 1 : count;
}
