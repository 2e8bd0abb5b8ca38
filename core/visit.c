/* SPDX-License-Identifier: MIT */
/*
 * visit.c - see visit.h.
 */
#include "visit.h"

#include "pass.h"

/* Ask everybody; those that have to do it themselves are woken.  Who has no thread owes
 * nothing, and a thread that it gets later does not owe this visit. */
static uint64_t ask_for_visits_locked(struct ids_group *self) {
  uint64_t number = ++self->visits_count;
  for (unsigned i = 0; i < self->config.workers_max; i++) {
    struct ids_worker *worker = &self->workers[i];
    worker->visit_asked = number;
    if (worker->state == IDS_WORKER_ABSENT || worker->state == IDS_WORKER_GONE)
      worker->visit_served = number;
    if (worker->state == IDS_WORKER_PARKED && worker->has_state)
      ids_cond_signal(&worker->wake);
  }
  return number;
}

/* Give up the heaps of those that need not be woken for it. */
static void visit_parked_locked(struct ids_group *self, uint64_t number) {
  for (unsigned i = 0; i < self->config.workers_max; i++) {
    struct ids_worker *worker = &self->workers[i];
    if (worker->state == IDS_WORKER_PARKED && worker->visit_served < number && !worker->has_state &&
        !worker->has_ticket && !worker->is_retiring)
      ids_worker_give_up_locked(worker);
  }
}

static unsigned count_pending_locked(const struct ids_group *self, uint64_t number) {
  unsigned count = 0;
  for (unsigned i = 0; i < self->config.workers_max; i++)
    count += self->workers[i].visit_served < number;
  return count;
}

struct ids_visits ids_group_visit(struct ids_group *self, uint64_t deadline_ns) {
  ids_group_lock(self);
  uint64_t number = ask_for_visits_locked(self);
  unsigned asked_count = count_pending_locked(self, number);
  unsigned pending_count;
  self->visitors_count++;
  visit_parked_locked(self, number);
  while ((pending_count = count_pending_locked(self, number)) > 0 && ids_now_ns() < deadline_ns) {
    ids_group_wait_locked(self, deadline_ns);
    visit_parked_locked(self, number);
  }
  self->visitors_count--;
  ids_pass_follow_up_locked(self, ids_now_ns());
  ids_group_unlock(self);
  return (struct ids_visits){ .visited_count = asked_count - pending_count,
                              .pending_count = pending_count };
}
