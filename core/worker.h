/* SPDX-License-Identifier: MIT */
/*
 * worker.h - the thread of a worker: runs jobs, parks, tidies up, leaves.
 *
 * The bargain, in the words of group.h:
 *
 *   forever
 *     use the ticket                     RUNNING
 *     while poll() == WORK               each poll but the first follows a job
 *       work()
 *     park: fix parked_at and with it release_at and exit_at    PARKED
 *     until there is a ticket
 *       at release_at, or when visited:  RELEASING, lock dropped, then PARKED
 *       at exit_at:                      EXITING, lock dropped, then ABSENT
 *       else sleep until the next of the two
 *
 * The deadlines are fixed once: neither the time that a release takes nor a
 * wake without a ticket moves them.  A wake without a ticket leads to no poll.
 * A release is made once for each new thread and each time the worker had work, and
 * whenever a visit asks for one; on its own account not when idle_exit comes first.  A ticket that
 * comes during a release is seen between two steps of it: the rest of the release is skipped.
 */
#ifndef IDS_WORKER_H
#define IDS_WORKER_H

#include "group.h"

/*
 * Bring a ticket to its worker: signal it, or start its thread.  Without the
 * lock.  A negative status means the system refused a thread, and the caller
 * must call ids_worker_launch_failed_locked(wake.worker).
 */
int ids_wake_deliver(struct ids_wake wake);

/* The worker whose thread calls, or NULL. */
struct ids_worker *ids_worker_current(void);

/*
 * Ask every worker that has a thread to release, parked or not; no ticket is
 * given and no poll made.  The number to ask ids_group_visits_locked() for.
 */
uint64_t ids_group_visit_locked(struct ids_group *self);

struct ids_visits {
  unsigned visited_count; /* have released, or left, since they were asked */
  unsigned pending_count; /* have a thread and have not yet released */
};
struct ids_visits ids_group_visits_locked(const struct ids_group *self, uint64_t number);

/* Tell every worker to stop when its poll says so.  They leave by themselves. */
void ids_group_stop_locked(struct ids_group *self);
/* Without the lock, when no thread is left: join the last of them. */
void ids_group_join(struct ids_group *self);

#endif
