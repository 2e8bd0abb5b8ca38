/* SPDX-License-Identifier: MIT */
/*
 * toy_sim.h - small protocols on the simulated machine, to show what the machine finds: a toy
 * with a fault has to fail, by every strategy that should find it and again when its schedule
 * is repeated; a correct one has to pass all schedules.
 *
 * A toy gets a word as its context, which says how it is to be.
 */
#ifndef IDLESCHED_SPEC_TOY_SIM_H
#define IDLESCHED_SPEC_TOY_SIM_H

#include "harness.h"
#include "plat.h"
#include "sim_spec.h"

/* All schedules of the toy; named like the word, if there is one. */
struct sim_plan toy_plan(void (*scenario)(void *context), const char *word);
bool toy_is(const void *context, const char *word);

/* The plan fails with the text, and its schedule does so again and again. */
void toy_must_find(struct sim_plan plan, const char *text);
/* The same by every strategy. */
void toy_must_find_by_all(struct sim_plan plan, const char *text);
/* All its schedules pass.  How many there are. */
uint64_t toy_must_pass(struct sim_plan plan);

/* In a toy: each must succeed. */
void toy_start(struct ids_thread *thread, void (*body)(void *context), void *context,
               const char *name);
void toy_init_lock(struct ids_mutex *lock);
void toy_init_cond(struct ids_cond *cond);

#endif
