/* SPDX-License-Identifier: MIT */
/*
 * release.c - see release.h.
 */
#include "release.h"

#include "heap.h"
#include "host_thread.h"
#include "visit.h"

/* 0 where the system does not tell. */
static uint64_t anonymous_bytes(void) {
  struct ids_residency residency;
  (void)ids_residency_read(&residency);
  return residency.anonymous_bytes;
}

int ids_release_pool(struct idlesched_pool *pool, uint64_t timeout_ns,
                     idlesched_release_report *out) {
  *out = (idlesched_release_report){ 0 };
  if (ids_pool_is_mine(pool))
    return -EDEADLK;

  uint64_t began_ns = ids_now_ns();
  out->anonymous_before_bytes = anonymous_bytes();
  struct ids_visits visits = ids_group_visit(&pool->group, ids_after_ns(began_ns, timeout_ns));
  out->visited_count = visits.visited_count;
  out->missed_count = visits.pending_count;

  ids_host_threads_give_up(ids_now_ns(), 0);
  ids_heap_collect();
  ids_heap_purge_and_wait();

  out->anonymous_after_bytes = anonymous_bytes();
  if (out->anonymous_after_bytes < out->anonymous_before_bytes)
    out->returned_bytes = out->anonymous_before_bytes - out->anonymous_after_bytes;
  out->time_ns = ids_now_ns() - began_ns;
  return out->missed_count > 0 ? -ETIMEDOUT : 0;
}

void ids_release_thread(void) {
  ids_heap_collect();
  ids_heap_purge_and_wait();
}

/* MERGE: stands in until every pool of the process can be visited. */
int ids_release_all(uint64_t timeout_ns, idlesched_release_report *out) {
  (void)timeout_ns;
  *out = (idlesched_release_report){ .anonymous_before_bytes = anonymous_bytes() };
  ids_host_threads_give_up(ids_now_ns(), 0);
  ids_release_thread();
  out->anonymous_after_bytes = anonymous_bytes();
  if (out->anonymous_after_bytes < out->anonymous_before_bytes)
    out->returned_bytes = out->anonymous_before_bytes - out->anonymous_after_bytes;
  return 0;
}
