/* SPDX-License-Identifier: MIT */
/*
 * memory_sim.c - blocks of the simulated machine, all of which a run gives back.
 */
#include "plat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "inside.h"

/*
 * Blocks come from one stretch of memory that begins anew with each run, and is not used
 * again within one: what was freed stays as freed blocks are marked.  Under the address
 * sanitizer they come from malloc(), so that it sees every use after free.
 */
#define BLOCK_LIVE UINT32_C(0x11feb10c)
#define BLOCK_FREE UINT32_C(0xdeadb10c)
#define ARENA_SIZE (UINT64_C(256) << 20)

struct block {
  uint64_t run;
  size_t size;
  const char *site;
  uint32_t state;
  uint32_t generation;
#ifdef SIM_ASAN
  struct block *next, *previous;
#endif
};
_Static_assert(sizeof(struct block) % 16 == 0, "what follows is aligned for any type");

static struct {
  char *arena;
  size_t used;
  uint64_t blocks_count; /* to be given back */
  struct block *first;   /* address sanitizer only */
} memory;

#ifndef SIM_ASAN
static size_t room_of(size_t size) {
  return sizeof(struct block) + ((size + 15) & ~(size_t)15);
}
#endif

/* Under the thread sanitizer by hand: it would see memset(). */
static void fill(void *bytes, int value, size_t size) {
#if defined(SIM_TSAN) || defined(SIM_ASAN)
  (void)bytes;
  (void)value;
  (void)size;
#else
  memset(bytes, value, size);
#endif
}

static void copy(void *to, const void *from, size_t size) {
#ifdef SIM_TSAN
  const volatile char *source = from;
  for (size_t i = 0; i < size; i++)
    ((volatile char *)to)[i] = source[i];
#else
  memcpy(to, from, size);
#endif
}

static struct block *take_block(size_t size) {
#ifdef SIM_ASAN
  struct block *block = malloc(sizeof *block + size);
  if (block == NULL)
    abort();
  block->previous = NULL;
  block->next = memory.first;
  if (block->next != NULL)
    block->next->previous = block;
  memory.first = block;
  return block;
#else
  if (memory.arena == NULL) {
    memory.arena = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory.arena == MAP_FAILED)
      abort();
  }
  if (size > ARENA_SIZE || room_of(size) > ARENA_SIZE - memory.used)
    sim_fail("a run allocates more than %llu MB", (unsigned long long)(ARENA_SIZE >> 20));
  struct block *block = (struct block *)(void *)(memory.arena + memory.used);
  memory.used += room_of(size);
  return block;
#endif
}

static void *allocate(size_t size, const char *site) {
  struct block *block = take_block(size);
  block->run = sim.run_number;
  block->size = size;
  block->site = site;
  block->state = BLOCK_LIVE;
  block->generation = sim.generation;
  memory.blocks_count++;
  fill(block + 1, 0xa5, size);
  return block + 1;
}

static struct block *block_of(void *bytes, const char *call) {
  struct block *block = (struct block *)bytes - 1;
  if (block->state == BLOCK_LIVE && block->run == sim.run_number)
    return block;
  if (block->state == BLOCK_FREE && block->run == sim.run_number)
    sim_fail("%s: the block was freed before; it was made at site '%s'", call, block->site);
  sim_fail("%s: no block of this run", call);
}

static void give_back(struct block *block) {
  block->state = BLOCK_FREE;
  if (block->generation == sim.generation)
    memory.blocks_count--;
  fill(block + 1, 0xdd, block->size);
#ifdef SIM_ASAN
  if (block->next != NULL)
    block->next->previous = block->previous;
  if (block->previous != NULL)
    block->previous->next = block->next;
  else
    memory.first = block->next;
  free(block);
#endif
}

void *ids_alloc(size_t size, const char *site) {
  sim_must_be_active("ids_alloc");
  sim_do("alloc", site);
  return sim_is_refused(site) ? NULL : allocate(size, site);
}

void ids_free(void *bytes) {
  if (bytes == NULL)
    return;
  sim_must_be_active("ids_free");
  struct block *block = block_of(bytes, "ids_free");
  sim_do("free", block->site);
  give_back(block);
}

/* As realloc(), and free() for 0 bytes.  To make a block smaller never fails. */
void *sim_memory_resize(void *bytes, size_t size, const char *site) {
  sim_must_be_active("resize");
  struct block *old = bytes == NULL ? NULL : block_of(bytes, "resize");
  size_t old_size = old == NULL ? 0 : old->size;
  sim_do("resize", site);
  if (size > old_size && sim_is_refused(site))
    return NULL;
  void *result = NULL;
  if (size > 0) {
    result = allocate(size, site);
    if (old != NULL)
      copy(result, bytes, size < old_size ? size : old_size);
  }
  if (old != NULL)
    give_back(old);
  return result;
}

size_t sim_memory_size(void *bytes) {
  return bytes == NULL ? 0 : block_of(bytes, "size")->size;
}

void sim_memory_begin_run(void) {
  memory.used = 0;
  memory.blocks_count = 0;
}

void sim_memory_fork(void) {
  memory.blocks_count = 0;
}

/* What a failed run or a fork left behind is no leak of the process. */
void sim_memory_end_run(void) {
#ifdef SIM_ASAN
  while (memory.first != NULL)
    give_back(memory.first);
#endif
}

bool sim_memory_is_balanced(char *text, size_t size) {
  if (memory.blocks_count == 0)
    return true;
  const struct block *found = NULL;
#ifdef SIM_ASAN
  for (found = memory.first; found->generation != sim.generation;)
    found = found->next;
#else
  for (size_t at = 0; found == NULL;) {
    const struct block *block = (const struct block *)(void *)(memory.arena + at);
    if (block->state == BLOCK_LIVE && block->generation == sim.generation)
      found = block;
    at += room_of(block->size);
  }
#endif
  snprintf(text, size, "%llu blocks were not freed; the first has %zu bytes and was made at '%s'",
           (unsigned long long)memory.blocks_count, found->size, found->site);
  return false;
}
