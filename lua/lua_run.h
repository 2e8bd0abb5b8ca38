/* SPDX-License-Identifier: MIT */
/*
 * lua_run.h - a Lua function on a worker: unpacked, called, its results packed, or its error
 * described.
 */
#ifndef LIDS_LUA_RUN_H
#define LIDS_LUA_RUN_H

#include "lua_state.h"

struct lids_message;

/* What it was doing when it failed, for the error's kind. */
enum lids_phase { LIDS_UNPACKING, LIDS_RUNNING, LIDS_PACKING };

struct lids_run {
  struct lids_home *home;
  struct lids_message *input;  /* function and arguments; gone once they are unpacked */
  struct lids_message *output; /* results, or one table that describes the error */
  const char *failure_kind;    /* for failure */
  const char *failure;         /* the error, when there is no table */
  char *start_failure;         /* owned; what the pool's on_start raised, or NULL */
  enum lids_phase phase;
};

/* The function and the arguments from stack index `first` to the top, packed for a worker;
 * they stay there.  `label` as of lids_value_pack().  Raises an error object at the caller
 * when one cannot travel. */
struct lids_message *lids_run_pack(lua_State *L, int first,
                                   const char *(*label)(lua_State *L, int position));

/* On the worker, for this job: 0, or a negative status when it failed, and then output or
 * failure says how.  Raises nothing. */
int lids_run(struct lids_run *self, idlesched_worker *worker, const idlesched_job *job);
/* Free the messages. */
void lids_run_clear(struct lids_run *self);

#endif
