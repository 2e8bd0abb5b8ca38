/* SPDX-License-Identifier: MIT */
/*
 * worker.c - see worker.h.
 */
#include "worker.h"

#include "heap.h"

struct ids_worker *ids_worker_current(void) {
  return ids_tls_get(IDS_TLS_WORKER);
}

/* ---------------------------------------------------------------- running */

/* Wake one more worker, outside the lock; a refused thread is no loss here,
 * as the caller itself has one and will look at the queue again. */
static void pass_on(struct ids_wake wake) {
  if (ids_wake_deliver(wake) == 0)
    return;
  struct ids_group *group = wake.worker->group;
  ids_group_lock(group);
  ids_worker_launch_failed_locked(wake.worker);
  ids_group_unlock(group);
}

/* Poll and work until a poll finds nothing.  What it answered. */
static enum ids_poll run_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_worker_use_ticket_locked(self);

  enum ids_poll answer = group->ops->poll(self);
  struct ids_wake next = { .worker = NULL };
  if (answer == IDS_POLL_WORK && ids_group_wants_wake_locked(group))
    next = ids_group_grant_locked(group);

  while (answer == IDS_POLL_WORK) {
    self->is_released = false;
    ids_group_unlock(group);
    if (next.worker != NULL)
      pass_on(next);
    next.worker = NULL;
    ids_point("worker.work");
    group->ops->work(self);
    ids_group_lock(group);
    ids_assert(self->state == IDS_WORKER_RUNNING);
    answer = group->ops->poll(self);
  }
  return answer;
}

/* ---------------------------------------------------------------- tidying */

static bool has_ticket(struct ids_worker *self) {
  ids_group_lock(self->group);
  bool result = self->has_ticket;
  ids_group_unlock(self->group);
  return result;
}

/* Without the lock.  False when a ticket came and the rest was skipped. */
static bool tidy_unless_wanted(struct ids_worker *self) {
  do {
    ids_point("worker.collect");
    if (has_ticket(self))
      return false;
  } while (self->group->ops->collect(self));
  ids_heap_collect();
  ids_point("worker.purge");
  ids_heap_purge();
  return true;
}

static void release_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  uint64_t visit = self->visit_asked;
  ids_worker_set_state_locked(self, IDS_WORKER_RELEASING);
  ids_group_unlock(group);

  bool is_whole = tidy_unless_wanted(self);

  ids_group_lock(group);
  if (is_whole) {
    self->is_released = true;
    self->visit_served = visit;
    group->counters.releases++;
    ids_cond_broadcast(&group->changed);
  }
  ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
}

/* The worker is EXITING: tidy everything, the lock dropped meanwhile. */
static void tidy_to_leave_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_group_unlock(group);
  ids_point("worker.stop");
  group->ops->stop(self);
  ids_heap_collect();
  ids_point("worker.purge");
  ids_heap_purge();
  ids_group_lock(group);
}

/* ---------------------------------------------------------------- parking */

static void park_locked(struct ids_worker *self) {
  const struct ids_group_config *config = &self->group->config;
  self->parked_at_ns = ids_now_ns();
  self->exit_at_ns = ids_after_ns(self->parked_at_ns, config->idle_exit_ns);
  /* The exit releases as well: when it comes first, or together, there is no release. */
  self->release_at_ns = config->idle_exit_ns <= config->idle_release_ns
                          ? IDS_NEVER
                          : ids_after_ns(self->parked_at_ns, config->idle_release_ns);
  ids_worker_set_idle_locked(self, IDS_WORKER_PARKED);
}

static uint64_t release_due_ns(const struct ids_worker *self) {
  if (self->visit_asked > self->visit_served)
    return 0;
  return self->is_released ? IDS_NEVER : self->release_at_ns;
}

/*
 * Decide whether the thread leaves, in one critical section with publishing it.
 *
 * The last worker that has a thread for certain does not leave work alone while another
 * one is being started for it: whoever queued it may rely on a thread that the system
 * then refuses.  In that case the refused worker's ticket comes here.
 */
static bool leaves_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  while (!self->has_ticket && ids_group_launching_count_locked(group) > 0 &&
         ids_group_live_count_locked(group) == 1 && group->ops->has_work(group))
    ids_group_wait_locked(group, IDS_NEVER);
  if (self->has_ticket)
    return false;
  if (!group->is_stopping)
    group->counters.exits++;
  return true;
}

