/* SPDX-License-Identifier: MIT */
/*
 * heap.c - purges, one at a time: see heap.h.
 */
#include "heap.h"

#include "plat.h"

/*
 * The process has one of these, as it has one allocator.  A request is a number;
 * a round serves all requests that were made before it began.
 */
static struct {
  struct ids_mutex lock;
  struct ids_cond served; /* broadcast after each round; waited on without a deadline */
  bool is_purging;        /* L */
  uint64_t asked_count;   /* L  requests so far */
  uint64_t served_count;  /* L  requests that a finished round has served */
  uint64_t rounds_count;  /* L */
} purge = { .lock = IDS_MUTEX_STATIC, .served = IDS_COND_STATIC };

/* Lock held; dropped during each round. */
static void purge_until_served_locked(void) {
  purge.is_purging = true;
  while (purge.served_count < purge.asked_count) {
    uint64_t serves_count = purge.asked_count;
    ids_mutex_unlock(&purge.lock);
    ids_point("heap.purge");
    ids_heap_ops.purge();
    ids_mutex_lock(&purge.lock);
    purge.rounds_count++;
    purge.served_count = serves_count;
    ids_cond_broadcast(&purge.served);
  }
  purge.is_purging = false;
}

const char *ids_heap_name(void) {
  static char text[32];
  static struct ids_mutex lock = IDS_MUTEX_STATIC;
  ids_mutex_lock(&lock);
  if (text[0] == '\0')
    ids_heap_ops.name(text, sizeof text);
  ids_mutex_unlock(&lock);
  return text;
}

void ids_heap_collect(void) {
  ids_heap_ops.collect();
}

void ids_heap_purge(void) {
  ids_mutex_lock(&purge.lock);
  purge.asked_count++;
  if (!purge.is_purging)
    purge_until_served_locked();
  ids_mutex_unlock(&purge.lock);
}

void ids_heap_purge_and_wait(void) {
  ids_mutex_lock(&purge.lock);
  uint64_t number = ++purge.asked_count;
  if (!purge.is_purging)
    purge_until_served_locked();
  while (purge.served_count < number)
    ids_cond_wait(&purge.served, &purge.lock, IDS_NEVER);
  ids_mutex_unlock(&purge.lock);
}

uint64_t ids_heap_purges_count(void) {
  ids_mutex_lock(&purge.lock);
  uint64_t count = purge.rounds_count;
  ids_mutex_unlock(&purge.lock);
  return count;
}
