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

static bool may_be_woken(const struct ids_worker *worker) {
  if (worker->has_ticket)
    return false;
  for (size_t i = 0; i < ids_countof(wake_order); i++)
    if (worker->state == wake_order[i])
      return true;
  return false;
}

/* ------------------------------------------------------------------- life */

static int worker_init(struct ids_worker *self, struct ids_group *group, unsigned index) {
  *self = (struct ids_worker){ .group = group, .index = index, .state = IDS_WORKER_ABSENT };
  ids_list_init(&self->wakeable);
  ids_list_push_back(&group->wakeable[IDS_WORKER_ABSENT], &self->wakeable);
  return ids_cond_init(&self->wake, "group.worker.wake");
}

static void workers_deinit(struct ids_group *self, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    ids_cond_deinit(&self->workers[i].wake);
}

int ids_group_init(struct ids_group *self, const struct ids_group_ops *ops,
                   const struct ids_group_config *config) {
  ids_assert(config->workers_max > 0);
  *self = (struct ids_group){ .ops = ops, .config = *config };
  for (int state = 0; state < IDS_WORKER_STATES; state++)
    ids_list_init(&self->wakeable[state]);
  self->in_state_count[IDS_WORKER_ABSENT] = config->workers_max;

  unsigned workers_ready = 0;
  int status = ids_mutex_init(&self->lock, "group.lock");
  if (status != 0)
    return status;
  status = ids_cond_init(&self->changed, "group.changed");
  if (status != 0)
    goto deinit_lock;
  status = -ENOMEM;
  self->workers = ids_alloc(config->workers_max * sizeof *self->workers, "group.workers");
  if (self->workers == NULL)
    goto deinit_changed;
  for (; workers_ready < config->workers_max; workers_ready++) {
    status = worker_init(&self->workers[workers_ready], self, workers_ready);
    if (status != 0)
      goto deinit_workers;
  }
  return 0;

deinit_workers:
  workers_deinit(self, workers_ready);
  ids_free(self->workers);
deinit_changed:
  ids_cond_deinit(&self->changed);
deinit_lock:
  ids_mutex_deinit(&self->lock);
  return status;
}

void ids_group_deinit(struct ids_group *self) {
  ids_assert_equal(self->threads_count, 0);
  ids_assert(!self->has_departed);
  workers_deinit(self, self->config.workers_max);
  ids_free(self->workers);
  ids_cond_deinit(&self->changed);
  ids_mutex_deinit(&self->lock);
}

/* ------------------------------------------------------------------- lock */

void ids_group_check_locked(const struct ids_group *self) {
  const unsigned *in_state = self->in_state_count;
  ids_assert(ids_mutex_is_mine(&self->lock));
  ids_assert_equal(self->active_count, in_state[IDS_WORKER_RUNNING] + self->tickets_count); /* I1 */
  ids_assert_equal(self->threads_count,
                   in_state[IDS_WORKER_STARTING] + in_state[IDS_WORKER_RUNNING] +
                     in_state[IDS_WORKER_PARKED] + in_state[IDS_WORKER_RELEASING] +
                     in_state[IDS_WORKER_EXITING]); /* I2 */
  ids_assert(self->active_count > 0 || in_state[IDS_WORKER_STARTING] > 0 ||
             !self->ops->has_work(self)); /* I3 */
  const struct ids_group_counters *counters = &self->counters;
  ids_assert_equal(counters->wakes,
                   counters->polls + self->tickets_count + counters->starts_refused); /* I4 */
}

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
 * those that have parked since, which are warm. */
static void refresh_wakeable(struct ids_worker *self) {
  struct ids_list *list = &self->group->wakeable[self->state];
  ids_list_leave(&self->wakeable);
  if (!may_be_woken(self))
    return;
  struct ids_list *place = list;
  while (place->next != list &&
         ids_container_of(place->next, struct ids_worker, wakeable)->parked_at_ns >
           self->parked_at_ns)
    place = place->next;
  ids_list_insert_after(place, &self->wakeable);
}

