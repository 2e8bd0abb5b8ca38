/* SPDX-License-Identifier: MIT */
/*
 * rss_kit.h - what specs of memory share: figures of the kernel's, blocks to be freed,
 * bursts on all workers, and the times within which a level has to come down.
 *
 * Method: each case is a process of its own.  It measures the anonymous memory of that
 * process before, at the peak and after, and asserts that the peak was one, so that a
 * burst which the compiler took away would not pass; and that what comes back by the call
 * under test was still there before it.
 *
 * Times are the requirements' own.  On a machine that is busy with others they are
 * prolonged by what it takes from this process: by as long as threads of it, besides the
 * one that looks, were ready and waited for a CPU, which the kernel counts.
 *
 * Specs that link this set the process defaults before main(), as a host does it whose
 * malloc is the allocator.
 */
#ifndef IDLESCHED_SPEC_RSS_KIT_H
#define IDLESCHED_SPEC_RSS_KIT_H

#include "pool_kit.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

/* ------------------------------------------------------------------ what is needed */

bool is_system_allocator(void);
/* Skips the case under a sanitizer, or where the kernel does not tell. */
void need_kernel_figures(void);
/* And with the C library's malloc. */
void need_figures_to_the_page(void);

/* ----------------------------------------------------------------------- figures */

uint64_t anonymous_bytes(void);
/* For the case's output: what, and how much above the start. */
void print_level(const char *what, uint64_t bytes, uint64_t start_bytes);
/* The level when it has come down to the limit, or else when the time is up. */
uint64_t level_within_ms(uint64_t limit_bytes, uint64_t time_ms);

/* How long threads other than the caller were ready and had no CPU; 0 where the kernel
 * does not count it. */
uint64_t others_waited_ns(void);
/*
 * How often each thread but the caller has gone to sleep, once all of them do, and twice in
 * a row the same: what it rises by is how often the thread woke up.  There are so many
 * threads, all the time.
 */
enum { SLEEPERS_MAX = 64 };
struct sleeps {
  unsigned threads_count;
  uint64_t counts[SLEEPERS_MAX];
};
void sleeps_read(struct sleeps *out, unsigned threads_count);

/* ------------------------------------------------------------------------ blocks */

/* Blocks of many sizes, linked through their first word; and to free all of them. */
void *take_blocks(uint64_t bytes);
void give_blocks(void *last);

/*
 * Take blocks of 1 KiB and free all but one in each run of so many; the kept ones are
 * linked as above.
 */
struct fragments {
  uint64_t bytes;
  unsigned run_count;
  void *kept;
};
void fragment(void *fragments);

/* What the allocator offers to everybody: free pages of the calling thread's heap, and what
 * is scheduled.  Skips the case where the allocator has no such call. */
void forced_collect(void);

/* ------------------------------------------------------------------------- pools */

/* All workers have a thread and are parked. */
idlesched_pool *started_pool(unsigned workers_count, uint64_t idle_release_ns,
                             uint64_t idle_exit_ns);

/* Each worker takes so many bytes of blocks, and frees them when all have theirs.  The peak,
 * above the level before. */
uint64_t burst_on_all_workers(idlesched_pool *pool, uint64_t bytes);

/* --------------------------------------------------------------------- processes */

/* One more of the environment, or, with no value, one less. */
struct variable {
  const char *name, *value;
};

/*
 * Run a case of this spec once more, alone in a new process: without the process
 * defaults, without settings of the allocator's but these.  False in that process, and
 * then the case does what it is about; true when it has passed.
 */
bool passes_in_process(const char *case_name, const struct variable *variables);
/* Run a program with such an environment.  What it printed is a number. */
uint64_t number_from_program(const char *path, const char *argument,
                             const struct variable *variables);

#endif
