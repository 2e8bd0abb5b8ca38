/* SPDX-License-Identifier: MIT */
/*
 * queue.c - see queue.h.
 */
#include "queue.h"

#include "plat.h"

/* A segment takes 8 KiB less what an allocator needs for itself. */
enum { CELLS_IN_SEGMENT = 508 };

struct ids_queue_segment {
  struct ids_queue_segment *next, *previous;
  uint32_t first, end;   /* see Q2 */
  uint32_t queued_count; /* cells of it that are queued */
  int32_t priority;
  struct ids_cell cells[CELLS_IN_SEGMENT];
};

static const struct ids_cell empty_cell = { 0 };

static bool is_empty(const struct ids_cell *cell) {
  return cell->run == NULL && cell->context == NULL;
}

static unsigned level_of(int priority) {
  ids_assert(priority >= -IDLESCHED_PRIORITY_MOST && priority <= IDLESCHED_PRIORITY_MOST);
  return (unsigned)(priority + IDLESCHED_PRIORITY_MOST);
}

/* The first segment of the highest of these levels. */
static struct ids_queue_segment *highest_head(const struct ids_queue *self, uint32_t levels) {
  unsigned level = 0;
  for (uint32_t rest = levels >> 1; rest != 0; rest >>= 1)
    level++;
  return self->chains[level].head;
}

static uint32_t first_queued(const struct ids_queue_segment *segment, uint32_t from) {
  while (from < segment->end && is_empty(&segment->cells[from]))
    from++;
  return from;
}

void ids_queue_deinit(struct ids_queue *self) {
  ids_assert_equal(self->count, 0);
  ids_assert_equal(self->mask, 0);
  ids_free(self->spare);
  *self = (struct ids_queue){ 0 };
}

static int add_segment(struct ids_queue *self, int priority) {
  struct ids_queue_segment *segment = self->spare;
  if (segment == NULL)
    segment = ids_alloc(sizeof *segment, "queue.segment");
  if (segment == NULL)
    return -ENOMEM;
  self->spare = NULL;

  struct ids_queue_chain *chain = &self->chains[level_of(priority)];
  segment->next = NULL;
  segment->previous = chain->tail;
  segment->first = segment->end = segment->queued_count = 0;
  segment->priority = priority;
  if (chain->tail == NULL)
    chain->head = segment;
  else
    chain->tail->next = segment;
  chain->tail = segment;
  self->mask |= UINT32_C(1) << level_of(priority);
  return 0;
}

/* None of its cells is queued any more. */
static void drop_segment(struct ids_queue *self, struct ids_queue_segment *segment) {
  unsigned level = level_of(segment->priority);
  struct ids_queue_chain *chain = &self->chains[level];
  if (segment->previous == NULL)
    chain->head = segment->next;
  else
    segment->previous->next = segment->next;
  if (segment->next == NULL)
    chain->tail = segment->previous;
  else
    segment->next->previous = segment->previous;
  if (chain->head == NULL)
    self->mask &= ~(UINT32_C(1) << level);

  if (self->spare == NULL)
    self->spare = segment;
  else
    ids_free(segment);
}

static void count_out(struct ids_queue *self, struct ids_queue_segment *segment) {
  ids_assert(self->count > 0 && segment->queued_count > 0);
  self->count--;
  if (--segment->queued_count == 0)
    drop_segment(self, segment);
}

int ids_queue_push(struct ids_queue *self, struct ids_cell cell, int priority,
                   struct ids_queue_place *out_place) {
  ids_assert(!is_empty(&cell));
  const struct ids_queue_chain *chain = &self->chains[level_of(priority)];
  if (chain->tail == NULL || chain->tail->end == CELLS_IN_SEGMENT) {
    int status = add_segment(self, priority);
    if (status != 0)
      return status;
  }
  struct ids_queue_segment *tail = chain->tail;
  if (out_place != NULL)
    *out_place = (struct ids_queue_place){ .segment = tail, .index = tail->end };
  tail->cells[tail->end++] = cell;
  tail->queued_count++;
  self->count++;
  return 0;
}

bool ids_queue_pop(struct ids_queue *self, struct ids_cell *out) {
  ids_assert((self->count == 0) == (self->mask == 0));
  if (self->count == 0)
    return false;
  struct ids_queue_segment *head = highest_head(self, self->mask);
  uint32_t index = first_queued(head, head->first);
  ids_assert(index < head->end); /* Q1 */
  head->first = index + 1;
  *out = head->cells[index];
  count_out(self, head);
  return true;
}

void ids_queue_remove(struct ids_queue *self, int priority, struct ids_queue_place place) {
  struct ids_queue_segment *segment = place.segment;
  ids_assert(segment != NULL && segment->priority == priority);
  ids_assert(place.index >= segment->first && place.index < segment->end);
  ids_assert(!is_empty(&segment->cells[place.index]));
  segment->cells[place.index] = empty_cell;
  count_out(self, segment);
}

/* Q1: a segment has one. */
static struct ids_queue_place first_in(struct ids_queue_segment *segment) {
  return (struct ids_queue_place){ .segment = segment,
                                   .index = first_queued(segment, segment->first) };
}

struct ids_queue_place ids_queue_first(const struct ids_queue *self) {
  if (self->mask == 0)
    return (struct ids_queue_place){ .segment = NULL };
  return first_in(highest_head(self, self->mask));
}

struct ids_queue_place ids_queue_after(const struct ids_queue *self, struct ids_queue_place place) {
  struct ids_queue_segment *segment = place.segment;
  place.index = first_queued(segment, place.index + 1);
  if (place.index < segment->end)
    return place;
  if (segment->next != NULL)
    return first_in(segment->next);
  uint32_t lower = self->mask & ((UINT32_C(1) << level_of(segment->priority)) - 1);
  if (lower == 0)
    return (struct ids_queue_place){ .segment = NULL };
  return first_in(highest_head(self, lower));
}

const struct ids_cell *ids_queue_at(struct ids_queue_place place) {
  return &place.segment->cells[place.index];
}
