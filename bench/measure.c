/* SPDX-License-Identifier: MIT */
/*
 * measure.c - see measure.h.  Reading allocates nothing: it would disturb what it reads.
 */
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#ifndef BENCH_MIMALLOC
#include <malloc.h>
#endif
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef BENCH_MIMALLOC
#include <mimalloc.h>
#endif

#include "idlesched.h"

void bench_must(int status, const char *call) {
  if (status != 0)
    bench_fail("%s: %s", call, idlesched_strerror(status));
}

void bench_fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s: ", program_invocation_short_name);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(EXIT_FAILURE);
}

void bench_tell(const char *name, double value) {
  printf("%s %.15g\n", name, value);
  fflush(stdout);
}

/* ------------------------------------------------------------------ memory */

/* How many bytes were read, ended by a 0; 0 when there is no such file. */
static size_t read_file(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  ssize_t length = read(file, text, size - 1);
  close(file);
  text[length < 0 ? 0 : length] = '\0';
  return length < 0 ? 0 : (size_t)length;
}

static double rollup_mib(const char *field) {
  char text[4096];
  if (read_file("/proc/self/smaps_rollup", text, sizeof text) == 0)
    bench_fail("/proc/self/smaps_rollup cannot be read; it needs Linux 4.14 or newer");
  const char *line = strstr(text, field);
  if (line == NULL)
    bench_fail("/proc/self/smaps_rollup has no line '%s'", field + 1);
  return strtod(line + strlen(field), NULL) / 1024;
}

double bench_resident_mib(void) {
  return rollup_mib("\nRss:");
}

double bench_anonymous_mib(void) {
  return rollup_mib("\nAnonymous:");
}

double bench_resident_mib_of(int process_id) {
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/%d/statm", process_id);
  const char *second = read_file(path, text, sizeof text) > 0 ? strchr(text, ' ') : NULL;
  return second == NULL ? 0 : strtod(second, NULL) * (double)getpagesize() / BENCH_MIB;
}

double bench_charged_mib(void) {
  const char *path = getenv("BENCH_CHARGE");
  char text[64];
  if (path == NULL || *path == '\0' || read_file(path, text, sizeof text) == 0)
    return NAN;
  return strtod(text, NULL) / BENCH_MIB;
}

/* -------------------------------------------------------------------- cost */

static _Atomic uint64_t madvise_count;

#ifdef BENCH_MIMALLOC
/* The allocator is a shared library, and so finds this one before the C library's. */
int madvise(void *address, size_t size, int advice) {
  madvise_count++;
  return (int)syscall(SYS_madvise, address, size, advice);
}
#endif

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * IDLESCHED_S + (uint64_t)now.tv_nsec;
}

static double ms_of(struct timeval time) {
  return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3;
}

struct bench_level bench_level_above(struct bench_level start) {
  return (struct bench_level){ bench_resident_mib() - start.resident_mib,
                               bench_charged_mib() - start.charged_mib };
}

void bench_tell_level(const char *name, struct bench_level level) {
  char text[64];
  snprintf(text, sizeof text, "%s_mib", name);
  bench_tell(text, level.resident_mib);
  snprintf(text, sizeof text, "charged_%s_mib", name);
  bench_tell(text, level.charged_mib);
}

struct bench_cost bench_cost_now(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (struct bench_cost){
    .wall_ns = idlesched_now_ns(),
    .cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID),
    .user_ms = ms_of(usage.ru_utime),
    .system_ms = ms_of(usage.ru_stime),
    .madvise_count = madvise_count,
  };
}

static void tell_prefixed(const char *prefix, const char *name, double value) {
  char text[64];
  snprintf(text, sizeof text, "%s_%s", prefix, name);
  bench_tell(text, value);
}

void bench_tell_cost(const char *prefix, const struct bench_cost *since) {
  struct bench_cost now = bench_cost_now();
  tell_prefixed(prefix, "wall_ms", (double)(now.wall_ns - since->wall_ns) / 1e6);
  tell_prefixed(prefix, "cpu_ms", (double)(now.cpu_ns - since->cpu_ns) / 1e6);
  tell_prefixed(prefix, "user_ms", now.user_ms - since->user_ms);
  tell_prefixed(prefix, "system_ms", now.system_ms - since->system_ms);
  double count = (double)(now.madvise_count - since->madvise_count);
  tell_prefixed(prefix, "madvise", bench_has_mimalloc() ? count : NAN);
}

void bench_sleep_until(uint64_t moment_ns) {
  uint64_t now = idlesched_now_ns();
  if (now < moment_ns)
    idlesched_sleep(moment_ns - now);
}

uint64_t bench_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state * UINT64_C(0x2545F4914F6CDD1D);
}

/* --------------------------------------------------------------- allocator */

#ifdef BENCH_MIMALLOC
bool bench_has_mimalloc(void) {
  return true;
}

void bench_collect_by_force(void) {
  mi_collect(true);
}

void bench_set_purge_range_kib(unsigned kib) {
  mi_option_set(mi_option_arena_purge_min_size, kib);
}
#else
bool bench_has_mimalloc(void) {
  return false;
}

void bench_collect_by_force(void) {
}

void bench_set_purge_range_kib(unsigned kib) {
  (void)kib;
}
#endif

/* ------------------------------------------------------------------ blocks */

#define BLOCK_BYTES 1024
#define BLOCKS_PER_MIB (BENCH_MIB / BLOCK_BYTES)

struct bench_blocks *bench_blocks_make(unsigned mib) {
  struct bench_blocks *first = NULL;
  struct bench_blocks **end = &first;
  for (size_t i = 0; i < mib * BLOCKS_PER_MIB; i++) {
    struct bench_blocks *block = idlesched_realloc(NULL, BLOCK_BYTES);
    if (block == NULL)
      bench_fail("no memory for block %zu of 1 KiB", i);
    memset(block, 1, BLOCK_BYTES);
    block->next = NULL;
    *end = block;
    end = &block->next;
  }
  return first;
}

struct bench_blocks *bench_blocks_thin_out(struct bench_blocks *first, unsigned every_mib) {
  struct bench_blocks *kept = NULL;
  for (size_t i = 0; first != NULL; i++) {
    struct bench_blocks *block = first;
    first = block->next;
    if (i % (every_mib * BLOCKS_PER_MIB) != 0) {
      idlesched_free(block);
    } else {
      block->next = kept;
      kept = block;
    }
  }
  return kept;
}

bool bench_blocks_are_intact(const struct bench_blocks *first) {
  for (; first != NULL; first = first->next)
    for (size_t i = sizeof *first; i < BLOCK_BYTES; i++)
      if (((const char *)first)[i] != 1)
        return false;
  return true;
}

void bench_blocks_free(struct bench_blocks *first) {
  while (first != NULL) {
    struct bench_blocks *block = first;
    first = block->next;
    idlesched_free(block);
  }
}
