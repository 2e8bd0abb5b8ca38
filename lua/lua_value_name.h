/* SPDX-License-Identifier: MIT */
/*
 * lua_value_name.h - what a value is called: by the modules that are loaded, and in
 * an error message.
 *
 * A module is what package.loaded holds.  When a value goes by several names there,
 * those of the standard libraries are taken first, since every state has them, then
 * the shortest, then the first in the order of bytes: the order in a table differs
 * from state to state, and no name may depend on it.
 */
#ifndef LIDS_LUA_VALUE_NAME_H
#define LIDS_LUA_VALUE_NAME_H

#include <lua.h>
#include <stdbool.h>

/* Both push nothing when there is no such name, and allocate nothing. */
/* Push the name of the module whose table is at `index`. */
bool lids_name_push_module(lua_State *L, int index);
/* Push the module's name and the field's name of the C function at `index`; the
 * latter is nil for a module that is that function. */
bool lids_name_push_function(lua_State *L, int index, int names_index);

/* One step on the way from a message to a value in it.  Indices are those of the
 * stack while the message is packed. */
struct lids_step {
  const struct lids_step *up; /* NULL for a VALUE */
  enum lids_step_kind {
    LIDS_STEP_VALUE,  /* number: position in the message */
    LIDS_STEP_FIELD,  /* index: the key whose value it is */
    LIDS_STEP_KEY,    /* index: the key that it is */
    LIDS_STEP_UPVALUE /* index: the function; number: of its upvalue */
  } kind;
  int index;
  int number;
};

/* Push the path as a user would write it: argument 2.config[3], upvalue 'cb' of
 * function <a.lua:10>.  `label` as for lids_value_pack(). */
void lids_name_push_path(lua_State *L, const struct lids_step *last,
                         const char *(*label)(lua_State *L, int position));

#endif
