/* SPDX-License-Identifier: MIT */
/*
 * job.h - the states of a job that can be waited for, and its waiters.
 *
 *   NEW -> QUEUED -> RUNNING -> DONE | FAILED
 *             +-------------------------------> CANCELLED
 *   and from an end back to QUEUED, when it is submitted again.  A delayed job is QUEUED, too:
 *   it waits for its moment among the pool's alarms, and then in the queue.
 *
 * A job ends exactly once for each time it is queued.  Its state changes under
 * the pool's lock, and is read without it: [ended] whoever reads an end also
 * sees what the job wrote before it.
 *
 * Each waiter sleeps on a condition of its own, which lives on its stack.  The end
 * takes the waiters off the job before it publishes the state, and that store is
 * the last touch: from then on the job belongs to whoever waited or reads it.
 *
 * A job that runs knows its worker, and a worker whose job sleeps until another one has
 * ended knows that one: so it can be told whether a job waits for a worker, and who closes
 * a circle is refused.  A worker's `awaited` is there only while that job is under way: the
 * end takes it off with the waiter.
 */
#ifndef IDS_JOB_H
#define IDS_JOB_H

#include "group.h"
#include "idlesched.h"

enum idlesched_job_state ids_job_state(const struct idlesched_job *self);
bool ids_job_has_ended(const struct idlesched_job *self);
/* Queued or running. */
bool ids_job_is_under_way(const struct idlesched_job *self);
bool ids_token_is_cancelled(const idlesched_token *self);
bool ids_job_has_cancelled_token(const struct idlesched_job *self);
/* The job itself, or its token. */
bool ids_job_is_cancelled(const struct idlesched_job *self);

/* The lock of the job's pool is held for all of these. */
/*
 * Make a job that is not under way this pool's: it is QUEUED.  False when it is under
 * way: another pool, whose lock is another, may claim it at the same moment, so one of
 * them wins.  *out_previous is what ids_job_unclaim_locked() puts back.
 */
bool ids_job_claim_locked(struct idlesched_job *self, idlesched_pool *pool, uint32_t *out_previous);
void ids_job_unclaim_locked(struct idlesched_job *self, uint32_t previous);
void ids_job_set_running_locked(struct idlesched_job *self, struct ids_worker *worker);
/* The job is asked to stop, until it is claimed again. */
void ids_job_ask_to_stop_locked(struct idlesched_job *self);
/* The end: wakes the waiters and publishes state and status. */
void ids_job_end_locked(struct idlesched_job *self, enum idlesched_job_state state, int status);
/* Jobs that are dropped, and whose done callbacks are still to be called. */
struct ids_drops {
  struct idlesched_job *first, *last;
};
/* A QUEUED job, which is in no queue any more, will not run: it ends as CANCELLED with this
 * status, or goes on the list first, if it has a done callback. */
void ids_job_drop_locked(struct idlesched_job *self, int status, struct ids_drops *drops);
/* The submit failed after all: the job is as if it had never been submitted. */
void ids_job_take_back_locked(struct idlesched_job *self);

/* Wait for the end: 0, -ETIMEDOUT, -EINVAL when it was taken back, or what a
 * condition's init returned.  The worker is the one whose job waits, or NULL: any other
 * thread. */
int ids_job_await_locked(struct idlesched_job *self, struct ids_worker *worker,
                         struct ids_mutex *lock, uint64_t deadline_ns);
/* Whether the worker runs the job, or one that it waits for through any number of others. */
bool ids_job_waits_for_locked(const struct idlesched_job *self, const struct ids_worker *worker);

#endif
