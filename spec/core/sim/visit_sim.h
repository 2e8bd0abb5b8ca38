/* SPDX-License-Identifier: MIT */
/*
 * visit_sim.h - releases on demand: what is freed into a worker's heap before the call is back
 * when the call says that it missed nobody.
 */
#ifndef IDLESCHED_SPEC_VISIT_SIM_H
#define IDLESCHED_SPEC_VISIT_SIM_H

#include "pool_sim.h"

#define VISIT_WORKERS 3

/* What the clients of a run share. */
extern idlesched_pool *visit_pool;

/* Workers that release when they are visited, and only then. */
void visit_make_pool(unsigned states_count);
void visit_park(unsigned workers_count);
/* A job that takes so long. */
void visit_submit(uint64_t duration_ns);

/* Something is freed into each worker's heap; is it back?  What a thread leaves to its end,
 * the allocator takes over: that is no matter of visits. */
struct visit_litter {
  unsigned marks[VISIT_WORKERS];
  unsigned count;
};
void visit_strew(struct visit_litter *self);
void visit_check_is_back(const struct visit_litter *self);

/* Release with that limit; what was freed before is back when nobody was missed. */
int visit_release(uint64_t timeout_ns, idlesched_release_report *out);
/* Visits that worker has had so far, by whoever: each tidies the heap once. */
unsigned visit_count(unsigned index);

#endif
