/* SPDX-License-Identifier: MIT */
/*
 * sim_spec.h - searches as part of a case: each ends the case as failed when a run fails.
 *
 *   SPEC(close_ends_with_a_kill, "K1 ...") {
 *     struct sim_plan plan = { .name = "close", .scenario = close_scenario };
 *     plan.bound = 2;
 *     sim_spec_exhaust(&plan);
 *     plan.is_hostile = true;
 *     sim_spec_exhaust(&plan);
 *     plan.strategy = SIM_RANDOM;
 *     sim_spec_sample(&plan, 2000000);
 *   }
 *
 * What failed is printed with a line to repeat it, and run once more with a line for each
 * step, in a process that was forked before the search, where nothing is broken yet.
 *
 *   IDLESCHED_SIM_SCALE=N       multiplies the runs of samples, and of sweeps below 0.1 and
 *                               above 1: 0.1 without it, 1 for `scripts/test --full`, 10 for
 *                               a night
 *   IDLESCHED_SIM_BOUND_MORE=N  is added to bounds above 0 of searches for all schedules: 1 for
 *                               a night, -1 under tools that are slow
 *   IDLESCHED_SIM_SEED=N        the seed of samples; without it half of the runs have seed
 *                               1, the others a fresh one
 *   IDLESCHED_SIM_REPLAY=TEXT   as a failure printed it: the search of that name makes that
 *                               run, printed step by step, and all others none
 *
 * Each search writes a line `# sim NAME ...`; the program ends with a line `# sim total: N
 * schedules`, which a script can add up.
 */
#ifndef IDLESCHED_SPEC_SIM_SPEC_H
#define IDLESCHED_SPEC_SIM_SPEC_H

#include <stdint.h>

#include "sim.h"

/* By dfs or delay; all schedules within the bound, or the case fails. */
void sim_spec_exhaust(const struct sim_plan *plan);

/* Some, by any strategy; runs_count is for a full gate. */
void sim_spec_sample(const struct sim_plan *plan, uint64_t runs_count);

/*
 * The plan's search for each fallible call: this one fails, and this one and all after it;
 * then random runs in which one of ten fails.  The case fails if a site of the scenario
 * was never refused.
 */
void sim_spec_faults(const struct sim_plan *plan);

/* The plan's search for each step k of its longest run: the scenario asks for it with
 * sim_sweep_step(), which is 0 in the search that counts the steps. */
void sim_spec_sweep(const struct sim_plan *plan);

/* What the environment says. */
double sim_spec_scale(void);

#endif
