/* SPDX-License-Identifier: MIT */
/*
 * group_slots.c - the life of a group, and the slots for its workers: see group.h.
 */
#include <string.h>

#include "group.h"

/* Slots that were made together. */
struct ids_worker_block {
  struct ids_worker_block *next;
  unsigned workers_count;
  struct ids_worker workers[];
};

/* ------------------------------------------------------------------- slots */

static int worker_init(struct ids_worker *self, struct ids_group *group, unsigned index) {
  *self = (struct ids_worker){ .group = group, .index = index, .state = IDS_WORKER_ABSENT };
  ids_list_init(&self->wakeable);
  return ids_cond_init(&self->wake, "group.worker.wake");
}

/* The first so many workers of it are initialised. */
static void block_destroy(struct ids_worker_block *self, unsigned workers_count) {
  for (unsigned i = 0; i < workers_count; i++)
    ids_cond_deinit(&self->workers[i].wake);
  ids_free(self);
}

static int block_create(struct ids_worker_block **out, struct ids_group *group, unsigned count) {
  struct ids_worker_block *self = ids_alloc(sizeof *self + count * sizeof *self->workers,
                                            "group.workers");
  if (self == NULL)
    return -ENOMEM;
  *self = (struct ids_worker_block){ .next = group->blocks, .workers_count = count };
  for (unsigned i = 0; i < count; i++) {
    int status = worker_init(&self->workers[i], group, group->slots_count + i);
    if (status != 0) {
      block_destroy(self, i);
      return status;
    }
  }
  *out = self;
  return 0;
}

/* So many slots more.  On failure nothing has changed. */
static int add_slots(struct ids_group *self, unsigned count) {
  struct ids_worker_block *block;
  struct ids_worker **workers = ids_alloc((self->slots_count + count) * sizeof(struct ids_worker *),
                                          "group.table");
  if (workers == NULL)
    return -ENOMEM;
  int status = block_create(&block, self, count);
  if (status != 0) {
    ids_free(workers);
    return status;
  }
  if (self->slots_count > 0)
    memcpy(workers, self->workers, self->slots_count * sizeof(struct ids_worker *));
  for (unsigned i = 0; i < count; i++)
    workers[self->slots_count + i] = &block->workers[i];
  ids_free(self->workers);
  self->workers = workers;
  self->blocks = block;
  self->slots_count += count;
  return 0;
}

/* -------------------------------------------------------------------- life */

int ids_group_init(struct ids_group *self, const struct ids_group_ops *ops,
                   const struct ids_group_config *config) {
  ids_assert(config->workers_max > 0);
  *self = (struct ids_group){ .ops = ops,
                              .config = *config,
                              .fork_generation = ids_fork_generation(),
                              .limit = config->workers_max,
                              .workers_min = config->workers_min };
  for (int state = 0; state < IDS_WORKER_STATES; state++)
    ids_list_init(&self->wakeable[state]);

  int status = ids_mutex_init(&self->lock, "group.lock");
  if (status != 0)
    return status;
  status = ids_cond_init(&self->changed, "group.changed");
  if (status != 0)
    goto deinit_lock;
  status = add_slots(self, config->workers_max + config->blocking_max);
  if (status != 0)
    goto deinit_changed;
  return 0;

deinit_changed:
  ids_cond_deinit(&self->changed);
deinit_lock:
  ids_mutex_deinit(&self->lock);
  return status;
}

void ids_group_deinit(struct ids_group *self) {
  ids_assert(ids_group_is_deserted_locked(self));
  ids_assert(!self->departed.is_there);
  while (self->blocks != NULL) {
    struct ids_worker_block *block = self->blocks;
    self->blocks = block->next;
    block_destroy(block, block->workers_count);
  }
  ids_free(self->workers);
  ids_cond_deinit(&self->changed);
  ids_mutex_deinit(&self->lock);
}

/* ------------------------------------------------------------------ resize */

/* Those that are too many and idle, the coldest first. */
static void retire_idle_locked(struct ids_group *self, enum ids_worker_state state) {
  struct ids_list *last;
  while (ids_group_has_surplus_locked(self) &&
         (last = ids_list_last(&self->wakeable[state])) != NULL) {
    struct ids_worker *worker = ids_container_of(last, struct ids_worker, wakeable);
    ids_worker_set_retiring_locked(worker, true);
    ids_cond_signal(&worker->wake);
  }
}

/* Those that sleep on beyond their exit look whether they still have to. */
static void wake_all_kept_locked(struct ids_group *self) {
  for (unsigned i = 0; i < self->workers_count; i++)
    if (self->workers[i]->sleeps_until_ns > self->workers[i]->exit_at_ns)
      ids_cond_signal(&self->workers[i]->wake);
}

int ids_group_resize_locked(struct ids_group *self, unsigned limit, unsigned workers_min) {
  ids_assert(ids_mutex_is_mine(&self->lock));
  unsigned slots_count = limit + self->config.blocking_max;
  if (slots_count > self->slots_count) {
    int status = add_slots(self, slots_count - self->slots_count);
    if (status != 0)
      return status;
  }
  self->limit = limit;
  self->workers_min = workers_min;
  retire_idle_locked(self, IDS_WORKER_PARKED);
  retire_idle_locked(self, IDS_WORKER_RELEASING);
  self->is_shrinking = ids_group_has_surplus_locked(self);
  wake_all_kept_locked(self);
  return 0;
}
