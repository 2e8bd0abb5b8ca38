/* SPDX-License-Identifier: MIT */
/*
 * group.c - see group.h; every change of a worker's state, and of the counts in I1
 * and I2, is in this file.
 */
#include "group.h"

/* Who is told to run first, and why: group.h. */
static const enum ids_worker_state wake_order[] = { IDS_WORKER_PARKED, IDS_WORKER_ABSENT,
                                                    IDS_WORKER_RELEASING, IDS_WORKER_EXITING };

static bool has_thread(enum ids_worker_state state) {
  return state != IDS_WORKER_ABSENT && state != IDS_WORKER_GONE;
}

/* ------------------------------------------------------------------- lock */

void ids_group_lock(struct ids_group *self) {
  ids_mutex_lock(&self->lock);
}

void ids_group_unlock(struct ids_group *self) {
  ids_group_check_locked(self);
  ids_mutex_unlock(&self->lock);
}

void ids_group_wait_locked(struct ids_group *self, uint64_t deadline_ns) {
  ids_group_check_locked(self);
  ids_cond_wait(&self->changed, &self->lock, deadline_ns);
}

/* ----------------------------------------------------------------- states */

/* In the order of parking, the last first: who comes back from a release goes behind
 * those that have parked since, which are warm.  Who retires is asked last, whatever it
 * does at the moment: the ticket is for its successor. */
static void refresh_wakeable(struct ids_worker *self) {
  struct ids_list *list =
    &self->group->wakeable[self->is_retiring ? IDS_WORKER_EXITING : self->state];
  ids_list_leave(&self->wakeable);
  if (!ids_worker_is_wakeable_locked(self))
    return;
  struct ids_list *place = list;
  while (place->next != list &&
         ids_container_of(place->next, struct ids_worker, wakeable)->parked_at_ns >
           self->parked_at_ns)
    place = place->next;
  ids_list_insert_after(place, &self->wakeable);
}

/* Whose job another worker has taken meanwhile stands for none of those to come. */
void ids_group_work_fell_locked(struct ids_group *self) {
  uint64_t most_count = ids_smaller(self->ops->work_count(self), self->slow_tickets_count);
  if (self->slow_jobs_count > most_count)
    self->slow_jobs_count = (unsigned)most_count;
}

/* After a change of the worker's state or ticket. */
static void count_slow_ticket(struct ids_worker *self) {
  struct ids_group *group = self->group;
  unsigned is_slow = ids_worker_has_slow_ticket_locked(self);
  group->slow_tickets_count += is_slow;
  group->slow_jobs_count += is_slow;
  ids_group_work_fell_locked(group);
}

/* One thread more stays.  The coldest one that sleeps may be past its exit, as it was one of
 * those that idle_exit leaves. */
static void wake_kept_locked(struct ids_group *self) {
  struct ids_list *last = ids_list_last(&self->wakeable[IDS_WORKER_PARKED]);
  if (last == NULL || !ids_group_may_exit_locked(self))
    return;
  struct ids_worker *coldest = ids_container_of(last, struct ids_worker, wakeable);
  if (coldest->sleeps_until_ns > coldest->exit_at_ns)
    ids_cond_signal(&coldest->wake);
}

static void count_leaving_locked(struct ids_worker *self, bool was_leaving) {
  struct ids_group *group = self->group;
  group->leaving_count -= was_leaving;
  group->leaving_count += ids_worker_is_leaving_locked(self);
  if (was_leaving && !ids_worker_is_leaving_locked(self) && has_thread(self->state))
    wake_kept_locked(group);
}

void ids_worker_set_state_locked(struct ids_worker *self, enum ids_worker_state state) {
  struct ids_group *group = self->group;
  bool was_leaving = ids_worker_is_leaving_locked(self);
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(self->state != IDS_WORKER_GONE);
  ids_assert(group->in_state_count[self->state] > 0);

  if (has_thread(state) && !has_thread(self->state))
    group->threads_count++;
  if (!has_thread(state) && has_thread(self->state))
    group->threads_count--;
  group->in_state_count[self->state]--;
  group->in_state_count[state]++;
  unsigned was_slow = ids_worker_has_slow_ticket_locked(self);
  self->state = state;
  group->slow_tickets_count -= was_slow;
  count_slow_ticket(self);
  refresh_wakeable(self);
  count_leaving_locked(self, was_leaving);
}

void ids_worker_set_idle_locked(struct ids_worker *self, enum ids_worker_state state) {
  ids_assert(self->state == IDS_WORKER_RUNNING);
  ids_assert(state == IDS_WORKER_PARKED || state == IDS_WORKER_EXITING);
  ids_assert(!self->is_finishing);
  ids_assert(self->group->active_count > 0);
  self->group->active_count--;
  ids_worker_set_state_locked(self, state);
}

void ids_worker_set_retiring_locked(struct ids_worker *self, bool is_retiring) {
  ids_assert(ids_mutex_is_mine(&self->group->lock));
  bool was_leaving = ids_worker_is_leaving_locked(self);
  self->is_retiring = is_retiring;
  refresh_wakeable(self);
  count_leaving_locked(self, was_leaving);
}

