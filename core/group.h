/* SPDX-License-Identifier: MIT */
/*
 * group.h - the workers that share one lock: their states, tickets and counts.
 *
 * A worker is a promise to run jobs, kept by a thread only while there are
 * some.  This file is the book-keeping: it says what state each worker is in,
 * who may be told to run, and what must add up.  worker.h is the thread,
 * pass.h is what happens to the memory of those that are parked.
 *
 *   ABSENT     no thread.  Costs sizeof(struct ids_worker) and nothing else.
 *   STARTING   a ticket was given, the system was asked for a thread.
 *   RUNNING    from the use of a ticket to a poll that finds nothing.
 *   PARKED     the thread sleeps, or is about to.
 *   RELEASING  claimed: memory is tidied without the lock, by its own thread or by
 *              another one while its own sleeps.
 *   EXITING    the thread tidies everything, to leave; the lock is not held.
 *   GONE       no thread, and never again one: the group stops.
 *
 *     ABSENT ----> STARTING ----> RUNNING <----> PARKED <----> RELEASING
 *        ^             ^             |            | ^
 *        |             |             v            | |
 *        +-------------+--------- EXITING <-------+ |
 *                                    +--------------+
 *
 *     ABSENT     STARTING    a ticket
 *     STARTING   RUNNING     the thread is there, and uses the ticket
 *     RUNNING    PARKED      a poll found nothing
 *     PARKED     RUNNING     it uses a ticket
 *     PARKED     RELEASING   claimed; and back, when it is given back
 *     RUNNING    EXITING     it retires, or a poll said stop
 *     PARKED     EXITING     it retires, or idle_exit is over
 *     EXITING    ABSENT      nobody wants it
 *     EXITING    PARKED      a ticket came
 *     EXITING    STARTING    a ticket came for one that retires: its successor's
 *
 *   Not drawn: STARTING -> ABSENT when the system refuses the thread, STARTING -> PARKED
 *   when it refuses a successor's.  When the group stops, ABSENT becomes GONE, and whoever
 *   would become ABSENT becomes GONE.
 *
 * Tickets
 *
 *   A ticket is one permission to poll, given by somebody who wants a worker to
 *   look at the queue.  A poll is legal with a ticket in hand, or directly after
 *   a job.  That is all there is to the pairing of wakes and polls: `active`
 *   rises where a ticket is given, and falls where a poll finds nothing, a worker stops
 *   polling to leave, or a ticket is lost.
 *
 *   Who gets it: PARKED (the last parked first, so that cold workers can time
 *   out), else ABSENT (a thread is started, outside the lock), else RELEASING,
 *   else EXITING or about to retire; these look for a ticket when they have the lock
 *   back.
 *
 *   At most one ticket is on its way for the queue's sake, besides slow ones (starting
 *   workers ahead, waking all and stopping give theirs as well).  A worker that used its
 *   ticket, took a job and sees more of them passes the wake on, and so does one that
 *   leaves.
 *
 *   A ticket that a RELEASING or EXITING worker holds is a slow one: nobody knows when it
 *   will be used.  It stands for one queued job, and the next job does not wait behind it
 *   but gets another ticket.  When somebody else takes that one job, the slow ticket
 *   stands for none of those to come.
 *
 *   A worker that is finishing, its job having ended, is about to poll without a ticket,
 *   and stands for one queued job as well: what was submitted just then goes to the worker
 *   that is warm, and wakes nobody.  One that retires takes no job, and passes the wake on
 *   as it leaves.
 *
 * Claims
 *
 *   Whoever claims a parked worker, under the lock, has its heap to itself until it
 *   gives the worker back, under the lock.  Meanwhile the worker can get a ticket,
 *   be told to retire or to stop; but its thread runs only when it is PARKED again.
 *
 * Alarms
 *
 *   The owner may have something to do at a moment to come: next_alarm_ns() is the first of
 *   these, and ring() does what is due.  A worker that polls rings before it.  For the time
 *   in which nobody polls, a worker that is parked watches: its sleep ends at the alarm.
 *
 *   While as many are active as there is room for, nobody has to watch: the first to finish
 *   rings.  Else somebody does.  So when an alarm is set and nobody is idle, and when the last
 *   idle worker gets a ticket or retires, one more ticket is given: its worker polls, finds
 *   nothing, parks and watches.  And the last idle worker does not exit while there is an
 *   alarm; it releases at that moment instead, and leaves when there is none.  As long as a
 *   ticket that is not slow is on its way, nobody is told of an alarm: who used it sees to that
 *   after its poll, and so does one that is finishing.
 *
 *   Who watches is PARKED, or was claimed in its sleep.  One that claims itself, to release,
 *   to make a pass or for the owner's callbacks, leaves the watch to another one that is
 *   parked; alone, it looks when it is back, and while it collects between two steps.  So an
 *   alarm rings at its moment, but for what a claim takes, and up to a purge or a callback later
 *   where the only thread that is not running a job is at that.
 *
 *   A thread that the system refuses for a watcher is missed by nobody: who has one rings at its
 *   next poll, and watches when it parks.
 *
 * Retiring
 *
 *   A worker that retires takes no further job: it leaves when the one it runs has ended,
 *   or at once when it is parked.  Its place is then free for a new worker.  A ticket that
 *   it gets all the same, as nobody else is there, is its successor's: a new thread takes
 *   it over together with the place.  Only if the system refuses that thread, or the group
 *   stops, the old one goes on with the ticket, as if it were new.
 *
 * How many
 *
 *   `limit` workers may run jobs at a time, and one more in place of each whose job blocks,
 *   as far as blocking_max: that is the room for active ones.  No ticket is given, and no
 *   thread started, beyond it.  When a job has ceased to block more may be active than there
 *   is room for, as jobs are not stopped; then who polls is told to wait, whatever is queued:
 *   as many others as may are at a job, and will poll after it.  The threads that are too
 *   many park, and end like any other.
 *
 *   A resize that makes the limit smaller has those that are too many retire: parked ones at
 *   once, others as they poll.
 *
 *   idle_exit ends no thread of the last workers_min.  Which ones they are is decided as their
 *   time comes: who may not leave sleeps on, without a deadline, and is woken when there are
 *   more again.
 *
 *   Slots for all of them are made ahead.  One is in use from its first ticket on, and costs
 *   nobody a look before.
 *
 * Invariants, asserted whenever the lock is dropped, in every build
 *
 *   I1  active = RUNNING workers + tickets.
 *   I2  STARTING + RUNNING + PARKED + RELEASING + EXITING = threads.
 *   I3  work in the queue implies active > 0: somebody runs, or has a ticket.
 *   I4  wakes = polls + tickets + lost tickets: each ticket is used once.
 *   I9  An alarm, and fewer active than there is room for: the watcher's sleep ends in time;
 *       or a ticket that is not slow is on its way; or nobody watches and no parked worker is
 *       without a ticket, and somebody is RELEASING, has a slow ticket, or finishes, or a
 *       thread was refused.
 *
 * and, where the whole structure is checked (the audit, and builds for tests), I5 to I8: what
 * a worker may have in which state, and all counts from the workers one by one
 * (group_audit.c).
 *
 * When the system refuses a thread, its ticket is lost, and workers that have a thread
 * get others if the queue wants them.  If there are none, the submitter is told, and takes
 * its job back in the same critical section.  While the very first thread is being started
 * nobody else may rely on it: ids_group_await_launch_locked().  And the last worker that
 * has a thread does not leave before the outcome is known.
 */
