/* SPDX-License-Identifier: MIT */
/*
 * pool_room.c - a queue with a limit: who waits for room in it, and how a job makes some.
 *
 * Threads that wait for room stand in the pool's line.  Whoever makes room, by a pop or by
 * taking a job out, queues the job of the first in line there and then, in its name: so the
 * queue is full as long as somebody waits (J5), nobody comes between, and a thread that has
 * been served has nothing to do but to see to it that the queue gets the workers it wants.
 *
 * A worker of the pool does not stand in line: if all of them did, nobody would make room.  It
 * queues its job in the place of the one that is next, and runs that one, inside its own.
 */
#include "pool.h"

/* Jobs inside each other on one stack, for the sake of room.  A job that submits two into a
 * full queue, each of which does, and so on, would otherwise come to its end. */
#define DEPTH_MAX 16

static bool has_room_locked(const struct idlesched_pool *self) {
  return self->queue.count + self->delayed_count < self->queue_max;
}

void ids_pool_room_made_locked(struct idlesched_pool *self) {
  if (self->is_inline)
    return; /* who is in line there waits for something else */
  if (!ids_line_is_empty(&self->line))
    ids_group_work_fell_locked(&self->group); /* by what has gone, before it rises again */
  while (!ids_line_is_empty(&self->line) && has_room_locked(self)) {
    const struct ids_cell *cell = ids_line_first_wish_locked(&self->line);
    ids_line_serve_first_locked(&self->line, ids_pool_push_locked(self, *cell));
  }
}

/* The queue is full.  What the push returned, or IDS_POOL_FORKED. */
static int change_places_locked(struct idlesched_pool *self, struct ids_cell cell,
                                struct ids_worker *worker) {
  struct ids_group *group = &self->group;
  bool was_blocking = worker->is_blocking;
  struct ids_cell next;
  if (worker->depth == DEPTH_MAX || self->is_paused || !ids_queue_pop(&self->queue, &next))
    return -ENOBUFS;
  ids_group_work_fell_locked(group);
  int status = ids_pool_push_locked(self, cell);
  if (status != 0)
    ids_pool_room_made_locked(self);
  if (worker->is_finishing)
    ids_worker_set_finishing_locked(worker, false); /* it does not poll as soon as it said */
  worker->depth++;
  bool is_here = ids_pool_run_inside_locked(self, next, worker);
  worker->depth--;
  if (!is_here)
    return IDS_POOL_FORKED;
  ids_worker_block_as_locked(worker, was_blocking);
  return status;
}

int ids_pool_take_in_locked(struct idlesched_pool *self, struct ids_cell cell) {
  struct ids_group *group = &self->group;
  struct ids_worker *worker = ids_pool_own_worker(self);
  ids_group_await_launch_locked(group);
  if (self->admission != IDS_POOL_OPEN || has_room_locked(self))
    return ids_pool_push_locked(self, cell);
  if (self->queue_timeout_ns == 0)
    return -ENOBUFS;
  if (worker != NULL)
    return change_places_locked(self, cell, worker);
  ids_group_check_locked(group);
  int status = ids_line_wait_locked(&self->line, &cell, &group->lock,
                                    ids_after_ns(ids_now_ns(), self->queue_timeout_ns));
  return status == -ETIMEDOUT ? -ENOBUFS : status;
}
