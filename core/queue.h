/* SPDX-License-Identifier: MIT */
/*
 * queue.h - first in, first out, of cells; the pool's lock guards it.
 *
 * Cells live in segments that are freed as they are used up, so that a burst of
 * jobs leaves nothing behind.  One empty segment is kept for the next push.
 */
#ifndef IDS_QUEUE_H
#define IDS_QUEUE_H

#include "base.h"
#include "cell.h"

struct ids_queue_segment;

struct ids_queue {
  struct ids_queue_segment *head; /* pops; NULL while nothing was ever pushed */
  struct ids_queue_segment *tail; /* pushes */
  unsigned head_index;            /* first cell in head that is queued */
  unsigned tail_index;            /* first cell in tail that is free */
  uint64_t count;
};

/* An all-zero queue is an empty one.  Cells must have been popped before. */
void ids_queue_deinit(struct ids_queue *self);
/* 0 or -ENOMEM, which changes nothing. */
int ids_queue_push(struct ids_queue *self, struct ids_cell cell);
/* False when it is empty. */
bool ids_queue_pop(struct ids_queue *self, struct ids_cell *out);

#endif
