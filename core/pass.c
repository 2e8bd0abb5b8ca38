/* SPDX-License-Identifier: MIT */
/*
 * pass.c - see pass.h.
 */
#include "pass.h"

#include "heap.h"
#include "host_thread.h"

#define WINDOW_NS (50 * IDS_MS)
#define LATER_NS (900 * IDS_MS)

/* --------------------------------------------------------------------- when */

/* Those that have a ticket or retire are about to wake up by themselves. */
static bool is_for_a_pass(const struct ids_worker *self) {
  return self->awaits_pass && self->state == IDS_WORKER_PARKED && !self->has_ticket &&
         !self->is_retiring;
}

/* It gives up its heap by itself, and then owes a purge. */
static bool is_to_collect(const struct ids_worker *self) {
  bool is_idle = self->state == IDS_WORKER_PARKED || self->state == IDS_WORKER_RELEASING;
  return is_idle && self->has_state && !self->is_released && !self->has_ticket;
}

static uint64_t first_due_ns(const struct ids_group *self) {
  uint64_t first_ns = self->owes_purge ? self->owed_since_ns : IDS_NEVER;
  for (unsigned i = 0; i < self->workers_count; i++)
    if (is_for_a_pass(self->workers[i]))
      first_ns = ids_earlier_ns(first_ns, self->workers[i]->release_at_ns);
  return first_ns;
}

static uint64_t window_end_ns(const struct ids_group *self, uint64_t first_ns) {
  return ids_after_ns(first_ns, ids_earlier_ns(WINDOW_NS, self->config.idle_release_ns));
}

/* When the last of the workers that share the first one's window will be ready. */
static uint64_t last_due_ns(const struct ids_group *self, uint64_t first_ns) {
  uint64_t end_ns = window_end_ns(self, first_ns);
  uint64_t last_ns = first_ns;
  for (unsigned i = 0; i < self->workers_count; i++) {
    const struct ids_worker *worker = self->workers[i];
    if (worker->release_at_ns > end_ns)
      continue;
    if (is_to_collect(worker))
      return end_ns; /* nobody knows how long that takes */
    if (is_for_a_pass(worker))
      last_ns = ids_later_ns(last_ns, worker->release_at_ns);
  }
  return last_ns;
}

static uint64_t later_pass_at_ns(const struct ids_group *self) {
  return self->later_count > 0 ? self->later_at_ns[0] : IDS_NEVER;
}

uint64_t ids_pass_at_ns_locked(const struct ids_group *self) {
  if (self->awaiting_count == 0 && !self->owes_purge)
    return later_pass_at_ns(self);
  uint64_t first_ns = first_due_ns(self);
  if (first_ns != IDS_NEVER)
    first_ns = last_due_ns(self, first_ns);
  return ids_earlier_ns(first_ns, later_pass_at_ns(self));
}

bool ids_pass_is_mine_locked(const struct ids_worker *self, uint64_t now_ns) {
  const struct ids_group *group = self->group;
  return !group->is_passing && (group->timer_holder == self || group->owes_purge) &&
         ids_pass_at_ns_locked(group) <= now_ns;
}

/* ---------------------------------------------------------------- the timer */

/* Until when the holder may sleep: who was to share the window may have left it. */
static uint64_t latest_ns(const struct ids_group *self) {
  return ids_earlier_ns(window_end_ns(self, first_due_ns(self)), later_pass_at_ns(self));
}

/* The same for what a worker that is about to sleep brings along, or has brought about. */
static uint64_t brings_ns(const struct ids_worker *self) {
  const struct ids_group *group = self->group;
  if (group->owes_purge)
    return latest_ns(group);
  return ids_earlier_ns(self->awaits_pass ? window_end_ns(group, self->release_at_ns) : IDS_NEVER,
                        later_pass_at_ns(group));
}

/* Whoever runs may park within the window, and would have the holder wake up twice. */
static uint64_t holder_wakes_ns(const struct ids_group *self) {
  return self->active_count > 0 ? latest_ns(self) : ids_pass_at_ns_locked(self);
}

