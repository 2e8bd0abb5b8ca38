/* SPDX-License-Identifier: MIT */
/*
 * visit.h - every worker of a group releases now, because somebody asks for it.
 *
 * Who has something to collect is woken, without a ticket, and does it on its own thread;
 * who is awake does it when it parks; the heaps of all others are given up by the visitor.
 * A visit is a number: a worker has served it when it released, or left, after that
 * number was given out; or when it had no thread just then.
 */
#ifndef IDS_VISIT_H
#define IDS_VISIT_H

#include "group.h"

struct ids_visits {
  unsigned visited_count; /* have released, or left, since they were asked */
  unsigned pending_count; /* have a thread and have not yet released */
};

/*
 * Without the lock: every worker that has a thread releases, parked or not; no ticket is
 * given and no poll made.  Returns when they have, or after the deadline, and leaves the
 * purge to the caller.
 */
struct ids_visits ids_group_visit(struct ids_group *self, uint64_t deadline_ns);

#endif