void ids_worker_set_finishing_locked(struct ids_worker *self, bool is_finishing) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(self->state == IDS_WORKER_RUNNING);
  if (is_finishing)
    ids_assert_rule("a job that has begun to block says when that is over, before it ends: blocks",
                    self->is_blocking, false);
  group->finishing_count -= self->is_finishing;
  self->is_finishing = is_finishing;
  group->finishing_count += self->is_finishing;
}

/* In its done callback it may count as finishing, for a job that it has submitted there: who
 * blocks stands for none. */
void ids_worker_set_blocking_locked(struct ids_worker *self, bool is_blocking) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(self->state == IDS_WORKER_RUNNING);
  if (is_blocking)
    ids_assert_rule("idlesched_blocking_begin() is not nested: blocks", self->is_blocking, false);
  else
    ids_assert_rule("idlesched_blocking_end() follows its begin: blocks", self->is_blocking, true);
  ids_worker_set_finishing_locked(self, false);
  group->blocking_count -= self->is_blocking;
  self->is_blocking = is_blocking;
  group->blocking_count += self->is_blocking;
}

/* ------------------------------------------------------------------- room */

unsigned ids_group_room_locked(const struct ids_group *self) {
  return self->limit + (unsigned)ids_smaller(self->blocking_count, self->config.blocking_max);
}

bool ids_group_has_surplus_locked(const struct ids_group *self) {
  return self->threads_count - self->leaving_count > ids_group_room_locked(self);
}

bool ids_group_may_exit_locked(const struct ids_group *self) {
  return ids_group_live_count_locked(self) - self->leaving_count > self->workers_min;
}

/* ---------------------------------------------------------------- tickets */

bool ids_group_has_work_locked(const struct ids_group *self) {
  return self->ops->work_count(self) > 0;
}

bool ids_group_wants_wake_locked(const struct ids_group *self) {
  return self->tickets_count == self->slow_tickets_count &&
         self->active_count < ids_group_room_locked(self) &&
         (self->ops->work_count(self) > self->slow_jobs_count + self->finishing_count ||
          ids_group_needs_watcher_locked(self));
}

struct ids_wake ids_worker_grant_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(ids_worker_is_wakeable_locked(self));

  struct ids_wake wake = { .worker = self, .from = self->state };
  bool was_leaving = ids_worker_is_leaving_locked(self);
  self->has_ticket = true;
  self->given_count++;
  group->tickets_count++;
  count_slow_ticket(self);
  group->active_count++;
  group->counters.wakes++;
  if (self->state == IDS_WORKER_ABSENT) {
    ids_worker_set_state_locked(self, IDS_WORKER_STARTING);
  } else {
    refresh_wakeable(self);
    count_leaving_locked(self, was_leaving);
  }
  return wake;
}

/* The next slot is a worker like the others, which has served every visit. */
static void use_next_slot_locked(struct ids_group *self) {
  ids_assert(self->workers_count < self->slots_count); /* there are as many as there may be room */
  struct ids_worker *worker = self->workers[self->workers_count++];
  worker->visit_asked = worker->visit_served = self->last_visit;
  self->in_state_count[IDS_WORKER_ABSENT]++;
  refresh_wakeable(worker);
}

struct ids_worker *ids_group_first_wakeable_locked(struct ids_group *self,
                                                   enum ids_worker_state state) {
  if (state == IDS_WORKER_ABSENT) {
    if (self->is_stopping || self->threads_count >= ids_group_room_locked(self))
      return NULL;
    if (ids_list_is_empty(&self->wakeable[state]))
      use_next_slot_locked(self);
  }
  struct ids_list *first = ids_list_first(&self->wakeable[state]);
  return first == NULL ? NULL : ids_container_of(first, struct ids_worker, wakeable);
}

struct ids_wake ids_group_grant_locked(struct ids_group *self) {
  for (size_t i = 0; i < ids_countof(wake_order); i++) {
    struct ids_worker *worker = ids_group_first_wakeable_locked(self, wake_order[i]);
    if (worker != NULL)
      return ids_worker_grant_locked(worker);
  }
  return (struct ids_wake){ .worker = NULL };
}

struct ids_wake ids_group_grant_wanted_locked(struct ids_group *self) {
  struct ids_wake wake = { .worker = NULL };
  while (ids_group_wants_wake_locked(self)) {
    wake = ids_group_grant_locked(self);
    ids_assert(wake.worker != NULL); /* there is room: somebody neither runs nor will */
  }
  ids_group_watch_locked(self);
  return wake;
}

struct ids_wake ids_group_wake_wanted_locked(struct ids_group *self) {
  struct ids_wake wake = ids_group_grant_wanted_locked(self);
  if (wake.worker != NULL && wake.from == IDS_WORKER_PARKED) {
    ids_cond_signal(&wake.worker->wake);
    wake.worker = NULL;
  }
  return wake;
}

