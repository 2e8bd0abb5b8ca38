/* SPDX-License-Identifier: MIT */
/*
 * lua_util.c - see lua_util.h.
 */
#include "lua_util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lids_class(lua_State *L, const char *name, const luaL_Reg *methods,
                const luaL_Reg *metamethods) {
  if (luaL_newmetatable(L, name)) {
    luaL_setfuncs(L, metamethods, 0);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
  }
  lua_pop(L, 1);
}

/* Key in a metatable: the table is plain data. */
static const char text_key;

void lids_text_class(lua_State *L, const char *name, lua_CFunction tostring) {
  if (luaL_newmetatable(L, name)) {
    lua_pushcfunction(L, tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pushboolean(L, 1);
    lua_rawsetp(L, -2, &text_key);
  }
  lua_pop(L, 1);
}

bool lids_has_metatable(lua_State *L, int index) {
  if (!lua_getmetatable(L, index))
    return false;
  bool is_text = lua_rawgetp(L, -1, &text_key) != LUA_TNIL;
  lua_pop(L, 2);
  return !is_text;
}

/* ------------------------------------------------------------------- times */

/* Rounds down, but nothing above 0 becomes 0; 30 years or more is for ever. */
static uint64_t to_ns(lua_Number seconds) {
  if (seconds >= 1e9) /* 30 years */
    return IDLESCHED_NEVER;
  uint64_t duration_ns = (uint64_t)(seconds * 1e9);
  return seconds > 0 && duration_ns == 0 ? 1 : duration_ns;
}

void lids_check_not_in_finalizer(lua_State *L, const char *what) {
  if (lua_gc(L, LUA_GCCOUNT) < 0) /* the collector answers nothing there */
    luaL_error(L, "%s: expected outside of a finaliser: what is made in one may never be closed",
               what);
}

uint64_t lids_check_timeout_ns(lua_State *L, int index) {
  if (lua_isnoneornil(L, index))
    return IDLESCHED_NEVER;
  lua_Number seconds = luaL_checknumber(L, index);
  if (!(seconds >= 0))
    luaL_argerror(L, index, lua_pushfstring(L, "seconds, 0 or more, expected, got %f", seconds));
  return to_ns(seconds);
}

lua_Number lids_seconds(uint64_t duration_ns) {
  return (lua_Number)duration_ns / 1e9;
}

/* ----------------------------------------------------------------- options */

/* How many single-letter changes lead from one word to the other, up to the
 * length of a name of ours. */
static int edits_between(const char *left, const char *right) {
  enum { LONGEST = 32 };
  int row[LONGEST + 1];
  size_t left_length = strlen(left), right_length = strlen(right);
  if (left_length > LONGEST || right_length > LONGEST)
    return LONGEST;
  for (size_t j = 0; j <= right_length; j++)
    row[j] = (int)j;
  for (size_t i = 1; i <= left_length; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= right_length; j++) {
      int above = row[j];
      int best = diagonal + (left[i - 1] != right[j - 1]);
      if (above + 1 < best)
        best = above + 1;
      if (row[j - 1] + 1 < best)
        best = row[j - 1] + 1;
      diagonal = above;
      row[j] = best;
    }
  }
  return row[right_length];
}

/* The name that was meant, if one is near: a third of its letters may be wrong. */
static const char *nearest_name(const char *word, const char *const *names) {
  const char *nearest = NULL;
  int fewest = 3 > (int)strlen(word) / 3 ? 3 : (int)strlen(word) / 3;
  for (; *names != NULL; names++) {
    int edits = edits_between(word, *names);
    if (edits < fewest) {
      fewest = edits;
      nearest = *names;
    }
  }
  return nearest;
}

/* Push "a, b, c". */
static const char *push_list(lua_State *L, const char *const *names) {
  luaL_Buffer list;
  luaL_buffinit(L, &list);
  for (int i = 0; names[i] != NULL; i++) {
    luaL_addstring(&list, i == 0 ? "" : ", ");
    luaL_addstring(&list, names[i]);
  }
  luaL_pushresult(&list);
  return lua_tostring(L, -1);
}

static int unknown_option(lua_State *L, int index, const char *key, const char *const *names) {
  const char *meant = nearest_name(key, names);
  const char *message =
    meant != NULL
      ? lua_pushfstring(L, "unknown option '%s', did you mean '%s'?", key, meant)
      : lua_pushfstring(L, "unknown option '%s'; known are %s", key, push_list(L, names));
  return luaL_argerror(L, index, message);
}

static int is_among(const char *word, const char *const *names) {
  for (; *names != NULL; names++)
    if (strcmp(word, *names) == 0)
      return 1;
  return 0;
}

void lids_check_options(lua_State *L, int index, const char *const *names) {
  if (lua_isnoneornil(L, index))
    return;
  luaL_checktype(L, index, LUA_TTABLE);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) {
      const char *key = luaL_tolstring(L, -1, NULL);
      luaL_argerror(L, index, lua_pushfstring(L, "option names are strings, got key %s", key));
    }
    const char *key = lua_tostring(L, -1);
    if (strlen(key) != lua_rawlen(L, -1))
      luaL_argerror(L, index,
                    lua_pushfstring(L, "unknown option '%s', with a NUL byte after that", key));
    if (!is_among(key, names))
      unknown_option(L, index, key, names);
  }
}

