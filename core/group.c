/* SPDX-License-Identifier: MIT */
/*
 * group.c - see group.h; every change of a worker's state, and of the counts in I1
 * and I2, is in this file.
 */
#include "group.h"

/* Who is told to run first, and why: group.h. */
static const enum ids_worker_state wake_order[] = { IDS_WORKER_PARKED, IDS_WORKER_ABSENT,
                                                    IDS_WORKER_RELEASING, IDS_WORKER_EXITING };

static bool has_thread(enum ids_worker_state state) {
  return state != IDS_WORKER_ABSENT && state != IDS_WORKER_GONE;
}

/* It will be used only when the worker has done what it is at. */
static bool has_slow_ticket(const struct ids_worker *self) {
  return self->has_ticket &&
         (self->state == IDS_WORKER_RELEASING || self->state == IDS_WORKER_EXITING);
}

bool ids_worker_is_wakeable_locked(const struct ids_worker *self) {
  if (self->has_ticket)
    return false;
  for (size_t i = 0; i < ids_countof(wake_order); i++)
    if (self->state == wake_order[i])
      return true;
  return false;
}

/* ------------------------------------------------------------------- life */

static int worker_init(struct ids_worker *self, struct ids_group *group, unsigned index) {
  *self = (struct ids_worker){ .group = group, .index = index, .state = IDS_WORKER_ABSENT };
  ids_list_init(&self->wakeable);
  ids_list_push_back(&group->wakeable[IDS_WORKER_ABSENT], &self->wakeable);
  return ids_cond_init(&self->wake, "group.worker.wake");
}

static void workers_deinit(struct ids_group *self, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    ids_cond_deinit(&self->workers[i].wake);
}

int ids_group_init(struct ids_group *self, const struct ids_group_ops *ops,
                   const struct ids_group_config *config) {
  ids_assert(config->workers_max > 0);
  *self =
    (struct ids_group){ .ops = ops, .config = *config, .fork_generation = ids_fork_generation() };
  for (int state = 0; state < IDS_WORKER_STATES; state++)
    ids_list_init(&self->wakeable[state]);
  self->in_state_count[IDS_WORKER_ABSENT] = config->workers_max;

  unsigned workers_ready = 0;
  int status = ids_mutex_init(&self->lock, "group.lock");
  if (status != 0)
    return status;
  status = ids_cond_init(&self->changed, "group.changed");
  if (status != 0)
    goto deinit_lock;
  status = -ENOMEM;
  self->workers = ids_alloc(config->workers_max * sizeof *self->workers, "group.workers");
  if (self->workers == NULL)
    goto deinit_changed;
  for (; workers_ready < config->workers_max; workers_ready++) {
    status = worker_init(&self->workers[workers_ready], self, workers_ready);
    if (status != 0)
      goto deinit_workers;
  }
  return 0;

deinit_workers:
  workers_deinit(self, workers_ready);
  ids_free(self->workers);
deinit_changed:
  ids_cond_deinit(&self->changed);
deinit_lock:
  ids_mutex_deinit(&self->lock);
  return status;
}

void ids_group_deinit(struct ids_group *self) {
  ids_assert(ids_group_is_deserted_locked(self));
  ids_assert(!self->departed.is_there);
  workers_deinit(self, self->config.workers_max);
  ids_free(self->workers);
  ids_cond_deinit(&self->changed);
  ids_mutex_deinit(&self->lock);
}

/* ------------------------------------------------------------------- lock */

/*
 * What must hold whenever the lock is dropped, said once: asserted by one reader, told by
 * the other.  I3 as an equation.
 */
