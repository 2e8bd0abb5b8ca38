/* SPDX-License-Identifier: MIT */
/*
 * release.c - see release.h.
 */
#include "release.h"

#include <string.h>

#include "heap.h"
#include "host_thread.h"
#include "memory.h"
#include "option.h"
#include "visit.h"

/* ------------------------------------------------------------------ report */

/* What the system does not tell is 0. */
static void measure_before(idlesched_release_report *out) {
  idlesched_memory memory;
  (void)ids_memory_measure(&memory);
  *out = (idlesched_release_report){ .anonymous_before_bytes = memory.anonymous_bytes };
  memcpy(out->before, memory.heaps, sizeof out->before);
}

static void measure_after(idlesched_release_report *out) {
  idlesched_memory memory;
  (void)ids_memory_measure(&memory);
  out->anonymous_after_bytes = memory.anonymous_bytes;
  out->returned_bytes = ids_less(out->anonymous_before_bytes, out->anonymous_after_bytes);
  memcpy(out->after, memory.heaps, sizeof out->after);
  for (unsigned i = 0; i < IDLESCHED_HEAPS_MAX; i++) {
    out->kept_live_bytes += out->after[i].live_bytes;
    out->kept_free_bytes += out->after[i].free_bytes;
  }
  out->kept_other_bytes = ids_less(out->anonymous_after_bytes,
                                   out->kept_live_bytes + out->kept_free_bytes);
}

/* ------------------------------------------------------------------- purge */

static int64_t purge_delay_ms(void) {
  return ids_heap_ops.has_options ? ids_heap_ops.option_get(IDS_HEAP_PURGE_DELAY_MS) : 0;
}

/* A purge would return early while a guard has the delay at 0.  What others free just after
 * it, and before the guard is in force again, waits for another one. */
static void purge_all(idlesched_release_report *out) {
  out->lifted_guards = ids_options_lift();
  out->purge_delay_ms = purge_delay_ms();
  ids_heap_collect();
  ids_heap_purge_and_wait();
  ids_options_unlift();
  ids_heap_trim_c(true);
}

/* ------------------------------------------------------------------ visits */

/* In a child process the worker that forked is a thread like any other. */
static struct ids_worker *calling_worker(void) {
  struct ids_worker *worker = ids_worker_outermost();
  bool is_here = worker != NULL && worker->group->fork_generation == ids_fork_generation();
  return is_here ? worker : NULL;
}

/* Here, as it has no thread of its own.  From a job nobody waits for it, as two could for each
 * other. */
static void visit_inline(struct ids_visit *visit, struct idlesched_pool *pool) {
  uint64_t deadline_ns = visit->caller == NULL ? visit->deadline_ns : 0;
  enum ids_inline_visit outcome = ids_pool_visit_inline(pool, deadline_ns);
  visit->asked_count += outcome != IDS_INLINE_HAS_NOTHING;
  visit->missed_running_count += outcome == IDS_INLINE_MISSED;
}

static void visit(struct ids_pools_walk *walk, uint64_t deadline_ns,
                  idlesched_release_report *out) {
  struct ids_visit visit = { .deadline_ns = deadline_ns, .caller = calling_worker() };
  struct ids_pools_entry *entry = NULL;
  bool has_hosts = false;

  ids_pools_lock();
  visit.number = walk->round = ids_pools_begin_round_locked();
  ids_visit_begin(&visit);
  while ((entry = ids_pools_next_locked(walk, entry)) != NULL) {
    ids_visit_ask(&visit, &entry->pool->group);
    has_hosts |= entry->pool->on_release != NULL;
    out->pools_count++;
  }
  ids_pools_unlock();

  /* First: what hosts free may lie in heaps that are given up next. */
  while (has_hosts && (entry = ids_pools_next(walk, entry)) != NULL)
    ids_pool_tell_release(entry->pool);

  while ((entry = ids_pools_next(walk, entry)) != NULL)
    ids_visit_parked(&visit, &entry->pool->group);
  while ((entry = ids_pools_next(walk, entry)) != NULL) {
    ids_visit_await(&visit, &entry->pool->group);
    if (entry->pool->is_inline)
      visit_inline(&visit, entry->pool);
  }

  ids_visit_end(&visit);
  out->missed_running_count = visit.missed_running_count;
  out->missed_starting_count = visit.missed_starting_count;
  out->missed_exiting_count = visit.missed_exiting_count;
  out->missed_count = out->missed_running_count + out->missed_starting_count +
                      out->missed_exiting_count;
  /* A worker whose pool was destroyed meanwhile has left, so it is not missed. */
  out->visited_count = visit.asked_count - out->missed_count;
}

/* ---------------------------------------------------------------- releases */

/* Without a walk nobody is visited, and no other thread's heap is touched. */
static int release(struct ids_pools_walk *walk, uint64_t timeout_ns,
                   idlesched_release_report *out) {
  uint64_t began_ns = ids_now_ns();
  ids_options_set_defaults(); /* the smallest range, where there was no pool before */
  measure_before(out);
  if (walk != NULL) {
    visit(walk, ids_after_ns(began_ns, timeout_ns), out);
    ids_host_threads_give_up(ids_now_ns(), 0);
  }
  purge_all(out);
  measure_after(out);
  out->time_ns = ids_now_ns() - began_ns;
  return out->missed_count > 0 ? -ETIMEDOUT : 0;
}

int ids_release_all(uint64_t timeout_ns, idlesched_release_report *out) {
  return release(&(struct ids_pools_walk){ .is_for_all = true }, timeout_ns, out);
}

int ids_release_pools(struct idlesched_pool *const *pools, unsigned pools_count,
                      uint64_t timeout_ns, idlesched_release_report *out) {
  return release(&(struct ids_pools_walk){ .pools = pools, .pools_count = pools_count }, timeout_ns,
                 out);
}

void ids_release_free(idlesched_release_report *out) {
  (void)release(NULL, 0, out);
}

void ids_release_thread(void) {
  ids_heap_collect();
  ids_heap_purge_and_wait();
}
