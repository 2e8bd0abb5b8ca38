/* SPDX-License-Identifier: MIT */
/*
 * host_thread.c - see host_thread.h.
 */
#include "host_thread.h"

#include "fork.h"
#include "heap.h"

enum { RUNNING, PARKED, CLAIMED, WANTED };

/* The threads that take part: the process has one such list. */
static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  idlesched_thread *first; /* L */
  uint64_t rounds_count;   /* L  walks over the list so far */
} threads = { .lock = IDS_MUTEX_STATIC };

/* Who is on the list of this process has its number; a child's list begins empty. */
static bool is_listed(const idlesched_thread *self) {
  return self->generation_ == ids_fork_generation();
}

static void push_locked(idlesched_thread *self) {
  self->generation_ = ids_fork_generation();
  self->next_ = threads.first;
  self->previous_ = NULL;
  if (threads.first != NULL)
    threads.first->previous_ = self;
  threads.first = self;
}

static void remove_locked(idlesched_thread *self) {
  if (self->previous_ != NULL)
    self->previous_->next_ = self->next_;
  else
    threads.first = self->next_;
  if (self->next_ != NULL)
    self->next_->previous_ = self->previous_;
}

/* In a child only the thread that forked is left: the others' records are cut off, and its
 * own comes back when it parks. */
static void lock(void) {
  if (ids_fork_is_first(&threads.fork)) {
    threads.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
    threads.first = NULL;
    ids_fork_done(&threads.fork);
  }
  ids_mutex_lock(&threads.lock);
}

static void enlist(idlesched_thread *self) {
  lock();
  push_locked(self);
  ids_mutex_unlock(&threads.lock);
}

/* ---------------------------------------------------------- the thread itself */

void ids_host_thread_enter(idlesched_thread *self) {
  ids_assert(ids_tls_get(IDS_TLS_HOST_THREAD) == NULL);
  *self = (idlesched_thread){ .heap_ = ids_heap_own() };
  enlist(self);
  ids_tls_set(IDS_TLS_HOST_THREAD, self);
}

void ids_host_thread_leave(idlesched_thread *self) {
  ids_assert(self != NULL && ids_tls_get(IDS_TLS_HOST_THREAD) == self);
  ids_assert(ids_load_acquire(&self->state_) == RUNNING);
  lock();
  if (is_listed(self))
    remove_locked(self);
  ids_mutex_unlock(&threads.lock);
  ids_tls_set(IDS_TLS_HOST_THREAD, NULL);
}

void ids_host_thread_park_begin(idlesched_thread *self) {
  ids_assert(self != NULL && ids_tls_get(IDS_TLS_HOST_THREAD) == self);
  ids_assert(ids_load_acquire(&self->state_) == RUNNING);
  if (!is_listed(self))
    enlist(self);
  self->is_given_up_ = false;
  self->parked_at_ns_ = ids_now_ns();
  ids_store_release(&self->state_, PARKED);
}

void ids_host_thread_park_end(idlesched_thread *self) {
  ids_assert(self != NULL);
#ifdef IDS_PARANOID
  ids_assert(ids_tls_get(IDS_TLS_HOST_THREAD) == self);
#endif
  while (!ids_store_if_equal(&self->state_, PARKED, RUNNING)) {
    ids_assert(ids_load_acquire(&self->state_) != RUNNING);
    if (!is_listed(self)) {
      ids_store_release(&self->state_, RUNNING); /* who claimed it is not in this process */
      return;
    }
    if (!ids_store_if_equal(&self->state_, CLAIMED, WANTED))
      continue; /* given back just now */
    while (ids_load_acquire(&self->state_) == WANTED)
      ids_futex_wait(&self->state_, WANTED, IDS_NEVER);
    return;
  }
}

void ids_host_thread_check_may_allocate(void) {
#ifdef IDS_PARANOID
  const idlesched_thread *self = ids_tls_get(IDS_TLS_HOST_THREAD);
  ids_assert(self == NULL || ids_load_acquire(&self->state_) == RUNNING);
#endif
}

/* ------------------------------------------------------------------ the claim */

/* The last touch: a thread that is RUNNING again may go, and its record with it.  The wake
 * knows the word by its address alone. */
static void give_back(idlesched_thread *self) {
  if (ids_store_if_equal(&self->state_, CLAIMED, PARKED))
    return;
  ids_assert(ids_load_acquire(&self->state_) == WANTED);
  ids_store_release(&self->state_, RUNNING);
  ids_futex_wake(&self->state_, 1);
}

/*
 * The next thread to give up in this round, claimed; NULL: there is none.  What decides
 * is read under a claim, as the thread writes it while it runs.
 */
static idlesched_thread *claim_next_locked(uint64_t round, uint64_t now_ns, uint64_t idle_ns) {
  for (idlesched_thread *self = threads.first; self != NULL; self = self->next_) {
    if (self->round_ == round)
      continue;
    self->round_ = round;
    if (!ids_store_if_equal(&self->state_, PARKED, CLAIMED))
      continue;
    if (!self->is_given_up_ && ids_after_ns(self->parked_at_ns_, idle_ns) <= now_ns)
      return self;
    give_back(self);
  }
  return NULL;
}

unsigned ids_host_threads_give_up(uint64_t now_ns, uint64_t idle_ns) {
  unsigned count = 0;
  lock();
  uint64_t round = ++threads.rounds_count;
  idlesched_thread *thread;
  while ((thread = claim_next_locked(round, now_ns, idle_ns)) != NULL) {
    ids_mutex_unlock(&threads.lock);
    ids_point("host_thread.abandon");
    ids_heap_abandon(thread->heap_);
    thread->is_given_up_ = true; /* before the thread is back: or the mark is for its next park */
    give_back(thread);
    count++;
    lock();
  }
  ids_mutex_unlock(&threads.lock);
  return count;
}
