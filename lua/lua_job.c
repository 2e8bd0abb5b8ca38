/* SPDX-License-Identifier: MIT */
/*
 * lua_job.c - see lua_job.h.
 */
#include "lua_job.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdatomic.h>

#include "lua_error.h"
#include "lua_run.h"
#include "lua_token.h"
#include "lua_util.h"
#include "lua_value.h"

#define JOB_TYPE "idlesched.job"

/* So much freed is worth a pass of the pool's timer. */
#define FREED_BYTES_TOLD ((size_t)1 << 20)

/*
 *   C  constant once submitted    W  the worker's while the job is under way, then
 *   A  atomic                        of whoever reads the result
 */
struct lids_job {
  idlesched_job core;
  atomic_int references_count; /* A  the handle, and the pool until it has ended */
  struct lids_token *token;    /* C  or NULL */
  struct lids_run run;         /* W */
};

/* ------------------------------------------------------------------- life */

static void drop(struct lids_job *self) {
  /* [last] Each holder's writes are visible to the one who frees. */
  if (atomic_fetch_sub_explicit(&self->references_count, 1, memory_order_acq_rel) != 1)
    return;
  lids_run_clear(&self->run);
  lids_token_drop(self->token);
  idlesched_free(self);
}

static int job_run(idlesched_job *core, idlesched_worker *worker) {
  struct lids_job *self = core->context;
  return lids_run(&self->run, worker, core);
}

