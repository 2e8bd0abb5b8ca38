/* SPDX-License-Identifier: MIT */
/*
 * lua_report.h - what a release found and gave back, as a table.
 */
#ifndef LIDS_LUA_REPORT_H
#define LIDS_LUA_REPORT_H

#include <lua.h>

#include "idlesched.h"

void lids_report_open(lua_State *L);

/* What there was before. */
struct lids_report_begin {
  uint64_t began_ns;
  idlesched_memory memory;
};

/*
 * What a release begins with: a look at the memory, and then a full collection of the calling
 * state, repeated until its count stops falling, as one leaves half of the string table, and
 * what has a finaliser.  May run finalisers, and raise what the collector raises.
 */
void lids_report_begin(lua_State *L, struct lids_report_begin *out);

/*
 * Push the report, with what the collection gave back, or what lids_push_status() does where
 * nothing was done; `status` is that of the release.  How many values that are.
 */
int lids_report_push(lua_State *L, const struct lids_report_begin *begin,
                     const idlesched_release_report *report, int status);

#endif
