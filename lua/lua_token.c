/* SPDX-License-Identifier: MIT */
/*
 * lua_token.c - see lua_token.h.
 */
#include "lua_token.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdatomic.h>

#include "lua_util.h"

#define TOKEN_TYPE "idlesched.token"

struct lids_token {
  idlesched_token core;
  atomic_int references_count;
};

struct lids_token *lids_token_take(struct lids_token *self) {
  if (self != NULL)
    atomic_fetch_add_explicit(&self->references_count, 1, memory_order_relaxed);
  return self;
}

void lids_token_drop(struct lids_token *self) {
  /* [last] What each holder did with it comes before it is freed. */
  if (self != NULL &&
      atomic_fetch_sub_explicit(&self->references_count, 1, memory_order_acq_rel) == 1)
    idlesched_free(self);
}

idlesched_token *lids_token_core(struct lids_token *self) {
  return self == NULL ? NULL : &self->core;
}

/* ------------------------------------------------------------------- the object */

struct object {
  struct lids_token *token; /* NULL until it was made */
};

int lids_token_new(lua_State *L) {
  struct object *object = lua_newuserdatauv(L, sizeof *object, 0);
  object->token = NULL;
  luaL_setmetatable(L, TOKEN_TYPE);
  object->token = idlesched_realloc(NULL, sizeof *object->token);
  if (object->token == NULL)
    return lids_push_status(L, -ENOMEM);
  *object->token = (struct lids_token){ .core = { 0 } };
  atomic_init(&object->token->references_count, 1);
  return 1;
}

static struct lids_token *check_token(lua_State *L) {
  struct object *object = luaL_checkudata(L, 1, TOKEN_TYPE);
  luaL_argcheck(L, object->token != NULL, 1, "the token was not made");
  return object->token;
}

struct lids_token *lids_token_check_option(lua_State *L, int index) {
  struct object *object = luaL_testudata(L, -1, TOKEN_TYPE);
  if (object == NULL || object->token == NULL)
    luaL_argerror(
      L, index,
      lua_pushfstring(L, "option 'token': a token expected, got %s", luaL_typename(L, -1)));
  return object->token;
}

/* token:cancel() -> how many jobs were queued, and never run now */
static int token_cancel(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)idlesched_token_cancel(&check_token(L)->core));
  return 1;
}

/* token:cancelled() -> boolean */
static int token_cancelled(lua_State *L) {
  lua_pushboolean(L, idlesched_token_is_cancelled(&check_token(L)->core));
  return 1;
}

static int token_tostring(lua_State *L) {
  bool is_cancelled = idlesched_token_is_cancelled(&check_token(L)->core);
  lua_pushstring(L, is_cancelled ? "idlesched.token: cancelled" : "idlesched.token");
  return 1;
}

static int token_gc(lua_State *L) {
  struct object *object = luaL_checkudata(L, 1, TOKEN_TYPE);
  lids_token_drop(object->token);
  object->token = NULL;
  return 0;
}

static const luaL_Reg methods[] = {
  { "cancel", token_cancel },
  { "cancelled", token_cancelled },
  { NULL, NULL },
};

static const luaL_Reg metamethods[] = {
  { "__gc", token_gc },
  { "__tostring", token_tostring },
  { NULL, NULL },
};

void lids_token_open(lua_State *L) {
  lids_class(L, TOKEN_TYPE, methods, metamethods);
}
