/* SPDX-License-Identifier: MIT */
/*
 * lua_value_name.h - what a value is called: by the modules that are loaded, as C
 * functions and modules' tables are sent by name; and in an error message.
 *
 * A module is what package.loaded holds.  When a value goes by several names there,
 * those of the standard libraries are taken first, since every state has them, then
 * the shortest, then the first in the order of bytes: the order in a table differs
 * from state to state, and no name may depend on it.
 *
 * To compare every table with package.loaded would cost 35 ns for each loaded
 * module, 0.4..3 us in all, as much as everything else about a small message.  So
 * a table of plain data is copied without a question, which loses nothing, also
 * when it is a module's.  Only when a table turns out to hold something else does
 * the packer look up the modules, and start over.  From then on their tables, as
 * far as they are no plain data, are known to the state by their addresses.
 */
#ifndef LIDS_LUA_VALUE_NAME_H
#define LIDS_LUA_VALUE_NAME_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

#include "lua_value_block.h"
#include "lua_value_cache.h"

/* The modules, for one message.  Nothing here allocates in the state. */
struct lids_names {
  lua_State *L;
  struct lids_block *block;
  struct lids_value_cache *cache;
  int names_index;      /* the cache's table, on the stack */
  bool are_noted;       /* in the block */
  uint32_t walks_count; /* of tables, to see if they are plain */
};

/* Note in the block which tables are modules'.  May raise. */
void lids_names_note(struct lids_names *self);

/*
 * If the table at `index` is a module's and has to be sent by name, push the name
 * and return true.  Before the modules were noted only some of them are found.
 * May raise.
 */
bool lids_names_push_table_name(struct lids_names *self, int index);

/*
 * If the C function at `index` has a name, push those of the module and the field,
 * and return true.  The latter is nil when the module is that function.
 */
bool lids_names_push_function_name(struct lids_names *self, int index);

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
void lids_path_push(lua_State *L, const struct lids_step *last,
                    const char *(*label)(lua_State *L, int position));

#endif
