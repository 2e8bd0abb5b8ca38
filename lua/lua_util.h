/* SPDX-License-Identifier: MIT */
/*
 * lua_util.h - what every object of the Lua module needs: checked arguments,
 * classes, and one way to answer with a status.
 *
 * The binding knows the core by its public header only, and prefixes its own
 * names with lids_: lua_ and luaL_ belong to Lua.
 *
 * Conventions towards scripts: times are seconds, integer or float; misuse raises
 * at the caller; expected outcomes are nil and a fixed string ("timeout",
 * "closed"); what the system refuses is nil, message, number.
 */
#ifndef LIDS_LUA_UTIL_H
#define LIDS_LUA_UTIL_H

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#include "idlesched.h"

/* Make a class once for each state: methods, metamethods, __name, and no way to
 * reach the metatable from a script. */
void lids_class(lua_State *L, const char *name, const luaL_Reg *methods,
                const luaL_Reg *metamethods);

/*
 * Make a metatable for tables that are shown in words, once for each state.  Such a table is
 * plain data all the same: it travels without its metatable.
 */
void lids_text_class(lua_State *L, const char *name, lua_CFunction tostring);
/* Whether the table has a metatable, but for one of those. */
bool lids_has_metatable(lua_State *L, int index);

/*
 * Raise inside a finaliser: `what` is made there by nobody, as the state may be closing, and
 * then calls no finaliser of what it makes.  (Known from Lua 5.4.4 on.)
 */
void lids_check_not_in_finalizer(lua_State *L, const char *what);

/*
 * A time limit in seconds at `index`: nil or math.huge waits for ever, 0 does not
 * wait.  Negative numbers and NaN are errors.
 */
uint64_t lids_check_timeout_ns(lua_State *L, int index);

/*
 * Options.  `index` holds a table, or nothing at all.  A key that is not among
 * `names` raises, with the nearest name as a suggestion.
 */
void lids_check_options(lua_State *L, int index, const char *const *names);
/* Field `name` as a duration: seconds, or false for never; 0 is at once, which in a C
 * configuration it is not. */
uint64_t lids_option_duration_ns(lua_State *L, int index, const char *name, uint64_t absent_ns);
/* Field `name` as a whole number within the limits. */
lua_Integer lids_option_integer(lua_State *L, int index, const char *name, lua_Integer absent,
                                lua_Integer least, lua_Integer most);
/* The string at `index`, which has no NUL byte: C would know the beginning only. */
const char *lids_check_string(lua_State *L, int index);
/* Field `name` as such a string, or `absent`.  Leaves it on the stack. */
const char *lids_option_string(lua_State *L, int index, const char *name, const char *absent);
/* Field `name`, true or false, or `absent`. */
bool lids_option_boolean(lua_State *L, int index, const char *name, bool absent);

/*
 * Push true for 0, and for a negative status nil with its reason: "timeout",
 * "closed", "deadlock", "full", "cancelled", or message and number.  How many values that are.
 */
int lids_push_status(lua_State *L, int status);

/* A count as a field of the table on top of the stack. */
void lids_set_integer(lua_State *L, const char *name, uint64_t value);
/* A field of the table at `index` as a count: 0 if it is none. */
uint64_t lids_get_integer(lua_State *L, int index, const char *name);

/* Words for people, of any length.  (A luaL_Buffer has the top of the stack to itself.) */
void lids_add_format(luaL_Buffer *text, const char *format, ...)
  __attribute__((format(printf, 2, 3)));
/* "" for one, "s" for more. */
const char *lids_plural(uint64_t count);
double lids_mib(uint64_t bytes);

/* Nanoseconds as seconds. */
lua_Number lids_seconds(uint64_t duration_ns);

#endif
