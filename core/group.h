/* SPDX-License-Identifier: MIT */
/*
 * group.h - the workers that share one lock: their states, tickets and counts.
 *
 * A worker is a promise to run jobs, kept by a thread only while there are
 * some.  This file is the book-keeping: it says what state each worker is in,
 * who may be told to run, and what must add up.  worker.h is the thread.
 *
 *   ABSENT     no thread.  Costs sizeof(struct ids_worker) and nothing else.
 *   STARTING   a ticket was given, the system was asked for a thread.
 *   RUNNING    between a poll that found work and one that finds none.
 *   PARKED     the thread sleeps.
 *   RELEASING  the thread tidies its heap; the lock is not held.
 *   EXITING    the thread tidies everything, to leave; the lock is not held.
 *   GONE       no thread, and never again one: the group stops.
 *
 *              grant            first poll          nothing found
 *     ABSENT --------> STARTING ----------> RUNNING --------------> PARKED
 *        ^                                   ^ ^ ^   ticket           | |
 *        |                                   | | +--------------------+ |
 *        |            after the tidying,     | |                        |
 *        |            with a ticket          | +------- RELEASING <-----+ idle_release
 *        |                                   |              |  (back)   |
 *        +---- without ------- EXITING ------+              +-----------+
 *                                 ^------------------ PARKED, idle_exit
 *
 * Tickets
 *
 *   A ticket is one permission to poll, given by somebody who wants a worker to
 *   look at the queue.  A poll is legal with a ticket in hand, or directly after
 *   a job.  That is all there is to the pairing of wakes and polls: `active`
 *   rises where a ticket is given and falls where a poll finds nothing.
 *
 *   Who gets it: PARKED (the last parked first, so that cold workers can time
 *   out), else ABSENT (a thread is started, outside the lock), else RELEASING,
 *   else EXITING; these two look for a ticket when they have the lock back.
 *
 *   At most one ticket is on its way for the queue's sake (starting workers ahead
 *   and stopping give theirs besides): a worker that used its ticket, took a job
 *   and sees more of them passes the wake on.
 *
 * Invariants, asserted whenever the lock is dropped, in every build
 *
 *   I1  active = RUNNING workers + tickets.
 *   I2  STARTING + RUNNING + PARKED + RELEASING + EXITING = threads.
 *   I3  work in the queue, active == 0 and no thread being started: impossible.
 *   I4  wakes = polls + tickets + refused threads: each ticket is used once.
 *
 * When the system refuses a thread, the ticket is taken back and offered to the
 * workers that have one; if there are none, the submitter is told, and takes
 * its job back in the same critical section.  While the very first thread is
 * being started nobody else may rely on it: ids_group_await_launch_locked(); and the
 * last worker that has one does not leave before the outcome is known.
 */
#ifndef IDS_GROUP_H
#define IDS_GROUP_H

#include "list.h"
#include "plat.h"

struct ids_group;
struct ids_worker;

enum ids_worker_state {
  IDS_WORKER_ABSENT,
  IDS_WORKER_STARTING,
  IDS_WORKER_RUNNING,
  IDS_WORKER_PARKED,
  IDS_WORKER_RELEASING,
  IDS_WORKER_EXITING,
  IDS_WORKER_GONE,
  IDS_WORKER_STATES
};

enum ids_poll { IDS_POLL_WORK, IDS_POLL_WAIT, IDS_POLL_STOP };

/* What the owner of a group does for it. */
struct ids_group_ops {
  /* Lock held.  WORK claims a job for this worker; WAIT: nothing to do; STOP:
   * nothing to do ever again.  Must not block or drop the lock. */
  enum ids_poll (*poll)(struct ids_worker *worker);
  /* Without the lock, exactly once for each WORK: run the job. */
  void (*work)(struct ids_worker *worker);
  /* Lock held.  Whether a poll now would answer WORK. */
  bool (*has_work)(const struct ids_group *group);
  /* Without the lock, on the worker's thread.  One bounded step of tidying what
   * the owner keeps for this worker; true when there is more to do. */
  bool (*collect)(struct ids_worker *worker);
  /* Without the lock, on the worker's thread, which is about to end. */
  void (*stop)(struct ids_worker *worker);
  /* Without the lock, on the last thread of a group that was left behind: frees
   * the group.  It is the last thing that thread does. */
  void (*orphaned)(struct ids_group *group);
};

struct ids_group_config {
  unsigned workers_max;     /* at least 1 */
  uint64_t idle_release_ns; /* parked for so long: release; IDS_NEVER */
  uint64_t idle_exit_ns;    /* parked for so long: the thread ends; IDS_NEVER */
  size_t stack_size;        /* bytes */
  char name[16];            /* of the threads, as the system shows it */
};

/*
 * Access rules, one letter per field, here and below:
 *   C  constant from init to deinit
 *   L  only with group->lock held
 *   T  only by the worker's own thread
 */
