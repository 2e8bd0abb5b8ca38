/* SPDX-License-Identifier: MIT */
/*
 * test_on_release.c - a host's own caches are emptied when memory is about to be given back,
 * on real threads.  (When exactly, and how often: test_sim_on_release.c.)
 */
#include <errno.h>

#include "pool_kit.h"

struct caches {
  _Atomic unsigned calls_count;
  _Atomic(idlesched_worker *) teller; /* the worker that told, or NULL */
  void *block;
};

static void empty(void *context) {
  struct caches *self = context;
  idlesched_free(self->block);
  self->block = NULL;
  self->teller = idlesched_worker_current();
  self->calls_count++;
}

static uint64_t live_bytes(void) {
  idlesched_memory memory;
  (void)idlesched_memory_read(&memory);
  return memory.live_bytes;
}

SPEC(a_release_empties_the_hosts_caches,
     "on_release: a release has the host empty its caches first, on the calling thread") {
  enum { SIZE = 1 << 20 };
  struct caches caches = { .block = idlesched_realloc(NULL, SIZE) };
  idlesched_pool *pool = POOL(.workers_max = 2, .idle_release_ns = IDLESCHED_NEVER,
                              .on_release = empty, .hooks = { .context = &caches });
  uint64_t before = live_bytes();
  CHECK_GE_U64(before, SIZE);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, NULL), 0);
  CHECK_EQ_INT(caches.calls_count, 1);
  CHECK_EQ_PTR(caches.teller, NULL);
  CHECK_LE_U64(live_bytes() + SIZE, before);
  CHECK_EQ_INT(idlesched_release(0, NULL), 0);
  CHECK_EQ_INT(caches.calls_count, 2);
  idlesched_purge_all(NULL);
  CHECK_EQ_INT(caches.calls_count, 2);
  idlesched_pool_destroy(pool);
  CHECK_EQ_INT(caches.calls_count, 2);
}

SPEC(a_pass_empties_the_hosts_caches,
     "on_release: a pass has the host empty its caches, on the worker that makes it") {
  struct caches caches = { .block = idlesched_realloc(NULL, 1000) };
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = 20 * IDLESCHED_MS,
                              .on_release = empty, .hooks = { .context = &caches });
  run_one_job(pool);
  WAIT_UNTIL(stats_of(pool).passes == 1, SOON_MS);
  CHECK_GE_INT(caches.calls_count, 1);
  CHECK_EQ_PTR(caches.teller, pool->group.workers[0]);
  WAIT_UNTIL(caches.calls_count >= 2, SOON_MS); /* the later pass */
  idlesched_pool_destroy(pool);
  CHECK_EQ_PTR(caches.block, NULL);
}

static void release_all(void *out_status) {
  *(int *)out_status = idlesched_release(0, NULL);
}

SPEC(a_release_in_a_job_empties_them_as_well,
     "on_release: a release of all pools from a job tells the job's own pool, too") {
  int status = -1;
  struct caches caches = { .block = NULL };
  idlesched_pool *pool = POOL(.workers_max = 1, .idle_release_ns = IDLESCHED_NEVER,
                              .on_release = empty, .hooks = { .context = &caches });
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, release_all, &status), 0);
  CHECK_EQ_INT(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
  CHECK_EQ_INT(status, 0);
  CHECK_EQ_INT(caches.calls_count, 1);
  CHECK_EQ_PTR(caches.teller, pool->group.workers[0]);
  idlesched_pool_destroy(pool);
}
