/* SPDX-License-Identifier: MIT */
/*
 * pool.h - a queue of jobs and the group of workers that empties it.
 *
 * One lock, the group's, guards the queue, the counts and the states of jobs.
 * Jobs and callbacks run without it.  Each of its subjects has a file, which begins with how
 * that works:
 *
 *   pool.c           what its workers ask of it, how a job runs and ends, create and destroy
 *   pool_submit.c    jobs are taken in, and threads started for them
 *   pool_room.c      a queue with a limit
 *   pool_alarm.c     jobs that are delayed, or expire
 *   pool_cancel.c    jobs that leave the queue without having run
 *   pool_await.c     waiting for a job, also inside another one
 *   pool_settings.c  resize, pause and resume
 *   pool_inline.c    a pool without workers
 *   pool_close.c     waiting for all jobs, and the end
 *
 *   OPEN      jobs are taken in.
 *   CLOSING   no more of them; those queued run, or are dropped.
 *   CLOSED    no worker is left, or those that are left are counted and will
 *             leave by themselves.
 *
 * An open pool may be paused: then nothing of what is queued counts as work, and no worker is
 * wanted for it.
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
 *   J2  no more jobs run than workers are RUNNING, or, inline, than have the turn; but for
 *       those inside others.
 *   J3  what a close is dropping is not in the queue, and nothing else is queued or delayed
 *       then.
 *   J4  inline, something is queued only while somebody has the turn.
 *   J5  who waits in line waits for something: the queue is full, or, inline, somebody has the
 *       turn.
 */
#ifndef IDS_POOL_H
#define IDS_POOL_H

#include "alarm.h"
#include "idlesched.h"
#include "job.h"
#include "line.h"
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
  void (*on_release)(void *context);                          /* C  may be NULL */
  bool is_inline;               /* C  without workers: pool_inline.c */
  uint64_t queue_max;           /* C  most jobs in the queue; as good as infinite */
  uint64_t queue_timeout_ns;    /* C  how long a submit waits for room */
  struct ids_queue queue;       /* L */
  struct ids_line line;         /* L  who waits for room in the queue, or, inline, for a turn */
  struct ids_alarms alarms;     /* L  of jobs that are delayed or may expire */
  uint64_t delayed_count;       /* L  jobs that are delayed, and not in the queue */
  struct ids_queue dropping;    /* L  what a close has taken from it; counted as cancelled */
  uintptr_t closer;             /* L  number of the thread that closes */
  enum ids_admission admission; /* L */
  bool is_paused;               /* L  no job is begun; only while OPEN */
  uint64_t expiring_count;      /* L  jobs that have expired, and whose done callback runs */
  uint64_t jobs_running_count;  /* L  a job runs until its done callback returned */
  uint64_t jobs_inside_count;   /* L  those of them that run inside another one that waits */
  uint64_t submitted_count;     /* L */
  uint64_t done_count;          /* L */
  uint64_t failed_count;        /* L */
  uint64_t cancelled_count;     /* L */
  /* Inline.  T here: by who has the turn. */
  bool is_taken;        /* L  the turn is, by somebody who runs jobs or hooks */
  bool is_visited;      /* L  it is a release that has it */
  bool owes_collect;    /* L  a release has missed it */
  bool has_started;     /* T  its start hook was called, and no stop hook since */
  uint64_t turn_thread; /* A  number of the thread that has it, or 0 */
};

/* A checked configuration, with every default filled in. */
struct ids_pool_config {
  struct ids_group_config group;
  idlesched_worker_hooks hooks;
  void (*dropped)(void (*run)(void *context), void *context);
  void (*on_release)(void *context);
  bool is_inline;
  uint64_t queue_max, queue_timeout_ns;
};

int ids_pool_create(struct idlesched_pool **out, const struct ids_pool_config *config);
/* The pool is CLOSED.  Frees it, or leaves that to the last thread. */
void ids_pool_destroy(struct idlesched_pool *self);

