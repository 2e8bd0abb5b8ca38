/* SPDX-License-Identifier: MIT */
/*
 * lua_value_format.h - what is in a message, for those who write and read it.
 *
 * A message never leaves the process, so all numbers are as this machine has them,
 * unaligned.  Nothing that a script can make is ever read as a message; reading
 * still checks every bound, so that a bug is an error and not a crash.
 *
 * Values follow each other without gaps, each a tag and what the tag says:
 *
 *   INTEGER8..64       the integer in so many bits
 *   FLOAT              a lua_Number
 *   SHORT_STRING       u8 place, u8 length, bytes
 *   RECENT_STRING      u8 place: the last short string with it, once more
 *   LONG_STRING        u32 length, bytes
 *   LIGHT_USERDATA     the pointer
 *   TABLE              u32 items, u32 pairs; the values of keys 1 to `items`, nil
 *                      where there is none; the keys and values of the pairs
 *   FUNCTION           u8 upvalues, u64 hash, u32 length, bytecode, the upvalues:
 *                      each one of enum lids_upvalue and what that says
 *   PLAIN_FUNCTION     the same without the upvalues: all of them are _ENV
 *   MODULE             a value: the name
 *   NAMED_FUNCTION     two values: the module's name, and the field's, or nil when
 *                      the function is what the module returned
 *   REFERENCE          u32 offset of a tag: that value again
 *
 * Long strings, tables and Lua functions can be referred to.  The writer learns
 * that one is needed again only when it meets it again, and then adds SHARED to the
 * tag that is already there.  So the reader keeps what will be asked for, and
 * nothing else.  Offsets count from the beginning of the message.
 *
 * Short strings are mostly keys, a few of them in each of many tables, and quickly
 * made.  So both sides only remember the last one at each of a few places, which
 * is decided by its address at the sender.
 *
 * Handles of this library (a pool, a channel) are to travel as one more tag.  They
 * hold a reference while they are under way, so a message with handles must also
 * know where they are when it is freed unread.
 */
#ifndef LIDS_LUA_VALUE_FORMAT_H
#define LIDS_LUA_VALUE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

enum lids_tag {
  LIDS_TAG_NIL,
  LIDS_TAG_FALSE,
  LIDS_TAG_TRUE,
  LIDS_TAG_INTEGER8,
  LIDS_TAG_INTEGER32,
  LIDS_TAG_INTEGER64,
  LIDS_TAG_FLOAT,
  LIDS_TAG_LIGHT_USERDATA,
  LIDS_TAG_SHORT_STRING,
  LIDS_TAG_RECENT_STRING,
  LIDS_TAG_LONG_STRING,
  LIDS_TAG_TABLE,
  LIDS_TAG_FUNCTION,
  LIDS_TAG_PLAIN_FUNCTION,
  LIDS_TAG_MODULE,
  LIDS_TAG_NAMED_FUNCTION,
  LIDS_TAG_REFERENCE,
  LIDS_TAG_SHARED = 0x80 /* added to one of the above */
};

enum lids_upvalue {
  LIDS_UPVALUE_GLOBALS, /* _ENV */
  LIDS_UPVALUE_OWN,     /* a value */
  LIDS_UPVALUE_JOINED   /* u32 offset of a function, u8 number of its upvalue: the same one */
};

/* Places for short strings: each costs a slot of the reader's stack. */
#define LIDS_RECENT_COUNT 128

struct lids_message {
  size_t size; /* bytes, this included */
  uint32_t values_count;
  uint32_t shared_count; /* tags with SHARED, those of short strings left out */
  uint32_t recent_count; /* places for short strings: 0, or all of them */
  unsigned char bytes[];
};

#endif
