/* SPDX-License-Identifier: MIT */
/*
 * test_audit.c - the audit finds each kind of broken book-keeping, and tells its numbers;
 * of books that are right it says nothing.
 *
 * Method: an idle pool's books are falsified on purpose, looked over under the lock, and
 * put right again.
 */
#include "audit.h"

#include <setjmp.h>
#include <string.h>

#include "failure.h"
#include "pool_kit.h"

static idlesched_pool *pool;

static struct ids_group *group(void) {
  return &pool->group;
}

static struct ids_worker *worker(void) {
  return pool->group.workers[0];
}

/* What the audit says first. */
static char first_rule[128];
static unsigned findings_count;
static uint64_t first_left, first_right;

static void note(void *context, const char *rule, uint64_t left, uint64_t right) {
  (void)context;
  if (findings_count++ > 0)
    return;
  snprintf(first_rule, sizeof first_rule, "%s", rule);
  first_left = left;
  first_right = right;
}

/* With one worker that is in use, and has no thread. */
static void make_pool(void) {
  pool = POOL(.workers_max = 2);
  ids_group_lock(group());
  CHECK_EQ_PTR(ids_group_first_wakeable_locked(group(), IDS_WORKER_ABSENT), worker());
  ids_group_unlock(group());
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
}

/* Falsify the number by 1, and see that the audit names a rule that begins so. */
#define CHECK_TOLD(field, rule) check_told(&(field), sizeof(field), rule, #field)

static void check_told(void *field, size_t size, const char *rule, const char *name) {
  unsigned char before[8];
  memcpy(before, field, size);
  ids_mutex_lock(&group()->lock);
  if (size == 8)
    ++*(uint64_t *)field;
  else if (size == sizeof(unsigned))
    ++*(unsigned *)field;
  else
    *(bool *)field = !*(bool *)field;
  findings_count = 0;
  first_rule[0] = '\0';
  ids_group_audit_locked(group(), note, NULL);
  memcpy(field, before, size);
  ids_mutex_unlock(&group()->lock);
  printf("%s: %s\n", name, first_rule);
  CHECK_GE_INT(findings_count, 1);
  CHECK_CONTAINS(first_rule, rule);
  CHECK(first_left != first_right);
}

SPEC(sums_that_do_not_add_up, "N5 the audit names a sum that does not add up, with its numbers") {
  make_pool();
  CHECK_TOLD(group()->active_count, "I1 active");
  CHECK_TOLD(group()->threads_count, "I2 threads");
  CHECK_TOLD(pool->queue.count, "I3 work");
  CHECK_TOLD(group()->counters.wakes, "I4 wakes");
  CHECK_TOLD(group()->counters.polls, "I4 wakes");
  CHECK_TOLD(group()->counters.tickets_lost, "I4 wakes");
  CHECK_TOLD(group()->tickets_count, "I1 active");
  CHECK_TOLD(group()->in_state_count[IDS_WORKER_GONE], "I8 workers in a state");
  CHECK_TOLD(group()->slow_tickets_count, "I8 slow tickets");
  CHECK_TOLD(group()->slow_jobs_count, "I8 no more jobs");
  CHECK_TOLD(group()->finishing_count, "I8 workers that finish");
  CHECK_TOLD(group()->awaiting_count, "I8 workers that await");
  CHECK_TOLD(group()->succeeded_count, "I8 workers with a predecessor");
  CHECK_TOLD(group()->blocking_count, "I8 workers that block");
  CHECK_TOLD(group()->leaving_count, "I8 workers that leave");
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
}

SPEC(a_worker_that_is_out_of_step, "N5 the audit names a lost or unpaired ticket of a worker") {
  make_pool();
  CHECK_TOLD(worker()->given_count, "I5 a worker's tickets");
  CHECK_TOLD(worker()->used_count, "I5 a worker's tickets");
  CHECK_TOLD(worker()->lost_count, "I5 a worker's tickets");
  CHECK_TOLD(worker()->has_ticket, "I5 a worker's tickets");
  CHECK_TOLD(worker()->awaits_pass, "I7 a worker that awaits");
  CHECK_TOLD(worker()->is_finishing, "I8 workers that finish");
  CHECK_TOLD(worker()->is_succeeded, "I8 workers with a predecessor");
  CHECK_TOLD(worker()->is_blocking, "I6 a worker that blocks");
  CHECK_TOLD(worker()->is_retiring, "I8 workers that leave");
  idlesched_pool_destroy(pool);
}

/* Each in turn is the first that is told: tickets that agree with themselves alone. */
SPEC(tickets_where_none_can_be, "N5 the audit names a ticket in the hand of who cannot have one") {
  make_pool();
  ids_mutex_lock(&group()->lock);
  worker()->has_ticket = true;
  worker()->given_count++;
  findings_count = 0;
  ids_group_audit_locked(group(), note, NULL);
  CHECK_CONTAINS(first_rule, "I6 a worker with a ticket");
  worker()->given_count++;
  worker()->used_count++;
  worker()->has_ticket = false;
  worker()->lost_count++;
  findings_count = 0;
  ids_group_audit_locked(group(), note, NULL);
  CHECK_CONTAINS(first_rule, "I8 tickets given");
  worker()->given_count = worker()->used_count = worker()->lost_count = 0;
  ids_mutex_unlock(&group()->lock);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
}

