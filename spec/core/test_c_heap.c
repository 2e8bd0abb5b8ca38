/* SPDX-License-Identifier: MIT */
/*
 * test_c_heap.c - the heaps of a real process: whose memory is whose, and what is freed to
 * the C library comes back as well.
 *
 * Method: each case is a process of its own, and measures it.  Here malloc is the C
 * library's, as under a stock interpreter, unless this program was linked otherwise.
 */
#include "heap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "memory.h"
#include "rss_kit.h"

#define BURST (64 * MIB)

static idlesched_memory memory_now(void) {
  idlesched_memory memory;
  REQUIRE_EQ_INT(idlesched_memory_read(&memory), 0);
  return memory;
}

static void need_both_heaps(void) {
  need_kernel_figures();
  if (is_system_allocator())
    SKIP("this build has one heap: %s", idlesched_allocator());
  if (memory_now().heaps[1].name == NULL)
    SKIP("malloc is %s's, or tells nothing", idlesched_allocator());
}

/* ----------------------------------------------------- whose memory is whose */

/* What the two of a heap's readings have in between, in MiB, rounded. */
static int64_t grown_mib(uint64_t before_bytes, uint64_t after_bytes) {
  return ((int64_t)(after_bytes - before_bytes) + (int64_t)MIB / 2) / (int64_t)MIB;
}

SPEC(each_heap_has_its_own, "B30 blocks of all sizes are told with the heap that they are of") {
  need_both_heaps();
  void *first = idlesched_realloc(NULL, 1);
  static const size_t sizes[] = { 100, 20 * KIB, 3 * MIB, 90 * MIB, 1500 * MIB, 5000 * MIB };
  for (unsigned i = 0; i < ids_countof(sizes); i++) {
    idlesched_memory before = memory_now();
    size_t count = sizes[i] > 12 * MIB ? 1 : 12 * MIB / sizes[i];
    void **last = NULL;
    for (size_t k = 0; k < count; k++) {
      void **block = idlesched_realloc(NULL, sizes[i]);
      if (block == NULL)
        SKIP("this system gives no block of %zu bytes", sizes[i]);
      memset(block, 1, sizes[i] < 12 * MIB ? sizes[i] : 12 * MIB);
      *block = last;
      last = block;
    }
    idlesched_memory after = memory_now();
    printf("%zu bytes, %zu times: %lld MiB more\n", sizes[i], count,
           (long long)grown_mib(before.heaps[0].resident_bytes, after.heaps[0].resident_bytes));
    CHECK_GE_INT(grown_mib(before.heaps[0].resident_bytes, after.heaps[0].resident_bytes), 11);
    CHECK_LE_INT(grown_mib(before.heaps[0].resident_bytes, after.heaps[0].resident_bytes), 16);
    CHECK_GE_U64(after.live_bytes - before.live_bytes, count * sizes[i]);
    CHECK_EQ_INT(grown_mib(before.heaps[1].resident_bytes, after.heaps[1].resident_bytes), 0);
    while (last != NULL) {
      void **next = *last;
      idlesched_free(last);
      last = next;
    }
    CHECK_EQ_U64(memory_now().live_bytes, before.live_bytes);
    idlesched_thread_idle();
  }
  idlesched_free(first);
}