#ifndef IDS_GROUP_H
#define IDS_GROUP_H

#include "cell.h"
#include "list.h"
#include "plat.h"

struct ids_group;
struct ids_worker;
struct idlesched_job;

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
  /* Lock held.  How many polls, one after the other, would answer WORK now. */
  uint64_t (*work_count)(const struct ids_group *group);
  /* Lock held.  When it has something to do besides: IDS_NEVER if it has not. */
  uint64_t (*next_alarm_ns)(const struct ids_group *group);
  /* Lock held.  Do what is due now, which may raise the work count; must not drop the lock.
   * NULL when all is done.  Else somebody has to be told of what this returned, by a call of
   * tell() without the lock; then ring again. */
  void *(*ring)(struct ids_group *group, uint64_t now_ns);
  void (*tell)(struct ids_group *group, void *what);
  /* Without the lock, on the worker's thread, which is new, or goes on after a stop(). */
  void (*start)(struct ids_worker *worker);
  /* Lock held, on the worker's thread.  Whether there is something to collect. */
  bool (*has_state)(const struct ids_worker *worker);
  /* Without the lock, on the worker's thread.  One bounded step of tidying what
   * the owner keeps for this worker; true when there is more to do. */
  bool (*collect)(struct ids_worker *worker);
  /* Without the lock, on the worker's thread, which is about to end. */
  void (*stop)(struct ids_worker *worker);
  /* Without the lock, on the thread that makes a pass: a purge follows.  Whether it may have
   * freed something. */
  bool (*before_purge)(struct ids_group *group);
  /* Without the lock, on the last thread of a group that was left behind: frees
   * the group.  It is the last thing that thread does. */
  void (*orphaned)(struct ids_group *group);
};