SPEC(alarms_that_nobody_watches, "N5 the audit names an alarm that nobody watches") {
  idlesched_alarm alarm;
  make_pool();
  ids_mutex_lock(&group()->lock);
  ids_alarms_insert(&pool->alarms, &alarm, 1);
  findings_count = 0;
  ids_group_audit_locked(group(), note, NULL);
  CHECK_EQ_INT(findings_count, 1);
  CHECK_CONTAINS(first_rule, "I9 an alarm is watched");
  ids_alarms_remove(&pool->alarms, &alarm);
  group()->watcher = worker();
  findings_count = 0;
  ids_group_audit_locked(group(), note, NULL);
  CHECK_EQ_INT(findings_count, 1);
  CHECK_CONTAINS(first_rule, "I9 who watches is parked");
  group()->watcher = NULL;
  ids_mutex_unlock(&group()->lock);

  /* Somebody could. */
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 1), 0);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  ids_mutex_lock(&group()->lock);
  ids_alarms_insert(&pool->alarms, &alarm, 1);
  findings_count = 0;
  ids_group_audit_locked(group(), note, NULL);
  CHECK_EQ_INT(findings_count, 1);
  CHECK_CONTAINS(first_rule, "I9 an alarm is watched");
  ids_alarms_remove(&pool->alarms, &alarm);
  ids_mutex_unlock(&group()->lock);
  CHECK_EQ_INT(idlesched_pool_audit(pool, NULL), 0);
  idlesched_pool_destroy(pool);
}

SPEC(jobs_that_do_not_add_up, "N5 the audit of a pool names jobs that do not add up") {
  idlesched_audit audit;
  make_pool();
  pool->submitted_count += 2;
  CHECK_EQ_INT(idlesched_pool_audit(pool, &audit), 1);
  CHECK_CONTAINS(audit.findings[0].rule, "J1 submitted");
  CHECK_EQ_U64(audit.findings[0].left, 2);
  CHECK_EQ_U64(audit.findings[0].right, 0);
  pool->jobs_running_count = 2;
  CHECK_EQ_INT(idlesched_pool_audit(pool, &audit), 1);
  CHECK_CONTAINS(audit.findings[0].rule, "J2 no more jobs run");
  pool->submitted_count = pool->jobs_running_count = 0;
  pool->dropping.count = pool->queue.count = 1;
  pool->submitted_count = 1;
  CHECK_GE_INT(idlesched_pool_audit(pool, &audit), 1);
  CHECK_CONTAINS(audit.findings[audit.broken_count - 1].rule, "J3 nothing is queued");
  pool->dropping.count = pool->queue.count = pool->submitted_count = 0;
  CHECK_EQ_INT(idlesched_pool_audit(pool, &audit), 0);
  idlesched_pool_destroy(pool);
}

SPEC(who_waits_for_nothing,
     "N5 the audit of a pool names jobs that nobody runs, and threads in line for what is free") {
  idlesched_audit audit;
  struct ids_list place;
  idlesched_pool *pools[] = { POOL(.workers_max = IDLESCHED_NO_WORKERS),
                              POOL(.workers_max = 1, .queue_max = 1) };
  pools[0]->queue.count = pools[0]->submitted_count = 1;
  CHECK_EQ_INT(idlesched_pool_audit(pools[0], &audit), 1);
  CHECK_CONTAINS(audit.findings[0].rule, "J4 inline");
  pools[0]->is_taken = true;
  CHECK_EQ_INT(idlesched_pool_audit(pools[0], &audit), 0);
  pools[0]->is_taken = false;
  pools[0]->queue.count = pools[0]->submitted_count = 0;
  for (unsigned i = 0; i < 2; i++) {
    ids_list_init(&place);
    ids_list_push_back(&pools[i]->line.places, &place);
    CHECK_EQ_INT(idlesched_pool_audit(pools[i], &audit), 1);
    CHECK_CONTAINS(audit.findings[0].rule, "J5 nobody waits");
    ids_list_leave(&place);
    CHECK_EQ_INT(idlesched_pool_audit(pools[i], &audit), 0);
    idlesched_pool_destroy(pools[i]);
  }
}

SPEC(more_findings_than_there_is_room_for,
     "N5 an audit counts more findings than it has room for") {
  idlesched_audit audit;
  idlesched_pool *other = POOL(.workers_max = 20);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(other, 20), 0);
  CHECK_EQ_INT(idlesched_pool_close(other, IDLESCHED_CLOSE_DRAIN, 0, NULL), 0);
  for (unsigned i = 0; i < 20; i++)
    other->group.workers[i]->used_count++;
  CHECK_GE_INT(idlesched_pool_audit(other, &audit), 20);
  for (unsigned i = 0; i < IDLESCHED_FINDINGS_MAX; i++)
    CHECK_CONTAINS(audit.findings[i].rule, "I5");
  for (unsigned i = 0; i < 20; i++)
    other->group.workers[i]->used_count--;
  idlesched_pool_destroy(other);
}

#ifdef IDS_PARANOID
static jmp_buf after_failure;
static char failed_expression[128];

static void jump_out(const idlesched_failure *failure) {
  snprintf(failed_expression, sizeof failed_expression, "%s", failure->expression);
  longjmp(after_failure, 1);
}

/* The lock is held when it fails, and stays so. */
static bool unlock_fails(void) {
  if (setjmp(after_failure) != 0)
    return true;
  ids_group_unlock(group());
  return false;
}

SPEC(what_only_the_audit_sees_is_asserted,
     "N5 builds for tests assert at each unlock what else the audit tells alone") {
  make_pool();
  idlesched_set_failure_handler(jump_out);
  ids_group_lock(group());
  worker()->given_count++;
  CHECK(unlock_fails());
  CHECK_CONTAINS(failed_expression, "I5 a worker's tickets");
  worker()->given_count--;
  ids_group_unlock(group());
  idlesched_set_failure_handler(NULL);
  idlesched_pool_destroy(pool);
}
#endif