struct ids_worker {
  struct ids_group *group;     /* C */
  unsigned index;              /* C  from 0 */
  enum ids_worker_state state; /* L */
  bool has_ticket;             /* L  told to poll, has not yet done so */
  bool is_released;            /* L  has released since its last job */
  uint64_t visit_asked;        /* L  number of the last visit it owes */
  uint64_t visit_served;       /* L  number of the last visit it made */
  uint64_t parked_at_ns;       /* L  when it parked; who parked last is woken first */
  uint64_t release_at_ns;      /* L  while PARKED; fixed when it parked */
  uint64_t exit_at_ns;         /* L  while PARKED; fixed when it parked */
  struct ids_list wakeable;    /* L  on group->wakeable[state] while a ticket may be given */
  struct ids_cond wake; /* L to wait on, by the worker's thread alone; signalled with or without */
  struct ids_thread thread; /* T  its own handle */
  void *data;               /* T  the host's, for this worker */
};

/* Events since the group was made.  L */
struct ids_group_counters {
  uint64_t wakes;          /* tickets given */
  uint64_t polls;          /* polls made with a ticket */
  uint64_t starts;         /* threads started */
  uint64_t starts_refused; /* threads that the system refused */
  uint64_t releases;       /* releases completed by parked workers */
  uint64_t exits;          /* threads that ended after idle_exit */
};

struct ids_group {
  const struct ids_group_ops *ops;             /* C */
  struct ids_group_config config;              /* C */
  struct ids_worker *workers;                  /* C  config.workers_max of them */
  struct ids_mutex lock;                       /*    */
  struct ids_cond changed;                     /* L  broadcast: launch known, visit made, left */
  struct ids_list wakeable[IDS_WORKER_STATES]; /* L */
  unsigned in_state_count[IDS_WORKER_STATES];  /* L */
  unsigned threads_count;                      /* L */
  unsigned tickets_count;                      /* L  given and not yet used */
  unsigned active_count;                       /* L  see I1 */
  uint64_t visits_count;                       /* L */
  bool is_stopping;                            /* L */
  bool is_orphaned;                            /* L  the last thread frees the group */
  bool has_departed;                           /* L */
  struct ids_thread departed;                  /* L  ended or about to; who joins it: the next
                                                     to leave, or the owner */
  struct ids_group_counters counters;          /* L */
};

/* A ticket just given, to be delivered after the lock is dropped. */
struct ids_wake {
  struct ids_worker *worker;  /* NULL: nobody was woken */
  enum ids_worker_state from; /* the worker's state when it got the ticket */
};

/* 0, -ENOMEM or -EAGAIN; on failure nothing is left behind. */
int ids_group_init(struct ids_group *self, const struct ids_group_ops *ops,
                   const struct ids_group_config *config);
/* All workers are GONE or ABSENT and all threads joined. */
void ids_group_deinit(struct ids_group *self);

void ids_group_lock(struct ids_group *self);
/* Assert I1 to I4: to be called before the lock is dropped in any way. */
void ids_group_check_locked(const struct ids_group *self);
void ids_group_unlock(struct ids_group *self);
/* Unlock, wait on `changed`, lock. */
void ids_group_wait_locked(struct ids_group *self, uint64_t deadline_ns);

/* Whether the queue has work that nobody is on the way to, and a worker is free. */
bool ids_group_wants_wake_locked(const struct ids_group *self);

/* Give a ticket to the best worker; wake.worker is NULL when all are busy. */
struct ids_wake ids_group_grant_locked(struct ids_group *self);
/* The first worker in that state that may get a ticket, or NULL. */
struct ids_worker *ids_group_first_wakeable_locked(struct ids_group *self,
                                                   enum ids_worker_state state);
/* Give a ticket to this worker, which is wakeable. */
struct ids_wake ids_worker_grant_locked(struct ids_worker *self);
/* The worker's thread takes its ticket: it is RUNNING and may poll once. */
void ids_worker_use_ticket_locked(struct ids_worker *self);
/* The system refused the thread: the ticket goes to another worker or is lost.
 * Whether some thread is left to serve the queue. */
bool ids_worker_launch_failed_locked(struct ids_worker *self);

/* Wait until no submitter is alone with the outcome of the first thread start. */
void ids_group_await_launch_locked(struct ids_group *self);

/* A RUNNING worker found nothing, or stops: active falls. */
void ids_worker_set_idle_locked(struct ids_worker *self, enum ids_worker_state state);
/* Any other change of state, except those above. */
void ids_worker_set_state_locked(struct ids_worker *self, enum ids_worker_state state);

/* Threads asked for and not yet seen running: the system may still refuse them. */
unsigned ids_group_launching_count_locked(const struct ids_group *self);
/* Threads that exist for certain. */
unsigned ids_group_live_count_locked(const struct ids_group *self);

#endif
