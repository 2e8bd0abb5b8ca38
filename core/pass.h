/* SPDX-License-Identifier: MIT */
/*
 * pass.h - how the memory of a group's parked workers is given back.
 *
 * A worker for which the owner of the group keeps something (a script state, say) tidies
 * it on its own thread, at its release time, and gives up its heap in the same go.  All
 * others are not woken for it: their heaps are given up by a pass, on one thread, with
 * one purge at the end for everybody.
 *
 * The timer
 *
 *   A group has one.  The parked worker that holds it sleeps until the next pass, besides
 *   its own deadlines.  Whoever is about to sleep takes it when nobody has it, or when its
 *   holder sleeps for longer than the next pass allows; who gets a ticket, exits or
 *   retires hands it to the parked worker that will be needed last, and wakes that one
 *   only if it sleeps for too long.  With no parked worker there is nothing to release,
 *   and no timer; what falls due meanwhile is made up for by the next one that parks.
 *
 * When
 *
 *   A pass is due when the first worker's release time has come, and waits for others that
 *   follow within the window; so workers that parked at about the same time share one
 *   purge.  The window is no longer than idle_release: then whoever will be in it has
 *   parked by the time the first one is due, and no pass waits for nothing.  A holder that
 *   falls asleep while others run sleeps to the end of the window at once: a wave of workers
 *   that go idle together wakes it once, and once more for the later pass.
 *
 *   A later pass follows 0.9 s after each pass that gave something up, each visit and
 *   each thread that left: what others freed meanwhile lies free and is given back then,
 *   without claiming anybody.  They are at least a window apart: one that would come
 *   sooner is put off.  With idle_release never, visits and leaving threads have none.
 *   Others can ask for one: what they freed long after a pass would else wait for the next.
 *
 * The pass
 *
 *   The thread that makes it claims itself, and then one worker after the other: claim,
 *   give up the heap without the lock, give back.  Between two of them it looks for a
 *   ticket of its own; if there is one it leaves the rest, and the purge that is owed, to
 *   the next holder.  Before the purge the owner of the group may free what it keeps, and
 *   the heaps of the host's threads that have been parked for idle_release are given up
 *   (host_thread.h).
 */
#ifndef IDS_PASS_H
#define IDS_PASS_H

#include "group.h"

/* The group's next pass; IDS_NEVER: none is due. */
uint64_t ids_pass_at_ns_locked(const struct ids_group *self);
/* Whether this worker, which is parked and awake, is the one to make it now. */
bool ids_pass_is_mine_locked(const struct ids_worker *self, uint64_t now_ns);
/* Make it: the lock is dropped meanwhile, the worker is RELEASING and then PARKED. */
void ids_pass_run_locked(struct ids_worker *self);

/* The worker is about to sleep until then for reasons of its own.  Until when it has to,
 * with the timer in view. */
uint64_t ids_pass_sleeps_until_locked(struct ids_worker *self, uint64_t own_ns);
/* It is awake. */
void ids_pass_wakes_locked(struct ids_worker *self);
/* It stops being parked. */
void ids_pass_hand_over_locked(struct ids_worker *self);
/* Memory may be freed for a while after this moment: a later pass looks after it. */
void ids_pass_follow_up_locked(struct ids_group *self, uint64_t now_ns);

/*
 * The calling thread has freed much into heaps of others: a later pass looks after it.
 * Without a thread that could make it, the caller purges, at most once in 0.9 s: what it
 * frees meanwhile waits for its next call, or for a worker that parks.
 */
void ids_pass_freed(struct ids_group *self);

/* Heaps have been given up, and whoever did it leaves the purge to the next pass. */
void ids_pass_owe_purge_locked(struct ids_group *self, uint64_t since_ns);

/* The worker waits for a pass to give up its heap, or does not any more. */
void ids_worker_set_awaits_pass_locked(struct ids_worker *self, bool awaits_pass);
/* Its heap has been given up. */
void ids_worker_released_locked(struct ids_worker *self);

/*
 * Give up the heap of a worker that is PARKED and asleep, or of the caller's own, which is
 * RELEASING.  The lock is dropped meanwhile.  It serves the visits asked for so far.
 */
void ids_worker_give_up_locked(struct ids_worker *self);

#endif
