/* SPDX-License-Identifier: MIT */
/*
 * lua_report.c - see lua_report.h.
 */
#include "lua_report.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "lua_process.h"
#include "lua_state.h"
#include "lua_util.h"

#define REPORT_TYPE "idlesched.report"

void lids_report_begin(lua_State *L, struct lids_report_begin *out) {
  out->began_ns = idlesched_now_ns();
  (void)idlesched_memory_read(&out->memory); /* what the system does not tell is 0 */
  lids_collect_fully(L);
}

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

/* The core's report, as of the calling state: begun before its collection, and with its own
 * blocks. */
static idlesched_release_report as_of_state(lua_State *L, const struct lids_report_begin *begin,
                                            const idlesched_release_report *core_report) {
  idlesched_release_report report = *core_report;
  uint64_t before_bytes = begin->memory.anonymous_bytes;
  uint64_t after_bytes = report.anonymous_after_bytes;
  report.anonymous_before_bytes = before_bytes;
  report.returned_bytes = before_bytes > after_bytes ? before_bytes - after_bytes : 0;
  memcpy(report.before, begin->memory.heaps, sizeof report.before);
  report.time_ns = idlesched_now_ns() - begin->began_ns;
  uint64_t own_bytes = lids_process_count_own(L, report.after);
  report.kept_live_bytes += own_bytes;
  report.kept_free_bytes -= own_bytes;
  return report;
}

int lids_report_push(lua_State *L, const struct lids_report_begin *begin,
                     const idlesched_release_report *core_report, int status) {
  if (status != 0 && status != -ETIMEDOUT)
    return lids_push_status(L, status);
  const idlesched_release_report of_state = as_of_state(L, begin, core_report);
  const idlesched_release_report *report = &of_state;
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
  luaL_setmetatable(L, REPORT_TYPE);
  return 1;
}

/* ------------------------------------------------------------------ in words */

/* "8 workers released, 2 missed: 1 running, 0 starting, 1 ending" */
static void add_workers(luaL_Buffer *text, const idlesched_release_report *report) {
  lids_add_format(text, "  %u worker%s released", report->visited_count,
                  lids_plural(report->visited_count));
  if (report->missed_count > 0)
    lids_add_format(text, ", %u missed: %u running, %u starting, %u ending", report->missed_count,
                    report->missed_running_count, report->missed_starting_count,
                    report->missed_exiting_count);
  luaL_addchar(text, '\n');
}

/* As far as its fields are still there. */
static int report_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const idlesched_release_report report = {
    .visited_count = (unsigned)lids_get_integer(L, 1, "visited"),
    .missed_count = (unsigned)lids_get_integer(L, 1, "missed"),
    .missed_running_count = (unsigned)lids_get_integer(L, 1, "missed_running"),
    .missed_starting_count = (unsigned)lids_get_integer(L, 1, "missed_starting"),
    .missed_exiting_count = (unsigned)lids_get_integer(L, 1, "missed_exiting"),
    .returned_bytes = lids_get_integer(L, 1, "returned"),
    .anonymous_before_bytes = lids_get_integer(L, 1, "before"),
    .anonymous_after_bytes = lids_get_integer(L, 1, "after"),
  };
  lua_getfield(L, 1, "time");
  double time_ms = 1e3 * lua_tonumber(L, -1);
  bool has_kept = lua_getfield(L, 1, "kept") == LUA_TTABLE;
  uint64_t other_bytes = has_kept ? lids_get_integer(L, -1, "other") : 0;
  lua_settop(L, 1);
  idlesched_heap_memory heaps[IDLESCHED_HEAPS_MAX];
  lids_process_get_heaps(L, 1, "after", heaps);
  luaL_Buffer text;
  luaL_buffinit(L, &text);
  lids_add_format(&text, "%.1f MiB given back in %.1f ms: of %.1f MiB there are %.1f left\n",
                  lids_mib(report.returned_bytes), time_ms, lids_mib(report.anonymous_before_bytes),
                  lids_mib(report.anonymous_after_bytes));
  add_workers(&text, &report);
  lids_process_add_heaps(&text, heaps, other_bytes);
  luaL_buffsub(&text, 1); /* the last line's end */
  luaL_pushresult(&text);
  return 1;
}

void lids_report_open(lua_State *L) {
  lids_text_class(L, REPORT_TYPE, report_tostring);
}
