/* SPDX-License-Identifier: MIT */
/*
 * worker.c - what a worker's thread does, from its start to its end.  See worker.h.
 */
#include "worker.h"

#include "counter.h"
#include "heap.h"
#include "host_thread.h"

struct ids_worker *ids_worker_current(void) {
  return ids_tls_get(IDS_TLS_WORKER);
}

struct ids_worker *ids_worker_outermost(void) {
  struct ids_worker *worker = ids_worker_current();
  while (worker != NULL && worker->outer != NULL)
    worker = worker->outer;
  return worker;
}

void ids_worker_set_memory(struct ids_worker *self, uint64_t live_bytes, uint64_t dead_bytes) {
  uint64_t before_bytes = ids_load_relaxed(&self->dead_bytes);
  ids_store_relaxed(&self->live_bytes, live_bytes);
  ids_store_relaxed(&self->dead_bytes, dead_bytes);
  if (dead_bytes != before_bytes)
    ids_counter_add_dead(dead_bytes - before_bytes);
}

/* ---------------------------------------------------------------- running */

void ids_wake_pass_on(struct ids_wake wake) {
  if (wake.worker == NULL || ids_wake_deliver(wake) == 0)
    return;
  struct ids_group *group = wake.worker->group;
  ids_group_lock(group);
  ids_worker_launch_failed_locked(wake.worker);
  ids_group_unlock(group);
}

static bool has_alarm(const struct ids_group *group) {
  return group->ops->next_alarm_ns(group) != IDS_NEVER;
}

/*
 * Do what is due.  The lock is dropped meanwhile if the owner has somebody to tell; so that
 * nobody takes a worker that is parked for asleep then, it is RELEASING.  True if that was so.
 */
static bool ring_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  bool has_told = false;
  void *what;
  while (has_alarm(group) && (what = group->ops->ring(group, ids_now_ns())) != NULL) {
    if (self->state == IDS_WORKER_PARKED)
      ids_worker_claim_itself_locked(self);
    struct ids_wake next = ids_group_grant_wanted_locked(group);
    ids_group_unlock(group);
    ids_wake_pass_on(next);
    ids_point("worker.tell");
    group->ops->tell(group, what);
    ids_host_thread_check_may_allocate();
    ids_group_lock(group);
    has_told = true;
  }
  return has_told;
}

/* A worker that retires does not poll.  The poll of one that uses its ticket gives others the
 * tickets that are wanted, as it took one; and so does one that may have rung, or has let a job
 * with an alarm into the queue.  next is for pass_on(). */
static enum ids_poll ring_and_poll_locked(struct ids_worker *self, bool passes_on,
                                          struct ids_wake *next) {
  passes_on |= has_alarm(self->group);
  if (!self->is_retiring)
    ring_locked(self);
  if (self->is_retiring) /* before, or since */
    return IDS_POLL_STOP;
  enum ids_poll answer = ids_worker_poll_locked(self);
  if (answer == IDS_POLL_WORK && (passes_on || has_alarm(self->group)))
    *next = ids_group_grant_wanted_locked(self->group);
  return answer;
}

/*
 * Poll and work until a poll finds nothing, or the worker is to retire.  What the last poll
 * answered; a worker that retires does not ask again, and stops.
 */
static enum ids_poll run_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_worker_use_ticket_locked(self);

  struct ids_wake next = { .worker = NULL };
  enum ids_poll answer = ring_and_poll_locked(self, true, &next);

  uint64_t now_ns = ids_tick_ns();
  while (answer == IDS_POLL_WORK) {
    self->is_released = false;
    self->began_at_ns = now_ns;
    ids_group_unlock(group);
    ids_wake_pass_on(next);
    next.worker = NULL;
    ids_point("worker.work");
    group->ops->work(self);
    now_ns = ids_tick_ns();
    ids_host_thread_check_may_allocate(); /* a job that parked has come back */
    ids_group_lock(group);
    ids_worker_set_finishing_locked(self, false);
    if (group->config.is_dedicated)
      ids_worker_set_retiring_locked(self, true);
    answer = ring_and_poll_locked(self, false, &next);
  }
  self->began_at_ns = 0;
  return answer;
}