#define EACH_RULE(RULE)                                                                            \
  RULE("I1 active = running + tickets", self->active_count,                                        \
       self->in_state_count[IDS_WORKER_RUNNING] + self->tickets_count)                             \
  RULE("I2 threads = starting + running + parked + releasing + exiting", self->threads_count,      \
       self->in_state_count[IDS_WORKER_STARTING] + self->in_state_count[IDS_WORKER_RUNNING] +      \
         self->in_state_count[IDS_WORKER_PARKED] + self->in_state_count[IDS_WORKER_RELEASING] +    \
         self->in_state_count[IDS_WORKER_EXITING])                                                 \
  RULE("I3 work implies active", self->active_count > 0 || !ids_group_has_work_locked(self), true) \
  RULE("I4 wakes = polls + tickets + lost tickets", self->counters.wakes,                          \
       self->counters.polls + self->tickets_count + self->counters.tickets_lost)                   \
  RULE("I9 an alarm is watched, or about to be", ids_group_is_watched_locked(self), true)

#define ASSERT_RULE(text, left, right) ids_assert_rule(text, left, right);

#ifdef IDS_PARANOID
IDS_NORETURN static void fail_finding(void *context, const char *rule, uint64_t left,
                                      uint64_t right) {
  (void)context;
  ids_fatal_numbers(rule, left, right, __FILE__, __LINE__);
}
#endif

void ids_group_check_locked(const struct ids_group *self) {
  ids_assert(ids_mutex_is_mine(&self->lock));
  EACH_RULE(ASSERT_RULE)
#ifdef IDS_PARANOID
  ids_group_audit_locked(self, fail_finding, NULL);
#endif
}

void ids_group_lock(struct ids_group *self) {
  ids_mutex_lock(&self->lock);
}

void ids_group_unlock(struct ids_group *self) {
  ids_group_check_locked(self);
  ids_mutex_unlock(&self->lock);
}

void ids_group_wait_locked(struct ids_group *self, uint64_t deadline_ns) {
  ids_group_check_locked(self);
  ids_cond_wait(&self->changed, &self->lock, deadline_ns);
}

/* ------------------------------------------------------------------ audit */

/* What the workers say one by one. */
struct recount {
  unsigned in_state_count[IDS_WORKER_STATES];
  unsigned wakeable_count, listed_count;
  unsigned tickets_count, slow_tickets_count, finishing_count;
  unsigned awaiting_count, succeeded_count;
  uint64_t given_count, used_count, lost_count;
};

static unsigned list_length(const struct ids_list *list) {
  unsigned length = 0;
  for (const struct ids_list *at = list->next; at != list; at = at->next)
    length++;
  return length;
}

static struct recount recount(const struct ids_group *self) {
  struct recount sum = { .wakeable_count = 0 };
  for (unsigned i = 0; i < self->config.workers_max; i++) {
    const struct ids_worker *worker = &self->workers[i];
    sum.in_state_count[worker->state]++;
    sum.wakeable_count += ids_worker_is_wakeable_locked(worker);
    sum.tickets_count += worker->has_ticket;
    sum.slow_tickets_count += has_slow_ticket(worker);
    sum.finishing_count += worker->is_finishing;
    sum.awaiting_count += worker->awaits_pass;
    sum.succeeded_count += worker->is_succeeded;
    sum.given_count += worker->given_count;
    sum.used_count += worker->used_count;
    sum.lost_count += worker->lost_count;
  }
  for (int state = 0; state < IDS_WORKER_STATES; state++)
    sum.listed_count += list_length(&self->wakeable[state]);
  return sum;
}

static void audit_worker(const struct ids_worker *self, ids_finding *tell, void *context) {
  uint64_t accounted = self->used_count + self->lost_count + self->has_ticket;
  if (self->given_count != accounted)
    tell(context, "I5 a worker's tickets given = used + lost + in hand", self->given_count,
         accounted);
  bool may_have_ticket = self->state != IDS_WORKER_ABSENT && self->state != IDS_WORKER_RUNNING &&
                         self->state != IDS_WORKER_GONE;
  if (self->has_ticket && !may_have_ticket)
    tell(context, "I6 a worker with a ticket starts, waits, releases or leaves: its state",
         self->state, IDS_WORKER_PARKED);
  bool may_await = self->state == IDS_WORKER_PARKED || self->state == IDS_WORKER_RELEASING;
  if (self->awaits_pass && !may_await)
    tell(context, "I7 a worker that awaits a pass is parked or releasing: its state", self->state,
         IDS_WORKER_PARKED);
}

