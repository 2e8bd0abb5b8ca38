/* SPDX-License-Identifier: MIT */
/*
 * test_memory.c - what the process has in memory, and in which allocator.
 *
 * Method: the kernel's answers and the allocator are made up here, so that sums can be
 * checked to the byte, and refusals.  (As they really are: test_c_heap.c.)
 */
#include "memory.h"

#include <errno.h>
#include <string.h>

#include "counter.h"
#include "heap.h"
#include "heap_fake.h"
#include "pool_kit.h"

#define MIB (UINT64_C(1) << 20)

static int residency_status, mappings_status;
static uint64_t anonymous_bytes = 60 * MIB;

/* What the linker gives the core in place of the platform's. */
int __wrap_ids_residency_read(struct ids_residency *out);
int __wrap_ids_mappings_read(void (*tell)(void *context, const struct ids_mapping *mapping),
                             void *context);

int __wrap_ids_residency_read(struct ids_residency *out) {
  *out = (struct ids_residency){ 0 };
  if (residency_status == 0)
    *out = (struct ids_residency){ .resident_bytes = 100 * MIB,
                                   .anonymous_bytes = anonymous_bytes,
                                   .huge_bytes = 2 * MIB,
                                   .threads_count = 3 };
  return residency_status;
}

int __wrap_ids_mappings_read(void (*tell)(void *context, const struct ids_mapping *mapping),
                             void *context) {
  static const struct ids_mapping mappings[] = {
    { 0x1000, 0x2000, true, 5 * MIB, false }, /* somebody else's */
    { 0x100000, 0x110000, true, 20 * MIB, false },
    { 0x110000, 0x120000, false, 7 * MIB, false }, /* a file's */
    { 0x120000, 0x130000, true, 0, false },        /* not in memory */
    { 0x130000, 0x140000, true, 3 * MIB, false },
  };
  if (mappings_status == 0)
    for (unsigned i = 0; i < ids_countof(mappings); i++)
      tell(context, &mappings[i]);
  return mappings_status;
}

static idlesched_memory read_memory(void) {
  idlesched_memory memory;
  REQUIRE_EQ_INT(idlesched_memory_read(&memory), 0);
  return memory;
}

static void check_heap(const idlesched_heap_memory *heap, uint64_t resident_bytes,
                       uint64_t live_bytes, uint64_t free_bytes) {
  CHECK_EQ_U64(heap->resident_bytes, resident_bytes);
  CHECK_EQ_U64(heap->live_bytes, live_bytes);
  CHECK_EQ_U64(heap->free_bytes, free_bytes);
}

SPEC(memory_by_allocator, "B30 memory is told by allocator: in memory, live, free") {
  ids_counter_add_live(10 * MIB);
  ids_counter_add_dead(4 * MIB);
  heap_fake_set_c_heap(30 * MIB, 12 * MIB, 18 * MIB);
  idlesched_memory memory = read_memory();
  CHECK_EQ_U64(memory.resident_bytes, 100 * MIB);
  CHECK_EQ_U64(memory.anonymous_bytes, 60 * MIB);
  CHECK_EQ_U64(memory.huge_bytes, 2 * MIB);
  CHECK_EQ_U64(memory.threads_count, 3);
  CHECK_EQ_U64(memory.live_bytes, 10 * MIB);
  CHECK_EQ_U64(memory.dead_bytes, 4 * MIB);
  CHECK_EQ_STR(memory.heaps[0].name, "fake");
  check_heap(&memory.heaps[0], 23 * MIB, 10 * MIB, 13 * MIB);
  CHECK_EQ_STR(memory.heaps[1].name, ids_heap_c_name());
  check_heap(&memory.heaps[1], 30 * MIB, 12 * MIB, 18 * MIB);
  CHECK_EQ_U64(memory.releasable_bytes, (13 + 18 + 4) * MIB);
}

SPEC(more_live_than_in_memory,
     "B30 of blocks that were never touched no more are live than is in memory") {
  ids_counter_add_live(24 * MIB);
  heap_fake_set_c_heap(MIB, 2 * MIB, 0);
  idlesched_memory memory = read_memory();
  check_heap(&memory.heaps[0], 23 * MIB, 23 * MIB, 0);
  check_heap(&memory.heaps[1], MIB, MIB, 0);
  CHECK_EQ_U64(memory.live_bytes, 24 * MIB);
  CHECK_EQ_U64(memory.releasable_bytes, 0);
}