/* ---------------------------------------------------------------- tidying */

static bool is_alarm_due(const struct ids_group *group) {
  return group->ops->next_alarm_ns(group) <= ids_now_ns();
}

/* By a ticket, or for an alarm that nobody else may watch. */
static bool is_wanted(struct ids_worker *self) {
  ids_group_lock(self->group);
  bool result = self->has_ticket || (has_alarm(self->group) && is_alarm_due(self->group));
  ids_group_unlock(self->group);
  return result;
}

/* Without the lock.  False when it is wanted, and the rest was skipped. */
static bool tidy_unless_wanted(struct ids_worker *self) {
  for (bool has_more = self->has_state;;) {
    ids_point("worker.collect");
    if (is_wanted(self))
      return false;
    if (!has_more)
      break;
    has_more = self->group->ops->collect(self);
  }
  ids_heap_collect();
  return true;
}

/* On its own thread: because it has a state, or is awake when it is visited. */
static void release_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  uint64_t visit = self->visit_asked;
  ids_worker_claim_itself_locked(self);
  ids_group_unlock(group);

  bool is_whole = tidy_unless_wanted(self);

  ids_group_lock(group);
  if (is_whole) {
    self->visit_served = visit;
    ids_worker_released_locked(self);
    if (group->visitors_count == 0)
      ids_pass_owe_purge_locked(group, ids_now_ns());
  }
  ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
}

/* The worker is EXITING: drop what is kept for it, the lock dropped meanwhile. */
static void stop_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  struct ids_wake next = ids_group_grant_wanted_locked(group); /* it leaves the queue to others */
  ids_group_unlock(group);
  ids_wake_pass_on(next);
  ids_point("worker.stop");
  group->ops->stop(self);
  ids_worker_set_memory(self, 0, 0);
  ids_group_lock(group);
}

/* Give up the leaving thread's heap, and purge; the lock is dropped meanwhile. */
static void tidy_to_leave_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_group_unlock(group);
  ids_heap_collect();
  ids_host_threads_give_up(ids_now_ns(), group->config.idle_release_ns);
  ids_point("worker.purge");
  ids_heap_purge();
  ids_heap_trim_c(false);
  ids_group_lock(group);
}

/* ---------------------------------------------------------------- parking */

static void fix_deadlines_locked(struct ids_worker *self) {
  const struct ids_group_config *config = &self->group->config;
  self->parked_at_ns = ids_now_ns();
  self->exit_at_ns = ids_after_ns(self->parked_at_ns, config->idle_exit_ns);
  /* The exit releases as well: when it comes first, or together, there is no release. */
  self->release_at_ns = config->idle_exit_ns <= config->idle_release_ns
                          ? IDS_NEVER
                          : ids_after_ns(self->parked_at_ns, config->idle_release_ns);
  self->has_state = self->group->ops->has_state(self);
}

/* Whether a pass is to give up its heap. */
static void await_pass_locked(struct ids_worker *self) {
  ids_worker_set_awaits_pass_locked(self, !self->is_released && !self->has_state &&
                                            self->release_at_ns != IDS_NEVER);
}

static void park_locked(struct ids_worker *self) {
  fix_deadlines_locked(self);
  ids_worker_set_idle_locked(self, IDS_WORKER_PARKED);
  await_pass_locked(self);
}

/* It is time to exit, but somebody has to watch, or it is one of those that idle_exit leaves:
 * what the exit would give back is released. */
static void stay_parked_locked(struct ids_worker *self) {
  self->release_at_ns = self->exit_at_ns;
  await_pass_locked(self);
}

/* An alarm is due and nobody polls.  Callbacks of the owner's are like a job: if there were
 * any, the worker has parked only now. */
static void ring_parked_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  if (ring_locked(self)) {
    self->is_released = false;
    fix_deadlines_locked(self);
    ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
    await_pass_locked(self);
  }
  if (self->has_ticket || self->is_retiring)
    return; /* meanwhile; then it polls, or leaves, and grants what is wanted */
  struct ids_wake wake = ids_group_grant_wanted_locked(group);
  if (wake.worker != NULL && wake.worker != self)
    ids_cond_signal(&wake.worker->wake); /* one that is parked, as this one is */
}