struct idlesched_pool *ids_pool_of(struct ids_group *group);
/* Aborts unless it is a pool that was not freed. */
void ids_pool_check(const struct idlesched_pool *self);
/* Without the lock: memory is about to be given back.  Whether there is a host to be told. */
bool ids_pool_tell_release(struct idlesched_pool *self);
/* The worker of this pool that the calling thread is, or NULL. */
struct ids_worker *ids_pool_own_worker(struct idlesched_pool *self);
/* Whether it is one. */
bool ids_pool_is_mine(struct idlesched_pool *self);
/* How many may run jobs at a time. */
unsigned ids_pool_workers_max(const struct idlesched_pool *self);
/* Threads that are still to end, or in the middle of a turn. */
unsigned ids_pool_threads_left_locked(const struct idlesched_pool *self);
void ids_pool_free(struct idlesched_pool *self);

/* The job, which has left the queue, is to be run by this worker. */
void ids_pool_begin_locked(struct idlesched_pool *self, struct ids_cell cell,
                           struct ids_worker *worker);
/* Then, without the lock: run it, to the end of its done callback.  Returns with the lock held,
 * and the job is not touched any more. */
bool ids_pool_run_lock(struct idlesched_pool *self, struct ids_cell cell, struct ids_worker *worker,
                       bool is_inside);
/* Both for a worker that is inside another job.  The lock is dropped meanwhile.  False: this is
 * a child process that the job has forked, where there is no lock; so may be the other one,
 * inside.  The worker does not block then: its own job may have done so, and is to go on as it
 * was. */
bool ids_pool_run_inside_locked(struct idlesched_pool *self, struct ids_cell cell,
                                struct ids_worker *worker);

/* ---- the end of jobs: pool.c, pool_cancel.c, pool_await.c ---- */

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

/* ---- taking jobs in: pool_submit.c, pool_room.c ---- */

/* Put a job or a plain cell into the queue: 0 or -ENOMEM. */
int ids_pool_enqueue_locked(struct idlesched_pool *self, struct ids_cell cell);

int ids_pool_submit(struct idlesched_pool *self, struct ids_cell cell);
/* Something is queued or delayed, and is not for a resume to come. */
bool ids_pool_wants_thread_locked(const struct idlesched_pool *self);
/* Into the queue, or nothing is kept.  The state that the cell's job had is put back unless it
 * succeeds. */
int ids_pool_push_locked(struct idlesched_pool *self, struct ids_cell cell);

/* The same with regard to the queue's limit.  The lock is dropped meanwhile; for a worker
 * of the pool, jobs may run meanwhile, and when one forks, there is no lock in the child. */
#define IDS_POOL_FORKED 1
int ids_pool_take_in_locked(struct idlesched_pool *self, struct ids_cell cell);
/* Something has left the queue. */
void ids_pool_room_made_locked(struct idlesched_pool *self);

/* ---- without workers: pool_inline.c ---- */

int ids_pool_submit_inline(struct idlesched_pool *self, struct ids_cell cell);
enum ids_inline_visit { IDS_INLINE_HAS_NOTHING, IDS_INLINE_COLLECTED, IDS_INLINE_MISSED };
/* A release's turn: collect what the host keeps, if a turn is to be had in time. */
enum ids_inline_visit ids_pool_visit_inline(struct idlesched_pool *self, uint64_t deadline_ns);
/* The close's: the stop hook.  Does nothing in a pool with workers. */
void ids_pool_stop_inline_locked(struct idlesched_pool *self);
/* Wait until no release has the turn. */
void ids_pool_await_visit_locked(struct idlesched_pool *self);

/* ---- as idlesched.h says: pool_submit.c, pool_settings.c, pool_close.c ---- */

int ids_pool_start_workers(struct idlesched_pool *self, unsigned workers_count);
int ids_pool_resize(struct idlesched_pool *self, unsigned workers_max, unsigned workers_min);
void ids_pool_pause(struct idlesched_pool *self);
int ids_pool_resume(struct idlesched_pool *self);
/* The lock is dropped meanwhile.  Not 0: no thread is there, none can be had, and the pool is
 * paused on. */
int ids_pool_resume_locked(struct idlesched_pool *self);
int ids_pool_wait(struct idlesched_pool *self, uint64_t deadline_ns);
int ids_pool_close(struct idlesched_pool *self, enum idlesched_close_mode mode,
                   uint64_t deadline_ns, idlesched_close_report *out);

#endif