struct ids_group_config {
  unsigned workers_max;     /* at least 1; until it is resized */
  unsigned workers_min;     /* threads that idle_exit does not end; until it is resized */
  unsigned blocking_max;    /* workers more in place of those that block */
  uint64_t idle_release_ns; /* parked for so long: release; IDS_NEVER */
  uint64_t idle_exit_ns;    /* parked for so long: the thread ends; IDS_NEVER */
  size_t stack_size;        /* bytes */
  bool is_dedicated;        /* a worker retires after each job */
  char name[16];            /* of the threads, as the system shows it */
};

/*
 * Access rules, one letter per field, here and below:
 *   C  constant from init to deinit
 *   L  only with group->lock held
 *   T  only by the worker's own thread
 *   A  written by the worker's own thread, read by anybody: a relaxed word, for people
 */
struct ids_worker {
  struct ids_group *group;     /* C */
  unsigned index;              /* C  from 0 */
  struct ids_cell claimed;     /* T  the owner's: what its last poll has claimed */
  enum ids_worker_state state; /* L */
  bool has_ticket;             /* L  told to poll, has not yet done so */
  bool is_finishing;           /* L  RUNNING: its job has ended, and no poll came yet */
  bool is_retiring;            /* L  takes no further job */
  bool is_blocking;            /* L  RUNNING: its job blocks, and another may run in its place */
  bool is_succeeded;           /* L  STARTING while the thread before it still stands by */
  bool is_released;            /* L  has released since its last job */
  bool has_state;              /* L  while PARKED: has to collect before its heap is given up */
  bool awaits_pass;            /* L  PARKED or RELEASING: a pass gives up its heap in time */
  bool awaits_return;          /* L  its thread is awake and waits to be given back */
  uint64_t visit_asked;        /* L  number of the last visit it owes */
  uint64_t visit_served;       /* L  number of the last visit it made */
  uint64_t visits_others;      /* L  number of the visit that its job or hook asks for, or 0 */
  uint64_t parked_at_ns;       /* L  when it parked; who parked last is woken first */
  uint64_t release_at_ns;      /* L  while PARKED; fixed when it parked */
  uint64_t exit_at_ns;         /* L  while PARKED; fixed when it parked */
  uint64_t began_at_ns;        /* L  when the job began that it runs; or 0 */
  uint64_t sleeps_until_ns;    /* L  while its thread sleeps */
  uint64_t given_count;        /* L  tickets that it ever got, */
  uint64_t used_count;         /* L  polls made with one, */
  uint64_t lost_count;         /* L  and those lost with a refused thread */
  struct ids_list wakeable;    /* L  on group->wakeable[state] while a ticket may be given */
  struct ids_cond wake; /* L to wait on, by the worker's thread alone; signalled with or without */
  struct ids_thread thread;      /* T  its own handle; who starts it writes it before it runs */
  void *heap;                    /* L  its thread's; only a claim allows to touch it */
  void *data;                    /* T  the host's, for this worker */
  bool is_in_done;               /* T  in the done callback of its job, no other one being inside */
  unsigned depth;                /* T  jobs inside others that it runs to make room for them */
  struct ids_worker *outer;      /* T  the worker that its thread is besides: pool_inline.c */
  struct idlesched_job *awaited; /* L  the owner's: what its job sleeps for, or NULL */
  uint64_t live_bytes;           /* A  what the host keeps for it, as the host says, */
  uint64_t dead_bytes;           /* A  and what a collection would free of that */
};

