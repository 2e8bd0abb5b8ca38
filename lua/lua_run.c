/* SPDX-License-Identifier: MIT */
/*
 * lua_run.c - see lua_run.h.
 */
#include "lua_run.h"

#include <errno.h>
#include <lauxlib.h>

#include "lua_error.h"
#include "lua_value.h"

void lids_run_clear(struct lids_run *self) {
  lids_message_free(self->input);
  lids_message_free(self->output);
  idlesched_free(self->start_failure);
  self->input = NULL;
  self->output = NULL;
  self->start_failure = NULL;
}

/* --------------------------------------------------------------- at the sender */

typedef const char *label_function(lua_State *L, int position);

/* Protected: where the message goes to, how values are called, and the values. */
static int pack(lua_State *L) {
  struct lids_message **out = lua_touserdata(L, 1);
  label_function *const *label = lua_touserdata(L, 2);
  *out = lids_value_pack(L, 3, *label);
  return 0;
}

struct lids_message *lids_run_pack(lua_State *L, int first,
                                   const char *(*label)(lua_State *L, int position)) {
  struct lids_message *message = NULL;
  int top = lua_gettop(L);
  luaL_checkstack(L, top + 3, "too many arguments");
  lua_pushcfunction(L, pack);
  lua_pushlightuserdata(L, &message);
  lua_pushlightuserdata(L, &label);
  for (int i = first; i <= top; i++)
    lua_pushvalue(L, i);
  int status = lua_pcall(L, top - first + 3, 0, 0);
  if (status == LUA_OK)
    return message;
  if (status == LUA_ERRRUN) {
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
  }
  lids_error_from_message(L, status == LUA_ERRMEM ? "memory" : "transfer");
  lua_error(L);
  return NULL;
}

/* ---------------------------------------------------------------- on the worker */

static const char *result_label(lua_State *L, int position) {
  return lua_pushfstring(L, "result %d", position);
}

/* Unpack, call, pack.  The only argument is the run. */
static int run_protected(lua_State *L) {
  struct lids_run *self = lua_touserdata(L, 1);
  lua_settop(L, 0);
  int count = lids_value_unpack_call(L, self->input);
  lids_message_free(self->input);
  self->input = NULL;

  self->phase = LIDS_RUNNING;
  lua_call(L, count - 1, LUA_MULTRET);

  self->phase = LIDS_PACKING;
  self->output = lids_value_pack(L, 1, result_label);
  return 0;
}

static const char *kind_of(enum lids_phase phase) {
  return phase == LIDS_RUNNING ? "error" : "transfer";
}

/* Push the message of the error at 1, a string whatever the error is. */
static void push_message(lua_State *L) {
  if (lua_type(L, 1) == LUA_TSTRING || lua_type(L, 1) == LUA_TNUMBER ||
      luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL) {
    lua_settop(L, 1);
    luaL_tolstring(L, 1, NULL);
  } else {
    lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
  }
}

/* The error object at 1 comes from a job that this job waited for: what it says
 * travels, without what a script may have added to it. */
static int copy_error(lua_State *L) {
  static const char *const names[] = { "kind", "message", "value", "traceback", "worker", "pool" };
  lua_createtable(L, 0, 6);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    lua_pushstring(L, names[i]);
    lua_pushvalue(L, -1);
    lua_rawget(L, 1);
    lua_rawset(L, 2);
  }
  return 1;
}

/* The message handler: describes the error in a table, on the worker's stack. */
static int describe_error(lua_State *L) {
  lua_settop(L, 1);
  if (lids_error_is(L, 1))
    return copy_error(L);
  push_message(L);
  lua_createtable(L, 0, 4);
  lua_pushvalue(L, 2);
  lua_setfield(L, 3, "message");
  luaL_traceback(L, L, NULL, 1);
  lua_setfield(L, 3, "traceback");
  if (lua_type(L, 1) != LUA_TSTRING) {
    lua_pushvalue(L, 1);
    lua_setfield(L, 3, "value");
  }
  return 1;
}

/* Fields of the error that is described in the table on top of the stack. */
static void set_text(lua_State *L, const char *name, const char *text) {
  lua_pushstring(L, text);
  lua_setfield(L, -2, name);
}

static bool has_field(lua_State *L, const char *name) {
  bool result = lua_getfield(L, -1, name) != LUA_TNIL;
  lua_pop(L, 1);
  return result;
}

