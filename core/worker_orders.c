/* SPDX-License-Identifier: MIT */
/*
 * worker_orders.c - what others tell a worker, or all of a group, and what its own job says of
 * it: retire, start, wake up, stop; it blocks, it does not.  See worker.h.
 */
#include "worker.h"

/* ----------------------------------------------------------------- one worker */

void ids_worker_retire(struct ids_worker *self) {
  ids_group_lock(self->group);
  bool may_retire = self->state != IDS_WORKER_ABSENT && self->state != IDS_WORKER_STARTING &&
                    self->state != IDS_WORKER_GONE;
  if (may_retire && !self->group->is_stopping) /* else it leaves as it is */
    ids_worker_set_retiring_locked(self, true);
  ids_cond_signal(&self->wake);
  struct ids_wake wake = ids_group_grant_wanted_locked(self->group); /* it may have to watch */
  ids_group_unlock(self->group);
  ids_wake_pass_on(wake);
}

/* --------------------------------------------------------------- the group */

int ids_group_start_locked(struct ids_group *self, unsigned workers_count) {
  int status = 0;
  for (; status == 0 && workers_count > 0; workers_count--) {
    struct ids_worker *worker = ids_group_first_wakeable_locked(self, IDS_WORKER_ABSENT);
    if (worker == NULL)
      break;
    struct ids_wake wake = ids_worker_grant_locked(worker);
    ids_group_unlock(self);
    status = ids_wake_deliver(wake);
    ids_group_lock(self);
    if (status != 0)
      ids_worker_launch_failed_locked(worker);
  }
  return status;
}

void ids_group_wake_all_locked(struct ids_group *self) {
  for (unsigned i = 0; i < self->workers_count; i++) {
    struct ids_worker *worker = self->workers[i];
    if (worker->state == IDS_WORKER_ABSENT || !ids_worker_is_wakeable_locked(worker))
      continue;
    ids_worker_grant_locked(worker);
    ids_cond_signal(&worker->wake);
  }
}

/* ----------------------------------------------------------------- blocking */

void ids_worker_block_begin_locked(struct ids_worker *self) {
  ids_worker_set_blocking_locked(self, true);
  struct ids_wake next = ids_group_grant_wanted_locked(self->group);
  if (next.worker == NULL)
    return;
  ids_group_unlock(self->group);
  ids_wake_pass_on(next);
  ids_group_lock(self->group);
}

/* Less room is there now, and that wakes nobody. */
void ids_worker_block_end_locked(struct ids_worker *self) {
  ids_worker_set_blocking_locked(self, false);
}

void ids_worker_block_as_locked(struct ids_worker *self, bool blocks) {
  if (self->is_blocking && !blocks)
    ids_worker_block_end_locked(self);
  else if (blocks && !self->is_blocking)
    ids_worker_block_begin_locked(self);
}

/* In a hook it does not run, and nothing waits for it. */
void ids_worker_block_begin(struct ids_worker *self) {
  ids_group_lock(self->group);
  if (self->state == IDS_WORKER_RUNNING)
    ids_worker_block_begin_locked(self);
  ids_group_unlock(self->group);
}

void ids_worker_block_end(struct ids_worker *self) {
  ids_group_lock(self->group);
  if (self->state == IDS_WORKER_RUNNING)
    ids_worker_block_end_locked(self);
  ids_group_unlock(self->group);
}

/* ----------------------------------------------------------------- stopping */

/*
 * A worker without a thread is gone at once.  One that retires or is tidying to leave
 * will see is_stopping, and would tidy twice if it had to use a ticket first; every other
 * one polls, and is told by that poll.
 */
void ids_group_stop_locked(struct ids_group *self) {
  self->is_stopping = true;
  for (unsigned i = 0; i < self->workers_count; i++) {
    struct ids_worker *worker = self->workers[i];
    if (worker->state == IDS_WORKER_ABSENT)
      ids_worker_set_state_locked(worker, IDS_WORKER_GONE);
    bool is_waiting = worker->state == IDS_WORKER_PARKED || worker->state == IDS_WORKER_RELEASING;
    if (is_waiting && !worker->has_ticket && !worker->is_retiring) {
      ids_worker_grant_locked(worker);
      ids_cond_signal(&worker->wake);
    }
  }
}
