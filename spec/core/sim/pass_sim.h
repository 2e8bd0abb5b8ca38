/* SPDX-License-Identifier: MIT */
/*
 * pass_sim.h - a pool whose workers park at chosen moments of a fair clock, on which each pass
 * of its timer has its exact time.  Moments are counted from the pool's begin.
 */
#ifndef IDLESCHED_SPEC_PASS_SIM_H
#define IDLESCHED_SPEC_PASS_SIM_H

#include "pool_sim.h"

/* After so long an idle worker releases; those that do within a window share a pass. */
#define PASS_DELAY_NS (100 * IDS_MS)
#define PASS_WINDOW_NS (50 * IDS_MS)
#define PASS_WORKERS 3

extern idlesched_pool *pass_pool;
extern uint64_t pass_begin_ns;

/* The workers up to states_count have a state, which takes two steps to collect. */
void pass_make_pool(unsigned states_count, uint64_t idle_exit_ns);
void pass_sleep_until(uint64_t moment_ns);
/* Worker i parks at moment i. */
void pass_park_at(const uint64_t *moments_ns);

/* When the worker's heap was given up, and when the last purge ended. */
uint64_t pass_released_ns(unsigned i);
uint64_t pass_purged_ns(void);

/* An idle pool does nothing but wait for its exits. */
void pass_check_at_rest(void);

#endif