/* Wait for a ticket.  False when the thread has to leave instead. */
static bool wait_locked(struct ids_worker *self) {
  park_locked(self);
  while (!self->has_ticket) {
    uint64_t now_ns = ids_now_ns();
    uint64_t release_ns = release_due_ns(self);
    if (release_ns <= now_ns) {
      release_locked(self);
    } else if (self->exit_at_ns <= now_ns) {
      ids_worker_set_state_locked(self, IDS_WORKER_EXITING);
      tidy_to_leave_locked(self);
      if (leaves_locked(self))
        return false;
      ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
    } else {
      ids_group_check_locked(self->group);
      ids_cond_wait(&self->wake, &self->group->lock, ids_earlier_ns(release_ns, self->exit_at_ns));
    }
  }
  return true;
}

/* ---------------------------------------------------------------- leaving */

/*
 * The last statements of a thread.  A thread that has ended is joined by the
 * next one that leaves, the last one by the owner: so at most one is waiting to
 * be joined, and nobody waits for long.
 */
static void leave_unlock(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_EXITING && !self->has_ticket);
  self->visit_served = self->visit_asked;
  self->is_released = false; /* the next thread has a heap of its own */
  ids_worker_set_state_locked(self, group->is_stopping ? IDS_WORKER_GONE : IDS_WORKER_ABSENT);
  bool frees_group = group->is_orphaned && group->threads_count == 0;
  bool joins = group->has_departed;
  struct ids_thread earlier = group->departed;
  group->has_departed = !frees_group;
  group->departed = self->thread;
  ids_cond_broadcast(&group->changed);
  ids_group_unlock(group);

  if (joins)
    ids_thread_join(&earlier);
  if (frees_group) {
    ids_thread_detach_self();
    group->ops->orphaned(group);
  }
}

static void worker_main(void *context) {
  struct ids_worker *self = context;
  ids_tls_set(IDS_TLS_WORKER, self);
  ids_group_lock(self->group);
  for (;;) {
    if (run_locked(self) == IDS_POLL_STOP) {
      ids_worker_set_idle_locked(self, IDS_WORKER_EXITING);
      tidy_to_leave_locked(self);
      break;
    }
    if (!wait_locked(self))
      break;
  }
  leave_unlock(self);
}

/* --------------------------------------------------------------- the group */

int ids_wake_deliver(struct ids_wake wake) {
  struct ids_worker *worker = wake.worker;
  if (wake.from == IDS_WORKER_PARKED) {
    ids_point("worker.signal");
    ids_cond_signal(&worker->wake);
  } else if (wake.from == IDS_WORKER_ABSENT) {
    const struct ids_group_config *config = &worker->group->config;
    ids_point("worker.start");
    return ids_thread_start(&worker->thread,
                            &(struct ids_thread_config){ .main = worker_main,
                                                         .context = worker,
                                                         .name = config->name,
                                                         .stack_size = config->stack_size },
                            "worker.thread");
  }
  /* RELEASING and EXITING workers are awake and will see the ticket. */
  return 0;
}

uint64_t ids_group_visit_locked(struct ids_group *self) {
  uint64_t number = ++self->visits_count;
  for (unsigned i = 0; i < self->config.workers_max; i++) {
    struct ids_worker *worker = &self->workers[i];
    if (worker->state == IDS_WORKER_ABSENT || worker->state == IDS_WORKER_GONE)
      continue;
    worker->visit_asked = number;
    if (worker->state == IDS_WORKER_PARKED)
      ids_cond_signal(&worker->wake);
  }
  return number;
}

struct ids_visits ids_group_visits_locked(const struct ids_group *self, uint64_t number) {
  struct ids_visits visits = { 0 };
  for (unsigned i = 0; i < self->config.workers_max; i++) {
    const struct ids_worker *worker = &self->workers[i];
    if (worker->visit_asked < number)
      continue;
    if (worker->visit_served >= number)
      visits.visited_count++;
    else
      visits.pending_count++;
  }
  return visits;
}

/*
 * A worker without a thread is gone at once.  One that is tidying to leave will
 * see is_stopping; every other one polls, and is told by that poll.
 */
void ids_group_stop_locked(struct ids_group *self) {
  self->is_stopping = true;
  for (unsigned i = 0; i < self->config.workers_max; i++) {
    struct ids_worker *worker = &self->workers[i];
    if (worker->state == IDS_WORKER_ABSENT)
      ids_worker_set_state_locked(worker, IDS_WORKER_GONE);
    bool is_waiting = worker->state == IDS_WORKER_PARKED || worker->state == IDS_WORKER_RELEASING;
    if (is_waiting && !worker->has_ticket) {
      ids_worker_grant_locked(worker);
      ids_cond_signal(&worker->wake);
    }
  }
}

void ids_group_join(struct ids_group *self) {
  ids_group_lock(self);
  ids_assert_equal(self->threads_count, 0);
  bool joins = self->has_departed;
  struct ids_thread last = self->departed;
  self->has_departed = false;
  ids_group_unlock(self);
  if (joins)
    ids_thread_join(&last);
}
