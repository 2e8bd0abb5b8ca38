/* SPDX-License-Identifier: MIT */
/*
 * pool_kit.c - see pool_kit.h.
 */
#include "pool_kit.h"

idlesched_pool *pool_new(const idlesched_pool_config *config) {
  idlesched_pool *pool = NULL;
  REQUIRE_EQ_INT(idlesched_pool_create(&pool, config), 0);
  return pool;
}

idlesched_pool_stats stats_of(idlesched_pool *pool) {
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool, &stats);
  return stats;
}

struct ids_worker worker_of(idlesched_pool *pool, unsigned index) {
  ids_group_lock(&pool->group);
  struct ids_worker copy = *pool->group.workers[index];
  ids_group_unlock(&pool->group);
  return copy;
}

void wake_for_nothing(idlesched_pool *pool, unsigned index) {
  ids_cond_signal(&pool->group.workers[index]->wake);
}

void give_data(idlesched_worker *worker, void *context) {
  static char something;
  (void)context;
  idlesched_worker_set_data(worker, &something);
}

bool collect_nothing(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  return false;
}

void check_stats_add_up(idlesched_pool *pool) {
  idlesched_pool_stats now = stats_of(pool);
  CHECK_EQ_INT(now.active, now.running + now.tickets);
  CHECK_EQ_INT(now.threads, now.starting + now.running + now.parked + now.releasing + now.exiting);
  CHECK_LE_INT(now.threads, pool->group.slots_count);
  CHECK_EQ_U64(now.jobs_submitted, now.jobs_queued + now.jobs_running + now.jobs_done +
                                     now.jobs_failed + now.jobs_cancelled);
}

void check_tickets_add_up(idlesched_pool *pool) {
  check_stats_add_up(pool);
  /* A pool is idle a moment before its last worker has found that out. */
  WAIT_UNTIL(stats_of(pool).active == 0, SOON_MS);
  idlesched_pool_stats now = stats_of(pool);
  CHECK_EQ_U64(now.wakes, now.polls + now.tickets_lost);
}

/* ------------------------------------------------------------------- doors */

void door_pass(void *context) {
  struct door *self = context;
  pthread_mutex_lock(&self->lock);
  self->inside_count++;
  while (!self->is_open)
    pthread_cond_wait(&self->opened, &self->lock);
  self->inside_count--;
  pthread_mutex_unlock(&self->lock);
}

int door_pass_job(idlesched_job *job, idlesched_worker *worker) {
  (void)worker;
  door_pass(job->context);
  return 0;
}

void door_open(struct door *self) {
  pthread_mutex_lock(&self->lock);
  self->is_open = true;
  pthread_cond_broadcast(&self->opened);
  pthread_mutex_unlock(&self->lock);
}

unsigned door_inside_count(struct door *self) {
  pthread_mutex_lock(&self->lock);
  unsigned count = self->inside_count;
  pthread_mutex_unlock(&self->lock);
  return count;
}

void keep_busy(idlesched_pool *pool, struct door *door, unsigned workers_count) {
  unsigned wanted = door_inside_count(door) + workers_count;
  for (unsigned i = 0; i < workers_count; i++)
    REQUIRE_EQ_INT(idlesched_pool_submit(pool, door_pass, door), 0);
  WAIT_UNTIL(door_inside_count(door) == wanted, SOON_MS);
}

/* -------------------------------------------------------------------- jobs */

void count_up(void *count) {
  atomic_fetch_add_explicit((_Atomic unsigned *)count, 1, memory_order_relaxed);
}

void note_time_ns(void *time_ns) {
  atomic_store((_Atomic uint64_t *)time_ns, spec_now_ns());
}

void run_one_job(idlesched_pool *pool) {
  _Atomic unsigned count = 0;
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, count_up, &count), 0);
  REQUIRE_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(count, 1);
}

/* ----------------------------------------------------------------- threads */

pthread_t thread_run(void *(*main)(void *context), void *context) {
  pthread_t thread;
  REQUIRE_EQ_INT(pthread_create(&thread, NULL, main, context), 0);
  return thread;
}

void *thread_result(pthread_t thread) {
  void *result = NULL;
  REQUIRE_EQ_INT(pthread_join(thread, &result), 0);
  return result;
}
