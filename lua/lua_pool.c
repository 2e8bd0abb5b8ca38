/* SPDX-License-Identifier: MIT */
/*
 * lua_pool.c - the pool object: options, jobs, release, numbers, close.
 */
#include "lua_pool.h"

#include <errno.h>
#include <lauxlib.h>
#include <string.h>

#include "lua_job.h"
#include "lua_report.h"
#include "lua_state.h"
#include "lua_util.h"

#define POOL_TYPE "idlesched.pool"

struct pool {
  struct lids_job_pool jobs; /* first: see lua_job.h */
  struct lids_home *home;    /* outlives the workers */
  uint64_t idle_release_ns;  /* as in the configuration */
};

/* Key in the registry of the table whose weak keys are this state's pools. */
static const char pools_key;

static struct pool *check_pool(lua_State *L) {
  struct pool *self = luaL_checkudata(L, 1, POOL_TYPE);
  luaL_argcheck(L, self->jobs.core != NULL, 1,
                "the pool is gone: it was not made, or its Lua state ends");
  lids_warnings_say(&self->home->warnings, L, self->home->pool_name);
  return self;
}

bool lids_pool_view(lua_State *L, int index, struct lids_pool_view *out) {
  const struct pool *self = luaL_testudata(L, index, POOL_TYPE);
  if (self == NULL || self->jobs.core == NULL)
    return false;
  *out = (struct lids_pool_view){ .core = self->jobs.core,
                                  .name = self->home->pool_name,
                                  .idle_release_ns = self->idle_release_ns };
  return true;
}

void lids_pools_push(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &pools_key);
}

static void open_pools(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &pools_key);
}

/* --------------------------------------------------------------------- new */

static const char *const option_names[] = { "name",      "workers",   "idle_release",
                                            "idle_exit", "dedicated", NULL };

/* package[name] of this state, as a string; pushed. */
static const char *push_search_path(lua_State *L, const char *name) {
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  lua_getfield(L, -1, "package");
  if (lua_istable(L, -1))
    lua_getfield(L, -1, name);
  return lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
}

static struct pool *push_pool(lua_State *L) {
  struct pool *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (struct pool){ 0 };
  luaL_setmetatable(L, POOL_TYPE);
  return self;
}

static unsigned option_workers(lua_State *L) {
  unsigned count = (unsigned)lids_option_integer(L, 1, "workers", 0, 1, LIDS_WORKERS_MOST);
  if (count > 0)
    return count;
  unsigned cpus = idlesched_cpus();
  return cpus < LIDS_WORKERS_MOST ? cpus : LIDS_WORKERS_MOST;
}

int lids_pool_new(lua_State *L) {
  lua_settop(L, 1);
  lids_check_options(L, 1, option_names);
  idlesched_pool_config config = {
    .workers_max = option_workers(L),
    .idle_release_ns = lids_option_duration_ns(L, 1, "idle_release", 100 * IDLESCHED_MS),
    .idle_exit_ns = lids_option_duration_ns(L, 1, "idle_exit", 10 * IDLESCHED_S),
    .name = lids_option_string(L, 1, "name", "pool"),
    .is_dedicated = lids_option_boolean(L, 1, "dedicated", false),
  };
  struct pool *self = push_pool(L);
  int handle = lua_gettop(L);
  const char *path = push_search_path(L, "path");
  const char *cpath = push_search_path(L, "cpath");
  self->home = lids_home_create(config.name, path, cpath);
  if (self->home == NULL)
    return lids_push_status(L, -ENOMEM);
  config.hooks = (idlesched_worker_hooks){ .collect = lids_state_collect,
                                           .stop = lids_state_stop,
                                           .context = self->home };
  int status = idlesched_pool_create(&self->jobs.core, &config);
  if (status != 0)
    return lids_push_status(L, status);
  self->idle_release_ns = config.idle_release_ns;
  lids_pools_push(L);
  lua_pushvalue(L, handle);
  lua_pushboolean(L, true);
  lua_rawset(L, -3);
  lua_pushvalue(L, handle);
  return 1;
}

/* -------------------------------------------------------------------- jobs */

