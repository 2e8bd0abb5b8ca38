/* SPDX-License-Identifier: MIT */
/*
 * lua_job.h - a Lua function that runs on a worker, and the handle of it.
 *
 * The job and its handle are two things: the handle belongs to a Lua state and
 * is collected there, the job is shared by the handle and the worker, and freed
 * by whoever is last.
 */
#ifndef LIDS_LUA_JOB_H
#define LIDS_LUA_JOB_H

#include "lua_state.h"

/* What a pool object begins with: what its jobs' handles need of it. */
struct lids_job_pool {
  idlesched_pool *core; /* NULL until it was made, and after __gc */
  size_t freed_bytes;   /* of results, by the state that the pool belongs to, since it told */
};

void lids_job_open(lua_State *L);

/*
 * pool:submit(fn, ...): the stack holds the pool at 1, the function at 2 and its
 * arguments.  Pushes the handle, or nil and the reason.  Raises an error object
 * when a value cannot travel; then nothing was queued.
 */
int lids_job_submit(lua_State *L, idlesched_pool *pool, struct lids_home *home);

#endif
