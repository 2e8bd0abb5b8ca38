/* SPDX-License-Identifier: MIT */
/*
 * queue.h - cells by priority, and inside one first in, first out; the pool's lock guards it.
 *
 * Each priority has a chain of segments, which are freed as they are used up, also in the
 * middle: so a burst of jobs leaves nothing behind, in whatever order its cells are popped
 * and removed.  One empty segment is kept for the next push, whatever its priority.
 *
 *   Q1  A segment in a chain has at least one queued cell, and the mask has the bits of the
 *       chains that are not empty.
 *   Q2  Cells before a segment's first and from its end on are not queued; of those between
 *       the two, the removed ones are empty.  `count` is how many are queued.
 */
#ifndef IDS_QUEUE_H
#define IDS_QUEUE_H

#include "base.h"
#include "idlesched.h"

/* A job: a function with its argument, or, without a function, an idlesched_job. */
struct ids_cell {
  void (*run)(void *context);
  void *context;
};

/* From -IDLESCHED_PRIORITY_MOST to IDLESCHED_PRIORITY_MOST; plain cells have 0. */
#define IDS_PRIORITIES (2 * IDLESCHED_PRIORITY_MOST + 1)

struct ids_queue_segment;

struct ids_queue_chain {
  struct ids_queue_segment *head; /* pops */
  struct ids_queue_segment *tail; /* pushes */
};

/* It holds no pointer to itself, so it may be moved.  An all-zero queue is an empty one. */
struct ids_queue {
  struct ids_queue_chain chains[IDS_PRIORITIES]; /* the lowest priority first */
  uint32_t mask;                                 /* see Q1 */
  uint64_t count;
  struct ids_queue_segment *spare; /* an empty one, or NULL */
};

/* Where a queued cell is; it stays there until it is popped or removed. */
struct ids_queue_place {
  struct ids_queue_segment *segment; /* NULL: nowhere */
  uint32_t index;
};

/* Cells must have been popped or removed before. */
void ids_queue_deinit(struct ids_queue *self);
/* 0 or -ENOMEM, which changes nothing.  out_place may be NULL. */
int ids_queue_push(struct ids_queue *self, struct ids_cell cell, int priority,
                   struct ids_queue_place *out_place);
/* The first of the highest priority.  False when it is empty. */
bool ids_queue_pop(struct ids_queue *self, struct ids_cell *out);
/* Take out a queued cell, whatever is before it: O(1). */
void ids_queue_remove(struct ids_queue *self, int priority, struct ids_queue_place place);

/*
 * All that are queued, in the order of pops; the last one is followed by nowhere.  The cell
 * at a place may be removed when the one after it is known.
 */
struct ids_queue_place ids_queue_first(const struct ids_queue *self);
struct ids_queue_place ids_queue_after(const struct ids_queue *self, struct ids_queue_place place);
const struct ids_cell *ids_queue_at(struct ids_queue_place place);

#endif
