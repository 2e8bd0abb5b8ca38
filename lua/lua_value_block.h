/* SPDX-License-Identifier: MIT */
/*
 * lua_value_block.h - a message while it is being written: the bytes so far, and
 * what is in them already.
 *
 * Nothing here knows Lua or raises; what cannot be done is told by a result, and
 * `refused_size` says why.
 */
#ifndef LIDS_LUA_VALUE_BLOCK_H
#define LIDS_LUA_VALUE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lua_value_format.h"

/* Most messages fit in; they get a block of just their size at the end. */
#define LIDS_SMALL_BLOCK_BYTES 1024
#define LIDS_SMALL_SEEN_COUNT 64

/* What may be needed again, by its address: a table, function, upvalue or long string.
 * Addresses are good for that while nothing is collected. */
struct lids_seen {
  const void *address; /* NULL: free */
  uint32_t offset;     /* of its tag; of the function, for an upvalue; 0: it is new */
  uint32_t upvalue;    /* number of an upvalue in its function */
};

struct lids_block {
  unsigned char *bytes; /* a block, or small_bytes */
  size_t size, capacity;
  size_t refused_size; /* the message would have been too large; 0: there was no memory */
  uint32_t shared_count;

  struct lids_seen *seen; /* a block, small_seen or NULL: an open hash table */
  uint32_t seen_count, seen_capacity;

  bool has_recent;       /* recent_texts is filled in */
  uint32_t recent_count; /* as in the message */
  const char *recent_texts[LIDS_RECENT_COUNT];
  uint32_t recent_offsets[LIDS_RECENT_COUNT];

  struct lids_seen small_seen[LIDS_SMALL_SEEN_COUNT];
  _Alignas(struct lids_message) unsigned char small_bytes[LIDS_SMALL_BLOCK_BYTES];
};

void lids_block_init(struct lids_block *self);
/* Also after lids_block_finish(). */
void lids_block_deinit(struct lids_block *self);

/* Make room for more bytes.  Returns whether it is there. */
bool lids_block_grow(struct lids_block *self, size_t more);

static inline bool lids_block_reserve(struct lids_block *self, size_t more) {
  return more <= self->capacity - self->size || lids_block_grow(self, more);
}

/* These need room that was reserved. */

static inline void lids_block_put(struct lids_block *self, const void *bytes, size_t size) {
  memcpy(self->bytes + self->size, bytes, size);
  self->size += size;
}

static inline void lids_block_put_byte(struct lids_block *self, int byte) {
  self->bytes[self->size++] = (unsigned char)byte;
}

static inline void lids_block_put_u32(struct lids_block *self, uint32_t number) {
  lids_block_put(self, &number, sizeof number);
}

/* The entry of an address, a new one if need be.  Good until the next call; NULL
 * when there is no memory. */
struct lids_seen *lids_block_find(struct lids_block *self, const void *address);

/* The value whose tag is at that offset is needed again. */
void lids_block_share(struct lids_block *self, uint32_t offset);

/* If the value is in the message, put a reference to it and return true.  If not,
 * it is what comes next. */
bool lids_block_put_seen(struct lids_block *self, struct lids_seen *seen);

/* Put a string of at most UINT8_MAX bytes, whose address stands for it.  Needs room. */
void lids_block_put_short_string(struct lids_block *self, const char *text, size_t length);

/* The message, in a block of its size; NULL when there is no memory. */
struct lids_message *lids_block_finish(struct lids_block *self, uint32_t values_count);

#endif
