/* SPDX-License-Identifier: MIT */
/*
 * fork.h - what the process has one of, after a fork.
 *
 * A child has one thread, and copies of all locks as the fork found them: whoever held
 * one is not there to give it back.  So each such piece of state has a mark, and the
 * first to look at it in a new process puts it in order.
 */
#ifndef IDS_FORK_H
#define IDS_FORK_H

#include "plat.h"

/* Zero is right for the first process. */
struct ids_fork_mark {
  uint32_t claimed; /* generation that somebody puts in order, or has */
  uint32_t ready;   /* generation that is in order; its release publishes that */
};

/* Before each use.  True for exactly one caller in a new process: it puts the state in
 * order and calls ids_fork_done(); the others wait for that. */
static inline bool ids_fork_is_first(struct ids_fork_mark *self) {
  uint32_t generation = ids_fork_generation();
  uint32_t ready = ids_load_acquire(&self->ready);
  if (ready == generation)
    return false;
  /* Also when the parent had begun, and did not get to the end before it forked. */
  uint32_t claimed = ids_load_acquire(&self->claimed);
  if (claimed != generation && ids_store_if_equal(&self->claimed, claimed, generation))
    return true;
  while (ids_load_acquire(&self->ready) != generation)
    ids_relax();
  return false;
}

static inline void ids_fork_done(struct ids_fork_mark *self) {
  ids_store_release(&self->ready, ids_fork_generation());
}

#endif
