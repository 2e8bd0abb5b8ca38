/* SPDX-License-Identifier: MIT */
/*
 * host_thread.h - the host's own threads that take part in a release.
 *
 * Such a thread says when it waits (park begin, park end).  Between the two it
 * promises to allocate and free nothing, and a release may give up its heap.  (Workers
 * are not on this list, and struct ids_thread of plat.h is something else.)
 *
 * One word per thread, changed by compare-and-store only:
 *
 *   RUNNING   the thread's own.
 *   PARKED    anybody who holds the lock of the list of threads may claim it.
 *   CLAIMED   somebody gives up its heap.
 *   WANTED    the same, and the thread sleeps until it is given back.
 *
 *             park begin            claim
 *   RUNNING ------------> PARKED ----------> CLAIMED
 *      ^ ^   park end       ^ |  given back     |  park end
 *      | +------------------+-+-----------------+
 *      |                    given back          v
 *      +-------------------------------------- WANTED
 *
 * So park end is one such store unless the heap is being given up just then, and a thread
 * that runs is never claimed.
 */
#ifndef IDS_HOST_THREAD_H
#define IDS_HOST_THREAD_H

#include "idlesched.h"
#include "plat.h"

/* On the thread itself, all four: idlesched.h says what they do. */
void ids_host_thread_enter(idlesched_thread *self);
void ids_host_thread_leave(idlesched_thread *self);
void ids_host_thread_park_begin(idlesched_thread *self);
void ids_host_thread_park_end(idlesched_thread *self);

/* Give up the heap of every thread that has been parked for so long, once in each park.
 * How many they were. */
unsigned ids_host_threads_give_up(uint64_t now_ns, uint64_t idle_ns);

/* The calling thread is not parked: asserted in builds for tests. */
void ids_host_thread_check_may_allocate(void);

#endif
