/* SPDX-License-Identifier: MIT */
/*
 * pools.h - all pools of the process, for what is done to each of them.
 *
 * A pool enters when it is made, and leaves before it is freed: at its destroy, or, if that
 * left threads behind, on the last of them.  A child process begins with none; the pools that
 * it has inherited never leave.
 *
 * A walk goes over the pools that were there when it began.  It holds the one that it is at,
 * and no lock: pools may enter and leave meanwhile, and only who wants to leave while it is
 * held waits.  By then all threads of that pool have ended, so nothing that the holder waits
 * for there is still to come.
 *
 *   P1  The list is in the order of entering, and so is a walk.
 *   P2  Who is held stays on the list; who has left is not held.
 *   P3  The list's lock is taken before a group's, never after it.
 *
 * Releases ask one at a time, all pools under the list's lock: so their numbers rise in
 * every group (visit.h).
 */
#ifndef IDS_POOLS_H
#define IDS_POOLS_H

#include "idlesched.h"
#include "list.h"
#include "plat.h"

/* A pool's place.  R: only with the list's lock held; else as in group.h. */
struct ids_pools_entry {
  struct idlesched_pool *pool; /* C */
  uint64_t round;              /* C  number of the last round that began before it entered */
  struct ids_list list;        /* R */
  unsigned holders_count;      /* R  walks that are at this pool */
};

void ids_pools_enter(struct ids_pools_entry *self, struct idlesched_pool *pool);
/* Waits until nobody holds it. */
void ids_pools_leave(struct ids_pools_entry *self);

/* What to go over. */
struct ids_pools_walk {
  uint64_t round; /* its number: it goes over pools that entered before this round began */
  /* Of these all, or only those in a list, which may name one more than once. */
  bool is_for_all;
  unsigned pools_count;
  struct idlesched_pool *const *pools;
};

void ids_pools_lock(void);
void ids_pools_unlock(void);
/* Begin the next round; numbers rise. */
uint64_t ids_pools_begin_round_locked(void);
/* The first pool of the walk, or the one after `previous`; NULL: there is none. */
struct ids_pools_entry *ids_pools_next_locked(const struct ids_pools_walk *walk,
                                              struct ids_pools_entry *previous);

/* The same without the lock: the pool is held until the call with which the walk leaves it. */
struct ids_pools_entry *ids_pools_next(const struct ids_pools_walk *walk,
                                       struct ids_pools_entry *previous);

#endif
