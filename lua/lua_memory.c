/* SPDX-License-Identifier: MIT */
/*
 * lua_memory.c - see lua_memory.h.
 */
#include "lua_memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "idlesched.h"

/* What any type of Lua's needs. */
#define ALIGNMENT 16

/* Larger than any block of a string, a table or a closure that start-up makes; the
 * string table has it from 128 entries on. */
#define LARGE_BYTES 1024

void lids_memory_init(struct lids_memory *self, void *chunk, size_t chunk_size) {
  char *begin = chunk;
  begin += -(uintptr_t)begin % ALIGNMENT;
  *self = (struct lids_memory){ .kind = LIDS_MEMORY_STARTING,
                                .chunk = begin,
                                .chunk_next = begin,
                                .chunk_end = (char *)chunk + chunk_size };
}

void lids_memory_set_kind(lua_State *L, enum lids_memory_kind kind) {
  void *context;
  lua_getallocf(L, &context);
  struct lids_memory *self = context;
  self->kind = kind;
}

/* --------------------------------------------------------------- the chunk */

static bool is_in_chunk(const struct lids_memory *self, const char *block) {
  return self->chunk <= block && block < self->chunk_end;
}

static size_t rounded(size_t size) {
  return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static bool is_for_chunk(const struct lids_memory *self, size_t size) {
  return self->kind == LIDS_MEMORY_STARTING ||
         (self->kind == LIDS_MEMORY_GROWING && size >= LARGE_BYTES);
}

/* NULL when it is full. */
static void *take_from_chunk(struct lids_memory *self, size_t size) {
  if (rounded(size) > (size_t)(self->chunk_end - self->chunk_next))
    return NULL;
  void *block = self->chunk_next;
  self->chunk_next += rounded(size);
  return block;
}

/* A large block is kept as the hole, and of two of them the larger one; the last
 * block of the chunk is really free again; any other one with the whole chunk. */
static void give_to_chunk(struct lids_memory *self, char *block, size_t size) {
  bool is_last = block + rounded(size) == self->chunk_next;
  bool is_starting = self->kind != LIDS_MEMORY_PASSING;
  if (is_last && (is_starting || size < LARGE_BYTES)) {
    self->chunk_next = block;
  } else if (size >= LARGE_BYTES && size > self->hole_size) {
    self->hole = block;
    self->hole_size = size;
  }
}

/* NULL unless it fits exactly: the parser's blocks shrink as well, to odd sizes. */
static void *take_hole(struct lids_memory *self, size_t size) {
  if (size != self->hole_size)
    return NULL;
  void *block = self->hole;
  self->hole = NULL;
  self->hole_size = 0;
  return block;
}

/* --------------------------------------------------------------- the blocks */

static void *make_block(struct lids_memory *self, size_t size) {
  void *block = is_for_chunk(self, size) ? take_from_chunk(self, size) : NULL;
  return block != NULL ? block : idlesched_realloc(NULL, size);
}

static void free_block(struct lids_memory *self, void *block, size_t size) {
  if (is_in_chunk(self, block))
    give_to_chunk(self, block, size);
  else
    idlesched_free(block);
}

/* NULL when there was no memory, and then the block is as it was. */
static void *move_block(struct lids_memory *self, void *block, size_t old_size, void *target,
                        size_t new_size) {
  if (target == NULL)
    return NULL;
  memcpy(target, block, old_size < new_size ? old_size : new_size);
  free_block(self, block, old_size);
  return target;
}

static void *resize_block(struct lids_memory *self, void *block, size_t old_size, size_t new_size) {
  if (new_size < old_size) {
    void *hole = take_hole(self, new_size);
    if (hole != NULL)
      return move_block(self, block, old_size, hole, new_size);
  }
  void *resized;
  if (is_in_chunk(self, block) || is_for_chunk(self, new_size))
    resized = move_block(self, block, old_size, make_block(self, new_size), new_size);
  else
    resized = idlesched_realloc(block, new_size);
  /* Lua relies on a block that shrinks. */
  return resized == NULL && new_size < old_size ? block : resized;
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
