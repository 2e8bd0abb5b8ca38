/* SPDX-License-Identifier: MIT */
/*
 * audit.h - the invariants of a live pool, checked one by one and told.
 */
#ifndef IDS_AUDIT_H
#define IDS_AUDIT_H

#include "pool.h"

/* How many do not hold. */
unsigned ids_audit_pool(struct idlesched_pool *pool, idlesched_audit *out);

#endif