static void tell_rule(ids_finding *tell, void *context, const char *rule, uint64_t left,
                      uint64_t right) {
  if (left != right)
    tell(context, rule, left, right);
}

#define TELL_RULE(text, left, right)                                                               \
  tell_rule(tell, context, text, (uint64_t)(left), (uint64_t)(right));

void ids_group_audit_locked(const struct ids_group *self, ids_finding *tell, void *context) {
  ids_assert(ids_mutex_is_mine(&self->lock));
  EACH_RULE(TELL_RULE)

  for (unsigned i = 0; i < self->config.workers_max; i++)
    audit_worker(&self->workers[i], tell, context);
  const struct ids_worker *watcher = self->watcher;
  if (watcher != NULL && watcher->state != IDS_WORKER_PARKED &&
      watcher->state != IDS_WORKER_RELEASING)
    tell(context, "I9 who watches is parked or releasing: its state", watcher->state,
         IDS_WORKER_PARKED);
  const struct recount sum = recount(self);
  for (int state = 0; state < IDS_WORKER_STATES; state++)
    TELL_RULE("I8 workers in a state = their count", sum.in_state_count[state],
              self->in_state_count[state])
  TELL_RULE("I8 tickets in hand = their count", sum.tickets_count, self->tickets_count)
  TELL_RULE("I8 slow tickets = their count", sum.slow_tickets_count, self->slow_tickets_count)
  if (self->slow_jobs_count > self->slow_tickets_count)
    tell(context, "I8 no more jobs are stood for than there are slow tickets",
         self->slow_jobs_count, self->slow_tickets_count);
  TELL_RULE("I8 workers that finish = their count", sum.finishing_count, self->finishing_count)
  TELL_RULE("I8 tickets given = wakes", sum.given_count, self->counters.wakes)
  TELL_RULE("I8 tickets used = polls", sum.used_count, self->counters.polls)
  TELL_RULE("I8 tickets lost = their count", sum.lost_count, self->counters.tickets_lost)
  TELL_RULE("I8 wakeable workers = listed ones", sum.wakeable_count, sum.listed_count)
  TELL_RULE("I8 workers that await a pass = their count", sum.awaiting_count, self->awaiting_count)
  TELL_RULE("I8 workers with a predecessor = their count", sum.succeeded_count,
            self->succeeded_count)
}

/* ----------------------------------------------------------------- states */

/* In the order of parking, the last first: who comes back from a release goes behind
 * those that have parked since, which are warm.  Who retires is asked last, whatever it
 * does at the moment: the ticket is for its successor. */
static void refresh_wakeable(struct ids_worker *self) {
  struct ids_list *list =
    &self->group->wakeable[self->is_retiring ? IDS_WORKER_EXITING : self->state];
  ids_list_leave(&self->wakeable);
  if (!ids_worker_is_wakeable_locked(self))
    return;
  struct ids_list *place = list;
  while (place->next != list &&
         ids_container_of(place->next, struct ids_worker, wakeable)->parked_at_ns >
           self->parked_at_ns)
    place = place->next;
  ids_list_insert_after(place, &self->wakeable);
}

/* Whose job another worker has taken meanwhile stands for none of those to come. */
void ids_group_work_fell_locked(struct ids_group *self) {
  uint64_t most_count = ids_smaller(self->ops->work_count(self), self->slow_tickets_count);
  if (self->slow_jobs_count > most_count)
    self->slow_jobs_count = (unsigned)most_count;
}

/* After a change of the worker's state or ticket. */
static void count_slow_ticket(struct ids_worker *self) {
  struct ids_group *group = self->group;
  unsigned is_slow = has_slow_ticket(self);
  group->slow_tickets_count += is_slow;
  group->slow_jobs_count += is_slow;
  ids_group_work_fell_locked(group);
}

