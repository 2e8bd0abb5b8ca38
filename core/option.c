/* SPDX-License-Identifier: MIT */
/*
 * option.c - see option.h.
 */
#include "option.h"

#include "fork.h"

struct override {
  unsigned holders_count; /* L */
  bool is_written;        /* L  the option was changed, and saved holds what to put back */
  long saved;             /* L  0 unless is_written */
};

static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  struct override overrides[IDS_HEAP_OPTIONS]; /* L */
} registry = { .lock = IDS_MUTEX_STATIC };

/* A child has its parent's overrides, and the guards that hold them. */
static void lock(void) {
  if (ids_fork_is_first(&registry.fork)) {
    registry.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
    ids_fork_done(&registry.fork);
  }
  ids_mutex_lock(&registry.lock);
}

/* The rule by which an option refuses to be overridden: a delay that is over at once, or
 * never. */
static bool is_left_alone(enum ids_heap_option option, long current) {
  ids_assert(option == IDS_HEAP_PURGE_DELAY_MS);
  return current <= 0;
}

/* Whether the next holder changes the option; then *out_current is its value. */
static bool would_write_locked(enum ids_heap_option option, long *out_current) {
  if (registry.overrides[option].holders_count > 0 || !ids_heap_ops.has_options)
    return false;
  *out_current = ids_heap_ops.option_get(option);
  return !is_left_alone(option, *out_current);
}

bool ids_option_join(enum ids_heap_option option) {
  lock();
  long current;
  bool joins = !would_write_locked(option, &current);
  if (joins)
    registry.overrides[option].holders_count++;
  ids_mutex_unlock(&registry.lock);
  return joins;
}

bool ids_option_hold(enum ids_heap_option option, long value) {
  struct override *override = &registry.overrides[option];
  lock();
  long current;
  bool writes = would_write_locked(option, &current);
  if (writes) {
    ids_assert(!override->is_written && override->saved == 0);
    ids_fork_hold_off(); /* a child has both the value and who put it there, or neither */
    override->saved = current;
    override->is_written = true;
    override->holders_count = 1;
    ids_heap_ops.option_set(option, value);
    ids_fork_let();
  } else {
    override->holders_count++;
  }
  ids_mutex_unlock(&registry.lock);
  return writes;
}

void ids_option_drop(enum ids_heap_option option) {
  struct override *override = &registry.overrides[option];
  lock();
  ids_assert(override->holders_count > 0);
  if (override->holders_count == 1 && override->is_written) {
    ids_fork_hold_off();
    ids_heap_ops.option_set(option, override->saved);
    *override = (struct override){ 0 };
    ids_fork_let();
  } else {
    override->holders_count--;
  }
  ids_mutex_unlock(&registry.lock);
}

unsigned ids_option_holders(enum ids_heap_option option) {
  lock();
  unsigned count = registry.overrides[option].holders_count;
  ids_mutex_unlock(&registry.lock);
  return count;
}
