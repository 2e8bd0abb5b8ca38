/* SPDX-License-Identifier: MIT */
/*
 * lua_job.c - see lua_job.h.
 */
#include "lua_job.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdatomic.h>

#include "lua_error.h"
#include "lua_util.h"
#include "lua_value.h"

#define JOB_TYPE "idlesched.job"

/* So much freed is worth a pass of the pool's timer. */
#define FREED_BYTES_TOLD ((size_t)1 << 20)

/* What the job was doing when it failed, for the error's kind. */
enum phase { UNPACKING, RUNNING, PACKING };

/*
 *   C  constant once submitted    W  the worker's while the job is under way, then
 *   A  atomic                        of whoever reads the result
 */
struct lids_job {
  idlesched_job core;
  atomic_int references_count; /* A  the handle, and the pool until it has ended */
  struct lids_home *home;      /* C */
  struct lids_message *input;  /* W  function and arguments; gone once they are unpacked */
  struct lids_message *output; /* W  results, or one table that describes the error */
  const char *failure_kind;    /* W  for failure */
  const char *failure;         /* W  the error, when not even a table could be packed */
  enum phase phase;            /* W */
};

/* ------------------------------------------------------------------- life */

static void drop(struct lids_job *self) {
  /* [last] Each holder's writes are visible to the one who frees. */
  if (atomic_fetch_sub_explicit(&self->references_count, 1, memory_order_acq_rel) != 1)
    return;
  lids_message_free(self->input);
  lids_message_free(self->output);
  idlesched_free(self);
}

static void job_done(idlesched_job *core) {
  struct lids_job *self = core->context;
  drop(self);
}

/* -------------------------------------------------------------- on the worker */

static const char *result_label(lua_State *L, int position) {
  return lua_pushfstring(L, "result %d", position);
}

/* Unpack, call, pack.  The only argument is the job. */
static int run_protected(lua_State *L) {
  struct lids_job *self = lua_touserdata(L, 1);
  lua_settop(L, 0);
  int count = lids_value_unpack_call(L, self->input);
  lids_message_free(self->input);
  self->input = NULL;

  self->phase = RUNNING;
  lua_call(L, count - 1, LUA_MULTRET);

  self->phase = PACKING;
  self->output = lids_value_pack(L, 1, result_label);
  return 0;
}

