/* SPDX-License-Identifier: MIT */
/*
 * test_queue.c - the highest priority first, inside it first in, first out, whatever the order
 * of pushes, pops and removals, and a burst leaves nothing behind.
 *
 * Method: the cells carry numbers, so what is popped says whether one was lost, doubled
 * or moved; blocks are counted at the platform, and refused there.
 */
#include "queue.h"

#include "harness.h"
#include "plat_fault.h"

/* More than two segments, and no multiple of one. */
enum { MANY = 1300 };

/* A cell of zeros is none. */
static struct ids_cell cell_of(uintptr_t number) {
  return (struct ids_cell){ .run = NULL, .context = (void *)(number + 1) };
}

static struct ids_queue_place push_at(struct ids_queue *queue, uintptr_t number, int priority) {
  struct ids_queue_place place = { .segment = NULL };
  REQUIRE_EQ_INT(ids_queue_push(queue, cell_of(number), priority, &place), 0);
  REQUIRE(place.segment != NULL);
  return place;
}

static void push(struct ids_queue *queue, uintptr_t number) {
  REQUIRE_EQ_INT(ids_queue_push(queue, cell_of(number), 0, NULL), 0);
}

static void pop_expecting(struct ids_queue *queue, uintptr_t number) {
  struct ids_cell cell;
  REQUIRE(ids_queue_pop(queue, &cell));
  REQUIRE_EQ_U64((uintptr_t)cell.context, number + 1);
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

/* ------------------------------------------------------------------- priorities */

SPEC(the_highest_priority_comes_out_first,
     "queue: the highest priority first, inside it first in, first out") {
  struct ids_queue queue = { 0 };
  enum { EACH = 700 };
  for (uintptr_t i = 0; i < EACH; i++)
    for (int priority = -IDLESCHED_PRIORITY_MOST; priority <= IDLESCHED_PRIORITY_MOST; priority++)
      push_at(&queue, (uintptr_t)(IDLESCHED_PRIORITY_MOST - priority) * EACH + i, priority);
  CHECK_EQ_U64(queue.count, IDS_PRIORITIES * EACH);
  for (uintptr_t i = 0; i < IDS_PRIORITIES * EACH; i++)
    pop_expecting(&queue, i);
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_higher_priority_comes_between, "queue: a cell of a higher priority passes those queued") {
  struct ids_queue queue = { 0 };
  push(&queue, 2);
  push(&queue, 3);
  push_at(&queue, 5, -1);
  push_at(&queue, 0, 7);
  pop_expecting(&queue, 0);
  push_at(&queue, 1, 1);
  pop_expecting(&queue, 1);
  pop_expecting(&queue, 2);
  push(&queue, 4);
  pop_expecting(&queue, 3);
  pop_expecting(&queue, 4);
  pop_expecting(&queue, 5);
  ids_queue_deinit(&queue);
}

SPEC(one_segment_serves_all, "queue: of the segments of all priorities one is kept") {
  struct ids_queue queue = { 0 };
  for (int round = 0; round < 3; round++) {
    for (int priority = -IDLESCHED_PRIORITY_MOST; priority <= IDLESCHED_PRIORITY_MOST; priority++)
      push_at(&queue, (uintptr_t)(IDLESCHED_PRIORITY_MOST - priority), priority);
    CHECK_EQ_INT(plat_balance().blocks, IDS_PRIORITIES);
    for (uintptr_t i = 0; i < IDS_PRIORITIES; i++)
      pop_expecting(&queue, i);
    CHECK_EQ_INT(plat_balance().blocks, 1);
  }
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

/* --------------------------------------------------------------------- removals */

SPEC(a_removed_cell_does_not_come_out, "queue: a removed cell does not come out, nor counts") {
  struct ids_queue queue = { 0 };
  struct ids_queue_place places[MANY];
  struct ids_cell cell;
  for (uintptr_t i = 0; i < MANY; i++)
    places[i] = push_at(&queue, i, 0);
  for (uintptr_t i = 0; i < MANY; i++)
    if (i % 3 != 1)
      ids_queue_remove(&queue, 0, places[i]);
  CHECK_EQ_U64(queue.count, MANY / 3);
  for (uintptr_t i = 1; i < MANY; i += 3)
    pop_expecting(&queue, i);
  CHECK(!ids_queue_pop(&queue, &cell));
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

/* Segment after segment, in this order: the first, one in the middle, the last. */
SPEC(a_segment_goes_with_its_last_cell,
     "queue: a segment whose cells are removed is given back at once, wherever it is") {
  struct ids_queue queue = { 0 };
  enum { CELLS = 4 * MANY };
  static struct ids_queue_place places[CELLS];
  static bool is_removed[CELLS];
  for (uintptr_t i = 0; i < CELLS; i++)
    places[i] = push_at(&queue, i, 0);
  const struct ids_queue_segment *which[] = { places[0].segment, places[CELLS / 2].segment,
                                              places[CELLS - 1].segment };
  int64_t blocks = plat_balance().blocks;
  for (unsigned s = 0; s < 3; s++) {
    for (uintptr_t i = 0; i < CELLS; i++) {
      if (places[i].segment == which[s]) {
        is_removed[i] = true;
        ids_queue_remove(&queue, 0, places[i]);
      }
    }
    /* The first one is kept. */
    CHECK_EQ_INT(plat_balance().blocks, blocks - (int64_t)s);
  }
  push(&queue, CELLS); /* into the one that was kept, behind the others */
  CHECK_EQ_INT(plat_balance().blocks, blocks - 2);
  for (uintptr_t i = 0; i < CELLS; i++)
    if (!is_removed[i])
      pop_expecting(&queue, i);
  pop_expecting(&queue, CELLS);
  CHECK_EQ_U64(queue.count, 0);
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

/* Against a plain list of what must be left. */
SPEC(any_mixture_with_removals, "queue: pushes, pops and removals of all priorities, mixed") {
  enum { NUMBERS = 60000 };
  static struct ids_queue_place places[NUMBERS];
  static signed char priorities[NUMBERS];
  static bool is_queued[NUMBERS];
  struct ids_queue queue = { 0 };
  struct ids_cell cell;
  uintptr_t pushed = 0;
  uint64_t queued_count = 0, random = 1;
  while (pushed < NUMBERS || queued_count > 0) {
    random = random * UINT64_C(6364136223846793005) + 1;
    unsigned dice = (unsigned)(random >> 40) % 8;
    if (dice < 3 && pushed < NUMBERS) {
      priorities[pushed] = (signed char)((int)((random >> 33) % 3) - 1);
      places[pushed] = push_at(&queue, pushed, priorities[pushed]);
      is_queued[pushed++] = true;
      queued_count++;
    } else if (dice < 5) {
      bool was_there = ids_queue_pop(&queue, &cell);
      REQUIRE(was_there == (queued_count > 0));
      if (!was_there)
        continue;
      uintptr_t number = (uintptr_t)cell.context - 1;
      REQUIRE(is_queued[number]);
      is_queued[number] = false;
      queued_count--;
    } else if (pushed > 0) {
      uintptr_t number = pushed - 1 - (random >> 20) % (pushed < 3000 ? pushed : 3000);
      if (is_queued[number]) {
        ids_queue_remove(&queue, priorities[number], places[number]);
        is_queued[number] = false;
        queued_count--;
      }
    }
    REQUIRE_EQ_U64(queue.count, queued_count);
  }
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(all_cells_are_looked_at, "queue: a walk meets the queued cells in the order of their pops") {
  struct ids_queue queue = { 0 };
  CHECK(ids_queue_first(&queue).segment == NULL);
  enum { CELLS = 3 * MANY };
  for (uintptr_t i = 0; i < CELLS; i++)
    push_at(&queue, i, (int)(i % 3) - 1);
  /* Every other cell is removed as the walk goes, and its segment with the last of them. */
  struct ids_queue_place place = ids_queue_first(&queue);
  unsigned met_count = 0;
  while (place.segment != NULL) {
    struct ids_queue_place here = place;
    uintptr_t number = (uintptr_t)ids_queue_at(here)->context - 1;
    REQUIRE_EQ_INT((int)(number % 3), 2 - (int)(met_count / MANY));
    REQUIRE_EQ_U64(number / 3, met_count % MANY);
    place = ids_queue_after(&queue, here);
    if (met_count++ % 2 == 0 || number / 3 < MANY / 2)
      ids_queue_remove(&queue, (int)(number % 3) - 1, here);
  }
  CHECK_EQ_INT(met_count, CELLS);
  met_count = 0;
  for (place = ids_queue_first(&queue); place.segment != NULL;
       place = ids_queue_after(&queue, place)) {
    struct ids_cell cell = *ids_queue_at(place);
    CHECK(cell.context != NULL);
    met_count++;
  }
  CHECK_EQ_U64(queue.count, met_count);
  struct ids_cell cell;
  while (ids_queue_pop(&queue, &cell))
    met_count--;
  CHECK_EQ_INT(met_count, 0);
  ids_queue_deinit(&queue);
  CHECK_NOTHING_IS_LEFT();
}

SPEC(a_cell_is_not_removed_twice, "G4 queue: removing a cell twice is an assertion",
     .aborts_with = "!is_empty") {
  struct ids_queue queue = { 0 };
  push(&queue, 0);
  struct ids_queue_place place = push_at(&queue, 1, 0);
  push(&queue, 2);
  ids_queue_remove(&queue, 0, place);
  ids_queue_remove(&queue, 0, place);
}

SPEC(a_cell_has_one_priority, "queue: removing a cell from another priority is an assertion",
     .aborts_with = "segment->priority == priority") {
  struct ids_queue queue = { 0 };
  ids_queue_remove(&queue, 2, push_at(&queue, 1, 1));
}

/* ------------------------------------------------------------------------ refusals */

SPEC(a_push_without_memory_changes_nothing, "G2 queue: a push without memory changes nothing") {
  struct ids_queue queue = { 0 };
  uintptr_t pushed = 0;
  /* Each segment is refused once, when it is first needed. */
  for (int segment = 0; segment < 3; segment++) {
    fault_refuse("queue.segment", 1, 1);
    while (ids_queue_push(&queue, cell_of(pushed), 0, NULL) == 0)
      pushed++;
    CHECK_EQ_INT(ids_queue_push(&queue, cell_of(pushed), 0, NULL), 0);
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