void ids_worker_set_state_locked(struct ids_worker *self, enum ids_worker_state state) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(self->state != IDS_WORKER_GONE);
  ids_assert(group->in_state_count[self->state] > 0);

  if (has_thread(state) && !has_thread(self->state))
    group->threads_count++;
  if (!has_thread(state) && has_thread(self->state))
    group->threads_count--;
  group->in_state_count[self->state]--;
  group->in_state_count[state]++;
  unsigned was_slow = has_slow_ticket(self);
  self->state = state;
  group->slow_tickets_count -= was_slow;
  count_slow_ticket(self);
  refresh_wakeable(self);
}

void ids_worker_set_idle_locked(struct ids_worker *self, enum ids_worker_state state) {
  ids_assert(self->state == IDS_WORKER_RUNNING);
  ids_assert(state == IDS_WORKER_PARKED || state == IDS_WORKER_EXITING);
  ids_assert(!self->is_finishing);
  ids_assert(self->group->active_count > 0);
  self->group->active_count--;
  ids_worker_set_state_locked(self, state);
}

void ids_worker_set_retiring_locked(struct ids_worker *self, bool is_retiring) {
  ids_assert(ids_mutex_is_mine(&self->group->lock));
  self->is_retiring = is_retiring;
  refresh_wakeable(self);
}

void ids_worker_set_finishing_locked(struct ids_worker *self, bool is_finishing) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(self->state == IDS_WORKER_RUNNING);
  group->finishing_count -= self->is_finishing;
  self->is_finishing = is_finishing;
  group->finishing_count += self->is_finishing;
}

/* ---------------------------------------------------------------- tickets */

bool ids_group_has_work_locked(const struct ids_group *self) {
  return self->ops->work_count(self) > 0;
}

bool ids_group_wants_wake_locked(const struct ids_group *self) {
  return self->tickets_count == self->slow_tickets_count &&
         self->active_count < self->config.workers_max &&
         (self->ops->work_count(self) > self->slow_jobs_count + self->finishing_count ||
          ids_group_needs_watcher_locked(self));
}

struct ids_wake ids_worker_grant_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(ids_worker_is_wakeable_locked(self));

  struct ids_wake wake = { .worker = self, .from = self->state };
  self->has_ticket = true;
  self->given_count++;
  group->tickets_count++;
  count_slow_ticket(self);
  group->active_count++;
  group->counters.wakes++;
  if (self->state == IDS_WORKER_ABSENT) {
    ids_worker_set_state_locked(self, IDS_WORKER_STARTING);
  } else {
    refresh_wakeable(self);
  }
  return wake;
}

struct ids_worker *ids_group_first_wakeable_locked(struct ids_group *self,
                                                   enum ids_worker_state state) {
  struct ids_list *first = ids_list_first(&self->wakeable[state]);
  return first == NULL ? NULL : ids_container_of(first, struct ids_worker, wakeable);
}

struct ids_wake ids_group_grant_locked(struct ids_group *self) {
  for (size_t i = 0; i < ids_countof(wake_order); i++) {
    struct ids_worker *worker = ids_group_first_wakeable_locked(self, wake_order[i]);
    if (worker != NULL)
      return ids_worker_grant_locked(worker);
  }
  return (struct ids_wake){ .worker = NULL };
}

struct ids_wake ids_group_grant_wanted_locked(struct ids_group *self) {
  struct ids_wake wake = { .worker = NULL };
  while (ids_group_wants_wake_locked(self)) {
    wake = ids_group_grant_locked(self);
    ids_assert(wake.worker != NULL); /* active < workers_max: somebody neither runs nor will */
  }
  ids_group_watch_locked(self);
  return wake;
}

void ids_worker_use_ticket_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->has_ticket);
  ids_assert(!self->is_retiring);
  ids_assert(group->tickets_count > 0);
  ids_assert(self->state == IDS_WORKER_STARTING || self->state == IDS_WORKER_PARKED);

  if (self->state == IDS_WORKER_STARTING) {
    group->counters.starts++;
    group->succeeded_count -= self->is_succeeded;
    self->is_succeeded = false;
    ids_cond_broadcast(&group->changed);
  }
  self->has_ticket = false;
  self->used_count++;
  group->tickets_count--;
  group->counters.polls++;
  ids_worker_set_state_locked(self, IDS_WORKER_RUNNING);
}

