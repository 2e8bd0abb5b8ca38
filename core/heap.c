/* SPDX-License-Identifier: MIT */
/*
 * heap.c - purges, one at a time: see heap.h.
 */
#include "heap.h"

#include "fork.h"

/*
 * The process has one of these, as it has one allocator.  A request is a number; a
 * round serves all requests that were made before it began.
 *
 * Who purges makes a second round for those who asked during the first and went away
 * on that promise.  Who asks during the second waits and purges himself: so nobody
 * purges for others without end.
 */
static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  struct ids_cond served; /* broadcast after each round; waited on without a deadline */
  bool is_purging;        /* L */
  bool promises;          /* L  another round follows the one under way */
  uint64_t asked_count;   /* L  requests so far */
  uint64_t served_count;  /* L  requests that a finished round has served */
  uint64_t rounds_count;  /* L */
} purge = { .lock = IDS_MUTEX_STATIC, .served = IDS_COND_STATIC };

static void lock(void) {
  if (ids_fork_is_first(&purge.fork)) {
    purge.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
    purge.served = (struct ids_cond)IDS_COND_STATIC;
    purge.is_purging = false; /* who did is not in this process */
    purge.served_count = purge.asked_count;
    ids_fork_done(&purge.fork);
  }
  ids_mutex_lock(&purge.lock);
}

/* Lock held; dropped meanwhile. */
static void purge_round_locked(void) {
  uint64_t serves_count = purge.asked_count;
  ids_mutex_unlock(&purge.lock);
  ids_point("heap.purge");
  ids_fork_hold_off();
  ids_heap_ops.purge();
  ids_fork_let();
  ids_mutex_lock(&purge.lock);
  purge.rounds_count++;
  purge.served_count = serves_count;
  ids_cond_broadcast(&purge.served);
}

static void purge_locked(void) {
  ids_assert(ids_mutex_is_mine(&purge.lock) && !purge.is_purging);
  purge.is_purging = true;
  purge.promises = true;
  purge_round_locked();
  purge.promises = false;
  if (purge.served_count < purge.asked_count)
    purge_round_locked();
  purge.is_purging = false;
  ids_cond_broadcast(&purge.served);
}

static void purge_until_served(bool may_rely_on_promise) {
  lock();
  uint64_t number = ++purge.asked_count;
  bool is_promised = may_rely_on_promise && purge.is_purging && purge.promises;
  while (!is_promised && purge.served_count < number) {
    if (purge.is_purging)
      ids_cond_wait(&purge.served, &purge.lock, IDS_NEVER);
    else
      purge_locked();
  }
  ids_mutex_unlock(&purge.lock);
}

const char *ids_heap_name(void) {
  static char text[32];
  lock();
  if (text[0] == '\0')
    ids_heap_ops.name(text, sizeof text);
  ids_mutex_unlock(&purge.lock);
  return text;
}

void ids_heap_collect(void) {
  ids_fork_hold_off();
  ids_heap_ops.collect();
  ids_fork_let();
}

void *ids_heap_own(void) {
  ids_fork_hold_off();
  void *heap = ids_heap_ops.own();
  ids_fork_let();
  return heap;
}

void ids_heap_abandon(void *heap) {
  ids_fork_hold_off();
  ids_heap_ops.abandon(heap);
  ids_fork_let();
}

void ids_heap_thread_ends(void) {
  ids_fork_hold_off();
  ids_heap_ops.thread_ends();
  ids_fork_let();
}

void ids_heap_purge(void) {
  purge_until_served(true);
}

void ids_heap_purge_and_wait(void) {
  purge_until_served(false);
}

uint64_t ids_heap_purges_count(void) {
  lock();
  uint64_t count = purge.rounds_count;
  ids_mutex_unlock(&purge.lock);
  return count;
}
