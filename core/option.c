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

bool ids_option_hold(enum ids_heap_option option, long value) {
  struct override *override = &registry.overrides[option];
  ids_mutex_lock(&registry.lock);
  bool writes = false;
  if (override->holders_count == 0 && ids_heap_ops.has_options) {
    ids_assert(!override->is_written && override->saved == 0);
    long current = ids_heap_ops.option_get(option);
    writes = !is_left_alone(option, current);
    if (writes) {
      *override = (struct override){ .is_written = true, .saved = current };
      ids_heap_ops.option_set(option, value);
    }
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
