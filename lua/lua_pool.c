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
#include "lua_run.h"
#include "lua_state.h"
#include "lua_stats.h"
#include "lua_util.h"

#define POOL_TYPE "idlesched.pool"

struct pool {
  struct lids_job_pool jobs; /* first: see lua_job.h */
  struct lids_home *home;    /* outlives the workers */
  uint64_t idle_release_ns;  /* as in the configuration */
  bool is_borrowed;          /* of the job that runs here: others made it, and close it */
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

static const char *const option_names[] = {
  "name",         "workers",     "min_workers",   "idle_release", "idle_exit", "dedicated",
  "max_blocking", "queue_limit", "queue_timeout", "stack_size",   "on_start",  "on_stop",
  "on_release",   NULL,
};

#define STACK_LEAST (64 * 1024)
#define STACK_MOST (1024 * 1024 * 1024)
#define STACK_USUAL (1024 * 1024)

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

/* 0 in Lua means none, which in a C configuration it does not; not set it is 0. */
static unsigned option_workers(lua_State *L, const char *name) {
  lua_Integer count = lids_option_integer(L, 1, name, -1, 0, LIDS_WORKERS_MOST);
  if (count >= 0)
    return count == 0 ? IDLESCHED_NO_WORKERS : (unsigned)count;
  return 0;
}

static unsigned workers_by_default(void) {
  unsigned cpus = idlesched_cpus();
  return cpus < LIDS_WORKERS_MOST ? cpus : LIDS_WORKERS_MOST;
}

static idlesched_pool_config check_config(lua_State *L) {
  idlesched_pool_config config = {
    .workers_max = option_workers(L, "workers"),
    .workers_min = (unsigned)lids_option_integer(L, 1, "min_workers", 0, 0, LIDS_WORKERS_MOST),
    .queue_max = (uint64_t)lids_option_integer(L, 1, "queue_limit", 0, 1, LUA_MAXINTEGER),
    .queue_timeout_ns = lids_option_duration_ns(L, 1, "queue_timeout", 0),
    .stack_size = (size_t)lids_option_integer(L, 1, "stack_size", STACK_USUAL, STACK_LEAST,
                                              STACK_MOST),
    .idle_release_ns = lids_option_duration_ns(L, 1, "idle_release", 100 * IDLESCHED_MS),
    .idle_exit_ns = lids_option_duration_ns(L, 1, "idle_exit", 10 * IDLESCHED_S),
    .name = lids_option_string(L, 1, "name", "pool"),
    .is_dedicated = lids_option_boolean(L, 1, "dedicated", false),
  };
  if (config.workers_max == 0)
    config.workers_max = workers_by_default();
  bool has_workers = config.workers_max != IDLESCHED_NO_WORKERS;
  unsigned most = has_workers ? config.workers_max : 0;
  if (config.workers_min > most)
    luaL_argerror(L, 1,
                  lua_pushfstring(L,
                                  "option 'min_workers': no more than the %d of 'workers' "
                                  "expected, got %d",
                                  (int)most, (int)config.workers_min));
  config.blocking_max = has_workers ? option_workers(L, "max_blocking") : IDLESCHED_NO_WORKERS;
  return config;
}

static const char *start_label(lua_State *L, int position) {
  (void)position;
  return lua_pushliteral(L, "option 'on_start'");
}

static const char *stop_label(lua_State *L, int position) {
  (void)position;
  return lua_pushliteral(L, "option 'on_stop'");
}

static const char *release_label(lua_State *L, int position) {
  (void)position;
  return lua_pushliteral(L, "option 'on_release'");
}

/* The function of an option, packed for the workers; NULL when it is not set. */
static struct lids_message *check_callback(lua_State *L, const char *name,
                                           const char *(*label)(lua_State *L, int position)) {
  struct lids_message *message = NULL;
  if (!lua_istable(L, 1) || lua_getfield(L, 1, name) == LUA_TNIL)
    return NULL;
  if (!lua_isfunction(L, -1))
    luaL_argerror(
      L, 1,
      lua_pushfstring(L, "option '%s': a function expected, got %s", name, luaL_typename(L, -1)));
  message = lids_run_pack(L, lua_gettop(L), label);
  lua_pop(L, 1);
  return message;
}

/* Each may raise, and then the pool object frees what is there already. */
static void check_callbacks(lua_State *L, struct lids_home *home) {
  home->on_start = check_callback(L, "on_start", start_label);
  home->on_stop = check_callback(L, "on_stop", stop_label);
  home->on_release = check_callback(L, "on_release", release_label);
}

int lids_pool_new(lua_State *L) {
  lua_settop(L, 1);
  lids_check_options(L, 1, option_names);
  idlesched_pool_config config = check_config(L);
  struct pool *self = push_pool(L);
  int handle = lua_gettop(L);
  const char *path = push_search_path(L, "path");
  const char *cpath = push_search_path(L, "cpath");
  self->home = lids_home_create(config.name, path, cpath);
  if (self->home == NULL)
    return lids_push_status(L, -ENOMEM);
  self->home->stack_size = config.stack_size;
  check_callbacks(L, self->home);
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

/* The pool outlives its workers' states, and with them this object. */
int lids_pool_current(lua_State *L) {
  struct lids_state *state = lids_state_of_lua(L);
  if (state == NULL || lids_state_job(state) == NULL) {
    luaL_pushfail(L);
    return 1;
  }
  struct pool *self = push_pool(L);
  self->is_borrowed = true;
  self->home = lids_state_home(state);
  self->jobs.core = idlesched_worker_pool(idlesched_worker_current());
  return 1;
}

/* -------------------------------------------------------------------- jobs */

/* pool:submit(fn, ...) -> job | nil, "closed" | "full" | nil, message, number */
static int pool_submit(lua_State *L) {
  static const struct lids_job_options usual = { 0 };
  struct pool *self = check_pool(L);
  return lids_job_submit(L, 2, self->jobs.core, self->home, &usual);
}

/* pool:submit_with({ priority =, delay =, expire =, token = }, fn, ...) -> as submit, or
 * nil, "cancelled" */
static int pool_submit_with(lua_State *L) {
  struct pool *self = check_pool(L);
  struct lids_job_options options;
  lids_job_check_options(L, 2, &options);
  return lids_job_submit(L, 3, self->jobs.core, self->home, &options);
}

/* pool:pause(); pool:resume() -> true | nil, message, number */
static int pool_pause(lua_State *L) {
  idlesched_pool_pause(check_pool(L)->jobs.core);
  return 0;
}

static int pool_resume(lua_State *L) {
  return lids_push_status(L, idlesched_pool_resume(check_pool(L)->jobs.core));
}

/* pool:resize(workers, min_workers = 0) -> true | nil, "closed" | nil, message, number */
static int pool_resize(lua_State *L) {
  struct pool *self = check_pool(L);
  lua_Integer workers = luaL_checkinteger(L, 2);
  lua_Integer min_workers = luaL_optinteger(L, 3, 0);
  if (workers < 1 || workers > LIDS_WORKERS_MOST)
    luaL_argerror(
      L, 2, lua_pushfstring(L, "1 to %d workers expected, got %I", LIDS_WORKERS_MOST, workers));
  if (min_workers < 0 || min_workers > workers)
    luaL_argerror(
      L, 3, lua_pushfstring(L, "0 to %I workers to keep expected, got %I", workers, min_workers));
  return lids_push_status(
    L, idlesched_pool_resize(self->jobs.core, (unsigned)workers, (unsigned)min_workers));
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

/* pool:stats() -> one consistent snapshot: see the types for its fields */
static int pool_stats(lua_State *L) {
  return lids_stats_push(L, check_pool(L)->jobs.core);
}

/* pool:workers() -> list of { index, state, live, dead, released, ... } */
static int pool_workers(lua_State *L) {
  return lids_stats_push_workers(L, check_pool(L)->jobs.core);
}

/* pool:active() -> workers that run, or have been told to run */
static int pool_active(lua_State *L) {
  return lids_stats_push_active(L, check_pool(L)->jobs.core);
}

/* pool:audit() -> true | false, findings: whether the book-keeping adds up */
static int pool_audit(lua_State *L) {
  return lids_stats_push_audit(L, check_pool(L)->jobs.core);
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
  if (self->is_borrowed) {
    self->jobs.core = NULL;
    return 0;
  }
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
  { "submit_with", pool_submit_with },
  { "pause", pool_pause },
  { "resume", pool_resume },
  { "resize", pool_resize },
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
