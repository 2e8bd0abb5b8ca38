/* SPDX-License-Identifier: MIT */
/*
 * lua_report.h - what a release found and gave back, as a table.
 */
#ifndef LIDS_LUA_REPORT_H
#define LIDS_LUA_REPORT_H

#include <lua.h>

#include "idlesched.h"

/* Push the report, or what lids_push_status() does where nothing was done; `status` is that of
 * the release.  How many values that are. */
int lids_report_push(lua_State *L, const idlesched_release_report *report, int status);

#endif
