/* SPDX-License-Identifier: MIT */
/*
 * option.c - see option.h.
 */
#include "option.h"

#include "plat.h"

struct override {
  unsigned holders_count; /* L */
  bool is_written;        /* L  the option was changed, and saved holds what to put back */
  long saved;             /* L  0 unless is_written */
};

static struct {
  struct ids_mutex lock;
  struct override overrides[IDS_HEAP_OPTIONS]; /* L */
} registry = { .lock = IDS_MUTEX_STATIC };

/* The rules by which an option refuses to be overridden. */
static bool is_left_alone(enum ids_heap_option option, long current) {
  switch (option) {
  case IDS_HEAP_PURGE_DELAY_MS:
    return current <= 0;
  case IDS_HEAP_OPTIONS:
    break;
  }
  return true;
}

/* Lock held.  *out_current is the option's value when the answer is true. */
static bool would_write_locked(enum ids_heap_option option, long *out_current) {
  if (registry.overrides[option].holders_count > 0 || !ids_heap_ops.has_options)
    return false;
  *out_current = ids_heap_ops.option_get(option);
  return !is_left_alone(option, *out_current);
}

bool ids_option_would_write(enum ids_heap_option option) {
  ids_mutex_lock(&registry.lock);
  long current;
  bool result = would_write_locked(option, &current);
  ids_mutex_unlock(&registry.lock);
  return result;
}

bool ids_option_hold(enum ids_heap_option option, long value) {
  struct override *override = &registry.overrides[option];
  ids_mutex_lock(&registry.lock);
  long current;
  bool writes = would_write_locked(option, &current);
  if (writes) {
    ids_assert(!override->is_written && override->saved == 0);
    override->is_written = true;
    override->saved = current;
    ids_heap_ops.option_set(option, value);
  }
  override->holders_count++;
  ids_mutex_unlock(&registry.lock);
  return writes;
}

void ids_option_drop(enum ids_heap_option option) {
  struct override *override = &registry.overrides[option];
  ids_mutex_lock(&registry.lock);
  ids_assert(override->holders_count > 0);
  override->holders_count--;
  if (override->holders_count == 0 && override->is_written) {
    ids_heap_ops.option_set(option, override->saved);
    *override = (struct override){ 0 };
  }
  ids_mutex_unlock(&registry.lock);
}

unsigned ids_option_holders(enum ids_heap_option option) {
  ids_mutex_lock(&registry.lock);
  unsigned count = registry.overrides[option].holders_count;
  ids_mutex_unlock(&registry.lock);
  return count;
}
