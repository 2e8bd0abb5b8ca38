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
                              .limit = config->workers_max };
  for (int state = 0; state < IDS_WORKER_STATES; state++)
    ids_list_init(&self->wakeable[state]);

  int status = ids_mutex_init(&self->lock, "group.lock");
  if (status != 0)
    return status;
  status = ids_cond_init(&self->changed, "group.changed");
  if (status != 0)
    goto deinit_lock;
  status = add_slots(self, config->workers_max);
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