/* Where it happened; an error that a job passes on says so already. */
static void set_place(lua_State *L, const struct lids_run *self) {
  if (has_field(L, "pool"))
    return;
  set_text(L, "pool", self->home->pool_name);
  lua_pushinteger(L, (lua_Integer)idlesched_worker_index(idlesched_worker_current()) + 1);
  lua_setfield(L, -2, "worker");
}

/* Protected: pack the table at 2 into the run at 1. */
static int pack_error(lua_State *L) {
  struct lids_run *self = lua_touserdata(L, 1);
  self->output = lids_value_pack(L, 2, NULL);
  return 0;
}

static int try_to_pack_error(lua_State *L, struct lids_run *self) {
  lua_pushcfunction(L, pack_error);
  lua_pushlightuserdata(L, self);
  lua_pushvalue(L, -3);
  int status = lua_pcall(L, 2, 0, 0);
  if (status != LUA_OK)
    lua_pop(L, 1);
  return status;
}

/* Protected: the run at 1, what lua_pcall() left at 2, its status at 3.  Packs the error,
 * without its value if that cannot travel. */
static int keep_error(lua_State *L) {
  struct lids_run *self = lua_touserdata(L, 1);
  lua_Integer status = lua_tointeger(L, 3);
  lua_settop(L, 2);
  if (status != LUA_ERRRUN || !lua_istable(L, 2)) {
    /* No handler ran, or it failed itself. */
    const char *message = lua_tostring(L, 2);
    lua_createtable(L, 0, 5);
    set_text(L, "message", message == NULL ? "error in error handling" : message);
    set_text(L, "traceback", "");
    set_text(L, "kind", status == LUA_ERRMEM ? "memory" : kind_of(self->phase));
  } else if (!has_field(L, "kind")) {
    set_text(L, "kind", kind_of(self->phase));
  }
  set_place(L, self);

  if (try_to_pack_error(L, self) == LUA_OK)
    return 0;
  lua_pushnil(L);
  lua_setfield(L, -2, "value");
  lua_pushcfunction(L, pack_error);
  lua_pushlightuserdata(L, self);
  lua_pushvalue(L, -3);
  lua_call(L, 2, 0);
  return 0;
}

static void fail(struct lids_run *self, lua_State *L, int status) {
  lua_pushcfunction(L, keep_error);
  lua_insert(L, -2);
  lua_pushlightuserdata(L, self);
  lua_insert(L, -2);
  lua_pushinteger(L, status);
  int result = lua_pcall(L, 3, 0, 0);
  if (result == LUA_OK)
    return;
  bool is_memory = result == LUA_ERRMEM;
  self->failure_kind = is_memory ? "memory" : kind_of(self->phase);
  self->failure = is_memory ? "not enough memory on the worker to describe the error"
                            : "the error is too large to be described";
}

static int lacks_state(struct lids_run *self) {
  self->failure_kind = "memory";
  self->failure = "not enough memory for the worker's Lua state";
  return -ENOMEM;
}

/* The state is closed: the next job has another try. */
static int lacks_start(struct lids_run *self, idlesched_worker *worker) {
  lids_state_stop(worker, self->home);
  self->failure_kind = "start";
  self->failure = self->start_failure != NULL ? self->start_failure
                                              : "not enough memory for the pool's on_start";
  return -EIO;
}

int lids_run(struct lids_run *self, idlesched_worker *worker, const idlesched_job *job) {
  struct lids_state *state = lids_state_of(worker, self->home);
  if (state == NULL)
    return lacks_state(self);
  if (!lids_state_start(state, &self->start_failure))
    return lacks_start(self, worker);
  const idlesched_job *outer = lids_state_set_job(state, job);
  lua_State *L = lids_state_lua(state);
  lua_settop(L, 0);
  lua_pushcfunction(L, describe_error);
  lua_pushcfunction(L, run_protected);
  lua_pushlightuserdata(L, self);
  int status = lua_pcall(L, 1, 0, 1);
  lua_sethook(L, NULL, 0, 0); /* one that the job has set is not the next job's */
  if (status != LUA_OK)
    fail(self, L, status);
  lua_settop(L, 0); /* nothing of the job stays on the stack */
  lids_state_set_job(state, outer);
  lids_state_tell_memory(state, worker);
  return status == LUA_OK ? 0 : -EIO;
}
