/* SPDX-License-Identifier: MIT */
/*
 * lua_pressure.c - see lua_pressure.h.
 *
 * A watcher knows the watch that it began by its number.  So it ends that one, and not
 * another's: in a child process, or when its own has come to an end by itself.
 */
#include "lua_pressure.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

#include "idlesched.h"
#include "lua_util.h"

#define WATCHER_TYPE "idlesched.watcher"

struct watcher {
  bool is_open;
  uint64_t number;               /* of its start */
  idlesched_pressure_stats last; /* as they were when it was closed */
};

/* ------------------------------------------------------------------------- new */

static const char *const option_names[] = {
  "stall", "window", "cooldown", "timeout", "path", NULL
};

/* A duration within limits, where for ever is not one of them. */
static uint64_t check_between(lua_State *L, const char *name, uint64_t absent_ns, uint64_t least_ns,
                              uint64_t most_ns) {
  uint64_t duration_ns = lids_option_duration_ns(L, 1, name, absent_ns);
  if (duration_ns >= least_ns && duration_ns <= most_ns)
    return duration_ns;
  lua_getfield(L, 1, name);
  luaL_argerror(L, 1,
                lua_pushfstring(L, "option '%s': %f to %f seconds expected, got %s", name,
                                lids_seconds(least_ns), lids_seconds(most_ns),
                                luaL_tolstring(L, -1, NULL)));
  return 0;
}

static int push_refusal(lua_State *L, int status, const char *path) {
  lua_pushnil(L);
  if (status == -EALREADY) {
    lua_pushliteral(L, "already watched");
    return 2;
  }
  if (path != NULL && (status == -EBADMSG || status == -ENAMETOOLONG))
    lua_pushfstring(L, "%s: %s", path, idlesched_strerror(status));
  else if (path != NULL)
    lua_pushfstring(L, "%s: %s", path, strerror(-status));
  else if (status == -ENOTSUP)
    lua_pushliteral(L, "the kernel tells of no memory pressure: it has no PSI, or not switched on");
  else
    lua_pushstring(L, strerror(-status));
  lua_pushinteger(L, -status);
  return 3;
}

int lids_pressure_watch(lua_State *L) {
  lua_settop(L, 1);
  lids_check_not_in_finalizer(L, "watch_pressure");
  lids_check_options(L, 1, option_names);
  uint64_t window_ns = check_between(L, "window", IDLESCHED_S, 500 * IDLESCHED_MS,
                                     10 * IDLESCHED_S);
  const idlesched_pressure_config config = {
    .window_ns = window_ns,
    .stall_ns = check_between(L, "stall", window_ns / 10, IDLESCHED_US, window_ns),
    .cooldown_ns = lids_option_duration_ns(L, 1, "cooldown", 10 * IDLESCHED_S),
    .timeout_ns = lids_option_duration_ns(L, 1, "timeout", IDLESCHED_S),
    .path = lids_option_string(L, 1, "path", NULL),
  };
  struct watcher *self = lua_newuserdatauv(L, sizeof *self, 0);
  *self = (struct watcher){ 0 };
  luaL_setmetatable(L, WATCHER_TYPE);
  int status = idlesched_pressure_start(&config);
  if (status != 0)
    return push_refusal(L, status, config.path);
  idlesched_pressure_stats stats;
  idlesched_pressure_stats_read(&stats);
  self->number = stats.starts_count;
  self->is_open = true;
  return 1;
}

/* -------------------------------------------------------------------- the watcher */

/* What is so of its own watch, now or at its end. */
static idlesched_pressure_stats stats_of(const struct watcher *self) {
  idlesched_pressure_stats stats;
  idlesched_pressure_stats_read(&stats);
  return self->is_open && stats.starts_count == self->number ? stats : self->last;
}

/* watcher:close(), __close and __gc: waits for the release that is under way */
static int watcher_end(lua_State *L) {
  struct watcher *self = luaL_checkudata(L, 1, WATCHER_TYPE);
  if (!self->is_open)
    return 0;
  idlesched_pressure_stats stats;
  idlesched_pressure_stats_read(&stats);
  if (stats.starts_count == self->number)
    idlesched_pressure_stop();
  self->last = stats_of(self);
  self->last.is_watching = false;
  self->is_open = false;
  return 0;
}

/* watcher:stats() -> see the types for its fields */
static int watcher_stats(lua_State *L) {
  const struct watcher *self = luaL_checkudata(L, 1, WATCHER_TYPE);
  idlesched_pressure_stats stats = stats_of(self);
  lua_createtable(L, 0, 7);
  lua_pushboolean(L, stats.is_watching);
  lua_setfield(L, -2, "watching");
  if (stats.is_watching) {
    lua_pushstring(L, stats.path);
    lua_setfield(L, -2, "path");
    lua_pushboolean(L, stats.has_trigger);
    lua_setfield(L, -2, "trigger");
    lua_pushnumber(L, lids_seconds(stats.window_ns));
    lua_setfield(L, -2, "window");
  }
  lids_set_integer(L, "events", stats.events_count);
  lids_set_integer(L, "releases", stats.releases_count);
  lids_set_integer(L, "returned", stats.returned_bytes);
  return 1;
}

static int watcher_tostring(lua_State *L) {
  const struct watcher *self = luaL_checkudata(L, 1, WATCHER_TYPE);
  idlesched_pressure_stats stats = stats_of(self);
  if (stats.is_watching)
    lua_pushfstring(L, "idlesched.watcher: of %s", stats.path);
  else
    lua_pushliteral(L, "idlesched.watcher: ended");
  return 1;
}

static const luaL_Reg methods[] = {
  { "close", watcher_end },
  { "stats", watcher_stats },
  { NULL, NULL },
};

static const luaL_Reg metamethods[] = {
  { "__gc", watcher_end },
  { "__close", watcher_end },
  { "__tostring", watcher_tostring },
  { NULL, NULL },
};

void lids_pressure_open(lua_State *L) {
  lids_class(L, WATCHER_TYPE, methods, metamethods);
}
