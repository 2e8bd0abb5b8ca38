/* SPDX-License-Identifier: MIT */
/*
 * lua_module.c - the module table.
 */
#include "lua_module.h"

#include <errno.h>
#include <lauxlib.h>
#include <string.h>

#include "idlesched.h"
#include "lua_error.h"
#include "lua_explain.h"
#include "lua_guard.h"
#include "lua_job.h"
#include "lua_pool.h"
#include "lua_pressure.h"
#include "lua_process.h"
#include "lua_release.h"
#include "lua_report.h"
#include "lua_state.h"
#include "lua_token.h"
#include "lua_util.h"
#include "lua_value.h"

/* idlesched.cpus() -> CPUs this process may use */
static int module_cpus(lua_State *L) {
  lua_pushinteger(L, idlesched_cpus());
  return 1;
}

/* idlesched.now() -> seconds on a monotonic clock */
static int module_now(lua_State *L) {
  lua_pushnumber(L, lids_seconds(idlesched_now_ns()));
  return 1;
}

/* idlesched.sleep(seconds): block the calling thread */
static int module_sleep(lua_State *L) {
  luaL_checknumber(L, 1);
  idlesched_sleep(lids_check_timeout_ns(L, 1));
  return 0;
}

/* idlesched.thread_idle(): release what the calling thread's heap has cached */
static int module_thread_idle(lua_State *L) {
  (void)L;
  idlesched_thread_idle();
  return 0;
}

/* idlesched.retire(): in a job, its worker takes no further one */
static int module_retire(lua_State *L) {
  idlesched_worker *worker = idlesched_worker_current();
  if (worker == NULL)
    return luaL_error(L, "retire() is for jobs: this thread is no worker");
  idlesched_worker_retire(worker);
  return 0;
}

/* idlesched.cancelled() -> whether the job that runs here was asked to stop */
static int module_cancelled(lua_State *L) {
  struct lids_state *state = lids_state_of_lua(L);
  const idlesched_job *job = state == NULL ? NULL : lids_state_job(state);
  lua_pushboolean(L, job != NULL && idlesched_job_is_cancelled(job));
  return 1;
}

#define BLOCKING_TYPE "idlesched.blocking"

static int blocking_end(lua_State *L) {
  struct lids_state *state = lids_state_of_lua(L);
  if (state != NULL)
    lids_state_end_blocking(state);
  return 0;
}

/* idlesched.blocking(fn, ...) -> what fn(...) returns */
static int module_blocking(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  struct lids_state *state = lids_state_of_lua(L);
  lua_newuserdatauv(L, 0, 0);
  luaL_setmetatable(L, BLOCKING_TYPE);
  lua_insert(L, 1);
  lua_toclose(L, 1); /* also when it raises */
  if (state != NULL)
    lids_state_begin_blocking(state);
  lua_call(L, lua_gettop(L) - 2, LUA_MULTRET);
  return lua_gettop(L) - 1;
}

/* idlesched.is_error(value) -> whether it is an error object of this module */
static int module_is_error(lua_State *L) {
  luaL_checkany(L, 1);
  lua_pushboolean(L, lids_error_is(L, 1));
  return 1;
}

/* idlesched.huge_pages([mode]) -> "keep" or "off", as it is now, or nil, message, number */
static int module_huge_pages(lua_State *L) {
  const char *mode = luaL_optstring(L, 1, NULL);
  if (mode != NULL && strcmp(mode, "keep") != 0)
    return luaL_error(L, "huge_pages takes 'keep' or nothing, got '%s'; they are off until then",
                      mode);
  int status = mode == NULL ? 0 : idlesched_keep_huge_pages();
  if (status == -EPERM) {
    luaL_pushfail(L);
    lua_pushliteral(L, "the user has set that there are none: MIMALLOC_ALLOW_THP=0");
    lua_pushinteger(L, EPERM);
    return 3;
  }
  if (status != 0)
    return lids_push_status(L, status);
  lua_pushstring(L, idlesched_keeps_huge_pages() ? "keep" : "off");
  return 1;
}

/* idlesched.allocator() -> name and version of the allocator, "mimalloc 3.6.0" */
static int module_allocator(lua_State *L) {
  lua_pushstring(L, idlesched_allocator());
  return 1;
}

static const luaL_Reg functions[] = {
  { "pool", lids_pool_new },
  { "current_pool", lids_pool_current },
  { "token", lids_token_new },
  { "wait_all", lids_job_wait_all },
  { "cancelled", module_cancelled },
  { "blocking", module_blocking },
  { "release", lids_release },
  { "purge_all", lids_purge_all },
  { "explain", lids_explain },
  { "eager_purge", lids_guard_eager_purge },
  { "option", lids_guard_option },
  { "options", lids_guard_options },
  { "watch_pressure", lids_pressure_watch },
  { "thread_idle", module_thread_idle },
  { "retire", module_retire },
  { "memory", lids_process_memory },
  { "huge_pages", module_huge_pages },
  { "cpus", module_cpus },
  { "now", module_now },
  { "sleep", module_sleep },
  { "is_error", module_is_error },
  { "allocator", module_allocator },
  { NULL, NULL },
};

static const luaL_Reg no_methods[] = { { NULL, NULL } };
static const luaL_Reg blocking_metamethods[] = { { "__close", blocking_end }, { NULL, NULL } };

IDLESCHED_API int luaopen_idlesched(lua_State *L) {
  luaL_checkversion(L);
  idlesched_process_defaults();
  lids_error_open(L);
  lids_value_open(L);
  lids_pool_open(L);
  lids_job_open(L);
  lids_token_open(L);
  lids_guard_open(L);
  lids_pressure_open(L);
  lids_process_open(L);
  lids_report_open(L);
  lids_class(L, BLOCKING_TYPE, no_methods, blocking_metamethods);
  luaL_newlib(L, functions);
  lua_pushliteral(L, "idlesched " IDLESCHED_VERSION_STRING);
  lua_setfield(L, -2, "_VERSION");
  return 1;
}
