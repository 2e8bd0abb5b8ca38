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
 *       stop if it retires
 *     park: fix parked_at and with it release_at and exit_at    PARKED
 *     until there is a ticket
 *       until it is given back:          RELEASING, claimed by somebody else: sleep
 *       when it retires or at exit_at:   EXITING, lock dropped, then ABSENT
 *       at release_at, if it has a state, or when visited:
 *                                        RELEASING, lock dropped, then PARKED
 *       when the group's pass is due and this worker's to make: the same
 *       else sleep until the next of them
 *
 * The deadlines are fixed once: neither the time that a release takes nor a
 * wake without a ticket moves them.  A wake without a ticket leads to no poll.
 * A release is made once for each new thread and each time the worker had work, and
 * whenever a visit asks for one; on its own account not when idle_exit comes first.  A
 * ticket that comes during a release is seen between two steps of it: the rest is skipped.
 */
#ifndef IDS_WORKER_H
#define IDS_WORKER_H

#include "pass.h"

/*
 * Bring a ticket to its worker: signal it, or start its thread.  Without the
 * lock.  A negative status means the system refused a thread, and the caller
 * must call ids_worker_launch_failed_locked(wake.worker).
 */
int ids_wake_deliver(struct ids_wake wake);

/* The worker whose thread calls, or NULL. */
struct ids_worker *ids_worker_current(void);

/* Any thread: the worker takes no further job.  Nothing happens to one without a thread. */
void ids_worker_retire(struct ids_worker *self);

/* Start threads for so many workers, or for all that have none.  The lock is dropped
 * meanwhile.  0, or what the system refused the first one with that it refused. */
int ids_group_start_locked(struct ids_group *self, unsigned workers_count);
/* A ticket for every worker that has a thread and does not run. */
void ids_group_wake_all_locked(struct ids_group *self);

/* Tell every worker to stop when its poll says so.  They leave by themselves. */
void ids_group_stop_locked(struct ids_group *self);

#endif
