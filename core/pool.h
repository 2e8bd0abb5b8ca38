/* SPDX-License-Identifier: MIT */
/*
 * pool.h - a queue of jobs and the group of workers that empties it.
 *
 * One lock, the group's, guards the queue, the counts and the states of jobs.
 * Jobs and callbacks run without it.
 *
 *   OPEN      jobs are taken in.
 *   CLOSING   no more of them; those queued run, or are dropped.
 *   CLOSED    no worker is left, or those that are left are counted and will
 *             leave by themselves.
 *
 * A job that was queued ends exactly once: a worker runs it, or it is dropped, by the close
 * or as it was cancelled.  A submit that fails keeps nothing: see
 * ids_worker_launch_failed_locked().
 *
 * A dropped job leaves the queue and ends in one critical section; one with a done callback
 * may be on a list between the two, as callbacks are made without the lock, one by one.  It
 * is QUEUED then, and nobody else's: nobody runs it, and nobody else drops it.
 *
 * A worker whose job waits for another one that is queued runs it there and then, inside the
 * first.  It runs no other job while it waits: that could wait for something that the jobs
 * below it have to do.  So a job that waits, waits for a job that runs, or is being dropped,
 * and circles are found by following who runs what and waits for what (job.h).
 *
 * Invariants, which the audit looks at besides those of the group
 *
 *   J1  submitted = queued + delayed + expiring + running + done + failed + cancelled jobs.
 *   J2  no more jobs run than workers are RUNNING, but for those inside others.
 *   J3  what a close is dropping is not in the queue, and nothing else is queued or delayed
 *       then.
 */
#ifndef IDS_POOL_H
#define IDS_POOL_H

#include "alarm.h"
#include "idlesched.h"
#include "job.h"
#include "pools.h"
#include "queue.h"
#include "worker.h"

enum ids_admission { IDS_POOL_OPEN, IDS_POOL_CLOSING, IDS_POOL_CLOSED };

/* Letters as in group.h. */
struct idlesched_pool {
  uint32_t tag;                 /* C  says that this is a pool; cleared when freed */
  struct ids_group group;       /*    its lock is the pool's */
  struct ids_pools_entry entry; /*    among the pools of the process: pools.h */
  idlesched_worker_hooks hooks; /* C */
  void (*dropped)(void (*run)(void *context), void *context); /* C  may be NULL */
  struct ids_queue queue;                                     /* L */
  struct ids_alarms alarms;     /* L  of jobs that are delayed or may expire */
  uint64_t delayed_count;       /* L  jobs that are delayed, and not in the queue */
  struct ids_queue dropping;    /* L  what a close has taken from it; counted as cancelled */
  struct ids_cell *claimed;     /* T  one for each worker: the job it runs */
  uintptr_t closer;             /* L  number of the thread that closes */
  enum ids_admission admission; /* L */
  uint64_t expiring_count;      /* L  jobs that have expired, and whose done callback runs */
  uint64_t jobs_running_count;  /* L  a job runs until its done callback returned */
  uint64_t jobs_inside_count;   /* L  those of them that run inside another one that waits */
  uint64_t submitted_count;     /* L */
  uint64_t done_count;          /* L */
  uint64_t failed_count;        /* L */
  uint64_t cancelled_count;     /* L */
};

/* A checked configuration, with every default filled in. */
struct ids_pool_config {
  struct ids_group_config group;
  idlesched_worker_hooks hooks;
  void (*dropped)(void (*run)(void *context), void *context);
};

int ids_pool_create(struct idlesched_pool **out, const struct ids_pool_config *config);
/* The pool is CLOSED.  Frees it, or leaves that to the last thread. */
void ids_pool_destroy(struct idlesched_pool *self);

struct idlesched_pool *ids_pool_of(struct ids_group *group);
/* Aborts unless it is a pool that was not freed. */
void ids_pool_check(const struct idlesched_pool *self);
/* Whether the calling thread is one of the pool's workers. */
bool ids_pool_is_mine(const struct idlesched_pool *self);

