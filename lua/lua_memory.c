/* SPDX-License-Identifier: MIT */
/*
 * lua_memory.c - see lua_memory.h.
 */
#include "lua_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <threads.h>

#include "idlesched.h"

/* Lua 5.4's state, libraries and our module take 27 KB of it; what does not fit
 * goes to the lasting heap. */
#define CHUNK_BYTES (64 * 1024)

/* What any type of Lua's needs. */
#define ALIGNMENT 16

/* One for the process, made once.  NULL when there was no memory for it: then
 * what would go there goes to the thread's own heap. */
static idlesched_heap *lasting_heap;

static void make_lasting_heap(void) {
  lasting_heap = idlesched_heap_create();
}

int lids_memory_init(struct lids_memory *self) {
  static once_flag once = ONCE_FLAG_INIT;
  call_once(&once, make_lasting_heap);
  *self = (struct lids_memory){ .kind = LIDS_MEMORY_STARTING };
  self->chunk = lasting_heap != NULL ? idlesched_heap_realloc(lasting_heap, NULL, CHUNK_BYTES)
                                     : idlesched_realloc(NULL, CHUNK_BYTES);
  self->chunk_next = self->chunk;
  return self->chunk == NULL ? -ENOMEM : 0;
}

void lids_memory_deinit(struct lids_memory *self) {
  idlesched_free(self->chunk);
}

/* --------------------------------------------------------------- the chunk */

static bool is_in_chunk(const struct lids_memory *self, const void *block) {
  return (uintptr_t)block - (uintptr_t)self->chunk < CHUNK_BYTES;
}

static size_t rounded(size_t size) {
  return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* NULL when it is full. */
static void *take_from_chunk(struct lids_memory *self, size_t size) {
  if (rounded(size) > (size_t)(self->chunk + CHUNK_BYTES - self->chunk_next))
    return NULL;
  void *block = self->chunk_next;
  self->chunk_next += rounded(size);
  return block;
}

/* The last block is really free again, any other one with the whole chunk. */
static void give_to_chunk(struct lids_memory *self, void *block, size_t size) {
  if ((char *)block + rounded(size) == self->chunk_next)
    self->chunk_next = block;
}

/* --------------------------------------------------------------- the blocks */

static void *resize_outside(const struct lids_memory *self, void *block, size_t size) {
  if (self->kind != LIDS_MEMORY_PASSING && lasting_heap != NULL)
    return idlesched_heap_realloc(lasting_heap, block, size);
  return idlesched_realloc(block, size);
}

static void *make_block(struct lids_memory *self, size_t size) {
  void *block = self->kind == LIDS_MEMORY_STARTING ? take_from_chunk(self, size) : NULL;
  return block != NULL ? block : resize_outside(self, NULL, size);
}

static void free_block(struct lids_memory *self, void *block, size_t size) {
  if (is_in_chunk(self, block))
    give_to_chunk(self, block, size);
  else
    idlesched_free(block);
}

/* A block of the chunk moves, unless it is the last one and goes in again. */
static void *move_from_chunk(struct lids_memory *self, void *block, size_t old_size,
                             size_t new_size) {
  char *next_before = self->chunk_next;
  give_to_chunk(self, block, old_size);
  void *moved = make_block(self, new_size);
  if (moved == NULL)
    self->chunk_next = next_before;
  else if (moved != block)
    memcpy(moved, block, old_size < new_size ? old_size : new_size);
  return moved;
}

static void *resize_block(struct lids_memory *self, void *block, size_t old_size, size_t new_size) {
  void *resized = is_in_chunk(self, block) ? move_from_chunk(self, block, old_size, new_size)
                                           : resize_outside(self, block, new_size);
  /* Lua relies on a block that shrinks. */
  return resized == NULL && new_size <= old_size ? block : resized;
}

void *lids_memory_allocate(void *context, void *block, size_t old_size, size_t new_size) {
  struct lids_memory *self = context;
  if (block == NULL)
    old_size = 0; /* Lua passes the kind of the object here */
  void *result = NULL;
  if (new_size == 0)
    free_block(self, block, old_size);
  else if (block == NULL)
    result = make_block(self, new_size);
  else
    result = resize_block(self, block, old_size, new_size);
  if (result == NULL && new_size > 0)
    return NULL;
  self->live_bytes += new_size;
  self->live_bytes -= old_size;
  return result;
}
