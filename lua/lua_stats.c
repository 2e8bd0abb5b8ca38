/* SPDX-License-Identifier: MIT */
/*
 * lua_stats.c - see lua_stats.h.
 */
#include "lua_stats.h"

#include "lua_util.h"

static void push_worker_numbers(lua_State *L, const idlesched_pool_stats *stats) {
  lua_createtable(L, 0, 11);
  lids_set_integer(L, "max", stats->workers_max);
  lids_set_integer(L, "threads", stats->threads);
  lids_set_integer(L, "active", stats->active);
  lids_set_integer(L, "tickets", stats->tickets);
  lids_set_integer(L, "starting", stats->starting);
  lids_set_integer(L, "running", stats->running);
  lids_set_integer(L, "parked", stats->parked);
  lids_set_integer(L, "releasing", stats->releasing);
  lids_set_integer(L, "exiting", stats->exiting);
  lids_set_integer(L, "blocking", stats->blocking);
  lids_set_integer(L, "min", stats->workers_min);
}

static void push_job_numbers(lua_State *L, const idlesched_pool_stats *stats) {
  lua_createtable(L, 0, 7);
  lids_set_integer(L, "queued", stats->jobs_queued);
  lids_set_integer(L, "delayed", stats->jobs_delayed);
  lids_set_integer(L, "running", stats->jobs_running);
  lids_set_integer(L, "submitted", stats->jobs_submitted);
  lids_set_integer(L, "done", stats->jobs_done);
  lids_set_integer(L, "failed", stats->jobs_failed);
  lids_set_integer(L, "cancelled", stats->jobs_cancelled);
}

int lids_stats_push(lua_State *L, idlesched_pool *pool) {
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool, &stats);
  lua_createtable(L, 0, 12);
  push_worker_numbers(L, &stats);
  lua_setfield(L, -2, "workers");
  push_job_numbers(L, &stats);
  lua_setfield(L, -2, "jobs");
  lua_pushboolean(L, stats.is_paused);
  lua_setfield(L, -2, "paused");
  lids_set_integer(L, "wakes", stats.wakes);
  lids_set_integer(L, "polls", stats.polls);
  lids_set_integer(L, "starts", stats.starts);
  lids_set_integer(L, "starts_refused", stats.starts_refused);
  lids_set_integer(L, "releases", stats.releases);
  lids_set_integer(L, "exits", stats.exits);
  lids_set_integer(L, "retires", stats.retires);
  lids_set_integer(L, "tickets_lost", stats.tickets_lost);
  lids_set_integer(L, "passes", stats.passes);
  lids_set_integer(L, "purges", stats.purges);
  return 1;
}

static const char *const worker_state_names[] = {
  [IDLESCHED_WORKER_ABSENT] = "absent",       [IDLESCHED_WORKER_STARTING] = "starting",
  [IDLESCHED_WORKER_RUNNING] = "running",     [IDLESCHED_WORKER_PARKED] = "parked",
  [IDLESCHED_WORKER_RELEASING] = "releasing", [IDLESCHED_WORKER_EXITING] = "exiting",
};

int lids_stats_push_workers(lua_State *L, idlesched_pool *pool) {
  unsigned count = idlesched_pool_workers_read(pool, NULL, 0);
  idlesched_worker_row *rows = lua_newuserdatauv(L, count * sizeof *rows, 0);
  idlesched_pool_workers_read(pool, rows, count);
  lua_createtable(L, (int)count, 0);
  for (unsigned i = 0; i < count; i++) {
    lua_createtable(L, 0, 5);
    lids_set_integer(L, "index", rows[i].index + 1);
    lua_pushstring(L, worker_state_names[rows[i].state]);
    lua_setfield(L, -2, "state");
    lids_set_integer(L, "live", rows[i].live_bytes);
    lids_set_integer(L, "dead", rows[i].dead_bytes);
    lua_pushboolean(L, rows[i].has_released);
    lua_setfield(L, -2, "released");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

int lids_stats_push_active(lua_State *L, idlesched_pool *pool) {
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool, &stats);
  lua_pushinteger(L, stats.active);
  return 1;
}

int lids_stats_push_audit(lua_State *L, idlesched_pool *pool) {
  idlesched_audit audit;
  unsigned broken_count = idlesched_pool_audit(pool, &audit);
  lua_pushboolean(L, broken_count == 0);
  if (broken_count == 0)
    return 1;
  unsigned told_count = broken_count < IDLESCHED_FINDINGS_MAX ? broken_count
                                                              : IDLESCHED_FINDINGS_MAX;
  lua_createtable(L, (int)told_count, 0);
  for (unsigned i = 0; i < told_count; i++) {
    lua_createtable(L, 0, 3);
    lua_pushstring(L, audit.findings[i].rule);
    lua_setfield(L, -2, "rule");
    lids_set_integer(L, "left", audit.findings[i].left);
    lids_set_integer(L, "right", audit.findings[i].right);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 2;
}