static void unpark_locked(struct ids_worker *self) {
  ids_worker_end_watch_locked(self);
  ids_worker_set_awaits_pass_locked(self, false);
  ids_pass_hand_over_locked(self);
}

/* When it leaves.  Its time may have come, and it is one of those that stay. */
static uint64_t exit_due_ns(const struct ids_worker *self, uint64_t now_ns) {
  bool is_kept = self->exit_at_ns <= now_ns && !ids_group_may_exit_locked(self->group);
  return is_kept ? IDS_NEVER : self->exit_at_ns;
}

/* When it has to release on its own thread. */
static uint64_t release_due_ns(const struct ids_worker *self) {
  if (self->visit_asked > self->visit_served)
    return 0;
  return self->is_released || !self->has_state ? IDS_NEVER : self->release_at_ns;
}

static void sleep_locked(struct ids_worker *self, uint64_t deadline_ns) {
  ids_group_check_locked(self->group);
  ids_cond_wait(&self->wake, &self->group->lock, deadline_ns);
  ids_pass_wakes_locked(self);
}

/* Somebody else has its heap in hand. */
static void await_return_locked(struct ids_worker *self) {
  self->awaits_return = true;
  while (self->state == IDS_WORKER_RELEASING)
    sleep_locked(self, IDS_NEVER);
  self->awaits_return = false;
}

/* Wait for a ticket.  False when the thread has to leave instead: it is EXITING. */
static bool wait_locked(struct ids_worker *self) {
  park_locked(self);
  for (;;) {
    if (self->state == IDS_WORKER_RELEASING)
      await_return_locked(self);
    uint64_t now_ns = ids_now_ns();
    uint64_t release_ns = release_due_ns(self);
    uint64_t exit_ns = ids_worker_may_leave_watch_locked(self) ? exit_due_ns(self, now_ns)
                                                               : IDS_NEVER;
    if (self->is_retiring) {
      break;
    } else if (self->has_ticket) {
      unpark_locked(self);
      return true;
    } else if (self->group->ops->next_alarm_ns(self->group) <= now_ns) {
      ring_parked_locked(self);
    } else if (release_ns <= now_ns) {
      release_locked(self);
    } else if (exit_ns <= now_ns) {
      break;
    } else if (self->exit_at_ns <= now_ns && self->release_at_ns == IDS_NEVER) {
      stay_parked_locked(self);
    } else if (ids_pass_is_mine_locked(self, now_ns)) {
      ids_pass_run_locked(self);
    } else {
      uint64_t own_ns = ids_worker_watches_until_locked(self, ids_earlier_ns(release_ns, exit_ns));
      sleep_locked(self, ids_pass_sleeps_until_locked(self, own_ns));
    }
  }
  ids_worker_set_state_locked(self, IDS_WORKER_EXITING);
  unpark_locked(self);
  return false;
}

/* ---------------------------------------------------------------- leaving */

/*
 * The last worker that has a thread for certain does not leave work alone while another
 * one is being started for it: whoever queued it may rely on a thread that the system
 * then refuses.  In that case the refused worker's ticket comes here.
 */
static void stay_for_launch_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  while (!self->has_ticket && ids_group_launching_count_locked(group) > 0 &&
         ids_group_live_count_locked(group) == 1 &&
         (ids_group_has_work_locked(group) || has_alarm(group)))
    ids_group_wait_locked(group, IDS_NEVER);
}

/*
 * The last statements of a thread.  A thread that has ended is joined by the
 * next one that leaves, the last one by the owner: so at most one is waiting to
 * be joined, and nobody waits for long.  Until then it may touch the group.
 */
static void depart_unlock(struct ids_group *group, struct ids_thread thread, bool has_retired) {
  bool frees_group = group->is_orphaned && ids_group_is_deserted_locked(group);
  struct ids_departed earlier = group->departed;
  group->departed =
    (struct ids_departed){ .thread = thread, .is_there = !frees_group, .has_retired = has_retired };
  ids_cond_broadcast(&group->changed);
  ids_group_unlock(group);

  if (earlier.is_there)
    ids_group_join(group, earlier);
  if (frees_group) {
    ids_thread_detach_self();
    group->ops->orphaned(group);
  }
}