SPEC(more_in_the_heaps_than_in_the_process,
     "B30 what the process takes between two readings makes the heaps no larger than itself") {
  anonymous_bytes = 22 * MIB;
  ids_counter_add_live(10 * MIB);
  heap_fake_set_c_heap(MIB, MIB, 0);
  idlesched_memory memory = read_memory();
  check_heap(&memory.heaps[0], 22 * MIB, 10 * MIB, 12 * MIB);
  check_heap(&memory.heaps[1], 0, 0, 0);
}

SPEC(nothing_goes_back_without_purges,
     "B30 under a purge delay below 0 only the C library's free memory can be given back") {
  ids_counter_add_live(10 * MIB);
  ids_counter_add_dead(4 * MIB);
  heap_fake_set_c_heap(30 * MIB, 12 * MIB, 18 * MIB);
  heap_fake_user_sets(IDS_HEAP_PURGE_DELAY_MS, -1);
  CHECK_EQ_U64(read_memory().releasable_bytes, 18 * MIB);
  heap_fake_user_sets(IDS_HEAP_PURGE_DELAY_MS, 0);
  CHECK_EQ_U64(read_memory().releasable_bytes, (13 + 18 + 4) * MIB);
  heap_fake_set_has_options(false);
  CHECK_EQ_U64(read_memory().releasable_bytes, (13 + 18 + 4) * MIB);
}

SPEC(what_is_kept_adds_up, "N4 what a release says is kept adds up to what the process has") {
  ids_counter_add_live(30 * MIB); /* 23 of them are in memory */
  heap_fake_set_c_heap(20 * MIB, 25 * MIB, 0);
  idlesched_release_report report;
  idlesched_purge_all(&report);
  CHECK_EQ_U64(report.anonymous_after_bytes, 60 * MIB);
  CHECK_EQ_U64(report.kept_live_bytes, (23 + 20) * MIB);
  CHECK_EQ_U64(report.kept_free_bytes, 0);
  CHECK_EQ_U64(report.kept_other_bytes, 17 * MIB);
}

SPEC(what_was_trimmed_is_not_in_memory,
     "N9 of the C library's heap no more is in memory than what is left of the process") {
  heap_fake_set_c_heap(50 * MIB, 20 * MIB, 30 * MIB); /* 13 of them were trimmed */
  idlesched_memory memory = read_memory();
  check_heap(&memory.heaps[1], 37 * MIB, 20 * MIB, 17 * MIB);
}

SPEC(one_heap_where_malloc_is_the_allocator,
     "A16 there is no second heap where malloc is the allocator's") {
  heap_fake_set_no_c_heap();
  idlesched_memory memory = read_memory();
  CHECK_EQ_PTR(memory.heaps[1].name, NULL);
  check_heap(&memory.heaps[1], 0, 0, 0);
  CHECK_EQ_U64(memory.releasable_bytes, 23 * MIB);
}

SPEC(one_heap_with_the_system_allocator,
     "A16 with the system allocator there is one heap, with the C library's figures") {
  heap_fake_be_the_c_heap();
  heap_fake_set_c_heap(90 * MIB, 20 * MIB, 70 * MIB);
  ids_counter_add_live(MIB);
  idlesched_memory memory = read_memory();
  CHECK_EQ_STR(memory.heaps[0].name, "fake");
  check_heap(&memory.heaps[0], 60 * MIB, 20 * MIB, 40 * MIB);
  CHECK_EQ_PTR(memory.heaps[1].name, NULL);
  CHECK_EQ_U64(memory.live_bytes, MIB);
}

SPEC(refusals_are_told, "D1 where the kernel refuses a figure, the rest is told, with its errno") {
  idlesched_memory memory;
  ids_counter_add_live(MIB);
  mappings_status = -EACCES;
  CHECK_EQ_INT(idlesched_memory_read(&memory), -EACCES);
  CHECK_EQ_U64(memory.resident_bytes, 100 * MIB);
  CHECK_EQ_U64(memory.heaps[0].resident_bytes, 0);
  residency_status = -ENOTSUP;
  CHECK_EQ_INT(idlesched_memory_read(&memory), -ENOTSUP);
  CHECK_EQ_U64(memory.resident_bytes, 0);
  CHECK_EQ_U64(memory.anonymous_bytes, 0);
  CHECK_EQ_U64(memory.live_bytes, MIB);
  mappings_status = 0;
  CHECK_EQ_INT(idlesched_memory_read(&memory), -ENOTSUP);
  CHECK_EQ_U64(memory.heaps[0].resident_bytes, 23 * MIB);
}

