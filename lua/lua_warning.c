/* SPDX-License-Identifier: MIT */
/*
 * lua_warning.c - see lua_warning.h.
 */
#include "lua_warning.h"

#include <stdio.h>
#include <string.h>

#include "idlesched.h"

/* More of them that wait help nobody, and a job may warn in a loop. */
#define WAITING_MOST 64

struct lids_warning {
  struct lids_warning *next;
  char text[];
};

/* --------------------------------------------------------------------- worker's side */

static void put(struct lids_warnings *self, const char *text) {
  struct lids_warning *warning = NULL;
  size_t size = strlen(text) + 1;
  if (atomic_fetch_add_explicit(&self->waiting_count, 1, memory_order_relaxed) < WAITING_MOST)
    warning = idlesched_realloc(NULL, sizeof *warning + size);
  if (warning == NULL) {
    atomic_fetch_sub_explicit(&self->waiting_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->lost_count, 1, memory_order_relaxed);
    return;
  }
  memcpy(warning->text, text, size);
  warning->next = atomic_load_explicit(&self->newest, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&self->newest, &warning->next, warning,
                                                memory_order_release, memory_order_relaxed))
    continue;
}

/* A control message is one piece that begins with '@'. */
static void warn(void *context, const char *piece, int is_to_continue) {
  struct lids_warner *self = context;
  if (!self->is_continued) {
    self->length = 0;
    self->is_control = !is_to_continue && piece[0] == '@';
  }
  self->is_continued = is_to_continue;
  size_t length = strlen(piece), room = sizeof self->text - 1 - self->length;
  if (length > room)
    length = room;
  memcpy(self->text + self->length, piece, length);
  self->length += length;
  self->text[self->length] = '\0';
  if (!self->is_continued && !self->is_control)
    put(self->warnings, self->text);
}

void lids_warner_attach(struct lids_warner *self, lua_State *L, struct lids_warnings *warnings) {
  self->warnings = warnings;
  self->is_continued = false;
  lua_setwarnf(L, warn, self);
}

/* --------------------------------------------------------------------- the pool's side */

/* All that wait, the oldest first. */
static struct lids_warning *take(struct lids_warnings *self) {
  struct lids_warning *oldest = NULL;
  struct lids_warning *warning = atomic_exchange_explicit(&self->newest, NULL,
                                                          memory_order_acquire);
  while (warning != NULL) {
    struct lids_warning *next = warning->next;
    warning->next = oldest;
    oldest = warning;
    warning = next;
    atomic_fetch_sub_explicit(&self->waiting_count, 1, memory_order_relaxed);
  }
  return oldest;
}

static void say(lua_State *L, const char *pool_name, const char *text) {
  lua_warning(L, "pool ", 1);
  lua_warning(L, pool_name, 1);
  lua_warning(L, ": ", 1);
  lua_warning(L, text, 0);
}

void lids_warnings_say(struct lids_warnings *self, lua_State *L, const char *pool_name) {
  if (atomic_load_explicit(&self->newest, memory_order_relaxed) == NULL)
    return; /* lost ones were lost behind others */
  struct lids_warning *warning = take(self);
  while (warning != NULL) {
    struct lids_warning *next = warning->next;
    say(L, pool_name, warning->text);
    idlesched_free(warning);
    warning = next;
  }
  unsigned lost_count = atomic_exchange_explicit(&self->lost_count, 0, memory_order_relaxed);
  char text[64];
  snprintf(text, sizeof text, "%u more warnings were lost", lost_count);
  if (lost_count > 0)
    say(L, pool_name, text);
}

void lids_warnings_clear(struct lids_warnings *self) {
  struct lids_warning *warning = take(self);
  while (warning != NULL) {
    struct lids_warning *next = warning->next;
    idlesched_free(warning);
    warning = next;
  }
}