/* pool:submit(fn, ...) -> job | nil, "closed" | nil, message, number */
static int pool_submit(lua_State *L) {
  struct pool *self = check_pool(L);
  return lids_job_submit(L, self->jobs.core, self->home);
}

/* pool:wait(timeout?) -> true | nil, "timeout": until no job is queued or running */
static int pool_wait(lua_State *L) {
  struct pool *self = check_pool(L);
  return lids_push_status(L, idlesched_pool_wait(self->jobs.core, lids_check_timeout_ns(L, 2)));
}

/* pool:start_workers(count?) -> true | nil, message, number: threads ahead of jobs */
static int pool_start_workers(lua_State *L) {
  struct pool *self = check_pool(L);
  lua_Integer count = luaL_optinteger(L, 2, LIDS_WORKERS_MOST);
  if (count < 0 || count > LIDS_WORKERS_MOST)
    luaL_argerror(L, 2,
                  lua_pushfstring(L, "0 to %d workers expected, got %I", LIDS_WORKERS_MOST, count));
  return lids_push_status(L, idlesched_pool_start_workers(self->jobs.core, (unsigned)count));
}

/* ----------------------------------------------------------------- release */

/* pool:release{timeout = 1} -> report: see the types for its fields */
static int pool_release(lua_State *L) {
  static const char *const names[] = { "timeout", NULL };
  struct pool *self = check_pool(L);
  lids_check_options(L, 2, names);
  uint64_t timeout_ns = lids_option_duration_ns(L, 2, "timeout", IDLESCHED_S);
  struct lids_report_begin begin;
  lids_report_begin(L, &begin);

  idlesched_release_report report;
  int status = idlesched_pool_release(self->jobs.core, timeout_ns, &report);
  return lids_report_push(L, &begin, &report, status);
}

/* ----------------------------------------------------------------- numbers */

static void push_worker_numbers(lua_State *L, const idlesched_pool_stats *stats) {
  lua_createtable(L, 0, 9);
  lids_set_integer(L, "max", stats->workers_max);
  lids_set_integer(L, "threads", stats->threads);
  lids_set_integer(L, "active", stats->active);
  lids_set_integer(L, "tickets", stats->tickets);
  lids_set_integer(L, "starting", stats->starting);
  lids_set_integer(L, "running", stats->running);
  lids_set_integer(L, "parked", stats->parked);
  lids_set_integer(L, "releasing", stats->releasing);
  lids_set_integer(L, "exiting", stats->exiting);
}

static void push_job_numbers(lua_State *L, const idlesched_pool_stats *stats) {
  lua_createtable(L, 0, 6);
  lids_set_integer(L, "queued", stats->jobs_queued);
  lids_set_integer(L, "running", stats->jobs_running);
  lids_set_integer(L, "submitted", stats->jobs_submitted);
  lids_set_integer(L, "done", stats->jobs_done);
  lids_set_integer(L, "failed", stats->jobs_failed);
  lids_set_integer(L, "cancelled", stats->jobs_cancelled);
}