void ids_worker_use_ticket_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->has_ticket);
  ids_assert(!self->is_retiring);
  ids_assert(group->tickets_count > 0);
  ids_assert(self->state == IDS_WORKER_STARTING || self->state == IDS_WORKER_PARKED);

  if (self->state == IDS_WORKER_STARTING) {
    group->counters.starts++;
    group->succeeded_count -= self->is_succeeded;
    self->is_succeeded = false;
    ids_cond_broadcast(&group->changed);
  }
  bool is_new = self->state == IDS_WORKER_STARTING;
  self->has_ticket = false;
  self->used_count++;
  group->tickets_count--;
  group->counters.polls++;
  ids_worker_set_state_locked(self, IDS_WORKER_RUNNING);
  if (is_new)
    wake_kept_locked(group);
}

/* Whether the worker leaves, as after a resize more threads stay than there is room for. */
static bool shrink_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  group->is_shrinking = ids_group_has_surplus_locked(group);
  if (group->is_shrinking)
    ids_worker_set_retiring_locked(self, true);
  return group->is_shrinking;
}

/* Whether more workers are at a job than may be.  All but the caller stay so, and poll when
 * it ends: what is queued is theirs. */
static bool is_crowded(const struct ids_group *self) {
  return self->in_state_count[IDS_WORKER_RUNNING] - self->blocking_count > self->limit;
}

enum ids_poll ids_worker_poll_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_RUNNING);
  enum ids_poll answer = IDS_POLL_WAIT;
  if (group->is_shrinking && shrink_locked(self))
    answer = IDS_POLL_STOP;
  else if (group->is_stopping || !is_crowded(group))
    answer = group->ops->poll(self);
  ids_group_work_fell_locked(group);
  return answer;
}

/*
 * Others may have queued jobs meanwhile and given no ticket, as one was on its
 * way.  So the ticket is not just dropped: whoever has a thread gets it.
 */
bool ids_worker_launch_failed_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_STARTING && self->has_ticket && !self->is_succeeded);

  self->has_ticket = false;
  self->lost_count++;
  group->tickets_count--;
  group->active_count--;
  group->counters.tickets_lost++;
  group->counters.starts_refused++;
  self->visit_served = self->visit_asked; /* who asked for a visit need not wait for it */
  ids_worker_set_state_locked(self, group->is_stopping ? IDS_WORKER_GONE : IDS_WORKER_ABSENT);
  ids_cond_broadcast(&group->changed);

  for (size_t i = 0; i < ids_countof(wake_order); i++) {
    struct ids_worker *worker;
    while (wake_order[i] != IDS_WORKER_ABSENT && ids_group_wants_wake_locked(group) &&
           (worker = ids_group_first_wakeable_locked(group, wake_order[i])) != NULL) {
      ids_worker_grant_locked(worker);
      ids_cond_signal(&worker->wake);
    }
  }
  ids_group_watch_locked(group);
  return ids_group_live_count_locked(group) > 0;
}

/* ------------------------------------------------------------- succession */

void ids_worker_begin_succession_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_EXITING && self->is_retiring && self->has_ticket);
  self->is_succeeded = true;
  group->succeeded_count++;
  group->predecessors_count++;
  self->is_retiring = false;
  ids_worker_set_state_locked(self, IDS_WORKER_STARTING);
}

void ids_worker_end_succession_locked(struct ids_worker *self, bool has_successor) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(group->predecessors_count > 0);
  group->predecessors_count--;
  ids_cond_broadcast(&group->changed);
  if (has_successor)
    return; /* the worker is the new thread's */
  ids_assert(self->state == IDS_WORKER_STARTING && self->is_succeeded);
  self->is_succeeded = false;
  group->succeeded_count--;
  group->counters.starts_refused++;
  ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
}

/* ----------------------------------------------------------------- counts */

unsigned ids_group_launching_count_locked(const struct ids_group *self) {
  return self->in_state_count[IDS_WORKER_STARTING] - self->succeeded_count;
}

unsigned ids_group_live_count_locked(const struct ids_group *self) {
  ids_assert(self->threads_count >= ids_group_launching_count_locked(self));
  return self->threads_count - ids_group_launching_count_locked(self);
}

bool ids_group_is_deserted_locked(const struct ids_group *self) {
  return self->threads_count == 0 && self->predecessors_count == 0;
}

void ids_group_await_launch_locked(struct ids_group *self) {
  while (ids_group_launching_count_locked(self) > 0 && ids_group_live_count_locked(self) == 0)
    ids_group_wait_locked(self, IDS_NEVER);
}

/* ---------------------------------------------------------------- joining */

void ids_group_join(struct ids_group *self, struct ids_departed departed) {
  ids_thread_join(&departed.thread);
  if (!departed.has_retired)
    return;
  ids_group_lock(self);
  self->counters.retires++;
  ids_cond_broadcast(&self->changed);
  ids_group_unlock(self);
}

void ids_group_join_departed(struct ids_group *self) {
  ids_group_lock(self);
  struct ids_departed last = self->departed;
  self->departed.is_there = false;
  ids_group_unlock(self);
  if (last.is_there)
    ids_group_join(self, last);
}
