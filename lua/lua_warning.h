/* SPDX-License-Identifier: MIT */
/*
 * lua_warning.h - what the Lua states of workers warn of, told by the state that has the pool.
 *
 * Lua lets a host decide what becomes of warn(), and the standard interpreter shows warnings
 * or not, as its user says.  A worker's state cannot know: so its warnings wait with the pool
 * until the pool's own state calls one of its methods, closes or collects it, and go to that
 * state's warn(), with the pool's name in front.  That is the only switch: "@on" and "@off"
 * do nothing in a job.
 *
 * Threads: any number of states may put, any number may say; what is put is said once.
 */
#ifndef LIDS_LUA_WARNING_H
#define LIDS_LUA_WARNING_H

#include <lua.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct lids_warning;

/* Those of a pool that were not said yet.  All 0 is none. */
struct lids_warnings {
  _Atomic(struct lids_warning *)
    newest;                  /* a list, pushed by release, taken as a whole by acquire */
  atomic_uint waiting_count; /* relaxed; bounds the list */
  atomic_uint lost_count;    /* relaxed */
};

/* Of a worker's state: Lua hands a warning over in pieces.  What is longer is cut. */
struct lids_warner {
  struct lids_warnings *warnings;
  bool is_continued; /* the next piece belongs to what is in text */
  bool is_control;   /* "@on" and the like */
  size_t length;
  char text[256];
};

/* From now on the state's warnings go there. */
void lids_warner_attach(struct lids_warner *self, lua_State *L, struct lids_warnings *warnings);

/* Say those that wait, and how many were lost, by this state's warn(). */
void lids_warnings_say(struct lids_warnings *self, lua_State *L, const char *pool_name);
/* Forget them. */
void lids_warnings_clear(struct lids_warnings *self);

#endif
