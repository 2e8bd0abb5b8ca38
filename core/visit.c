/* SPDX-License-Identifier: MIT */
/*
 * visit.c - see visit.h.
 */
#include "visit.h"

#include "pass.h"

static void set_visits_others(struct ids_worker *worker, uint64_t number) {
  ids_group_lock(worker->group);
  worker->visits_others = number;
  ids_group_unlock(worker->group);
}

void ids_visit_begin(const struct ids_visit *self) {
  if (self->caller != NULL)
    set_visits_others(self->caller, self->number);
}

void ids_visit_end(const struct ids_visit *self) {
  if (self->caller != NULL)
    set_visits_others(self->caller, 0);
}

static bool has_thread_locked(const struct ids_worker *worker) {
  return worker->state != IDS_WORKER_ABSENT && worker->state != IDS_WORKER_GONE;
}

/* Those that have to do it themselves are woken.  Who has no thread owes nothing, and a
 * thread that it gets later does not owe this visit. */
void ids_visit_ask(struct ids_visit *self, struct ids_group *group) {
  ids_group_lock(group);
  ids_assert(group->last_visit < self->number);
  group->last_visit = self->number;
  for (unsigned i = 0; i < group->workers_count; i++) {
    struct ids_worker *worker = group->workers[i];
    if (worker == self->caller)
      continue;
    worker->visit_asked = self->number;
    if (has_thread_locked(worker))
      self->asked_count++;
    else
      worker->visit_served = self->number;
    if (worker->state == IDS_WORKER_PARKED && worker->has_state)
      ids_cond_signal(&worker->wake);
  }
  group->visitors_count++;
  ids_group_unlock(group);
}

static bool is_pending_locked(const struct ids_visit *self, const struct ids_worker *worker) {
  return worker->visit_served < self->number && worker != self->caller;
}

/* Whoever is not parked, or is about to wake up, does it when it parks. */
void ids_visit_parked(const struct ids_visit *self, struct ids_group *group) {
  ids_group_lock(group);
  for (unsigned i = 0; i < group->workers_count; i++) {
    struct ids_worker *worker = group->workers[i];
    if (worker->state == IDS_WORKER_PARKED && is_pending_locked(self, worker) &&
        !worker->has_state && !worker->has_ticket && !worker->is_retiring)
      ids_worker_give_up_locked(worker);
  }
  ids_group_unlock(group);
}

/* It visits, and may wait for the caller. */
static bool may_await_caller_locked(const struct ids_visit *self, const struct ids_worker *worker) {
  return self->caller != NULL && worker->visits_others > 0 && worker->visits_others < self->number;
}

static bool has_awaited_locked(const struct ids_visit *self, const struct ids_group *group) {
  for (unsigned i = 0; i < group->workers_count; i++) {
    const struct ids_worker *worker = group->workers[i];
    if (is_pending_locked(self, worker) && !may_await_caller_locked(self, worker))
      return true;
  }
  return false;
}

static void count_missed_locked(struct ids_visit *self, const struct ids_group *group) {
  for (unsigned i = 0; i < group->workers_count; i++) {
    const struct ids_worker *worker = group->workers[i];
    if (!is_pending_locked(self, worker))
      continue;
    if (worker->state == IDS_WORKER_STARTING)
      self->missed_starting_count++;
    else if (worker->state == IDS_WORKER_EXITING)
      self->missed_exiting_count++;
    else
      self->missed_running_count++;
  }
}

void ids_visit_await(struct ids_visit *self, struct ids_group *group) {
  ids_group_lock(group);
  while (has_awaited_locked(self, group) && ids_now_ns() < self->deadline_ns)
    ids_group_wait_locked(group, self->deadline_ns);
  count_missed_locked(self, group);
  group->visitors_count--;
  ids_pass_follow_up_locked(group, ids_now_ns());
  ids_group_unlock(group);
}
