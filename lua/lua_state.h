/* SPDX-License-Identifier: MIT */
/*
 * lua_state.h - the Lua state of a worker: made on the worker's thread when a
 * job first needs it, collected there when the worker releases, closed there when
 * the thread ends.
 *
 * Memory: lua_memory.h.
 *
 * Collection.  One full collection does not empty a state: the string table only
 * halves each time, and what has a finaliser takes two rounds.  So the collector
 * runs until what it counts stops falling, in steps between which the worker
 * looks for a job.
 */
#ifndef LIDS_LUA_STATE_H
#define LIDS_LUA_STATE_H

#include <lua.h>
#include <stdbool.h>

#include "idlesched.h"
#include "lua_warning.h"

struct lids_state;
struct lids_message;

/* What a pool's states have in common.  But for the warnings, constant from create to
 * destroy. */
struct lids_home {
  char *pool_name;
  char *path;  /* package.path of the state that made the pool */
  char *cpath; /* package.cpath of the same */
  /* Functions of the pool's maker that each state calls, or NULL: before its first job,
   * before it is closed, and whenever it is about to be collected for a release. */
  struct lids_message *on_start, *on_stop, *on_release;
  struct lids_warnings warnings;
  size_t stack_size; /* of each worker's thread */
};

/* NULL when there is no memory. */
struct lids_home *lids_home_create(const char *pool_name, const char *path, const char *cpath);
void lids_home_destroy(struct lids_home *self);

/* The calling worker's state, made if it has none; NULL when there is no memory. */
struct lids_state *lids_state_of(idlesched_worker *worker, struct lids_home *home);
/* Call the pool's on_start unless it was called before.  False when it has failed: then
 * *out_text is what it raised, to be freed, or NULL for lack of memory. */
bool lids_state_start(struct lids_state *self, char **out_text);

/* The state of the worker that this Lua state, or thread, belongs to; NULL when it is
 * nobody's. */
struct lids_state *lids_state_of_lua(lua_State *L);
struct lids_home *lids_state_home(const struct lids_state *self);

/* Where the next job runs: the main stack, but for a job that waits for another one. */
lua_State *lids_state_lua(const struct lids_state *self);
/* Another stack from now on.  The one before. */
lua_State *lids_state_set_lua(struct lids_state *self, lua_State *L);

/* The job that runs, the innermost; NULL: none does. */
const idlesched_job *lids_state_job(const struct lids_state *self);
/* The one before. */
const idlesched_job *lids_state_set_job(struct lids_state *self, const idlesched_job *job);
/* Whether another job may run inside the one that runs: false when its C stack is half used. */
bool lids_state_has_stack(const struct lids_state *self);

/* Its job blocks, or does no more: counted, as such scopes may be nested. */
void lids_state_begin_blocking(struct lids_state *self);
void lids_state_end_blocking(struct lids_state *self);

/* Tell the pool what the worker's state has in use, and what came since its last full
 * collection: that may be garbage. */
void lids_state_tell_memory(const struct lids_state *self, idlesched_worker *worker);

/* The hooks of a pool whose workers have Lua states. */
bool lids_state_collect(idlesched_worker *worker, void *home);
void lids_state_stop(idlesched_worker *worker, void *home);

/* A collection of any state, all at once: what a release begins with, of the state that asks for
 * it.  May run finalisers, and raise what the collector raises. */
void lids_collect_fully(lua_State *L);

#endif