SPEC(others_memory_is_not_ours, "B30 memory of malloc, mmap and stacks is not our allocator's") {
  need_both_heaps();
  void *first = idlesched_realloc(NULL, 1);
  idlesched_memory before = memory_now();
  void *small = NULL;
  for (unsigned i = 0; i < 2000; i++) {
    void **block = malloc(5000);
    REQUIRE(block != NULL);
    memset(block, 1, 5000);
    *block = small;
    small = block;
  }
  void *large = memset(malloc(50 * MIB), 1, 50 * MIB);
  void *mapped = mmap(NULL, 20 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  memset(mapped, 1, 20 * MIB);
  idlesched_memory after = memory_now();
  CHECK_EQ_INT(grown_mib(before.heaps[0].resident_bytes, after.heaps[0].resident_bytes), 0);
  CHECK_GE_INT(grown_mib(before.heaps[1].resident_bytes, after.heaps[1].resident_bytes), 59);
  CHECK_LE_INT(grown_mib(before.heaps[1].resident_bytes, after.heaps[1].resident_bytes), 61);
  CHECK_GE_INT(grown_mib(before.heaps[1].live_bytes, after.heaps[1].live_bytes), 59);
  CHECK_GE_INT(grown_mib(before.anonymous_bytes, after.anonymous_bytes), 79);
  munmap(mapped, 20 * MIB);
  free(large);
  while (small != NULL) {
    void *next = *(void **)small;
    free(small);
    small = next;
  }
  idlesched_free(first);
}

SPEC(an_arena_with_nothing_live_is_ours, "B30 what is free is told also where no block is left") {
  need_both_heaps();
  enum { BLOCKS = 24 * 1024 };
  static void *blocks[BLOCKS];
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = memset(idlesched_realloc(NULL, KIB), 1, KIB);
  for (unsigned i = 0; i < BLOCKS; i++)
    idlesched_free(blocks[i]);
  ids_heap_collect(); /* its pages are the allocator's again, and nobody purges */
  idlesched_memory memory = memory_now();
  CHECK_GE_U64(memory.heaps[0].free_bytes, 20 * MIB);
  CHECK_GE_U64(memory.releasable_bytes, 20 * MIB);
  idlesched_thread_idle();
  CHECK_LE_U64(memory_now().heaps[0].free_bytes, 2 * MIB);
}

SPEC(the_system_allocators_heap_is_told, "A16 with the system allocator its heap is told, alone") {
  need_kernel_figures();
  if (!is_system_allocator())
    SKIP("this build's allocator is another: %s", idlesched_allocator());
  struct ids_c_heap heap;
  if (!ids_heap_ops.c_heap(&heap))
    SKIP("this C library tells nothing of its heap");
  idlesched_memory before = memory_now();
  void *block = memset(idlesched_realloc(NULL, 50 * MIB), 1, 50 * MIB);
  idlesched_memory after = memory_now();
  CHECK_EQ_STR(after.heaps[0].name, "system");
  CHECK_EQ_PTR(after.heaps[1].name, NULL);
  CHECK_GE_INT(grown_mib(before.heaps[0].live_bytes, after.heaps[0].live_bytes), 50);
  CHECK_GE_INT(grown_mib(before.heaps[0].resident_bytes, after.heaps[0].resident_bytes), 49);
  idlesched_free(block);
}

/* ------------------------------------------------------- the C library's burst */

/* Small blocks of the C library's; one in 3000 stays, so that its heap cannot shrink. */
static void burst_of_malloc(void *context) {
  enum { SIZE = 200, COUNT = BURST / SIZE };
  static void *blocks[COUNT];
  (void)context;
  for (unsigned i = 0; i < COUNT; i++)
    if (blocks[i] == NULL)
      blocks[i] = memset(malloc(SIZE), 1, SIZE);
  uint64_t peak_bytes = memory_now().anonymous_bytes;
  for (unsigned i = 0; i < COUNT; i++)
    if (i % 3000 != 0) {
      free(blocks[i]);
      blocks[i] = NULL;
    }
  printf("peak %.1f MiB\n", (double)peak_bytes / MIB);
  CHECK_GT_U64(peak_bytes, BURST);
}

SPEC(bursts_of_malloc_come_back,
     "N9 what native code has freed to the C library is back after the pass, each time",
     .limit_s = 60) {
  need_kernel_figures();
  struct ids_c_heap heap;
  if (!ids_heap_ops.c_heap(&heap))
    SKIP("there is no heap of the C library's, or it tells nothing");
  idlesched_pool *pool = POOL(.workers_max = 1);
  run_one_job(pool);
  uint64_t before = anonymous_bytes();
  for (unsigned round = 0; round < 3; round++) {
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, burst_of_malloc, NULL), 0);
    REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
    /* The table of blocks has 2.6 MB. */
    WAIT_UNTIL(anonymous_bytes() < before + 6 * MIB, SOON_MS);
  }
  if (!is_system_allocator()) { /* free in its books, and not in memory */
    REQUIRE(ids_heap_ops.c_heap(&heap));
    CHECK_GT_U64(heap.free_bytes, BURST / 2);
    CHECK_LE_U64(memory_now().heaps[1].free_bytes, 8 * MIB);
  }
  idlesched_pool_destroy(pool);
}

/* Without this one the other could pass on a C library that keeps nothing. */
SPEC(bursts_of_malloc_stay_without_a_pass,
     "N9 with idle_release never a burst of malloc stays until something trims") {
  need_kernel_figures();
  struct ids_c_heap heap;
  if (!ids_heap_ops.c_heap(&heap))
    SKIP("there is no heap of the C library's, or it tells nothing");
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_NEVER);
  run_one_job(pool);
  uint64_t before = anonymous_bytes();
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, burst_of_malloc, NULL), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_GT_U64(anonymous_bytes() - before, BURST / 2);
  CHECK_GT_U64(memory_now().releasable_bytes, BURST / 2);
  if (is_system_allocator())
    ids_heap_purge_and_wait();
  else
    ids_heap_trim_c(true);
  CHECK_LT_U64(anonymous_bytes() - before, 6 * MIB);
  idlesched_pool_destroy(pool);
}

SPEC(a_leaving_worker_trims, "N9 a thread that ends trims as well: no pass may follow") {
  need_both_heaps();
  uint64_t before = anonymous_bytes();
  idlesched_pool *pool = POOL(.workers_max = 1, .is_dedicated = true);
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, burst_of_malloc, NULL), 0);
  WAIT_UNTIL(stats_of(pool).retires == 1, SOON_MS);
  CHECK_LT_U64(anonymous_bytes() - before, 6 * MIB);
  idlesched_pool_destroy(pool);
}
