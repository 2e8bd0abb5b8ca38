/* SPDX-License-Identifier: MIT */
/*
 * lua_guard.c - see lua_guard.h.
 *
 * A guard ends exactly once, whatever comes first: close(), the end of its
 * <close> variable, an error that passes it, the collector, or the end of the
 * Lua state.
 */
#include "lua_guard.h"

#include <lauxlib.h>
#include <stdbool.h>

#include "idlesched.h"
#include "lua_util.h"

#define GUARD_TYPE "idlesched.eager_purge"

struct guard {
  bool is_held;
};

int lids_guard_eager_purge(lua_State *L) {
  struct guard *self = lua_newuserdatauv(L, sizeof *self, 0);
  self->is_held = false;
  luaL_setmetatable(L, GUARD_TYPE);
  idlesched_eager_purge_enter();
  self->is_held = true;
  return 1;
}

/* guard:close(), __close and __gc */
static int guard_end(lua_State *L) {
  struct guard *self = luaL_checkudata(L, 1, GUARD_TYPE);
  if (self->is_held)
    idlesched_eager_purge_leave();
  self->is_held = false;
  return 0;
}

static int guard_tostring(lua_State *L) {
  struct guard *self = luaL_checkudata(L, 1, GUARD_TYPE);
  lua_pushfstring(L, "idlesched.eager_purge: %s", self->is_held ? "held" : "ended");
  return 1;
}

static const luaL_Reg methods[] = {
  { "close", guard_end },
  { NULL, NULL },
};

static const luaL_Reg metamethods[] = {
  { "__gc", guard_end },
  { "__close", guard_end },
  { "__tostring", guard_tostring },
  { NULL, NULL },
};

void lids_guard_open(lua_State *L) {
  lids_class(L, GUARD_TYPE, methods, metamethods);
}