/* ------------------------------------------------------------- dead bytes by worker */

static idlesched_worker_row row_of(idlesched_pool *pool, unsigned index) {
  idlesched_worker_row rows[4];
  CHECK_EQ_INT(idlesched_pool_workers_read(pool, rows, ids_countof(rows)), 2);
  return rows[index];
}

struct sizes {
  uint64_t live_bytes, dead_bytes;
  struct door *door;
};

static void say_sizes(void *context) {
  const struct sizes *self = context;
  idlesched_worker_set_memory(idlesched_worker_current(), self->live_bytes, self->dead_bytes);
  door_pass(self->door);
}

SPEC(workers_tell_their_memory, "C4 what hosts say of their workers is in its row and in the sum") {
  struct door door = DOOR_CLOSED;
  struct sizes first = { 5 * MIB, 2 * MIB, &door }, second = { 7 * MIB, 3 * MIB, &door };
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_exit_ns = IDLESCHED_NEVER);
  CHECK_EQ_INT(row_of(pool, 0).state, IDLESCHED_WORKER_ABSENT);
  CHECK_EQ_INT(row_of(pool, 1).index, 1);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, say_sizes, &first), 0);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, say_sizes, &second), 0);
  WAIT_UNTIL(door_inside_count(&door) == 2, SOON_MS);
  CHECK_EQ_INT(row_of(pool, 0).state, IDLESCHED_WORKER_RUNNING);
  CHECK_EQ_U64(row_of(pool, 0).live_bytes + row_of(pool, 1).live_bytes, 12 * MIB);
  CHECK_EQ_U64(row_of(pool, 0).dead_bytes + row_of(pool, 1).dead_bytes, 5 * MIB);
  CHECK_EQ_U64(read_memory().dead_bytes, 5 * MIB);
  door_open(&door);
  WAIT_UNTIL(row_of(pool, 0).state == IDLESCHED_WORKER_PARKED, SOON_MS);

  struct door open = DOOR_OPEN;
  struct sizes less = { 5 * MIB, MIB, &open }; /* on whichever worker */
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, say_sizes, &less), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_LE_U64(read_memory().dead_bytes, 4 * MIB);
  CHECK_GE_U64(read_memory().dead_bytes, 3 * MIB);
  REQUIRE_EQ_INT(idlesched_pool_release(pool, 0, NULL), 0);
  CHECK(row_of(pool, 0).has_released && row_of(pool, 1).has_released);

  REQUIRE_EQ_INT(idlesched_pool_close(pool, IDLESCHED_CLOSE_DRAIN, 0, NULL), 0);
  CHECK_EQ_INT(row_of(pool, 0).state, IDLESCHED_WORKER_ABSENT);
  CHECK_EQ_U64(row_of(pool, 0).live_bytes, 0);
  CHECK_EQ_U64(row_of(pool, 1).dead_bytes, 0);
  CHECK_EQ_U64(read_memory().dead_bytes, 0);
  idlesched_pool_destroy(pool);
}

SPEC(fewer_rows_than_workers, "public: rows are written for as many workers as there is room") {
  idlesched_worker_row rows[3] = { [2] = { .index = 99 } };
  idlesched_pool *pool = POOL(.workers_max = 4);
  CHECK_EQ_INT(idlesched_pool_workers_read(pool, rows, 2), 4);
  CHECK_EQ_INT(rows[1].index, 1);
  CHECK_EQ_INT(rows[2].index, 99);
  CHECK_EQ_INT(idlesched_pool_workers_read(pool, NULL, 0), 4);
  idlesched_pool_destroy(pool);
}

SPEC(memory_is_told_by_the_worker_itself, "public: a worker's memory is told on its own thread",
     .aborts_with = "worker == ids_worker_current()") {
  idlesched_pool *pool = POOL(.workers_max = 1);
  idlesched_worker_set_memory(pool->group.workers[0], 1, 1);
}