uint64_t ids_pass_sleeps_until_locked(struct ids_worker *self, uint64_t own_ns) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  const struct ids_worker *holder = group->timer_holder;
  if (holder == NULL || brings_ns(self) < holder->sleeps_until_ns)
    group->timer_holder = self;
  if (group->timer_holder == self)
    own_ns = ids_earlier_ns(own_ns, holder_wakes_ns(group));
  self->sleeps_until_ns = own_ns;
  return own_ns;
}

void ids_pass_wakes_locked(struct ids_worker *self) {
  self->sleeps_until_ns = 0;
}

/* Somebody holds the timer, and does not oversleep the next pass, if there is one. */
static void appoint_locked(struct ids_group *self) {
  if (ids_pass_at_ns_locked(self) == IDS_NEVER)
    return;
  struct ids_list *last = ids_list_last(&self->wakeable[IDS_WORKER_PARKED]);
  if (self->timer_holder == NULL && last != NULL)
    self->timer_holder = ids_container_of(last, struct ids_worker, wakeable);
  struct ids_worker *holder = self->timer_holder;
  if (holder != NULL && holder->sleeps_until_ns > latest_ns(self)) {
    ids_pass_wakes_locked(holder);
    ids_cond_signal(&holder->wake);
  }
}

/* A worker that released on its own thread, and got a ticket before it slept, leaves the
 * purge that it owes to a holder who sleeps. */
void ids_pass_hand_over_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  if (group->timer_holder == self)
    group->timer_holder = NULL;
  else if (!group->owes_purge)
    return;
  appoint_locked(group);
}

/*
 * Note a later pass for this moment.  One that is noted already will do, if it comes no
 * earlier; else it is another, at least a window after the last.  With no room left, the
 * last one is put off to it.
 */
static void follow_up_locked(struct ids_group *self, uint64_t moment_ns) {
  uint64_t at_ns = ids_after_ns(moment_ns, LATER_NS);
  if (self->later_count > 0) {
    uint64_t last_ns = self->later_at_ns[self->later_count - 1];
    if (at_ns <= last_ns)
      return;
    at_ns = ids_later_ns(at_ns, ids_after_ns(last_ns, WINDOW_NS));
  }
  if (self->later_count == IDS_LATER_MAX)
    self->later_count--;
  self->later_at_ns[self->later_count++] = at_ns;
}

/* A purge begins now. */
static void later_passes_made_locked(struct ids_group *self, uint64_t now_ns) {
  unsigned made_count = 0;
  while (made_count < self->later_count && self->later_at_ns[made_count] <= now_ns)
    made_count++;
  self->later_count -= made_count;
  for (unsigned i = 0; i < self->later_count; i++)
    self->later_at_ns[i] = self->later_at_ns[i + made_count];
}

void ids_pass_follow_up_locked(struct ids_group *self, uint64_t now_ns) {
  if (self->config.idle_release_ns == IDS_NEVER || self->threads_count == 0)
    return;
  follow_up_locked(self, now_ns);
  appoint_locked(self);
}

/* Whether the caller has to purge, as no thread is there to make a pass. */
static bool note_freed_locked(struct ids_group *self, uint64_t now_ns) {
  if (self->config.idle_release_ns == IDS_NEVER)
    return false;
  follow_up_locked(self, now_ns);
  /* Who is EXITING may be past its own purge, and makes no pass. */
  if (self->threads_count > self->in_state_count[IDS_WORKER_EXITING]) {
    appoint_locked(self);
    return false;
  }
  if (now_ns < self->freed_again_at_ns)
    return false;
  self->freed_again_at_ns = ids_after_ns(now_ns, LATER_NS);
  return true;
}

void ids_pass_freed(struct ids_group *self) {
  ids_group_lock(self);
  bool purges = note_freed_locked(self, ids_now_ns());
  ids_group_unlock(self);
  if (purges)
    ids_heap_purge();
}

/* --------------------------------------------------------- giving up a heap */

