/* SPDX-License-Identifier: MIT */
/*
 * group_watch.c - who looks after the owner's next alarm while nobody polls: group.h.
 */
#include "group.h"

static uint64_t alarm_ns(const struct ids_group *self) {
  return self->ops->next_alarm_ns(self);
}

/* Who finishes first rings. */
static bool are_all_active(const struct ids_group *self) {
  return self->active_count >= ids_group_room_locked(self);
}

/* Neither woken nor leaving. */
static bool has_idle(const struct ids_group *self, enum ids_worker_state state) {
  return !ids_list_is_empty(&self->wakeable[state]);
}

static bool has_several(const struct ids_list *list) {
  return list->next != list->previous;
}

/* Whoever used it polls, and then grants what is wanted. */
static bool is_ticket_on_its_way(const struct ids_group *self) {
  return self->tickets_count > self->slow_tickets_count;
}

/* Somebody comes back without being told, and looks. */
static bool is_somebody_awake(const struct ids_group *self) {
  return self->in_state_count[IDS_WORKER_RELEASING] > 0 || self->slow_tickets_count > 0 ||
         self->finishing_count > 0 || self->counters.starts_refused > 0;
}

bool ids_group_is_watched_locked(const struct ids_group *self) {
  uint64_t next_ns = alarm_ns(self);
  if (next_ns == IDS_NEVER || are_all_active(self) || is_ticket_on_its_way(self))
    return true;
  if (self->watcher != NULL)
    return self->watcher->sleeps_until_ns <= next_ns;
  return !has_idle(self, IDS_WORKER_PARKED) && is_somebody_awake(self);
}

/* Who has a slow ticket will look, some time: nobody else is free, or was when it got it. */
bool ids_group_needs_watcher_locked(const struct ids_group *self) {
  return alarm_ns(self) != IDS_NEVER && self->slow_tickets_count == 0 &&
         self->finishing_count == 0 && !has_idle(self, IDS_WORKER_PARKED) &&
         !has_idle(self, IDS_WORKER_RELEASING);
}

static void wake_watcher_locked(struct ids_group *self) {
  self->watcher->sleeps_until_ns = 0;
  ids_cond_signal(&self->watcher->wake);
}

void ids_group_watch_locked(struct ids_group *self) {
  ids_assert(ids_mutex_is_mine(&self->lock));
  uint64_t next_ns = alarm_ns(self);
  if (next_ns == IDS_NEVER) {
    /* One that stays for an alarm alone may leave. */
    if (self->watcher != NULL && self->watcher->exit_at_ns < self->watcher->sleeps_until_ns)
      wake_watcher_locked(self);
    return;
  }
  if (is_ticket_on_its_way(self))
    return;
  struct ids_list *last = ids_list_last(&self->wakeable[IDS_WORKER_PARKED]);
  if (self->watcher == NULL && last != NULL)
    self->watcher = ids_container_of(last, struct ids_worker, wakeable);
  if (self->watcher != NULL && self->watcher->sleeps_until_ns > next_ns)
    wake_watcher_locked(self);
}

uint64_t ids_worker_watches_until_locked(struct ids_worker *self, uint64_t own_ns) {
  struct ids_group *group = self->group;
  uint64_t next_ns = alarm_ns(group);
  if (next_ns == IDS_NEVER)
    return own_ns;
  const struct ids_worker *watcher = group->watcher;
  if (watcher == NULL || watcher->has_ticket || watcher->sleeps_until_ns > next_ns)
    group->watcher = self;
  return group->watcher == self ? ids_earlier_ns(own_ns, next_ns) : own_ns;
}

void ids_worker_end_watch_locked(struct ids_worker *self) {
  if (self->group->watcher == self)
    self->group->watcher = NULL;
}

void ids_worker_claim_itself_locked(struct ids_worker *self) {
  ids_worker_set_state_locked(self, IDS_WORKER_RELEASING);
  ids_worker_end_watch_locked(self);
  ids_group_watch_locked(self->group);
}

bool ids_worker_may_leave_watch_locked(const struct ids_worker *self) {
  const struct ids_group *group = self->group;
  return alarm_ns(group) == IDS_NEVER || are_all_active(group) ||
         has_several(&group->wakeable[IDS_WORKER_PARKED]) || has_idle(group, IDS_WORKER_RELEASING);
}
