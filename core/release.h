/* SPDX-License-Identifier: MIT */
/*
 * release.h - give memory back now: visit the workers, purge, report.
 *
 * The visits come first, all of them; workers that have to do it themselves are woken.
 * Then the host's own threads that are parked, then what the caller's own heap has, and
 * one purge for all of it.
 */
#ifndef IDS_RELEASE_H
#define IDS_RELEASE_H

#include "pool.h"

/* 0, -ETIMEDOUT or -EDEADLK. */
int ids_release_pool(struct idlesched_pool *pool, uint64_t timeout_ns,
                     idlesched_release_report *out);

/* Every pool of the process.  0 or -ETIMEDOUT. */
int ids_release_all(uint64_t timeout_ns, idlesched_release_report *out);

/* The calling thread's own heap. */
void ids_release_thread(void);

#endif
