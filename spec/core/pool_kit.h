/* SPDX-License-Identifier: MIT */
/*
 * pool_kit.h - what specs of pools share: a pool in one line, doors that keep jobs
 * busy, snapshots, and waits for a state.
 */
#ifndef IDLESCHED_SPEC_POOL_KIT_H
#define IDLESCHED_SPEC_POOL_KIT_H

#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"
#include "idlesched.h"
#include "pool.h"

/* How long a state that must come is waited for.  Spent only by a case that fails. */
#define SOON_MS 10000

/* POOL(.workers_max = 2, .idle_exit_ns = IDLESCHED_NEVER) */
#define POOL(...) pool_new(&(const idlesched_pool_config){ __VA_ARGS__ })
idlesched_pool *pool_new(const idlesched_pool_config *config);

idlesched_pool_stats stats_of(idlesched_pool *pool);
/* A copy of a worker's book-keeping. */
struct ids_worker worker_of(idlesched_pool *pool, unsigned index);
/* Signal a worker's condition without a ticket, as a system may do at any time. */
void wake_for_nothing(idlesched_pool *pool, unsigned index);

/* A start hook: the worker has something to collect, so that its collect hook is called. */
void give_data(idlesched_worker *worker, void *context);
bool collect_nothing(idlesched_worker *worker, void *context);
/* Workers that have to release on their own thread, as those with a script state do. */
#define WITH_STATE .hooks = { .start = give_data, .collect = collect_nothing }

/* What must hold of every snapshot, and what must hold once nothing is under way. */
void check_stats_add_up(idlesched_pool *pool);
void check_tickets_add_up(idlesched_pool *pool);

/* ---- doors (latches): a job that goes through one stays inside until it is opened ---- */

struct door {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  bool is_open;
  unsigned inside_count;
};
#define DOOR_CLOSED                                                                                \
  { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0 }
#define DOOR_OPEN                                                                                  \
  { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, true, 0 }

/* Jobs of both forms.  The second takes its door from job->context. */
void door_pass(void *door);
int door_pass_job(idlesched_job *job, idlesched_worker *worker);
void door_open(struct door *self);
unsigned door_inside_count(struct door *self);
/* Let so many workers run a job that stays inside. */
void keep_busy(idlesched_pool *pool, struct door *door, unsigned workers_count);

/* ---- jobs that leave a trace ---- */

/* A job: adds 1 to the _Atomic unsigned that it is given. */
void count_up(void *count);
/* A job: the time at which it ended, to the _Atomic uint64_t that it is given. */
void note_time_ns(void *time_ns);
/* Submit one plain job that does nothing and wait until the pool is idle again. */
void run_one_job(idlesched_pool *pool);

/* ---- threads of the case ---- */

pthread_t thread_run(void *(*main)(void *context), void *context);
void *thread_result(pthread_t thread);

#endif
