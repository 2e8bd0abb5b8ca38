/* SPDX-License-Identifier: MIT */
/*
 * stats.h - one consistent snapshot of a pool.
 */
#ifndef IDS_STATS_H
#define IDS_STATS_H

#include "pool.h"

void ids_stats_read(struct idlesched_pool *pool, idlesched_pool_stats *out);
/* See idlesched_pool_workers_read(). */
unsigned ids_workers_read(struct idlesched_pool *pool, idlesched_worker_row *rows,
                          unsigned rows_max);

#endif
