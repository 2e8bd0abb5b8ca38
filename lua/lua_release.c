/* SPDX-License-Identifier: MIT */
/*
 * lua_release.c - see lua_release.h.
 */
#include "lua_release.h"

#include <lauxlib.h>
#include <stdbool.h>

#include "idlesched.h"
#include "lua_pool.h"
#include "lua_report.h"
#include "lua_state.h"
#include "lua_util.h"

/* More are a mistake; for each pool of the process the list is searched from its begin. */
#define POOLS_MOST 100000

/* What else is in the table would be left out in silence. */
static void check_is_list(lua_State *L, int list, lua_Unsigned count) {
  for (lua_pushnil(L); lua_next(L, list) != 0; lua_pop(L, 1)) {
    bool is_index = lua_isinteger(L, -2) && (lua_Unsigned)lua_tointeger(L, -2) - 1 < count;
    if (!is_index)
      luaL_argerror(L, 1,
                    lua_pushfstring(L, "option 'pools': a list of pools expected, got key '%s'",
                                    luaL_tolstring(L, -2, NULL)));
  }
}

/*
 * Field `pools` of the options at 1, as an array of the pools' cores, or NULL when all are
 * meant.  Pushes the array, and a table that keeps the pools: a finaliser may empty the list.
 */
static idlesched_pool *const *check_pools(lua_State *L, unsigned *out_count) {
  *out_count = 0;
  if (lua_isnoneornil(L, 1) || lua_getfield(L, 1, "pools") == LUA_TNIL)
    return NULL;
  if (!lua_istable(L, -1))
    luaL_argerror(
      L, 1,
      lua_pushfstring(L, "option 'pools': a list of pools expected, got %s", luaL_typename(L, -1)));
  int list = lua_gettop(L);
  lua_Unsigned count = lua_rawlen(L, list);
  if (count > POOLS_MOST)
    luaL_argerror(L, 1,
                  lua_pushfstring(L, "option 'pools': at most %d pools expected, got %I",
                                  POOLS_MOST, (lua_Integer)count));
  check_is_list(L, list, count);
  idlesched_pool **cores = lua_newuserdatauv(L, (count + 1) * sizeof(idlesched_pool *), 0);
  lua_createtable(L, (int)count, 0);
  for (lua_Unsigned i = 0; i < count; i++) {
    struct lids_pool_view view;
    lua_rawgeti(L, list, (lua_Integer)i + 1);
    if (!lids_pool_view(L, -1, &view))
      luaL_argerror(L, 1,
                    lua_pushfstring(L, "option 'pools': a pool expected at %I, got %s",
                                    (lua_Integer)i + 1, luaL_typename(L, -1)));
    cores[i] = view.core;
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  *out_count = (unsigned)count;
  return cores;
}

int lids_release(lua_State *L) {
  static const char *const names[] = { "timeout", "pools", NULL };
  lids_check_options(L, 1, names);
  uint64_t timeout_ns = lids_option_duration_ns(L, 1, "timeout", IDLESCHED_S);
  unsigned count;
  idlesched_pool *const *pools = check_pools(L, &count);
  struct lids_report_begin begin;
  lids_report_begin(L, &begin);

  idlesched_release_report report;
  int status = pools == NULL ? idlesched_release(timeout_ns, &report)
                             : idlesched_release_pools(pools, count, timeout_ns, &report);
  return lids_report_push(L, &begin, &report, status);
}

int lids_purge_all(lua_State *L) {
  idlesched_release_report report;
  struct lids_report_begin begin;
  lids_report_begin(L, &begin);
  idlesched_purge_all(&report);
  return lids_report_push(L, &begin, &report, 0);
}