enum ids_poll ids_worker_poll_locked(struct ids_worker *self) {
  ids_assert(self->state == IDS_WORKER_RUNNING);
  enum ids_poll answer = self->group->ops->poll(self);
  ids_group_work_fell_locked(self->group);
  return answer;
}

/*
 * Others may have queued jobs meanwhile and given no ticket, as one was on its
 * way.  So the ticket is not just dropped: whoever has a thread gets it.
 */
bool ids_worker_launch_failed_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_STARTING && self->has_ticket && !self->is_succeeded);

  self->has_ticket = false;
  self->lost_count++;
  group->tickets_count--;
  group->active_count--;
  group->counters.tickets_lost++;
  group->counters.starts_refused++;
  self->visit_served = self->visit_asked; /* who asked for a visit need not wait for it */
  ids_worker_set_state_locked(self, group->is_stopping ? IDS_WORKER_GONE : IDS_WORKER_ABSENT);
  ids_cond_broadcast(&group->changed);

  for (size_t i = 0; i < ids_countof(wake_order); i++) {
    struct ids_worker *worker;
    while (wake_order[i] != IDS_WORKER_ABSENT && ids_group_wants_wake_locked(group) &&
           (worker = ids_group_first_wakeable_locked(group, wake_order[i])) != NULL) {
      ids_worker_grant_locked(worker);
      ids_cond_signal(&worker->wake);
    }
  }
  ids_group_watch_locked(group);
  return ids_group_live_count_locked(group) > 0;
}

/* ------------------------------------------------------------- succession */

void ids_worker_begin_succession_locked(struct ids_worker *self) {
  struct ids_group *group = self->group;
  ids_assert(self->state == IDS_WORKER_EXITING && self->is_retiring && self->has_ticket);
  self->is_succeeded = true;
  group->succeeded_count++;
  group->predecessors_count++;
  self->is_retiring = false;
  ids_worker_set_state_locked(self, IDS_WORKER_STARTING);
}

void ids_worker_end_succession_locked(struct ids_worker *self, bool has_successor) {
  struct ids_group *group = self->group;
  ids_assert(ids_mutex_is_mine(&group->lock));
  ids_assert(group->predecessors_count > 0);
  group->predecessors_count--;
  ids_cond_broadcast(&group->changed);
  if (has_successor)
    return; /* the worker is the new thread's */
  ids_assert(self->state == IDS_WORKER_STARTING && self->is_succeeded);
  self->is_succeeded = false;
  group->succeeded_count--;
  group->counters.starts_refused++;
  ids_worker_set_state_locked(self, IDS_WORKER_PARKED);
}

/* ----------------------------------------------------------------- counts */

unsigned ids_group_launching_count_locked(const struct ids_group *self) {
  return self->in_state_count[IDS_WORKER_STARTING] - self->succeeded_count;
}

unsigned ids_group_live_count_locked(const struct ids_group *self) {
  ids_assert(self->threads_count >= ids_group_launching_count_locked(self));
  return self->threads_count - ids_group_launching_count_locked(self);
}

bool ids_group_is_deserted_locked(const struct ids_group *self) {
  return self->threads_count == 0 && self->predecessors_count == 0;
}

void ids_group_await_launch_locked(struct ids_group *self) {
  while (ids_group_launching_count_locked(self) > 0 && ids_group_live_count_locked(self) == 0)
    ids_group_wait_locked(self, IDS_NEVER);
}

/* ---------------------------------------------------------------- joining */

void ids_group_join(struct ids_group *self, struct ids_departed departed) {
  ids_thread_join(&departed.thread);
  if (!departed.has_retired)
    return;
  ids_group_lock(self);
  self->counters.retires++;
  ids_cond_broadcast(&self->changed);
  ids_group_unlock(self);
}

void ids_group_join_departed(struct ids_group *self) {
  ids_group_lock(self);
  struct ids_departed last = self->departed;
  self->departed.is_there = false;
  ids_group_unlock(self);
  if (last.is_there)
    ids_group_join(self, last);
}
