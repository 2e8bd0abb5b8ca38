/* SPDX-License-Identifier: MIT */
/*
 * plat_fault.h - stands between the core and its platform: refuses, holds, counts.
 *
 * The linker puts it there (--wrap, see CMakeLists.txt), so the core under test is
 * the one that is shipped.  Three things, each of them off until a case asks:
 *
 *   refuse   calls that may fail do fail, chosen by site and by number;
 *   hold     a thread that comes to a named place stops there until it is let go,
 *            so that a race is a sequence of statements and not of luck;
 *   count    blocks, mutexes, conditions and threads: at the end of a case nothing
 *            of them may be left.
 *
 * A site is the name that the core gives a call that may fail ("pool",
 * "worker.thread"), or that it gives ids_point() ("worker.collect").
 */
#ifndef IDLESCHED_SPEC_PLAT_FAULT_H
#define IDLESCHED_SPEC_PLAT_FAULT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_ANY_SITE NULL
#define FAULT_FOR_EVER UINT_MAX

/*
 * From now on the calls number first to last (1 is the next one) at this site fail:
 * allocations with NULL, threads and mutexes with -EAGAIN, conditions with -ENOMEM.
 * Takes the place of what was asked before; first = 0 refuses nothing.
 */
void fault_refuse(const char *site, unsigned first, unsigned last);
/* The same for one call in `one_in`, at random; the seed repeats the sequence. */
void fault_refuse_at_random(const char *site, unsigned one_in, uint64_t seed);
/* Calls refused since the last fault_refuse*(). */
unsigned fault_refused_count(void);
/* Calls of that site, refused or not, since the last fault_refuse*(). */
unsigned fault_calls_count(void);

/* Threads that come to the place stop there.  A thread start is held in its caller,
 * before the refusal is decided. */
void hold_at(const char *site);
/* Threads that stand there. */
unsigned hold_count(const char *site);
/* Let them go, and hold nobody there any more. */
void hold_open(const char *site);
/* The calling thread stops at "lock" just before it next locks a mutex, or at "load"
 * with the value in hand that it next reads without a lock. */
void hold_my_next_lock(void);
void hold_my_next_load(void);

/* Threads that wait on a condition of the core now. */
unsigned plat_waiting_count(void);

/* What the core has taken from the platform and not yet given back. */
struct plat_balance {
  int64_t blocks, mutexes, conds;
  int64_t threads;       /* started, and neither joined nor detached */
  uint64_t allocs_count; /* ever made */
};
struct plat_balance plat_balance(void);
/* Checks that nothing is left. */
void check_plat_balance(const char *file, int line);
#define CHECK_NOTHING_IS_LEFT() check_plat_balance(__FILE__, __LINE__)

#endif