/* Events since the group was made.  L */
struct ids_group_counters {
  uint64_t wakes;          /* tickets given */
  uint64_t polls;          /* polls made with a ticket */
  uint64_t tickets_lost;   /* tickets that went with a refused thread */
  uint64_t starts;         /* threads started */
  uint64_t starts_refused; /* threads that the system refused */
  uint64_t releases;       /* heaps of parked workers that were given up */
  uint64_t passes;         /* passes of the timer that ended with a purge */
  uint64_t exits;          /* threads that ended after idle_exit */
  uint64_t retires;        /* workers that retired, and whose thread was joined */
};

/* A thread that has ended or is about to: who joins it is the next one to leave, or
 * the owner. */
struct ids_departed {
  struct ids_thread thread;
  bool is_there;
  bool has_retired;
};

/* One for each 50 ms of 0.9 s, and some for those that nobody could make yet. */
#define IDS_LATER_MAX 24

struct ids_group {
  const struct ids_group_ops *ops;             /* C */
  struct ids_group_config config;              /* C */
  uint32_t fork_generation;                    /* C  of the process that made it */
  unsigned limit;                              /* L  workers that may run jobs at a time */
  struct ids_worker **workers;                 /* L  those in use; a worker never moves */
  unsigned workers_count;                      /* L  how many they are: they had a ticket once */
  unsigned slots_count;                        /* L  how many there are, the others behind them */
  struct ids_worker_block *blocks;             /* L  that they lie in */
  unsigned workers_min;                        /* L  threads that stay beyond idle_exit */
  unsigned blocking_count;                     /* L  workers that are is_blocking */
  unsigned leaving_count;                      /* L  see ids_worker_is_leaving_locked() */
  bool is_shrinking;                           /* L  more threads than there is room for retire */
  struct ids_mutex lock;                       /*    */
  struct ids_cond changed;                     /* L  broadcast: whatever others may wait for */
  struct ids_list wakeable[IDS_WORKER_STATES]; /* L */
  unsigned in_state_count[IDS_WORKER_STATES];  /* L */
  unsigned threads_count;                      /* L */
  unsigned tickets_count;                      /* L  given and not yet used */
  unsigned slow_tickets_count;                 /* L  those of RELEASING and EXITING workers */
  unsigned slow_jobs_count;                    /* L  queued jobs that they stand for */
  unsigned finishing_count;                    /* L  workers that are is_finishing */
  unsigned active_count;                       /* L  see I1 */
  unsigned succeeded_count;                    /* L  STARTING workers that are is_succeeded */
  unsigned predecessors_count;                 /* L  threads whose place a successor has */
  bool is_stopping;                            /* L */
  bool is_orphaned;                            /* L  the last thread frees the group */
  struct ids_departed departed;                /* L */
  uint64_t last_visit;                         /* L  number of the last visit asked for */
  unsigned visitors_count;                     /* L  threads that wait for one, and purge then */
  struct ids_worker *watcher;                  /* L  its sleep ends at the next alarm */
  /* The release pass: pass.h. */
  struct ids_worker *timer_holder;     /* L  the parked worker that sleeps until the next pass */
  bool is_passing;                     /* L */
  bool owes_purge;                     /* L  heaps were given up, and not yet purged */
  unsigned awaiting_count;             /* L  workers that are awaits_pass */
  uint64_t owed_since_ns;              /* L  release time of the first of them; while owes_purge */
  unsigned later_count;                /* L  later passes that are due, the first one first */
  uint64_t later_at_ns[IDS_LATER_MAX]; /* L */
  uint64_t freed_again_at_ns;         /* L  until then a thread that freed leaves the purge alone */
  struct ids_group_counters counters; /* L */
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
/* Another limit, and another number of threads that stay.  The queue may want a ticket then.
 * 0, -ENOMEM or -EAGAIN; on failure nothing has changed. */
int ids_group_resize_locked(struct ids_group *self, unsigned limit, unsigned workers_min);

void ids_group_lock(struct ids_group *self);
/* Assert I1 to I4 and I9: to be called before the lock is dropped in any way. */
void ids_group_check_locked(const struct ids_group *self);
void ids_group_unlock(struct ids_group *self);
/* Unlock, wait on `changed`, lock. */
void ids_group_wait_locked(struct ids_group *self, uint64_t deadline_ns);

/* Tells of one rule that is broken, with the two numbers that should be equal. */
typedef void ids_finding(void *context, const char *rule, uint64_t left, uint64_t right);
/* Check I1 to I9 and tell what is broken; what asserts them is another function. */
void ids_group_audit_locked(const struct ids_group *self, ids_finding *tell, void *context);

bool ids_group_has_work_locked(const struct ids_group *self);
/* Work has left the queue otherwise than by a poll. */
void ids_group_work_fell_locked(struct ids_group *self);
/* How many may be active. */
unsigned ids_group_room_locked(const struct ids_group *self);
/* Whether more threads stay than there is room for. */
bool ids_group_has_surplus_locked(const struct ids_group *self);
/* Whether more threads stay than idle_exit leaves. */
bool ids_group_may_exit_locked(const struct ids_group *self);
/* Whether there is work that nobody is on the way to, or an alarm that nobody watches, and
 * room for one more worker. */
bool ids_group_wants_wake_locked(const struct ids_group *self);

/* Give a ticket to the best worker; wake.worker is NULL when all are busy. */
struct ids_wake ids_group_grant_locked(struct ids_group *self);
/* Give as many as the queue and the next alarm want: slow ones, which nobody has to deliver,
 * and at most one other, which is returned.  After each change that may make it want one. */
struct ids_wake ids_group_grant_wanted_locked(struct ids_group *self);
/* The same where the group may be gone once the lock is dropped: who sleeps is told at once.
 * What is left to be passed on is a thread to be started, and that holds the group. */
struct ids_wake ids_group_wake_wanted_locked(struct ids_group *self);
/* The first worker in that state that may get a ticket, or NULL. */
struct ids_worker *ids_group_first_wakeable_locked(struct ids_group *self,
                                                   enum ids_worker_state state);
/* Whether the worker may get a ticket: it has none, and does not run. */
static inline bool ids_worker_is_wakeable_locked(const struct ids_worker *self) {
  return !self->has_ticket &&
         (self->state == IDS_WORKER_PARKED || self->state == IDS_WORKER_ABSENT ||
          self->state == IDS_WORKER_RELEASING || self->state == IDS_WORKER_EXITING);
}
/* It has a ticket, and will use it only when it has done what it is at. */
static inline bool ids_worker_has_slow_ticket_locked(const struct ids_worker *self) {
  return self->has_ticket &&
         (self->state == IDS_WORKER_RELEASING || self->state == IDS_WORKER_EXITING);
}
/* It retires or is EXITING, and its place will have no thread, unless a ticket comes. */
static inline bool ids_worker_is_leaving_locked(const struct ids_worker *self) {
  return (self->state == IDS_WORKER_EXITING || self->is_retiring) && !self->has_ticket;
}
/* Give a ticket to this worker, which is wakeable. */
struct ids_wake ids_worker_grant_locked(struct ids_worker *self);
/* The worker's thread takes its ticket: it is RUNNING and may poll once. */
void ids_worker_use_ticket_locked(struct ids_worker *self);
/* What the worker, which is RUNNING, has to do next: as the owner says, unless there are too
 * many. */
enum ids_poll ids_worker_poll_locked(struct ids_worker *self);
/* The system refused the thread: the ticket is lost, and others with a thread get some if
 * the queue wants them.  Whether a thread is left to serve the queue. */
bool ids_worker_launch_failed_locked(struct ids_worker *self);

/* Wait until it is known whether the first thread is there: returns when no thread is being
 * started, or some worker has one already. */
void ids_group_await_launch_locked(struct ids_group *self);

/* ---- alarms: group_watch.c ---- */

/* I9. */
bool ids_group_is_watched_locked(const struct ids_group *self);
/* An alarm is set, and nobody is idle, about to be, or on the way. */
bool ids_group_needs_watcher_locked(const struct ids_group *self);
/* Let a worker that is parked watch.  After an alarm is gone; all else that may change who
 * watches ends in ids_group_grant_wanted_locked(), which does it too. */
void ids_group_watch_locked(struct ids_group *self);
/* The worker is about to sleep until then for reasons of its own.  Until when it has to. */
uint64_t ids_worker_watches_until_locked(struct ids_worker *self, uint64_t own_ns);
/* It stops being parked. */
void ids_worker_end_watch_locked(struct ids_worker *self);
/* PARKED and awake, it becomes RELEASING, and leaves the watch to others. */
void ids_worker_claim_itself_locked(struct ids_worker *self);
/* Whether it, which is PARKED, leaves somebody to watch if anybody has to. */
bool ids_worker_may_leave_watch_locked(const struct ids_worker *self);

/* A RUNNING worker's job has ended; or it has come to the poll that follows. */
void ids_worker_set_finishing_locked(struct ids_worker *self, bool is_finishing);
/* A RUNNING worker's job begins to block, or ceases to: then there is more room, or less. */
void ids_worker_set_blocking_locked(struct ids_worker *self, bool is_blocking);
/* A RUNNING worker found nothing, or stops: active falls. */
void ids_worker_set_idle_locked(struct ids_worker *self, enum ids_worker_state state);
/* Any other change of state, except those above and below. */
void ids_worker_set_state_locked(struct ids_worker *self, enum ids_worker_state state);

/* The worker takes no further job; or, as it has no successor, it goes on like a new one. */
void ids_worker_set_retiring_locked(struct ids_worker *self, bool is_retiring);

/* An EXITING worker that retires and has a ticket: its place becomes STARTING, for a
 * thread that is to take both over.  Then the outcome: the successor runs, or the
 * system refused it and the old thread goes on, PARKED and with the ticket. */
void ids_worker_begin_succession_locked(struct ids_worker *self);
void ids_worker_end_succession_locked(struct ids_worker *self, bool has_successor);

/* Threads asked for and not yet seen running: the system may still refuse them. */
unsigned ids_group_launching_count_locked(const struct ids_group *self);
/* Threads that exist for certain. */
unsigned ids_group_live_count_locked(const struct ids_group *self);
/* No thread will touch the group any more, but one that frees it. */
bool ids_group_is_deserted_locked(const struct ids_group *self);

/* Without the lock: join a thread that has left, and count it if it retired. */
void ids_group_join(struct ids_group *self, struct ids_departed departed);
/* The same for the last one that left, if nobody has joined it. */
void ids_group_join_departed(struct ids_group *self);

#endif