static const char *kind_of(enum phase phase) {
  return phase == RUNNING ? "error" : "transfer";
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
static void set_place(lua_State *L, const struct lids_job *self) {
  if (has_field(L, "pool"))
    return;
  set_text(L, "pool", self->home->pool_name);
  lua_pushinteger(L, (lua_Integer)idlesched_worker_index(idlesched_worker_current()) + 1);
  lua_setfield(L, -2, "worker");
}

/* Protected: pack the table at 2 into the job at 1. */
static int pack_error(lua_State *L) {
  struct lids_job *self = lua_touserdata(L, 1);
  self->output = lids_value_pack(L, 2, NULL);
  return 0;
}

static int try_to_pack_error(lua_State *L, struct lids_job *self) {
  lua_pushcfunction(L, pack_error);
  lua_pushlightuserdata(L, self);
  lua_pushvalue(L, -3);
  int status = lua_pcall(L, 2, 0, 0);
  if (status != LUA_OK)
    lua_pop(L, 1);
  return status;
}

/* Protected: the job at 1, what lua_pcall() left at 2, its status at 3.  Packs the error,
 * without its value if that cannot travel. */
static int keep_error(lua_State *L) {
  struct lids_job *self = lua_touserdata(L, 1);
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

static void fail(struct lids_job *self, lua_State *L, int status) {
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

static int job_run(idlesched_job *core, idlesched_worker *worker) {
  struct lids_job *self = core->context;
  struct lids_state *state = lids_state_of(worker, self->home);
  if (state == NULL) {
    self->failure_kind = "memory";
    self->failure = "not enough memory for the worker's Lua state";
    return -ENOMEM;
  }
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
  lids_state_tell_memory(state, worker);
  return status == LUA_OK ? 0 : -EIO;
}

/* ----------------------------------------------------------------- the handle */

/* User values of a handle. */
enum { HANDLE_POOL = 1, HANDLE_OUTCOME = 2, HANDLE_VALUES = 2 };

struct handle {
  struct lids_job *job; /* NULL until it was made */
};

static struct lids_job *check_job(lua_State *L) {
  struct handle *handle = luaL_checkudata(L, 1, JOB_TYPE);
  luaL_argcheck(L, handle->job != NULL, 1, "a job expected that was submitted");
  return handle->job;
}

/*
 * Free what the job left, which lies in the heap of the worker that made it: nobody looks
 * after that heap when the worker has released before, so the pool is told.
 */
static void free_output(lua_State *L, struct lids_job *self) {
  size_t size = lids_message_size(self->output);
  lids_message_free(self->output);
  self->output = NULL;
  lua_getiuservalue(L, 1, HANDLE_POOL);
  struct lids_job_pool *pool = lua_touserdata(L, -1);
  lua_pop(L, 1);
  pool->freed_bytes += size;
  if (pool->core == NULL || pool->freed_bytes < FREED_BYTES_TOLD)
    return;
  pool->freed_bytes = 0;
  idlesched_pool_freed(pool->core);
}

static int job_gc(lua_State *L) {
  struct handle *handle = luaL_checkudata(L, 1, JOB_TYPE);
  struct lids_job *job = handle->job;
  handle->job = NULL;
  if (job == NULL)
    return 0;
  if (idlesched_job_state_read(&job->core) >= IDLESCHED_JOB_DONE)
    free_output(L, job);
  drop(job);
  return 0;
}

static const char *const state_names[] = {
  [IDLESCHED_JOB_NEW] = "new",         [IDLESCHED_JOB_QUEUED] = "queued",
  [IDLESCHED_JOB_RUNNING] = "running", [IDLESCHED_JOB_DONE] = "done",
  [IDLESCHED_JOB_FAILED] = "failed",   [IDLESCHED_JOB_CANCELLED] = "cancelled",
};

/* job:status() -> "queued" | "running" | "done" | "failed" | "cancelled" */
static int job_status(lua_State *L) {
  lua_pushstring(L, state_names[idlesched_job_state_read(&check_job(L)->core)]);
  return 1;
}

static int job_tostring(lua_State *L) {
  lua_pushfstring(L, "idlesched.job: %s",
                  state_names[idlesched_job_state_read(&check_job(L)->core)]);
  return 1;
}

/* job:wait(timeout?) -> true | nil, "timeout" */
static int job_wait(lua_State *L) {
  struct lids_job *self = check_job(L);
  return lids_push_status(L, idlesched_job_wait(&self->core, lids_check_timeout_ns(L, 2)));
}

static bool has_failed(const struct lids_job *self) {
  return idlesched_job_state_read(&self->core) == IDLESCHED_JOB_FAILED;
}

/* Protected: the job is the only argument.  What it left: the results in a table with
 * their count, or the error object. */
static int unpack_outcome(lua_State *L) {
  struct lids_job *self = lua_touserdata(L, 1);
  lua_settop(L, 0);
  int count = lids_value_unpack(L, self->output);
  if (has_failed(self)) {
    lids_error_bless(L);
    return 1;
  }
  lua_createtable(L, count, 1);
  lua_insert(L, 1);
  for (int i = count; i >= 1; i--)
    lua_rawseti(L, 1, i);
  lua_pushinteger(L, count);
  lua_setfield(L, 1, "n");
  return 1;
}

/* Push the outcome of the job whose handle is at 1, and whether it is the results.  It
 * is unpacked once, and then kept with the handle; where it cannot be received, the
 * error says so, and the next read tries again. */
static bool push_outcome(lua_State *L, struct lids_job *self) {
  bool is_error = has_failed(self);
  if (lua_getiuservalue(L, 1, HANDLE_OUTCOME) != LUA_TNIL)
    return !is_error;
  lua_pop(L, 1);
  if (is_error && self->output == NULL) {
    lua_pushstring(L, self->failure);
    lids_error_from_message(L, self->failure_kind);
    return false;
  }
  lua_pushcfunction(L, unpack_outcome);
  lua_pushlightuserdata(L, self);
  int status = lua_pcall(L, 1, 1, 0);
  if (status != LUA_OK) {
    lids_error_from_message(L, status == LUA_ERRMEM ? "memory" : "transfer");
    return false;
  }
  lua_pushvalue(L, -1);
  lua_setiuservalue(L, 1, HANDLE_OUTCOME);
  free_output(L, self);
  return !is_error;
}

/*
 * Wait and push what came of it.  How many results that are, or -1 when an error
 * was pushed instead: a string for what is expected to happen, an object for what
 * the job did.
 */
static int push_results(lua_State *L) {
  struct lids_job *self = check_job(L);
  int status = idlesched_job_wait(&self->core, lids_check_timeout_ns(L, 2));
  lua_settop(L, 1);
  if (status < 0) {
    lids_push_status(L, status);
    lua_settop(L, 3); /* nil and its reason */
    return -1;
  }
  if (idlesched_job_state_read(&self->core) == IDLESCHED_JOB_CANCELLED) {
    lua_pushliteral(L, "cancelled");
    return -1;
  }
  if (!push_outcome(L, self))
    return -1;

  int outcome = lua_gettop(L);
  lua_getfield(L, outcome, "n");
  int count = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  luaL_checkstack(L, count + 1, "too many results"); /* one more for try()'s true */
  for (int i = 1; i <= count; i++)
    lua_rawgeti(L, outcome, i);
  return count;
}

/* job:result(timeout?) -> results... ; raises the error object, or "timeout" or
 * "cancelled" */
static int job_result(lua_State *L) {
  int count = push_results(L);
  return count < 0 ? lua_error(L) : count;
}

/* job:try(timeout?) -> true, results... | nil, error */
static int job_try(lua_State *L) {
  int count = push_results(L);
  if (count < 0) {
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
  }
  lua_pushboolean(L, 1);
  lua_insert(L, -count - 1);
  return count + 1;
}

static const luaL_Reg methods[] = {
  { "status", job_status }, { "wait", job_wait }, { "result", job_result },
  { "try", job_try },       { NULL, NULL },
};

static const luaL_Reg metamethods[] = {
  { "__gc", job_gc },
  { "__tostring", job_tostring },
  { NULL, NULL },
};

void lids_job_open(lua_State *L) {
  lids_class(L, JOB_TYPE, methods, metamethods);
}

/* ------------------------------------------------------------------ submitting */

static const char *argument_label(lua_State *L, int position) {
  if (position == 1)
    return lua_pushliteral(L, "function");
  return lua_pushfstring(L, "argument %d", position - 1);
}

/* Protected: pack everything after the first argument, which says where to. */
static int pack_call(lua_State *L) {
  struct lids_message **out = lua_touserdata(L, 1);
  *out = lids_value_pack(L, 2, argument_label);
  return 0;
}

/* The function at 2 and its arguments, up to the top. */
static struct lids_message *check_message(lua_State *L) {
  struct lids_message *message = NULL;
  int top = lua_gettop(L);
  luaL_checkstack(L, top + 2, "too many arguments");
  lua_pushcfunction(L, pack_call);
  lua_pushlightuserdata(L, &message);
  for (int i = 2; i <= top; i++)
    lua_pushvalue(L, i);
  int status = lua_pcall(L, top, 0, 0);
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

static struct lids_job *job_create(struct lids_home *home) {
  struct lids_job *self = idlesched_realloc(NULL, sizeof *self);
  if (self == NULL)
    return NULL;
  *self = (struct lids_job){ .home = home };
  self->core = (idlesched_job){ .run = job_run, .done = job_done, .context = self };
  atomic_init(&self->references_count, 1);
  return self;
}

/* A new handle takes the pool's place at 1, and holds on to the pool. */
static struct handle *replace_pool_by_handle(lua_State *L) {
  struct handle *handle = lua_newuserdatauv(L, sizeof *handle, HANDLE_VALUES);
  handle->job = NULL;
  luaL_setmetatable(L, JOB_TYPE);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, HANDLE_POOL);
  lua_replace(L, 1);
  return handle;
}

int lids_job_submit(lua_State *L, idlesched_pool *pool, struct lids_home *home) {
  luaL_checktype(L, 2, LUA_TFUNCTION);
  struct handle *handle = replace_pool_by_handle(L);
  struct lids_job *job = job_create(home);
  if (job == NULL)
    return lids_push_status(L, -ENOMEM);
  handle->job = job; /* what follows may raise, and then the handle frees it */
  job->input = check_message(L);

  /* The pool's own reference; relaxed, as the submit itself orders it. */
  atomic_fetch_add_explicit(&job->references_count, 1, memory_order_relaxed);
  int status = idlesched_pool_submit_job(pool, &job->core);
  if (status != 0) {
    drop(job);
    return lids_push_status(L, status);
  }
  lua_settop(L, 1);
  return 1;
}
