/* SPDX-License-Identifier: MIT */
/*
 * pools.c - see pools.h.
 */
#include "pools.h"

#include "fork.h"

static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  struct ids_cond let_go;  /* R  broadcast when nobody holds a pool; waited on without a deadline */
  struct ids_list entries; /* R */
  uint64_t rounds_count;   /* R */
} registry = { .lock = IDS_MUTEX_STATIC,
               .let_go = IDS_COND_STATIC,
               .entries = { &registry.entries, &registry.entries } };

void ids_pools_lock(void) {
  if (ids_fork_is_first(&registry.fork)) {
    registry.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
    registry.let_go = (struct ids_cond)IDS_COND_STATIC;
    ids_list_init(&registry.entries);
    ids_fork_done(&registry.fork);
  }
  ids_mutex_lock(&registry.lock);
}

void ids_pools_unlock(void) {
  ids_mutex_unlock(&registry.lock);
}

void ids_pools_enter(struct ids_pools_entry *self, struct idlesched_pool *pool) {
  ids_pools_lock();
  *self = (struct ids_pools_entry){ .pool = pool, .round = registry.rounds_count };
  ids_list_init(&self->list);
  ids_list_push_back(&registry.entries, &self->list);
  ids_pools_unlock();
}

void ids_pools_leave(struct ids_pools_entry *self) {
  ids_pools_lock();
  while (self->holders_count > 0)
    ids_cond_wait(&registry.let_go, &registry.lock, IDS_NEVER);
  ids_assert(!ids_list_is_empty(&self->list));
  ids_list_leave(&self->list);
  ids_pools_unlock();
}

uint64_t ids_pools_begin_round_locked(void) {
  ids_assert(ids_mutex_is_mine(&registry.lock));
  return ++registry.rounds_count;
}

static bool is_in_walk(const struct ids_pools_walk *walk, const struct ids_pools_entry *entry) {
  bool is_named = walk->is_for_all;
  for (unsigned i = 0; !is_named && i < walk->pools_count; i++)
    is_named = walk->pools[i] == entry->pool;
  return is_named && entry->round < walk->round;
}

struct ids_pools_entry *ids_pools_next_locked(const struct ids_pools_walk *walk,
                                              struct ids_pools_entry *previous) {
  ids_assert(ids_mutex_is_mine(&registry.lock));
  struct ids_list *at = previous == NULL ? &registry.entries : &previous->list;
  while ((at = at->next) != &registry.entries) {
    struct ids_pools_entry *entry = ids_container_of(at, struct ids_pools_entry, list);
    if (is_in_walk(walk, entry))
      return entry;
  }
  return NULL;
}

static void let_go_locked(struct ids_pools_entry *self) {
  ids_assert(self->holders_count > 0);
  if (--self->holders_count == 0)
    ids_cond_broadcast(&registry.let_go);
}

struct ids_pools_entry *ids_pools_next(const struct ids_pools_walk *walk,
                                       struct ids_pools_entry *previous) {
  ids_pools_lock();
  struct ids_pools_entry *next = ids_pools_next_locked(walk, previous);
  if (next != NULL)
    next->holders_count++;
  if (previous != NULL)
    let_go_locked(previous);
  ids_pools_unlock();
  return next;
}
