/* SPDX-License-Identifier: MIT */
/*
 * audit.h - the invariants of a live pool, checked one by one and told.
 */
#ifndef IDS_AUDIT_H
#define IDS_AUDIT_H

#include "pool.h"

/* Takes the pool's lock.  How many do not hold; the first of them are written to *out. */
unsigned ids_audit_pool(struct idlesched_pool *pool, idlesched_audit *out);

#endif
