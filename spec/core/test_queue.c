/* SPDX-License-Identifier: MIT */
/*
 * test_queue.c - first in, first out, whatever the order of pushes and pops, and a
 * burst leaves nothing behind.
 *
 * Method: the cells carry numbers, so what is popped says whether one was lost, doubled
 * or moved; blocks are counted at the platform, and refused there.
 */
#include "queue.h"

#include "harness.h"
#include "plat_fault.h"

/* More than two segments, and no multiple of one. */
enum { MANY = 1300 };

static struct ids_cell cell_of(uintptr_t number) {
  return (struct ids_cell){ .run = NULL, .context = (void *)number };
}

static void push(struct ids_queue *queue, uintptr_t number) {
  REQUIRE_EQ_INT(ids_queue_push(queue, cell_of(number)), 0);
}

static void pop_expecting(struct ids_queue *queue, uintptr_t number) {
  struct ids_cell cell;
  REQUIRE(ids_queue_pop(queue, &cell));
  REQUIRE_EQ_U64((uintptr_t)cell.context, number);
}

SPEC(an_all_zero_queue_is_an_empty_one, "queue: all zero is empty, and takes no memory") {
  struct ids_queue queue = { 0 };
  struct ids_cell cell;
  CHECK(!ids_queue_pop(&queue, &cell));
  ids_queue_deinit(&queue);
  CHECK_EQ_U64(plat_balance().allocs_count, 0);
}

SPEC(cells_come_out_in_the_order_they_went_in, "queue: first in, first out, across segments") {
  struct ids_queue queue = { 0 };
  struct ids_cell cell;
  for (uintptr_t i = 0; i < MANY; i++)
    push(&queue, i);
  CHECK_EQ_U64(queue.count, MANY);
  for (uintptr_t i = 0; i < MANY; i++)
    pop_expecting(&queue, i);
  CHECK(!ids_queue_pop(&queue, &cell));
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

/* Pushes and pops in runs of random length, so that the ends of segments are met in
 * every combination of the two, the empty queue included. */
SPEC(any_mixture_of_pushes_and_pops_keeps_the_order, "queue: any mixture keeps the order") {
  struct ids_queue queue = { 0 };
  uintptr_t pushed = 0, popped = 0;
  uint64_t random = 1;
  for (int round = 0; round < 4000; round++) {
    random = random * UINT64_C(6364136223846793005) + 1;
    unsigned length = (unsigned)(random >> 33) % 700;
    bool pushes = (random >> 62 & 1) == 0;
    for (unsigned i = 0; i < length; i++) {
      if (pushes)
        push(&queue, pushed++);
      else if (popped < pushed)
        pop_expecting(&queue, popped++);
    }
    REQUIRE_EQ_U64(queue.count, pushed - popped);
  }
  while (popped < pushed)
    pop_expecting(&queue, popped++);
  ids_queue_deinit(&queue);
  CHECK_GE_INT(pushed, 100 * MANY);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_burst_leaves_one_segment_at_most, "queue: a burst leaves one segment, and no more") {
  struct ids_queue queue = { 0 };
  for (uintptr_t i = 0; i < 100 * MANY; i++)
    push(&queue, i);
  CHECK_GE_INT(plat_balance().blocks, 200);
  for (uintptr_t i = 0; i < 100 * MANY; i++)
    pop_expecting(&queue, i);
  CHECK_EQ_INT(plat_balance().blocks, 1);
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_steady_trickle_takes_no_new_memory, "A2 queue: a job at a time takes no new memory") {
  struct ids_queue queue = { 0 };
  for (uintptr_t i = 0; i < 10 * MANY; i++) {
    push(&queue, i);
    pop_expecting(&queue, i);
  }
  CHECK_EQ_U64(plat_balance().allocs_count, 1);
  ids_queue_deinit(&queue);
}

SPEC(a_push_without_memory_changes_nothing, "G2 queue: a push without memory changes nothing") {
  struct ids_queue queue = { 0 };
  uintptr_t pushed = 0;
  /* Each segment is refused once, when it is first needed. */
  for (int segment = 0; segment < 3; segment++) {
    fault_refuse("queue.segment", 1, 1);
    while (ids_queue_push(&queue, cell_of(pushed)) == 0)
      pushed++;
    CHECK_EQ_INT(ids_queue_push(&queue, cell_of(pushed)), 0);
    pushed++;
  }
  CHECK_EQ_U64(queue.count, pushed);
  for (uintptr_t i = 0; i < pushed; i++)
    pop_expecting(&queue, i);
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_queue_with_cells_is_not_thrown_away, "G4 queue: throwing jobs away is an assertion",
     .aborts_with = "self->count == 0: 1 against 0") {
  struct ids_queue queue = { 0 };
  push(&queue, 1);
  ids_queue_deinit(&queue);
}
