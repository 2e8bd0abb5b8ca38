/* SPDX-License-Identifier: MIT */
/*
 * release.h - give memory back now: visit the workers, purge, report.
 *
 * All pools are asked before any is waited for, and one deadline is for all.  Workers that
 * have to release themselves are woken; those that sleep and need not, are given up here.
 * Then the host's own threads that are parked, then what the caller's own heap has, and
 * one purge for all of it, without the overrides of options that others hold.
 *
 * A release takes no memory: it is wanted most when there is none.
 */
#ifndef IDS_RELEASE_H
#define IDS_RELEASE_H

#include "pool.h"

/* Every pool of the process, or those of a list: 0 or -ETIMEDOUT. */
int ids_release_all(uint64_t timeout_ns, idlesched_release_report *out);
int ids_release_pools(struct idlesched_pool *const *pools, unsigned pools_count,
                      uint64_t timeout_ns, idlesched_release_report *out);

/* No pool: what is free already. */
void ids_release_free(idlesched_release_report *out);

/* The calling thread's own heap. */
void ids_release_thread(void);

#endif
