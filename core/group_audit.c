/* SPDX-License-Identifier: MIT */
/*
 * group_audit.c - what must hold of a group whenever its lock is dropped: see group.h.
 */
#include "group.h"

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

/* ------------------------------------------------------------------ audit */

/* What the workers say one by one. */
struct recount {
  unsigned in_state_count[IDS_WORKER_STATES];
  unsigned wakeable_count, listed_count;
  unsigned tickets_count, slow_tickets_count, finishing_count;
  unsigned awaiting_count, succeeded_count, blocking_count, leaving_count;
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
  for (unsigned i = 0; i < self->workers_count; i++) {
    const struct ids_worker *worker = self->workers[i];
    sum.in_state_count[worker->state]++;
    sum.wakeable_count += ids_worker_is_wakeable_locked(worker);
    sum.tickets_count += worker->has_ticket;
    sum.slow_tickets_count += ids_worker_has_slow_ticket_locked(worker);
    sum.finishing_count += worker->is_finishing;
    sum.awaiting_count += worker->awaits_pass;
    sum.succeeded_count += worker->is_succeeded;
    sum.blocking_count += worker->is_blocking;
    sum.leaving_count += ids_worker_is_leaving_locked(worker);
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
  if (self->is_blocking && self->state != IDS_WORKER_RUNNING)
    tell(context, "I6 a worker that blocks runs: its state", self->state, IDS_WORKER_RUNNING);
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

  for (unsigned i = 0; i < self->workers_count; i++)
    audit_worker(self->workers[i], tell, context);
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
  TELL_RULE("I8 workers that block = their count", sum.blocking_count, self->blocking_count)
  TELL_RULE("I8 workers that leave = their count", sum.leaving_count, self->leaving_count)
}
