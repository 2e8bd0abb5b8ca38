/* SPDX-License-Identifier: MIT */
/*
 * lua_token.h - a token: cancels all jobs that it was given to.
 *
 * The object belongs to a Lua state; what it stands for is shared with its jobs, which may
 * outlive it, and freed by whoever is last.
 */
#ifndef LIDS_LUA_TOKEN_H
#define LIDS_LUA_TOKEN_H

#include <lua.h>

#include "idlesched.h"

struct lids_token;

void lids_token_open(lua_State *L);

/* idlesched.token() -> token */
int lids_token_new(lua_State *L);

/* The option 'token' on top of the stack, of the table at `index`; raises if it is none. */
struct lids_token *lids_token_check_option(lua_State *L, int index);

/* One more holder; and one less.  NULL is fine. */
struct lids_token *lids_token_take(struct lids_token *self);
void lids_token_drop(struct lids_token *self);
/* For a job's core, or NULL. */
idlesched_token *lids_token_core(struct lids_token *self);

#endif
