/* SPDX-License-Identifier: MIT */
/*
 * worker.h - the thread of a worker: runs jobs, parks, tidies up, leaves.
 *
 * The bargain, in the words of group.h:
 *
 *   start()
 *   forever
 *     use the ticket                                                     RUNNING
 *     while poll() == WORK: work()
 *       (each poll but the first follows a job; one that retires does not ask again, and
 *       WAIT is the answer, too, where too many run; before each it rings if there is an
 *       alarm)
 *     if the last answer was WAIT
 *       park: fix parked_at and with it release_at and exit_at           PARKED
 *       until there is a ticket, or it has to leave
 *         claimed by somebody else: sleep until it is given back         RELEASING
 *         retires: leave
 *         an alarm is due: ring; with somebody to tell, lock dropped     RELEASING
 *         visited, or release_at with a state: release, lock dropped     RELEASING
 *         exit_at: leave, or, if it has to watch or is one of the last
 *         workers_min, stay, and release what leaving would
 *         the group's pass is due, and this worker's to make: make it    RELEASING
 *         else sleep until the next of these
 *     if it has to leave
 *       stop(), tidy and purge, lock dropped                             EXITING
 *       no ticket came: the thread ends                                  ABSENT or GONE
 *       one came, and it retires: it is for a new thread; this one ends  STARTING
 *       one came: start() again, and go on with it                       PARKED
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
/* The same for a worker that somebody with a thread wants beside himself, if there is one: a
 * refusal is no loss, as who has a thread polls again, or gets the ticket. */
void ids_wake_pass_on(struct ids_wake wake);

/* The worker whose thread calls, or NULL; where it is several, that of the innermost job. */
struct ids_worker *ids_worker_current(void);
/* That of the outermost: the only one that may have a thread of its own. */
struct ids_worker *ids_worker_outermost(void);

/* What the host keeps for it, as it says.  On the worker's own thread. */
void ids_worker_set_memory(struct ids_worker *self, uint64_t live_bytes, uint64_t dead_bytes);

/* From any thread, without the lock: the worker takes no further job.  Nothing happens to
 * one without a thread, or whose thread is being started. */
void ids_worker_retire(struct ids_worker *self);

/*
 * The calling worker's job is about to block, and is not any more; not nested: is_blocking
 * tells.  Where another worker is wanted in its place, the lock is dropped to wake it.  Without
 * the lock, the same from a job, and nothing from a hook.
 */
void ids_worker_block_begin_locked(struct ids_worker *self);
void ids_worker_block_end_locked(struct ids_worker *self);
/* Whichever of the two makes it so, if it is not. */
void ids_worker_block_as_locked(struct ids_worker *self, bool blocks);
void ids_worker_block_begin(struct ids_worker *self);
void ids_worker_block_end(struct ids_worker *self);

/* Start threads for so many workers, or for all that have none.  The lock is dropped
 * meanwhile.  0, or the status of the first refusal, which ends it. */
int ids_group_start_locked(struct ids_group *self, unsigned workers_count);
/* A ticket for every worker that has a thread and does not run: for owners whose rules of
 * what may run have changed. */
void ids_group_wake_all_locked(struct ids_group *self);

/* Tell every worker to stop when its poll says so.  They leave by themselves. */
void ids_group_stop_locked(struct ids_group *self);

#endif
