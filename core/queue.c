/* SPDX-License-Identifier: MIT */
/*
 * queue.c - see queue.h.
 */
#include "queue.h"

#include "plat.h"

/* A segment takes 8 KiB less what an allocator needs for itself. */
enum { CELLS_IN_SEGMENT = 510 };

struct ids_queue_segment {
  struct ids_queue_segment *next;
  struct ids_cell cells[CELLS_IN_SEGMENT];
};

static void check(const struct ids_queue *self) {
  ids_assert((self->head == NULL) == (self->tail == NULL));
  ids_assert(self->count > 0 || (self->head == self->tail && self->head_index == self->tail_index));
}

void ids_queue_deinit(struct ids_queue *self) {
  ids_assert_equal(self->count, 0);
  check(self);
  ids_free(self->head);
  *self = (struct ids_queue){ 0 };
}

static int add_segment(struct ids_queue *self) {
  struct ids_queue_segment *segment = ids_alloc(sizeof *segment, "queue.segment");
  if (segment == NULL)
    return -ENOMEM;
  segment->next = NULL;
  if (self->tail == NULL)
    self->head = segment;
  else
    self->tail->next = segment;
  self->tail = segment;
  self->tail_index = 0;
  return 0;
}

int ids_queue_push(struct ids_queue *self, struct ids_cell cell) {
  check(self);
  if (self->tail == NULL || self->tail_index == CELLS_IN_SEGMENT) {
    int status = add_segment(self);
    if (status != 0)
      return status;
  }
  self->tail->cells[self->tail_index++] = cell;
  self->count++;
  return 0;
}

bool ids_queue_pop(struct ids_queue *self, struct ids_cell *out) {
  check(self);
  if (self->count == 0)
    return false;
  *out = self->head->cells[self->head_index++];
  self->count--;

  if (self->count == 0) {
    /* Start again at the front of the only segment. */
    ids_assert(self->head == self->tail);
    self->head_index = 0;
    self->tail_index = 0;
  } else if (self->head_index == CELLS_IN_SEGMENT) {
    struct ids_queue_segment *empty = self->head;
    self->head = empty->next;
    self->head_index = 0;
    ids_free(empty);
  }
  return true;
}