void ids_worker_set_awaits_pass_locked(struct ids_worker *self, bool awaits_pass) {
  ids_assert(ids_mutex_is_mine(&self->group->lock));
  if (self->awaits_pass == awaits_pass)
    return;
  self->awaits_pass = awaits_pass;
  if (awaits_pass)
    self->group->awaiting_count++;
  else
    self->group->awaiting_count--;
}

void ids_worker_released_locked(struct ids_worker *self) {
  ids_assert(self->state == IDS_WORKER_RELEASING);
  ids_worker_set_awaits_pass_locked(self, false);
  self->is_released = true;
  self->group->counters.releases++;
  ids_cond_broadcast(&self->group->changed);
}

static void give_up_heap_locked(struct ids_worker *self, bool is_own) {
  struct ids_group *group = self->group;
  do {
    uint64_t visit = self->visit_asked;
    ids_group_unlock(group);
    ids_point("pass.abandon");
    if (is_own)
      ids_heap_collect();
    else
      ids_heap_abandon(self->heap);
    ids_group_lock(group);
    self->visit_served = visit;
  } while (self->visit_served < self->visit_asked && !self->has_ticket);
}

/* It sleeps on, as one of those that idle_exit leaves, and there are more of them now. */
static bool may_exit_after_all(const struct ids_worker *self) {
  return self->sleeps_until_ns > self->exit_at_ns && ids_group_may_exit_locked(self->group);
}

/* Its thread sleeps on, unless something came for it meanwhile. */
static void give_back_locked(struct ids_worker *self) {
  ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
  if (self->has_ticket || self->is_retiring || self->awaits_return || may_exit_after_all(self))
    ids_cond_signal(&self->wake);
  if (self->group->timer_holder == NULL)
    appoint_locked(self->group);
  ids_group_watch_locked(self->group);
}

void ids_worker_give_up_locked(struct ids_worker *self) {
  bool is_own = self->state == IDS_WORKER_RELEASING;
  ids_assert(is_own || self->state == IDS_WORKER_PARKED);
  if (!is_own)
    ids_worker_set_state_locked(self, IDS_WORKER_RELEASING);
  give_up_heap_locked(self, is_own);
  ids_worker_released_locked(self);
  if (!is_own)
    give_back_locked(self);
}

/* ----------------------------------------------------------------- the pass */

void ids_pass_owe_purge_locked(struct ids_group *self, uint64_t since_ns) {
  ids_assert(ids_mutex_is_mine(&self->lock));
  if (!self->owes_purge)
    self->owed_since_ns = since_ns;
  self->owes_purge = true;
}

/* False when a ticket came for the one who makes the pass. */
static bool give_up_due_locked(struct ids_worker *self, uint64_t now_ns) {
  struct ids_group *group = self->group;
  for (unsigned i = 0; i < group->workers_count && !self->has_ticket; i++) {
    struct ids_worker *worker = group->workers[i];
    bool is_here = worker == self ? self->awaits_pass : is_for_a_pass(worker);
    if (is_here && worker->release_at_ns <= now_ns) {
      ids_worker_give_up_locked(worker);
      ids_pass_owe_purge_locked(group, now_ns);
    }
  }
  return !self->has_ticket;
}

/* What is given up while the purge is under way is owed anew. */
static void purge_locked(struct ids_group *self, uint64_t now_ns) {
  bool has_given_up = self->owes_purge;
  self->owes_purge = false;
  later_passes_made_locked(self, now_ns);
  ids_group_unlock(self);

  if (self->ops->before_purge(self))
    ids_heap_collect(); /* what the owner has freed just now */
  has_given_up |= ids_host_threads_give_up(now_ns, self->config.idle_release_ns) > 0;
  ids_point("pass.purge");
  ids_heap_purge();
  ids_heap_trim_c(false);

  ids_group_lock(self);
  self->counters.passes++;
  if (has_given_up)
    follow_up_locked(self, ids_now_ns());
}

void ids_pass_run_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  uint64_t now_ns = ids_now_ns();
  ids_assert(!group->is_passing);
  group->is_passing = true;
  group->timer_holder = self;
  ids_worker_claim_itself_locked(self);
  if (give_up_due_locked(self, now_ns))
    purge_locked(group, now_ns);
  ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
  group->is_passing = false;
}