/* Push field `name`, or nil; its type. */
static int push_option(lua_State *L, int index, const char *name) {
  if (lua_isnoneornil(L, index)) {
    lua_pushnil(L);
    return LUA_TNIL;
  }
  return lua_getfield(L, index, name);
}

/* Raise "option 'name': wanted, got value". */
static int option_error(lua_State *L, int index, const char *name, const char *wanted) {
  const char *quote = lua_type(L, -1) == LUA_TSTRING ? "'" : "";
  const char *got = luaL_tolstring(L, -1, NULL);
  return luaL_argerror(
    L, index,
    lua_pushfstring(L, "option '%s': %s expected, got %s%s%s", name, wanted, quote, got, quote));
}

uint64_t lids_option_duration_ns(lua_State *L, int index, const char *name, uint64_t absent_ns) {
  int type = push_option(L, index, name);
  uint64_t duration_ns = absent_ns;
  if (type == LUA_TBOOLEAN && !lua_toboolean(L, -1)) {
    duration_ns = IDLESCHED_NEVER;
  } else if (type == LUA_TNUMBER && lua_tonumber(L, -1) >= 0) {
    duration_ns = to_ns(lua_tonumber(L, -1));
    if (duration_ns == 0)
      duration_ns = IDLESCHED_AT_ONCE;
  } else if (type != LUA_TNIL) {
    option_error(L, index, name, "seconds (0 or more) or false");
  }
  lua_pop(L, 1);
  return duration_ns;
}

lua_Integer lids_option_integer(lua_State *L, int index, const char *name, lua_Integer absent,
                                lua_Integer least, lua_Integer most) {
  int type = push_option(L, index, name);
  int is_integer = 0;
  lua_Integer value = lua_tointegerx(L, -1, &is_integer);
  if (type == LUA_TNIL) {
    value = absent;
  } else if (type != LUA_TNUMBER || !is_integer || value < least || value > most) {
    const char *wanted = lua_pushfstring(L, "a whole number from %I to %I", least, most);
    lua_insert(L, -2);
    option_error(L, index, name, wanted);
  }
  lua_pop(L, 1);
  return value;
}

const char *lids_check_string(lua_State *L, int index) {
  const char *text = luaL_checkstring(L, index);
  if (strlen(text) != lua_rawlen(L, index))
    luaL_argerror(
      L, index,
      lua_pushfstring(L, "a string without NUL bytes expected, got one after '%s'", text));
  return text;
}

const char *lids_option_string(lua_State *L, int index, const char *name, const char *absent) {
  int type = push_option(L, index, name);
  if (type == LUA_TNIL)
    return absent;
  if (type != LUA_TSTRING)
    option_error(L, index, name, "a string");
  const char *text = lua_tostring(L, -1);
  if (strlen(text) != lua_rawlen(L, -1))
    luaL_argerror(
      L, index,
      lua_pushfstring(L, "option '%s': a string without NUL bytes expected, got one after '%s'",
                      name, text));
  return text;
}

bool lids_option_boolean(lua_State *L, int index, const char *name, bool absent) {
  int type = push_option(L, index, name);
  if (type != LUA_TNIL && type != LUA_TBOOLEAN)
    option_error(L, index, name, "true or false");
  bool value = type == LUA_TNIL ? absent : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return value;
}

/* ------------------------------------------------------------------ status */

static const char *reason(int status) {
  switch (status) {
  case -ETIMEDOUT:
    return "timeout";
  case -ESHUTDOWN:
    return "closed";
  case -EDEADLK:
    return "deadlock";
  case -ENOBUFS:
    return "full";
  case -ECANCELED:
    return "cancelled";
  default:
    return NULL;
  }
}

int lids_push_status(lua_State *L, int status) {
  if (status >= 0) {
    lua_pushboolean(L, 1);
    return 1;
  }
  lua_pushnil(L);
  if (reason(status) != NULL) {
    lua_pushstring(L, reason(status));
    return 2;
  }
  lua_pushstring(L, idlesched_strerror(status));
  lua_pushinteger(L, -status);
  return 3;
}

/* ----------------------------------------------------------------- results */

void lids_set_integer(lua_State *L, const char *name, uint64_t value) {
  lua_pushinteger(L, (lua_Integer)value);
  lua_setfield(L, -2, name);
}

uint64_t lids_get_integer(lua_State *L, int index, const char *name) {
  lua_getfield(L, index, name);
  lua_Integer value = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return value > 0 ? (uint64_t)value : 0;
}

/* ------------------------------------------------------------------- words */

void lids_add_format(luaL_Buffer *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  size_t size = (size_t)length + 1;
  char *place = luaL_prepbuffsize(text, size);
  va_start(arguments, format);
  vsnprintf(place, size, format, arguments);
  va_end(arguments);
  luaL_addsize(text, (size_t)length);
}

const char *lids_plural(uint64_t count) {
  return count == 1 ? "" : "s";
}

double lids_mib(uint64_t bytes) {
  return (double)bytes / (1024 * 1024);
}
