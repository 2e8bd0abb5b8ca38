/* SPDX-License-Identifier: MIT */
/*
 * lua_error.c - see lua_error.h.
 */
#include "lua_error.h"

#include <lauxlib.h>

#define ERROR_TYPE "idlesched.Error"

/* Push field `name` of the table at 1, "" when it is no string; its length. */
static size_t push_text_field(lua_State *L, const char *name) {
  lua_pushstring(L, name);
  if (lua_rawget(L, 1) != LUA_TSTRING) {
    lua_pop(L, 1);
    lua_pushliteral(L, "");
  }
  return lua_rawlen(L, -1);
}

static int error_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  push_text_field(L, "message");
  lua_pushliteral(L, "\n");
  if (push_text_field(L, "traceback") > 0)
    lua_concat(L, 3);
  else
    lua_pop(L, 2);
  return 1;
}

/* "it failed: " .. err */
static int error_concat(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  luaL_tolstring(L, 2, NULL);
  lua_concat(L, 2);
  return 1;
}

void lids_error_open(lua_State *L) {
  if (luaL_newmetatable(L, ERROR_TYPE)) {
    lua_pushcfunction(L, error_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushcfunction(L, error_concat);
    lua_setfield(L, -2, "__concat");
  }
  lua_pop(L, 1);
}

void lids_error_bless(lua_State *L) {
  luaL_setmetatable(L, ERROR_TYPE);
}

void lids_error_from_message(lua_State *L, const char *kind) {
  lua_createtable(L, 0, 3);
  lua_insert(L, -2);
  lua_setfield(L, -2, "message");
  lua_pushstring(L, kind);
  lua_setfield(L, -2, "kind");
  lua_pushliteral(L, "");
  lua_setfield(L, -2, "traceback");
  lids_error_bless(L);
}

int lids_error_is(lua_State *L, int index) {
  if (!lua_istable(L, index) || !lua_getmetatable(L, index))
    return 0;
  luaL_getmetatable(L, ERROR_TYPE);
  int result = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return result;
}
