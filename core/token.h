/* SPDX-License-Identifier: MIT */
/*
 * token.h - one word that cancels many jobs, of any pools.
 *
 * A token is a flag, and knows no jobs.  Whoever cancels it sets the flag first, and then
 * looks through the queue of each pool under its lock; whoever submits looks at the flag
 * under that lock.  So a job that is submitted meanwhile is refused, or found.  A pool that
 * is made meanwhile need not be looked at: its submits see the flag.
 */
#ifndef IDS_TOKEN_H
#define IDS_TOKEN_H

#include "idlesched.h"
#include "plat.h"

/* How many jobs were queued, and are cancelled. */
uint64_t ids_token_cancel(idlesched_token *self);

#endif
