/* SPDX-License-Identifier: MIT */
/*
 * audit.c - see audit.h.
 */
#include "audit.h"

static void note(void *context, const char *rule, uint64_t left, uint64_t right) {
  idlesched_audit *audit = context;
  if (audit->broken_count < IDLESCHED_FINDINGS_MAX)
    audit->findings[audit->broken_count] =
      (idlesched_finding){ .rule = rule, .left = left, .right = right };
  audit->broken_count++;
}

static void audit_jobs_locked(const struct idlesched_pool *pool, idlesched_audit *audit) {
  uint64_t accounted = pool->queue.count + pool->delayed_count + pool->expiring_count +
                       pool->jobs_running_count + pool->done_count + pool->failed_count +
                       pool->cancelled_count;
  if (pool->submitted_count != accounted)
    note(audit, "J1 submitted = queued + delayed + expiring + running + done + failed + cancelled",
         pool->submitted_count, accounted);
  unsigned running_count = pool->group.in_state_count[IDS_WORKER_RUNNING] + pool->is_taken;
  uint64_t outermost_count = pool->jobs_running_count - pool->jobs_inside_count;
  if (outermost_count > running_count)
    note(audit, "J2 no more jobs run than workers, but for those inside others: jobs, workers",
         outermost_count, running_count);
  if (pool->dropping.count > 0 && pool->queue.count + pool->delayed_count > 0)
    note(audit, "J3 nothing is queued while a close drops what was: dropped, queued",
         pool->dropping.count, pool->queue.count + pool->delayed_count);
  if (pool->is_inline && pool->queue.count > 0 && !pool->is_taken)
    note(audit, "J4 inline, jobs are queued while somebody has the turn: queued, turns",
         pool->queue.count, pool->is_taken);
  uint64_t queued_count = pool->queue.count + pool->delayed_count;
  bool may_wait = pool->is_inline ? pool->is_taken : queued_count >= pool->queue_max;
  if (!ids_line_is_empty(&pool->line) && !may_wait)
    note(audit, "J5 nobody waits while there is room, or a turn: queued, most", queued_count,
         pool->queue_max);
}

unsigned ids_audit_pool(struct idlesched_pool *pool, idlesched_audit *out) {
  *out = (idlesched_audit){ .broken_count = 0 };
  ids_mutex_lock(&pool->group.lock);
  ids_group_audit_locked(&pool->group, note, out);
  audit_jobs_locked(pool, out);
  ids_mutex_unlock(&pool->group.lock); /* without the assertions: this is for telling */
  return out->broken_count;
}
