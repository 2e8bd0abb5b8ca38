/* SPDX-License-Identifier: MIT */
/*
 * lua_guard.c - see lua_guard.h.
 *
 * A guard ends exactly once, whatever comes first: close(), the end of its
 * <close> variable, an error that passes it, the collector, or the end of the
 * Lua state.  With the last two nobody has ended it, so it was forgotten: then it
 * says where it was made.
 *
 * With an allocator that has no options a guard is one all the same, and holds nothing.
 */
#include "lua_guard.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "idlesched.h"
#include "lua_util.h"

#define GUARD_TYPE "idlesched.guard"
#define NAME_BYTES 32

struct guard {
  idlesched_override override; /* entered while it is held and has an effect */
  bool is_held;
  bool has_effect;
  uint64_t since_ns;
  const char *maker; /* the function that made it: a literal */
  char option[NAME_BYTES];
  char place[64]; /* in a script, as far as idlesched_option_holder shows it */
};

/* ---------------------------------------------------------------------- its maker */

/*
 * "script.lua:12" of the nearest Lua function that called, or "?" if there is none.  Of a
 * long name the end is kept: it has the file, and the line.
 */
static void note_place(lua_State *L, char *place, size_t size) {
  lua_Debug frame;
  char text[LUA_IDSIZE + 16] = "?";
  for (int level = 1; lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline > 0) {
      snprintf(text, sizeof text, "%s:%d", frame.short_src, frame.currentline);
      break;
    }
  }
  size_t length = strlen(text);
  if (length < size)
    memcpy(place, text, length + 1);
  else
    snprintf(place, size, "...%s", text + length - (size - 1 - 3));
}

static struct guard *push_guard(lua_State *L, const char *maker) {
  lids_check_not_in_finalizer(L, maker);
  struct guard *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (struct guard){ .maker = maker };
  luaL_setmetatable(L, GUARD_TYPE);
  note_place(L, self->place, sizeof self->place);
  return self;
}

/* 0, also where there is nothing to hold, or -EINVAL or -EPERM. */
static int hold(struct guard *self, const char *option, lua_Integer value) {
  int status = idlesched_override_enter(&self->override, option, value, self->place);
  if (status != 0 && status != -ENOTSUP)
    return status;
  snprintf(self->option, sizeof self->option, "%s", option);
  self->since_ns = idlesched_now_ns();
  self->has_effect = status == 0;
  self->is_held = true;
  return 0;
}

int lids_guard_eager_purge(lua_State *L) {
  (void)hold(push_guard(L, "eager_purge"), "purge_delay", 0); /* there is this option */
  return 1;
}

static bool find_option(const char *name, idlesched_option_info *out) {
  for (unsigned i = 0; idlesched_option_read(i, out) == 0; i++)
    if (strcmp(out->name, name) == 0)
      return true;
  return false;
}

static int refuse(lua_State *L, const char *name, lua_Integer value) {
  idlesched_option_info info;
  const char *reason = idlesched_option_reason(name);
  if (reason == NULL && find_option(name, &info))
    return luaL_argerror(L, 2,
                         lua_pushfstring(L, "a %s from %I to %I expected, got %I", name,
                                         (lua_Integer)info.least, (lua_Integer)info.most, value));
  return luaL_argerror(L, 1, lua_pushfstring(L, "'%s': %s", name, reason));
}

int lids_guard_option(lua_State *L) {
  const char *name = lids_check_string(L, 1);
  lua_Integer value = luaL_checkinteger(L, 2);
  if (hold(push_guard(L, "option"), name, value) != 0)
    return refuse(L, name, value);
  return 1;
}

/* ------------------------------------------------------------------------ its end */

/* Whether it was held until now. */
static bool end(struct guard *self) {
  bool was_held = self->is_held;
  self->is_held = false;
  if (was_held && self->has_effect)
    idlesched_override_leave(&self->override);
  return was_held;
}

/* guard:close() and __close */
static int guard_close(lua_State *L) {
  (void)end(luaL_checkudata(L, 1, GUARD_TYPE));
  return 0;
}

/* Allocates nothing: it may be for want of memory that the collector runs. */
static int guard_gc(lua_State *L) {
  struct guard *self = luaL_checkudata(L, 1, GUARD_TYPE);
  if (!end(self))
    return 0;
  char text[NAME_BYTES + sizeof self->place + 128];
  snprintf(text, sizeof text,
           "idlesched: nobody ended the guard of %s that was made at %s; it was held for %.3f s",
           self->option, self->place, lids_seconds(idlesched_now_ns() - self->since_ns));
  lua_warning(L, text, 0);
  return 0;
}

static int guard_tostring(lua_State *L) {
  struct guard *self = luaL_checkudata(L, 1, GUARD_TYPE);
  bool is_eager = strcmp(self->maker, "eager_purge") == 0;
  lua_pushfstring(L, "idlesched.%s%s%s: %s", self->maker, is_eager ? "" : " ",
                  is_eager ? "" : self->option, self->is_held ? "held" : "ended");
  return 1;
}

/* ----------------------------------------------------------------------- all options */

/* The latest of them; in a child process some are of the parent's. */
static void push_holders(lua_State *L, const idlesched_option_info *info) {
  unsigned rows_count = info->holders_count < IDLESCHED_HOLDERS_MAX ? info->holders_count
                                                                    : IDLESCHED_HOLDERS_MAX;
  lua_createtable(L, (int)rows_count, 0);
  for (unsigned i = 0; i < rows_count; i++) {
    const idlesched_option_holder *holder = &info->holders[i];
    lua_createtable(L, 0, 3);
    lua_pushstring(L, holder->name[0] == '\0' ? "?" : holder->name);
    lua_setfield(L, -2, "name");
    lua_pushnumber(L, lids_seconds(holder->since_ns));
    lua_setfield(L, -2, "since");
    lua_pushinteger(L, holder->value);
    lua_setfield(L, -2, "value");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static void push_option(lua_State *L, const idlesched_option_info *info) {
  lua_createtable(L, 0, 8);
  lua_pushstring(L, info->name);
  lua_setfield(L, -2, "name");
  lua_pushinteger(L, info->value);
  lua_setfield(L, -2, "value");
  lua_pushinteger(L, info->put_back);
  lua_setfield(L, -2, "default");
  lua_pushinteger(L, info->least);
  lua_setfield(L, -2, "least");
  lua_pushinteger(L, info->most);
  lua_setfield(L, -2, "most");
  lua_pushboolean(L, info->is_overridden);
  lua_setfield(L, -2, "overridden");
  lids_set_integer(L, "held", info->holders_count);
  push_holders(L, info);
  lua_setfield(L, -2, "holders");
}

int lids_guard_options(lua_State *L) {
  idlesched_option_info info;
  lua_newtable(L);
  for (unsigned i = 0; idlesched_option_read(i, &info) == 0; i++) {
    push_option(L, &info);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static const luaL_Reg methods[] = {
  { "close", guard_close },
  { NULL, NULL },
};

static const luaL_Reg metamethods[] = {
  { "__gc", guard_gc },
  { "__close", guard_close },
  { "__tostring", guard_tostring },
  { NULL, NULL },
};

void lids_guard_open(lua_State *L) {
  lids_class(L, GUARD_TYPE, methods, metamethods);
}