void ids_worker_set_state_locked(struct ids_worker *self, enum ids_worker_state state) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(self->state != IDS_WORKER_GONE);
  ids_assert(group->in_state_count[self->state] > 0);

  if (has_thread(state) && !has_thread(self->state))
    group->threads_count++;
  if (!has_thread(state) && has_thread(self->state))
    group->threads_count--;
  group->in_state_count[self->state]--;
  group->in_state_count[state]++;
  self->state = state;
  refresh_wakeable(self);
}

void ids_worker_set_idle_locked(struct ids_worker *self, enum ids_worker_state state) {
  ids_assert(self->state == IDS_WORKER_RUNNING);
  ids_assert(state == IDS_WORKER_PARKED || state == IDS_WORKER_EXITING);
  ids_assert(self->group->active_count > 0);
  self->group->active_count--;
  ids_worker_set_state_locked(self, state);
}

/* ---------------------------------------------------------------- tickets */

bool ids_group_wants_wake_locked(const struct ids_group *self) {
  return self->tickets_count == 0 && self->active_count < self->config.workers_max &&
         self->ops->has_work(self);
}

struct ids_wake ids_worker_grant_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(may_be_woken(self));

  struct ids_wake wake = { .worker = self, .from = self->state };
  self->has_ticket = true;
  group->tickets_count++;
  group->active_count++;
  group->counters.wakes++;
  if (self->state == IDS_WORKER_ABSENT) {
    ids_worker_set_state_locked(self, IDS_WORKER_STARTING);
  } else {
    refresh_wakeable(self);
  }
  return wake;
}

struct ids_worker *ids_group_first_wakeable_locked(struct ids_group *self,
                                                   enum ids_worker_state state) {
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

void ids_worker_use_ticket_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->has_ticket);
  ids_assert(group->tickets_count > 0);
  ids_assert(self->state == IDS_WORKER_STARTING || self->state == IDS_WORKER_PARKED);

  if (self->state == IDS_WORKER_STARTING) {
    group->counters.starts++;
    ids_cond_broadcast(&group->changed);
  }
  self->has_ticket = false;
  group->tickets_count--;
  group->counters.polls++;
  ids_worker_set_state_locked(self, IDS_WORKER_RUNNING);
}

/*
 * Others may have queued jobs meanwhile and given no ticket, as one was on its
 * way.  So the ticket is not just dropped: whoever has a thread gets it.
 */
bool ids_worker_launch_failed_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_STARTING && self->has_ticket);

  self->has_ticket = false;
  group->tickets_count--;
  group->active_count--;
  group->counters.starts_refused++;
  self->visit_served = self->visit_asked; /* who asked for a visit need not wait for it */
  ids_worker_set_state_locked(self, group->is_stopping ? IDS_WORKER_GONE : IDS_WORKER_ABSENT);
  ids_cond_broadcast(&group->changed);

  for (size_t i = 0; i < ids_countof(wake_order) && ids_group_wants_wake_locked(group); i++) {
    struct ids_worker *worker = ids_group_first_wakeable_locked(group, wake_order[i]);
    if (worker != NULL && has_thread(worker->state)) {
      ids_worker_grant_locked(worker);
      ids_cond_signal(&worker->wake);
    }
  }
  return ids_group_live_count_locked(group) > 0;
}

unsigned ids_group_launching_count_locked(const struct ids_group *self) {
  return self->in_state_count[IDS_WORKER_STARTING];
}

unsigned ids_group_live_count_locked(const struct ids_group *self) {
  ids_assert(self->threads_count >= ids_group_launching_count_locked(self));
  return self->threads_count - ids_group_launching_count_locked(self);
}

void ids_group_await_launch_locked(struct ids_group *self) {
  while (ids_group_launching_count_locked(self) > 0 && ids_group_live_count_locked(self) == 0)
    ids_group_wait_locked(self, IDS_NEVER);
}
