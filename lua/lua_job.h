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

/* How a job is to run, besides what it does.  All 0: as soon as a worker is free. */
struct lids_job_options {
  int priority;
  uint64_t delay_ns, expire_ns;
  struct lids_token *token; /* NULL, or held by the table that it is from */
};

/* The table at `index`: { priority =, delay =, expire =, token = }. */
void lids_job_check_options(lua_State *L, int index, struct lids_job_options *out);

/*
 * pool:submit(fn, ...): the stack holds the pool at 1, the function at `first` and its
 * arguments behind it.  Pushes the handle, or nil and the reason.  Raises an error object
 * when a value cannot travel; then nothing was queued.
 */
int lids_job_submit(lua_State *L, int first, idlesched_pool *pool, struct lids_home *home,
                    const struct lids_job_options *options);

/* idlesched.wait_all(jobs, timeout?) -> true | nil, "timeout" | "deadlock" */
int lids_job_wait_all(lua_State *L);

#endif
