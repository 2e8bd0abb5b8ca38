/* SPDX-License-Identifier: MIT */
/*
 * test_sim_on_release.c - a host that frees caches of its own when memory is about to be given
 * back: told once by each pass and by each release that visits its pool, before the purge.
 */
#include "heap.h"
#include "pool_sim.h"

/* What it was told, and what it freed then, into the heap of the thread that told it. */
static struct {
  idlesched_pool *pool;
  unsigned calls_count, passes_count;
  unsigned mark;
} host;

static void free_caches(void *context) {
  SIM_CHECK(context == &host);
  SIM_CHECK(!ids_mutex_is_mine(&host.pool->group.lock));
  host.calls_count++;
  host.passes_count += idlesched_worker_current() != NULL;
  host.mark = sim_heap_free(ids_heap_own());
}

static void open_pool(uint64_t idle_release_ns) {
  host.calls_count = host.passes_count = 0;
  host.pool = SIM_POOL(.workers_max = 2, .idle_release_ns = idle_release_ns,
                       .on_release = free_caches, .hooks = { .context = &host });
}

/* To the last thread, so that no pass is half made. */
static void close_and_count(unsigned releases_count) {
  SIM_CHECK_EQUAL(idlesched_pool_close(host.pool, IDLESCHED_CLOSE_DRAIN, IDLESCHED_NEVER, NULL), 0);
  SIM_CHECK_EQUAL(host.passes_count, sim_stats(host.pool).passes);
  SIM_CHECK_EQUAL(host.calls_count, host.passes_count + releases_count);
  sim_pool_finish(host.pool);
}

/* ------------------------------------------------------------------ passes */

static void each_pass(void *context) {
  (void)context;
  open_pool(100 * IDS_MS);
  sim_must_submit(host.pool, 0);
  sim_must_submit(host.pool, 1);
  sim_sleep_ns(99 * IDS_MS);
  SIM_CHECK_EQUAL(host.calls_count, 0);
  sim_sleep_ns(52 * IDS_MS); /* the window, at most */
  SIM_CHECK_EQUAL(host.calls_count, 1);
  SIM_CHECK(sim_heap_is_returned(host.mark));
  sim_sleep_ns(IDS_S); /* the later pass */
  SIM_CHECK_EQUAL(host.calls_count, 2);
  SIM_CHECK(sim_heap_is_returned(host.mark));
  sim_sleep_ns(5 * IDS_S);
  SIM_CHECK_EQUAL(host.calls_count, 2);
  close_and_count(0);
}

SPEC(by_each_pass, "on_release: once by each pass, and what it frees is back with that purge") {
  struct sim_plan plan = { .name = "on_release, passes", .scenario = each_pass, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ---------------------------------------------------------------- releases */

static void each_release(void *context) {
  (void)context;
  open_pool(IDLESCHED_NEVER);
  idlesched_pool *others = NULL;
  SIM_CHECK_EQUAL(idlesched_pool_create(&others, &(idlesched_pool_config){ .workers_max = 1 }), 0);
  idlesched_pool *pools[] = { others, host.pool, host.pool };
  SIM_CHECK_EQUAL(idlesched_pool_release(host.pool, IDLESCHED_NEVER, NULL), 0);
  SIM_CHECK_EQUAL(host.calls_count, 1);
  SIM_CHECK(sim_heap_is_returned(host.mark));
  SIM_CHECK_EQUAL(idlesched_release(IDLESCHED_NEVER, NULL), 0);
  SIM_CHECK_EQUAL(host.calls_count, 2);
  SIM_CHECK_EQUAL(idlesched_release_pools(pools, 3, IDLESCHED_NEVER, NULL), 0);
  SIM_CHECK_EQUAL(host.calls_count, 3); /* named twice, told once */
  SIM_CHECK(sim_heap_is_returned(host.mark));

  SIM_CHECK_EQUAL(idlesched_release_pools(pools, 1, IDLESCHED_NEVER, NULL), 0);
  idlesched_purge_all(NULL);
  idlesched_pool_freed(host.pool);
  SIM_CHECK_EQUAL(host.calls_count, 3); /* these visit others, or nobody */
  idlesched_pool_destroy(others);
  close_and_count(3);
}

SPEC(by_each_release,
     "on_release: once by each release that visits the pool, alone, in a list or among all; not "
     "by one of other pools, nor by a mere purge") {
  struct sim_plan plan = { .name = "on_release, releases", .scenario = each_release, .bound = 1 };
  sim_spec_exhaust(&plan);
}

/* ------------------------------------------------------- beside everything else */

static void submit_later(void *context) {
  unsigned i = (unsigned)(uintptr_t)context;
  sim_must_submit(host.pool, i);
  sim_sleep_ns(105 * IDS_MS);
  sim_must_submit(host.pool, i + 1);
}

static void release_twice(void *context) {
  (void)context;
  (void)idlesched_pool_release(host.pool, IDS_MS, NULL);
  sim_sleep_ns(100 * IDS_MS);
  (void)idlesched_release(IDS_MS, NULL);
}

static void busy_host(void *context) {
  (void)context;
  struct sim_client clients[3];
  open_pool(100 * IDS_MS);
  sim_jobs_take(2 * IDS_MS);
  sim_client_start(&clients[0], submit_later, (void *)(uintptr_t)0);
  sim_client_start(&clients[1], submit_later, (void *)(uintptr_t)2);
  sim_client_start(&clients[2], release_twice, NULL);
  for (unsigned i = 0; i < 3; i++)
    sim_client_join(&clients[i]);
  sim_sleep_ns(200 * IDS_MS);
  close_and_count(2);
}

SPEC(as_often_as_there_are_passes,
     "on_release: as often as there were passes and releases, whatever meets") {
  struct sim_plan plan = { .name = "on_release, busy", .scenario = busy_host };
  sim_pool_samples(&plan, 200000);
}
