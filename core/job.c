/* SPDX-License-Identifier: MIT */
/*
 * job.c - see job.h.
 */
#include "job.h"

struct waiter {
  struct waiter *next;       /* L */
  bool is_over;              /* L  taken off the job, which must not be touched any more */
  int result;                /* L  what the wait returns then */
  struct ids_worker *worker; /* C  that waits, or NULL */
  struct ids_cond ended;     /* L */
};

/* Between NEW or an end and QUEUED, while one pool writes what the others must not. */
#define CLAIMED 0xff

enum idlesched_job_state ids_job_state(const struct idlesched_job *self) {
  /* [ended] Pairs with the release in set_state(). */
  uint32_t state = ids_load_acquire(&self->state_);
  return state == CLAIMED ? IDLESCHED_JOB_NEW : (enum idlesched_job_state)state;
}

static void set_state(struct idlesched_job *self, enum idlesched_job_state state) {
  /* [ended] What the job and its worker wrote is visible to who reads the end. */
  ids_store_release(&self->state_, (uint32_t)state);
}

bool ids_job_has_ended(const struct idlesched_job *self) {
  enum idlesched_job_state state = ids_job_state(self);
  return state == IDLESCHED_JOB_DONE || state == IDLESCHED_JOB_FAILED ||
         state == IDLESCHED_JOB_CANCELLED;
}

static bool is_under_way(enum idlesched_job_state state) {
  return state == IDLESCHED_JOB_QUEUED || state == IDLESCHED_JOB_RUNNING;
}

bool ids_job_is_under_way(const struct idlesched_job *self) {
  return is_under_way(ids_job_state(self));
}

bool ids_token_is_cancelled(const idlesched_token *self) {
  /* [cancel] Pairs with the release in ids_token_cancel(). */
  return ids_load_acquire(&self->is_cancelled_) != 0;
}

bool ids_job_has_cancelled_token(const struct idlesched_job *self) {
  return self->token != NULL && ids_token_is_cancelled(self->token);
}

bool ids_job_is_cancelled(const struct idlesched_job *self) {
  /* [cancel] Pairs with the release in ids_job_ask_to_stop_locked(). */
  return ids_load_acquire(&self->is_cancelled_) != 0 || ids_job_has_cancelled_token(self);
}

void ids_job_ask_to_stop_locked(struct idlesched_job *self) {
  /* [cancel] What the canceller wrote before is visible to a job that sees it. */
  ids_store_release(&self->is_cancelled_, 1);
}

bool ids_job_claim_locked(struct idlesched_job *self, idlesched_pool *pool,
                          uint32_t *out_previous) {
  /* One look: with a second one for the comparison, a job could end and be queued again by
   * another pool between the two, and be claimed while it is under way. */
  enum idlesched_job_state previous = ids_job_state(self);
  *out_previous = (uint32_t)previous;
  if (is_under_way(previous) || !ids_store_if_equal(&self->state_, *out_previous, CLAIMED))
    return false;
  ids_assert(self->waiters_ == NULL);
  /* Whoever waits for it, or cancels it, when it is submitted to the same pool once more may
   * look at the pool at this moment. */
  if (self->pool_ != pool)
    self->pool_ = pool;
  self->status_ = 0;
  self->segment_ = NULL;
  self->is_cancelled_ = 0; /* only the job itself reads it */
  set_state(self, IDLESCHED_JOB_QUEUED);
  return true;
}

void ids_job_unclaim_locked(struct idlesched_job *self, uint32_t previous) {
  set_state(self, (enum idlesched_job_state)previous);
}

void ids_job_set_running_locked(struct idlesched_job *self, struct ids_worker *worker) {
  ids_assert(ids_job_state(self) == IDLESCHED_JOB_QUEUED);
  self->worker_ = worker;
  set_state(self, IDLESCHED_JOB_RUNNING);
}

/* Take all waiters off the job, and then publish what it has become. */
static void publish_locked(struct idlesched_job *self, enum idlesched_job_state state, int result) {
  struct waiter *waiter = self->waiters_;
  self->waiters_ = NULL;
  set_state(self, state);
  while (waiter != NULL) {
    struct waiter *next = waiter->next;
    waiter->is_over = true;
    waiter->result = result;
    if (waiter->worker != NULL)
      waiter->worker->awaited = NULL;
    ids_cond_signal(&waiter->ended);
    waiter = next;
  }
}

void ids_job_end_locked(struct idlesched_job *self, enum idlesched_job_state state, int status) {
  ids_assert(ids_job_state(self) == IDLESCHED_JOB_QUEUED ||
             ids_job_state(self) == IDLESCHED_JOB_RUNNING);
  self->status_ = status;
  publish_locked(self, state, 0);
}

void ids_job_drop_locked(struct idlesched_job *self, int status, struct ids_drops *drops) {
  ids_assert(ids_job_state(self) == IDLESCHED_JOB_QUEUED);
  if (self->done == NULL) {
    ids_job_end_locked(self, IDLESCHED_JOB_CANCELLED, status);
    return;
  }
  self->segment_ = NULL; /* nobody else's to run or to drop */
  self->status_ = status;
  self->next_ = NULL;
  if (drops->first == NULL)
    drops->first = self;
  else
    drops->last->next_ = self;
  drops->last = self;
}

void ids_job_take_back_locked(struct idlesched_job *self) {
  ids_assert(ids_job_state(self) == IDLESCHED_JOB_QUEUED);
  publish_locked(self, IDLESCHED_JOB_NEW, -EINVAL);
}

static void leave_waiters_locked(struct idlesched_job *self, struct waiter *waiter) {
  struct waiter *previous = self->waiters_;
  if (waiter->worker != NULL)
    waiter->worker->awaited = NULL;
  if (previous == waiter) {
    self->waiters_ = waiter->next;
    return;
  }
  while (previous->next != waiter)
    previous = previous->next;
  previous->next = waiter->next;
}

int ids_job_await_locked(struct idlesched_job *self, struct ids_worker *worker,
                         struct ids_mutex *lock, uint64_t deadline_ns) {
  if (ids_job_has_ended(self))
    return 0;
  if (!ids_job_is_under_way(self))
    return -EINVAL; /* taken back since the caller looked */
  struct waiter waiter = { .next = self->waiters_, .result = -ETIMEDOUT, .worker = worker };
  int status = ids_cond_init(&waiter.ended, "job.waiter");
  if (status != 0)
    return status;
  self->waiters_ = &waiter;
  if (worker != NULL)
    worker->awaited = self;
  while (!waiter.is_over && ids_now_ns() < deadline_ns)
    ids_cond_wait(&waiter.ended, lock, deadline_ns);
  if (!waiter.is_over)
    leave_waiters_locked(self, &waiter);
  ids_cond_deinit(&waiter.ended);
  return waiter.result;
}

bool ids_job_waits_for_locked(const struct idlesched_job *self, const struct ids_worker *worker) {
  while (self != NULL && ids_job_state(self) == IDLESCHED_JOB_RUNNING) {
    if (self->worker_ == worker)
      return true;
    self = self->worker_->awaited;
  }
  return false;
}
