/* SPDX-License-Identifier: MIT */
/*
 * lua_value.h - values on their way from one Lua state to another.
 *
 * What a job is called with goes from its owner's state to a worker's, and what it
 * returns goes back.  The sender packs the values into a message: one block of
 * plain memory that any thread may hold, count or free.  The receiver unpacks it,
 * whenever it likes.  No function here ever touches two states, so there is no
 * lock, and an error on one side stays there.
 *
 * What travels, and how it arrives
 *
 *   nil, booleans, numbers   integers stay integers, floats stay floats, bit for
 *                            bit; trailing nils count
 *   strings                  with whatever bytes they hold
 *   light userdata           as the address that it is
 *   tables                   by copy, without limits on what are keys.  A table
 *                            that occurs twice in a message arrives as one table,
 *                            so cycles are fine
 *   Lua functions            by copy, with their upvalues, debug information
 *                            included.  Two functions that share an upvalue share
 *                            one at the other end too, but none with the sender.
 *                            An upvalue called _ENV becomes the receiver's table
 *                            of globals, whatever it was: a test runner's is a
 *                            proxy that cannot travel
 *   C functions              by name, as `string.format`: the receiver looks up
 *                            what it has there, and requires the module for it
 *   modules' tables          by name, when there is anything in them that is no
 *                            plain data.  A copy could lose some of it, and a
 *                            library is there to be required.  A module of plain
 *                            data is copied like any table, with what the sender
 *                            has changed in it
 *
 * What is refused: tables with a metatable that are no modules, full userdata,
 * coroutines, C functions that no loaded module has, values nested deeper than
 * LIDS_VALUE_DEPTH_MAX, messages above LIDS_MESSAGE_BYTES_MAX.  The error names
 * the value by its path, and the remedy:
 *
 *   cannot send argument 2.config.handlers[3], upvalue 'cb.log' of function
 *   <a.lua:10> (a userdata 'FILE*'): ...
 *
 * Nothing of the user's runs while values are packed: no metamethod, and no
 * finaliser either, since no object is made in the state until the last value is
 * in the block.  So a message is one moment's view of the values.
 */
#ifndef LIDS_LUA_VALUE_H
#define LIDS_LUA_VALUE_H

#include <lua.h>
#include <stddef.h>

/* Tables in tables and functions in upvalues.  Both sides recurse in C, and this
 * many levels take them about 50 KiB of stack. */
#define LIDS_VALUE_DEPTH_MAX 200
/* A job with more than that to say has a better way: a file, say. */
#define LIDS_MESSAGE_BYTES_MAX ((size_t)64 * 1024 * 1024)

struct lids_message;

/* Prepare a state, sender or receiver.  May be repeated.  May raise. */
void lids_value_open(lua_State *L);

/* Drop what the state remembers to send and get functions faster, up to 128 of them
 * and 1 MiB each way: for a state that has nothing to do.  Needs 4 stack slots. */
void lids_value_forget(lua_State *L);

/*
 * Pack the values from stack index `first` to the top, which stay there.  Raises
 * an error when one cannot travel, a string; nothing is left behind then.  The
 * message is the caller's.
 *
 *   label  returns how to call the value at that position, the first being 1:
 *          "argument 2".  It may leave values on the stack.  NULL: "value N".
 */
struct lids_message *lids_value_pack(lua_State *L, int first,
                                     const char *(*label)(lua_State *L, int position));

/* Push all values of a message, and return how many that are.  May raise, and may
 * run code of modules that the values need.  The message stays the caller's. */
int lids_value_unpack(lua_State *L, const struct lids_message *message);

/* The same for a function and its arguments, to be called at once and forgotten:
 * the function may be one that came before, if the globals are all it uses. */
int lids_value_unpack_call(lua_State *L, const struct lids_message *message);

/* On any thread; NULL is fine. */
void lids_message_free(struct lids_message *message);
/* Bytes of it; 0 for NULL. */
size_t lids_message_size(const struct lids_message *message);

#endif