/* Without the lock: run a job that is RUNNING, to the end of its done callback.  Returns with
 * the lock held, and the job is not touched any more. */
void ids_pool_run_job_lock(struct idlesched_pool *self, struct idlesched_job *job,
                           struct ids_worker *worker, bool is_inside);
/* No job is queued or delayed, and none runs. */
bool ids_pool_is_idle_locked(const struct idlesched_pool *self);
/* Tell those who wait for that, if it may be so. */
void ids_pool_note_idle_locked(struct idlesched_pool *self);

/* Whether the job is in the queue, or delayed and due by now, and nobody drops it. */
bool ids_pool_may_begin_locked(const struct idlesched_pool *self, const struct idlesched_job *job,
                               uint64_t now_ns);
/* Take such a job out, or one that is delayed. */
void ids_pool_unqueue_locked(struct idlesched_pool *self, struct idlesched_job *job);
/* The same for one that will not run, and may also be in what a close is dropping.  It ends
 * with this status: at once, or, if its done callback is to be called, on the list. */
void ids_pool_drop_locked(struct idlesched_pool *self, struct idlesched_job *job, int status,
                          struct ids_drops *drops);
/* End what is on the list, one by one, and drop the lock.  When the lock is dropped with the
 * last end, the pool is not touched any more. */
void ids_pool_end_drops_unlock(struct idlesched_pool *self, struct ids_drops *drops);

int ids_pool_cancel_job(struct idlesched_pool *self, struct idlesched_job *job);
/* Those queued or delayed that have this token; how many. */
uint64_t ids_pool_cancel_token(struct idlesched_pool *self, const idlesched_token *token);
int ids_pool_await_job(struct idlesched_pool *self, struct idlesched_job *job,
                       uint64_t deadline_ns);

/* ---- jobs with a moment: pool_alarm.c ---- */

/* Queue a job that was claimed, now or after its delay: 0 or -ENOMEM, and then it is in nothing. */
int ids_pool_admit_job_locked(struct idlesched_pool *self, struct idlesched_job *job);
/* It is begun, cancelled or taken back: nobody has to look after it any more. */
void ids_pool_forget_alarm_locked(struct idlesched_pool *self, struct idlesched_job *job);
/* Whether it should have been begun by now, and was not. */
bool ids_pool_has_expired_locked(const struct idlesched_job *job, uint64_t now_ns);
/* Then it ends.  Whether its done callback is to be called, by ids_pool_tell(); if not it may be
 * gone. */
bool ids_pool_expire_locked(struct idlesched_pool *self, struct idlesched_job *job);
/* Those delayed jobs that have this token, a list by next_. */
struct idlesched_job *ids_pool_list_delayed_locked(const struct idlesched_pool *self,
                                                   const idlesched_token *token);
/* All alarms are forgotten, and delayed jobs dropped, with -ECANCELED.  How many they were; it
 * is for the caller to count them. */
uint64_t ids_pool_drop_delayed_locked(struct idlesched_pool *self, struct ids_drops *drops);
/* Queue what is due, and end what has expired.  NULL, or one whose done callback is to be
 * called, without the lock, before this goes on. */
struct idlesched_job *ids_pool_ring_locked(struct idlesched_pool *self, uint64_t now_ns);
/* Without the lock: call the done callback of one that has expired. */
void ids_pool_tell(struct idlesched_pool *self, struct idlesched_job *job);

/* Put a job or a plain cell into the queue: 0 or -ENOMEM. */
int ids_pool_enqueue_locked(struct idlesched_pool *self, struct ids_cell cell);

int ids_pool_submit(struct idlesched_pool *self, struct ids_cell cell);
int ids_pool_start_workers(struct idlesched_pool *self, unsigned workers_count);
int ids_pool_wait(struct idlesched_pool *self, uint64_t deadline_ns);
int ids_pool_close(struct idlesched_pool *self, enum idlesched_close_mode mode,
                   uint64_t deadline_ns, idlesched_close_report *out);

#endif
