/* SPDX-License-Identifier: MIT */
/*
 * visit.h - every worker of some groups releases now, because somebody asks for it.
 *
 * Who has something to collect is woken, without a ticket, and does it on its own thread;
 * who is awake does it when it parks; the heaps of all others are given up by the visitor.
 * A visit is a number: a worker has served it when it released, or left, after that
 * number was given out; or when it had no thread just then.  In each group numbers rise:
 * who gives them out sees to it that visitors ask one after the other.
 *
 * A visit is
 *
 *   begin   it has its number.
 *   ask     each group.
 *   parked  each group: give up the heaps of those that need not be woken.
 *   await   each group, until all have served the visit or the deadline has passed.
 *   end
 *
 * and the caller collects its own heap and purges, after that.  The caller may be a worker, in
 * a job or a hook: then it is not asked.  Two workers that visit each other would wait for
 * ever, so the later one does not wait for the earlier, and may miss it.
 */
#ifndef IDS_VISIT_H
#define IDS_VISIT_H

#include "group.h"

struct ids_visit {
  uint64_t number;
  uint64_t deadline_ns;
  struct ids_worker *caller; /* NULL: the calling thread is no worker */
  unsigned asked_count;      /* workers that had a thread */
  /* Those that have not served the visit: it is left to the next time they park. */
  unsigned missed_running_count, missed_starting_count, missed_exiting_count;
};

/* All without a lock of the groups.  Who asks later begins later, too. */
void ids_visit_begin(const struct ids_visit *self);
void ids_visit_ask(struct ids_visit *self, struct ids_group *group);
void ids_visit_parked(const struct ids_visit *self, struct ids_group *group);
/* No ticket is given and no poll made. */
void ids_visit_await(struct ids_visit *self, struct ids_group *group);
void ids_visit_end(const struct ids_visit *self);

#endif
