/* SPDX-License-Identifier: MIT */
/*
 * lua_value_block.c - see lua_value_block.h.
 */
#include "lua_value_block.h"

#include "idlesched.h"
#include "lua_value.h"
#include "lua_value_cache.h"

_Static_assert(LIDS_MESSAGE_BYTES_MAX < UINT32_MAX, "offsets have 32 bits");

void lids_block_init(struct lids_block *self) {
  /* Not the big arrays, which are filled when they are used. */
  self->bytes = self->small_bytes;
  self->size = offsetof(struct lids_message, bytes);
  self->capacity = sizeof self->small_bytes;
  self->refused_size = 0;
  self->shared_count = 0;
  self->seen = NULL;
  self->seen_count = self->seen_capacity = 0;
  self->has_recent = false;
  self->recent_count = 0;
}

static bool is_small(const struct lids_block *self) {
  return self->bytes == self->small_bytes;
}

void lids_block_deinit(struct lids_block *self) {
  if (!is_small(self))
    idlesched_free(self->bytes);
  if (self->seen != self->small_seen)
    idlesched_free(self->seen);
}

bool lids_block_grow(struct lids_block *self, size_t more) {
  self->refused_size = 0;
  if (more > LIDS_MESSAGE_BYTES_MAX - self->size) {
    self->refused_size = self->size + more;
    return false;
  }
  size_t capacity = self->capacity * 2;
  if (capacity < self->size + more)
    capacity = self->size + more;
  if (capacity > LIDS_MESSAGE_BYTES_MAX)
    capacity = LIDS_MESSAGE_BYTES_MAX;
  unsigned char *bytes = idlesched_realloc(is_small(self) ? NULL : self->bytes, capacity);
  if (bytes == NULL)
    return false;
  if (is_small(self))
    memcpy(bytes, self->small_bytes, self->size);
  self->bytes = bytes;
  self->capacity = capacity;
  return true;
}

static struct lids_seen *place_of(struct lids_seen *seen, uint32_t capacity, const void *address) {
  uint32_t place = lids_place_of(address, capacity);
  while (seen[place].address != NULL && seen[place].address != address)
    place = (place + 1) & (capacity - 1);
  return &seen[place];
}

static bool grow_seen(struct lids_block *self) {
  if (self->seen == NULL) {
    memset(self->small_seen, 0, sizeof self->small_seen);
    self->seen = self->small_seen;
    self->seen_capacity = LIDS_SMALL_SEEN_COUNT;
    return true;
  }
  uint32_t capacity = self->seen_capacity * 4;
  struct lids_seen *seen = idlesched_realloc(NULL, capacity * sizeof *seen);
  if (seen == NULL)
    return false;
  memset(seen, 0, capacity * sizeof *seen);
  for (uint32_t i = 0; i < self->seen_capacity; i++)
    if (self->seen[i].address != NULL)
      *place_of(seen, capacity, self->seen[i].address) = self->seen[i];
  if (self->seen != self->small_seen)
    idlesched_free(self->seen);
  self->seen = seen;
  self->seen_capacity = capacity;
  return true;
}

struct lids_seen *lids_block_find(struct lids_block *self, const void *address) {
  if (self->seen_count * 2 >= self->seen_capacity && !grow_seen(self))
    return NULL;
  struct lids_seen *seen = place_of(self->seen, self->seen_capacity, address);
  if (seen->address == NULL) {
    *seen = (struct lids_seen){ .address = address };
    self->seen_count++;
  }
  return seen;
}

void lids_block_share(struct lids_block *self, uint32_t offset) {
  if ((self->bytes[offset] & LIDS_TAG_SHARED) != 0)
    return;
  self->bytes[offset] |= LIDS_TAG_SHARED;
  self->shared_count++;
}

bool lids_block_put_seen(struct lids_block *self, struct lids_seen *seen) {
  if (seen->offset == 0) {
    seen->offset = (uint32_t)self->size;
    return false;
  }
  lids_block_share(self, seen->offset);
  lids_block_put_byte(self, LIDS_TAG_REFERENCE);
  lids_block_put_u32(self, seen->offset);
  return true;
}

void lids_block_put_short_string(struct lids_block *self, const char *text, size_t length) {
  if (!self->has_recent)
    memset(self->recent_texts, 0, sizeof self->recent_texts);
  self->has_recent = true;
  unsigned place = lids_place_of(text, LIDS_RECENT_COUNT);
  if (self->recent_texts[place] == text) {
    self->bytes[self->recent_offsets[place]] |= LIDS_TAG_SHARED;
    self->recent_count = LIDS_RECENT_COUNT;
    lids_block_put_byte(self, LIDS_TAG_RECENT_STRING);
    lids_block_put_byte(self, (int)place);
    return;
  }
  self->recent_texts[place] = text;
  self->recent_offsets[place] = (uint32_t)self->size;
  lids_block_put_byte(self, LIDS_TAG_SHORT_STRING);
  lids_block_put_byte(self, (int)place);
  lids_block_put_byte(self, (int)length);
  lids_block_put(self, text, length);
}

struct lids_message *lids_block_finish(struct lids_block *self, uint32_t values_count) {
  struct lids_message *message = (struct lids_message *)self->bytes;
  /* To shrink a block may copy it, which pays only when much is given back. */
  if (is_small(self) || self->capacity - self->size > self->size / 4)
    message = idlesched_realloc(is_small(self) ? NULL : self->bytes, self->size);
  if (message == NULL)
    return NULL;
  if (is_small(self))
    memcpy(message, self->small_bytes, self->size);
  self->bytes = self->small_bytes; /* what was there is the caller's now */
  message->size = self->size;
  message->values_count = values_count;
  message->shared_count = self->shared_count;
  message->recent_count = self->recent_count;
  return message;
}