static void worker_main(void *context);

static int start_thread(struct ids_worker *self) {
  const struct ids_group_config *config = &self->group->config;
  return ids_thread_start(&self->thread,
                          &(struct ids_thread_config){ .main = worker_main,
                                                       .context = self,
                                                       .name = config->name,
                                                       .stack_size = config->stack_size },
                          "worker.thread");
}

/* The next thread has a heap and a state of its own. */
static void forget_thread_locked(struct ids_worker *self) {
  self->visit_served = self->visit_asked;
  self->is_released = false;
  self->heap = NULL;
}

static void give_up_place_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  forget_thread_locked(self);
  if (!group->is_stopping && !self->is_retiring)
    group->counters.exits++;
  self->is_retiring = false;
  ids_worker_set_state_locked(self, group->is_stopping ? IDS_WORKER_GONE : IDS_WORKER_ABSENT);
}

/* A ticket came for the place of a worker that retires.  Whether its thread may end. */
static bool succeed_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  forget_thread_locked(self);
  ids_worker_begin_succession_locked(self);
  ids_group_unlock(group);
  ids_point("worker.succeed");
  bool has_successor = start_thread(self) == 0;
  ids_group_lock(group);
  ids_worker_end_succession_locked(self, has_successor);
  return has_successor;
}

/* The worker goes on after all, with a ticket, as if its thread were new. */
static void stay_locked(struct ids_worker *self) {
  self->is_released = false;
  ids_group_unlock(self->group);
  self->group->ops->start(self);
  ids_group_lock(self->group);
  ids_worker_set_retiring_locked(self, false); /* nor does a STARTING worker retire */
  self->heap = ids_heap_own();
  if (self->state == IDS_WORKER_EXITING)
    ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
}

/*
 * The worker is EXITING.  Decide whether its thread ends, in one critical section with
 * publishing it.  False: it stays, the lock is held.
 */
static bool leave_unlock(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_EXITING);
  stop_locked(self);
  uint64_t visit;
  do {
    visit = self->visit_asked;
    tidy_to_leave_locked(self);
    stay_for_launch_locked(self);
    /* Asked meanwhile: what was freed before that is tidied too, unless the worker stays
     * and owes the visit. */
  } while (self->visit_asked > visit && (!self->has_ticket || self->is_retiring));

  struct ids_thread thread = self->thread;
  bool has_retired = self->is_retiring;
  if (self->has_ticket) {
    bool has_successor = has_retired && !group->is_stopping && succeed_locked(self);
    if (!has_successor) {
      stay_locked(self);
      return false;
    }
  } else {
    give_up_place_locked(self);
  }
  ids_pass_follow_up_locked(group, ids_now_ns());
  depart_unlock(group, thread, has_retired);
  return true;
}

static void worker_main(void *context) {
  struct ids_worker *self = context;
  ids_tls_set(IDS_TLS_WORKER, self);
  ids_counter_claim();
  void *heap = ids_heap_own();
  self->group->ops->start(self);
  ids_group_lock(self->group);
  self->heap = heap;
  for (;;) {
    if (run_locked(self) == IDS_POLL_STOP)
      ids_worker_set_idle_locked(self, IDS_WORKER_EXITING);
    else if (wait_locked(self))
      continue;
    if (leave_unlock(self))
      break;
  }
  ids_counter_give_back();
  ids_heap_thread_ends();
}

/* ---------------------------------------------------------------- starting */

int ids_wake_deliver(struct ids_wake wake) {
  if (wake.from == IDS_WORKER_PARKED) {
    ids_point("worker.signal");
    ids_cond_signal(&wake.worker->wake);
  } else if (wake.from == IDS_WORKER_ABSENT) {
    ids_point("worker.start");
    return start_thread(wake.worker);
  }
  /* RELEASING and EXITING workers are awake, or will be woken when they are given back. */
  return 0;
}
