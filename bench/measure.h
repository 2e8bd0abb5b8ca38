/* SPDX-License-Identifier: MIT */
/*
 * measure.h - what a cell of a bench reads about itself: memory, time, calls of the kernel.
 *
 * A cell is one run in a process of its own (compare.h), which tells what it has measured as
 * `name value` lines.  Memory is in MiB everywhere.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MIB ((size_t)1 << 20)

/* Ends the program when status is not 0, with what the call was. */
void bench_must(int status, const char *call);
#define MUST(call) bench_must(call, #call)
/* Ends the program: "NAME: " and why. */
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What compare.c reads.  Times that the other process needs are idlesched_now_ns(). */
void bench_tell(const char *name, double value);

/* The pages of this process; of them, those that are of no file. */
double bench_resident_mib(void);
double bench_anonymous_mib(void);
/* The pages of another process, cheap and exact to some 100 KiB; 0 when it has ended. */
double bench_resident_mib_of(int process_id);
/* What the kernel charges the memory cgroup that compare.c has put this process in: NAN
 * without one.  Also pages that are not mapped any more and yet not free. */
double bench_charged_mib(void);

/* Resident, and as charged: above another such level, which is all 0 at first. */
struct bench_level {
  double resident_mib, charged_mib;
};
struct bench_level bench_level_above(struct bench_level start);
/* Tell it as NAME_mib and charged_NAME_mib. */
void bench_tell_level(const char *name, struct bench_level level);

/* What the process has used so far: its threads, not its children. */
struct bench_cost {
  uint64_t wall_ns, cpu_ns;
  double user_ms, system_ms;
  uint64_t madvise_count; /* by the allocator */
};
struct bench_cost bench_cost_now(void);
/* Tell how much it was since then, as PREFIX_wall_ms and so on; and NAN, which is shown as
 * a dash, for calls that nobody can count. */
void bench_tell_cost(const char *prefix, const struct bench_cost *since);

/* Sleep until so long after a moment; not at all when that is over. */
void bench_sleep_until(uint64_t moment_ns);

/* A sequence that is the same in each run.  The state may be any number but 0. */
uint64_t bench_random(uint64_t *state);

/* Whether blocks come from mimalloc. */
bool bench_has_mimalloc(void);
/* mimalloc's own forced collection on the calling thread.  Does nothing without it. */
void bench_collect_by_force(void);
/* The smallest range that mimalloc purges, from now on, whoever has set it before. */
void bench_set_purge_range_kib(unsigned kib);

/*
 * Blocks of 1 KiB of the calling thread's heap, linked in the order in which they were made,
 * all of them filled.  Thinning them out frees all but one in so many MiB, which it
 * returns; intact are those that have in them what was written.
 */
struct bench_blocks {
  struct bench_blocks *next;
};
struct bench_blocks *bench_blocks_make(unsigned mib);
struct bench_blocks *bench_blocks_thin_out(struct bench_blocks *first, unsigned every_mib);
bool bench_blocks_are_intact(const struct bench_blocks *first);
void bench_blocks_free(struct bench_blocks *first);

#endif
