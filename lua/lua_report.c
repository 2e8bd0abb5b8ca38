/* SPDX-License-Identifier: MIT */
/*
 * lua_report.c - see lua_report.h.
 */
#include "lua_report.h"

#include <errno.h>

#include "lua_util.h"

static void set_workers(lua_State *L, const idlesched_release_report *report) {
  lids_set_integer(L, "pools", report->pools_count);
  lids_set_integer(L, "visited", report->visited_count);
  lids_set_integer(L, "missed", report->missed_count);
  lids_set_integer(L, "missed_running", report->missed_running_count);
  lids_set_integer(L, "missed_starting", report->missed_starting_count);
  lids_set_integer(L, "missed_exiting", report->missed_exiting_count);
}

/* The field `kept`: why the rest is still there. */
static void set_kept(lua_State *L, const idlesched_release_report *report) {
  lua_createtable(L, 0, 3);
  lids_set_integer(L, "live", report->kept_live_bytes);
  lids_set_integer(L, "free", report->kept_free_bytes);
  lids_set_integer(L, "other", report->kept_other_bytes);
  lua_setfield(L, -2, "kept");
}

/* The field `heaps`: a row for each allocator. */
static void set_heaps(lua_State *L, const idlesched_release_report *report) {
  lua_createtable(L, IDLESCHED_HEAPS_MAX, 0);
  for (int i = 0; i < IDLESCHED_HEAPS_MAX && report->after[i].name != NULL; i++) {
    lua_createtable(L, 0, 5);
    lua_pushstring(L, report->after[i].name);
    lua_setfield(L, -2, "name");
    lids_set_integer(L, "before", report->before[i].resident_bytes);
    lids_set_integer(L, "after", report->after[i].resident_bytes);
    lids_set_integer(L, "live", report->after[i].live_bytes);
    lids_set_integer(L, "free", report->after[i].free_bytes);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "heaps");
}

int lids_report_push(lua_State *L, const idlesched_release_report *report, int status) {
  if (status != 0 && status != -ETIMEDOUT)
    return lids_push_status(L, status);
  lua_createtable(L, 0, 16);
  set_workers(L, report);
  lids_set_integer(L, "before", report->anonymous_before_bytes);
  lids_set_integer(L, "after", report->anonymous_after_bytes);
  lids_set_integer(L, "returned", report->returned_bytes);
  set_kept(L, report);
  set_heaps(L, report);
  lua_pushinteger(L, report->purge_delay_ms);
  lua_setfield(L, -2, "purge_delay");
  lua_pushboolean(L, report->lifted_guards);
  lua_setfield(L, -2, "lifted_guards");
  lua_pushnumber(L, lids_seconds(report->time_ns));
  lua_setfield(L, -2, "time");
  lua_pushboolean(L, status == 0);
  lua_setfield(L, -2, "complete");
  lua_pushstring(L, idlesched_allocator());
  lua_setfield(L, -2, "allocator");
  return 1;
}
