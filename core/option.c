/* SPDX-License-Identifier: MIT */
/*
 * option.c - see option.h.
 */
#include "option.h"

#include "fork.h"

struct override {
  unsigned holders_count; /* L */
  bool is_written;        /* L  the option is changed unless lifted; saved is to be put back */
  long saved, value;      /* L  0 unless is_written */
};

static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  struct override overrides[IDS_HEAP_OPTIONS]; /* L */
  unsigned lifts_count;                        /* L */
} registry = { .lock = IDS_MUTEX_STATIC };

static void write_overrides(bool is_lifted) {
  for (unsigned option = 0; option < IDS_HEAP_OPTIONS; option++) {
    const struct override *override = &registry.overrides[option];
    if (override->is_written)
      ids_heap_ops.option_set(option, is_lifted ? override->saved : override->value);
  }
}

/* A child has its parent's overrides, and the guards that hold them; who lifted them is not
 * there to put them back. */
static void lock(void) {
  if (ids_fork_is_first(&registry.fork)) {
    registry.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
    if (registry.lifts_count > 0)
      write_overrides(false);
    registry.lifts_count = 0;
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
    override->value = value;
    override->is_written = true;
    override->holders_count = 1;
    if (registry.lifts_count == 0)
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
    if (registry.lifts_count == 0)
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

bool ids_options_lift(void) {
  bool has_any = false;
  lock();
  for (unsigned option = 0; option < IDS_HEAP_OPTIONS; option++)
    has_any |= registry.overrides[option].is_written;
  ids_fork_hold_off();
  if (registry.lifts_count++ == 0)
    write_overrides(true);
  ids_fork_let();
  ids_mutex_unlock(&registry.lock);
  return has_any;
}

void ids_options_unlift(void) {
  lock();
  ids_assert(registry.lifts_count > 0);
  ids_fork_hold_off();
  if (--registry.lifts_count == 0)
    write_overrides(false);
  ids_fork_let();
  ids_mutex_unlock(&registry.lock);
}