static void job_done(idlesched_job *core) {
  struct lids_job *self = core->context;
  drop(self);
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
  size_t size = lids_message_size(self->run.output);
  lids_message_free(self->run.output);
  self->run.output = NULL;
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

/* In a job of the same pool the worker may run another one meanwhile, in this very state: that
 * gets a stack of its own, made here, where there may be an error. */
struct inside {
  struct lids_state *state; /* NULL outside of workers */
  lua_State *outer;
};

static struct inside begin_inside(lua_State *L) {
  struct inside self = { .state = lids_state_of_lua(L) };
  if (self.state != NULL)
    self.outer = lids_state_set_lua(self.state, lua_newthread(L));
  return self;
}

static void end_inside(const struct inside *self) {
  if (self->state != NULL)
    lids_state_set_lua(self->state, self->outer);
}

static void check_stack(lua_State *L) {
  const struct lids_state *state = lids_state_of_lua(L);
  if (state != NULL && !lids_state_has_stack(state))
    luaL_error(L, "too many jobs wait inside each other for the worker's stack of %I bytes",
               (lua_Integer)lids_state_home(state)->stack_size);
}

static int wait_for(lua_State *L, const struct lids_job *self, uint64_t timeout_ns) {
  if (idlesched_job_state_read(&self->core) == IDLESCHED_JOB_QUEUED)
    check_stack(L);
  struct inside inside = begin_inside(L);
  int status = idlesched_job_wait((idlesched_job *)&self->core, timeout_ns);
  end_inside(&inside);
  return status;
}

/* job:wait(timeout?) -> true | nil, "timeout" | "deadlock" */
static int job_wait(lua_State *L) {
  struct lids_job *self = check_job(L);
  return lids_push_status(L, wait_for(L, self, lids_check_timeout_ns(L, 2)));
}

/* job:cancel() -> "cancelled" | "requested" | false */
static int job_cancel(lua_State *L) {
  struct lids_job *self = check_job(L);
  int status = idlesched_job_cancel(&self->core);
  if (status == 0)
    lua_pushliteral(L, "cancelled");
  else if (status == -EBUSY)
    lua_pushliteral(L, "requested");
  else
    lua_pushboolean(L, 0);
  return 1;
}

static bool has_failed(const struct lids_job *self) {
  return idlesched_job_state_read(&self->core) == IDLESCHED_JOB_FAILED;
}

/* Protected: the job is the only argument.  What it left: the results in a table with
 * their count, or the error object. */
static int unpack_outcome(lua_State *L) {
  struct lids_job *self = lua_touserdata(L, 1);
  lua_settop(L, 0);
  int count = lids_value_unpack(L, self->run.output);
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
  if (is_error && self->run.output == NULL) {
    lua_pushstring(L, self->run.failure);
    lids_error_from_message(L, self->run.failure_kind);
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
  int status = wait_for(L, self, lids_check_timeout_ns(L, 2));
  lua_settop(L, 1);
  if (status < 0) {
    lids_push_status(L, status);
    lua_settop(L, 3); /* nil and its reason */
    return -1;
  }
  if (idlesched_job_state_read(&self->core) == IDLESCHED_JOB_CANCELLED) {
    bool is_late = idlesched_job_status(&self->core) == -ETIMEDOUT;
    lua_pushstring(L, is_late ? "expired" : "cancelled");
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

/* job:result(timeout?) -> results... ; raises the error object, or "timeout", "cancelled",
 * "expired" or "deadlock" */
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
  { "status", job_status }, { "wait", job_wait },     { "result", job_result },
  { "try", job_try },       { "cancel", job_cancel }, { NULL, NULL },
};

static const luaL_Reg metamethods[] = {
  { "__gc", job_gc },
  { "__tostring", job_tostring },
  { NULL, NULL },
};

void lids_job_open(lua_State *L) {
  lids_class(L, JOB_TYPE, methods, metamethods);
}

/* ------------------------------------------------------------------------ many */

/* The job at `position` of the list at 1, whose handle is kept in the table at `kept`: while
 * this waits, a job may run in the same state, and change the list. */
static idlesched_job *check_listed(lua_State *L, lua_Integer position, int kept) {
  lua_geti(L, 1, position);
  struct handle *handle = luaL_testudata(L, -1, JOB_TYPE);
  if (handle == NULL || handle->job == NULL)
    luaL_error(L, "bad argument #1 to 'wait_all' (a job expected at %I, got %s)", position,
               luaL_typename(L, -1));
  lua_rawseti(L, kept, position);
  return &handle->job->core;
}

/* idlesched.wait_all(jobs, timeout?) -> true | nil, "timeout" | "deadlock" */
int lids_job_wait_all(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  uint64_t timeout_ns = lids_check_timeout_ns(L, 2);
  lua_Integer count = luaL_len(L, 1);
  if (count < 0 || (lua_Unsigned)count > UINT32_MAX)
    luaL_argerror(L, 1, "a list of jobs expected");
  idlesched_job **jobs = lua_newuserdatauv(L, (size_t)count * sizeof *jobs, 0);
  lua_createtable(L, (int)(count < 1000 ? count : 1000), 0);
  int kept = lua_gettop(L);
  for (lua_Integer i = 0; i < count; i++)
    jobs[i] = check_listed(L, i + 1, kept);
  check_stack(L);
  struct inside inside = begin_inside(L);
  int status = idlesched_jobs_wait(jobs, (unsigned)count, timeout_ns);
  end_inside(&inside);
  return lids_push_status(L, status);
}

/* ------------------------------------------------------------------ submitting */

static const char *argument_label(lua_State *L, int position) {
  if (position == 1)
    return lua_pushliteral(L, "function");
  return lua_pushfstring(L, "argument %d", position - 1);
}

static struct lids_job *job_create(struct lids_home *home) {
  struct lids_job *self = idlesched_realloc(NULL, sizeof *self);
  if (self == NULL)
    return NULL;
  *self = (struct lids_job){ .run = { .home = home } };
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

void lids_job_check_options(lua_State *L, int index, struct lids_job_options *out) {
  static const char *const names[] = { "priority", "delay", "expire", "token", NULL };
  luaL_checktype(L, index, LUA_TTABLE);
  lids_check_options(L, index, names);
  *out = (struct lids_job_options){
    .priority = (int)lids_option_integer(L, index, "priority", 0, -IDLESCHED_PRIORITY_MOST,
                                         IDLESCHED_PRIORITY_MOST),
    .delay_ns = lids_option_duration_ns(L, index, "delay", 0),
    .expire_ns = lids_option_duration_ns(L, index, "expire", 0),
  };
  if (out->delay_ns == IDLESCHED_AT_ONCE)
    out->delay_ns = 0;
  if (out->delay_ns == IDLESCHED_NEVER) {
    lua_getfield(L, index, "delay");
    const char *got = luaL_tolstring(L, -1, NULL);
    luaL_argerror(L, index,
                  lua_pushfstring(L, "option 'delay': seconds, below 1e9, expected, got %s", got));
  }
  if (out->expire_ns == IDLESCHED_NEVER)
    out->expire_ns = 0;
  if (lua_getfield(L, index, "token") != LUA_TNIL)
    out->token = lids_token_check_option(L, index);
  lua_pop(L, 1); /* the table holds the token */
}

int lids_job_submit(lua_State *L, int first, idlesched_pool *pool, struct lids_home *home,
                    const struct lids_job_options *options) {
  luaL_checktype(L, first, LUA_TFUNCTION);
  struct handle *handle = replace_pool_by_handle(L);
  struct lids_job *job = job_create(home);
  if (job == NULL)
    return lids_push_status(L, -ENOMEM);
  handle->job = job; /* what follows may raise, and then the handle frees it */
  job->core.priority = options->priority;
  job->core.delay_ns = options->delay_ns;
  job->core.expire_ns = options->expire_ns;
  job->token = lids_token_take(options->token);
  job->core.token = lids_token_core(job->token);
  job->run.input = lids_run_pack(L, first, argument_label);

  struct inside inside = begin_inside(L); /* to make room, a job may run that waits */
  /* The pool's own reference; relaxed, as the submit itself orders it. */
  atomic_fetch_add_explicit(&job->references_count, 1, memory_order_relaxed);
  int status = idlesched_pool_submit_job(pool, &job->core);
  end_inside(&inside);
  if (status != 0) {
    drop(job);
    return lids_push_status(L, status);
  }
  lua_settop(L, 1);
  return 1;
}
