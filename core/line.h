/* SPDX-License-Identifier: MIT */
/*
 * line.h - threads that wait in line for what a lock guards: who came first is served first.
 *
 * Each sleeps on a condition of its own, which lives on its stack with its place.  Who has
 * something to give, under the lock, serves the first in line: it gives there and then, in
 * the name of the one who waits, so that nobody can come between, and what the wait returns.
 */
#ifndef IDS_LINE_H
#define IDS_LINE_H

#include "list.h"
#include "plat.h"

/* L: only with that lock held, as all of these functions. */
struct ids_line {
  struct ids_list places; /* L */
};

void ids_line_init(struct ids_line *self);
bool ids_line_is_empty(const struct ids_line *self);

/* Wait until served: 0 or less, as the server said; -ETIMEDOUT when nobody did in time; or what
 * the condition's init returned.  The wish is for the server to see, and may be NULL. */
int ids_line_wait_locked(struct ids_line *self, const void *wish, struct ids_mutex *lock,
                         uint64_t deadline_ns);
/* What the first in line, who is there, wishes. */
const void *ids_line_first_wish_locked(const struct ids_line *self);
void ids_line_serve_first_locked(struct ids_line *self, int result);
void ids_line_serve_all_locked(struct ids_line *self, int result);

#endif