/* pool:stats() -> one consistent snapshot: see the types for its fields */
static int pool_stats(lua_State *L) {
  struct pool *self = check_pool(L);
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(self->jobs.core, &stats);
  lua_createtable(L, 0, 12);
  push_worker_numbers(L, &stats);
  lua_setfield(L, -2, "workers");
  push_job_numbers(L, &stats);
  lua_setfield(L, -2, "jobs");
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

/* pool:workers() -> list of { index, state, live, dead, released } */
static int pool_workers(lua_State *L) {
  struct pool *self = check_pool(L);
  unsigned count = idlesched_pool_workers_read(self->jobs.core, NULL, 0);
  idlesched_worker_row *rows = lua_newuserdatauv(L, count * sizeof *rows, 0);
  idlesched_pool_workers_read(self->jobs.core, rows, count);
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

/* pool:active() -> workers that run, or have been told to run */
static int pool_active(lua_State *L) {
  struct pool *self = check_pool(L);
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(self->jobs.core, &stats);
  lua_pushinteger(L, stats.active);
  return 1;
}

/* pool:audit() -> true | false, findings: whether the book-keeping adds up */
static int pool_audit(lua_State *L) {
  struct pool *self = check_pool(L);
  idlesched_audit audit;
  unsigned broken_count = idlesched_pool_audit(self->jobs.core, &audit);
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

static int pool_tostring(lua_State *L) {
  struct pool *self = check_pool(L);
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(self->jobs.core, &stats);
  lua_pushfstring(L, "idlesched.pool: %s (%d of %d workers have a thread, %d active, %I queued)",
                  self->home->pool_name, (int)stats.threads, (int)stats.workers_max,
                  (int)stats.active, (lua_Integer)stats.jobs_queued);
  return 1;
}

/* ------------------------------------------------------------------- close */

static unsigned count_threads(idlesched_pool *core) {
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(core, &stats);
  return stats.threads;
}

/* pool:close{mode = "drain" | "cancel", timeout = 2} -> true | nil, "timeout" */
static int pool_close(lua_State *L) {
  static const char *const names[] = { "mode", "timeout", NULL };
  struct pool *self = luaL_checkudata(L, 1, POOL_TYPE);
  lids_check_options(L, 2, names);
  if (self->jobs.core == NULL) /* collected with its Lua state: closed, and more */
    return lids_push_status(L, 0);
  const char *mode = lids_option_string(L, 2, "mode", "drain");
  bool drains = strcmp(mode, "drain") == 0;
  if (!drains && strcmp(mode, "cancel") != 0)
    luaL_argerror(
      L, 2, lua_pushfstring(L, "option 'mode': 'drain' or 'cancel' expected, got '%s'", mode));
  uint64_t timeout_ns = lids_option_duration_ns(L, 2, "timeout", 2 * IDLESCHED_S);
  int status = idlesched_pool_close(
    self->jobs.core, drains ? IDLESCHED_CLOSE_DRAIN : IDLESCHED_CLOSE_CANCEL, timeout_ns, NULL);
  lids_warnings_say(&self->home->warnings, L, self->home->pool_name);
  return lids_push_status(L, status);
}

/* The end of a <close> variable: what is queued is dropped, 2 s for what runs. */
static int pool_leave_scope(lua_State *L) {
  struct pool *self = check_pool(L);
  (void)idlesched_pool_close(self->jobs.core, IDLESCHED_CLOSE_CANCEL, 2 * IDLESCHED_S, NULL);
  lids_warnings_say(&self->home->warnings, L, self->home->pool_name);
  return 0;
}

/*
 * Never raises, and blocks for as long as a job runs, at most 2.1 s.  Where a
 * thread had to be left behind, what it uses is left to it.
 */
static int pool_gc(lua_State *L) {
  struct pool *self = luaL_checkudata(L, 1, POOL_TYPE);
  idlesched_pool *core = self->jobs.core;
  if (core != NULL)
    (void)idlesched_pool_close(core, IDLESCHED_CLOSE_CANCEL, 2 * IDLESCHED_S, NULL);
  bool is_left_behind = core != NULL && count_threads(core) > 0;
  self->jobs.core = NULL;
  idlesched_pool_destroy(core);
  if (self->home != NULL)
    lids_warnings_say(&self->home->warnings, L, self->home->pool_name);
  if (is_left_behind)
    return 0;
  lids_home_destroy(self->home);
  self->home = NULL;
  return 0;
}

static const luaL_Reg methods[] = {
  { "submit", pool_submit },
  { "wait", pool_wait },
  { "start_workers", pool_start_workers },
  { "release", pool_release },
  { "stats", pool_stats },
  { "active", pool_active },
  { "workers", pool_workers },
  { "audit", pool_audit },
  { "close", pool_close },
  { NULL, NULL },
};

static const luaL_Reg metamethods[] = {
  { "__gc", pool_gc },
  { "__close", pool_leave_scope },
  { "__tostring", pool_tostring },
  { NULL, NULL },
};

void lids_pool_open(lua_State *L) {
  lids_class(L, POOL_TYPE, methods, metamethods);
  open_pools(L);
}
