/* SPDX-License-Identifier: MIT */
/*
 * lua_error.c - see lua_error.h.
 */
#include "lua_error.h"

#include <lauxlib.h>

#define ERROR_TYPE "idlesched.Error"

/* Push field `name` of the table at 1 as a string; "" when it is not there. */
static const char *text_field(lua_State *L, const char *name) {
  lua_pushstring(L, name);
  lua_rawget(L, 1);
  if (lua_type(L, -1) == LUA_TSTRING)
    return lua_tostring(L, -1);
  return "";
}

static int error_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const char *message = text_field(L, "message");
  const char *traceback = text_field(L, "traceback");
  if (traceback[0] == '\0')
    lua_pushstring(L, message);
  else
    lua_pushfstring(L, "%s\n%s", message, traceback);
  return 1;
}

void lids_error_open(lua_State *L) {
  if (luaL_newmetatable(L, ERROR_TYPE)) {
    lua_pushcfunction(L, error_tostring);
    lua_setfield(L, -2, "__tostring");
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
