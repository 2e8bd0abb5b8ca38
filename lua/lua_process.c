/* SPDX-License-Identifier: MIT */
/*
 * lua_process.c - see lua_process.h.
 */
#include "lua_process.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "lua_memory.h"
#include "lua_util.h"

#define MEMORY_TYPE "idlesched.memory"

/* ------------------------------------------------------------- the calling state */

/* What a worker's state has is counted; so is all of the C library's heap, which tells. */
static uint64_t own_bytes(lua_State *L, const idlesched_heap_memory *heaps) {
  bool is_counted = heaps[1].name != NULL || strcmp(idlesched_allocator(), "system") == 0 ||
                    lua_getallocf(L, NULL) == lids_memory_allocate;
  int kib = lua_gc(L, LUA_GCCOUNT); /* in a finaliser Lua does not tell: below 0 */
  if (is_counted || kib < 0)
    return 0;
  return (uint64_t)kib * 1024 + (uint64_t)lua_gc(L, LUA_GCCOUNTB);
}

uint64_t lids_process_count_own(lua_State *L, idlesched_heap_memory *heaps) {
  uint64_t own = own_bytes(L, heaps);
  if (own > heaps[0].free_bytes)
    own = heaps[0].free_bytes;
  heaps[0].live_bytes += own;
  heaps[0].free_bytes -= own;
  return own;
}

int lids_process_read(lua_State *L, idlesched_memory *out) {
  int status = idlesched_memory_read(out);
  uint64_t own = lids_process_count_own(L, out->heaps);
  out->live_bytes += own;
  /* Without purges what is free is not among them. */
  out->releasable_bytes -= own < out->releasable_bytes ? own : out->releasable_bytes;
  return status;
}

/* --------------------------------------------------------------------- in words */

void lids_process_add_heaps(luaL_Buffer *text, const idlesched_heap_memory *heaps,
                            uint64_t elsewhere_bytes) {
  for (int i = 0; i < IDLESCHED_HEAPS_MAX && heaps[i].name != NULL; i++)
    lids_add_format(text, "  %-16s %8.1f MiB: %.1f in use, %.1f free\n", heaps[i].name,
                    lids_mib(heaps[i].resident_bytes), lids_mib(heaps[i].live_bytes),
                    lids_mib(heaps[i].free_bytes));
  lids_add_format(text, "  %-16s %8.1f MiB: stacks, data, other heaps\n", "elsewhere",
                  lids_mib(elsewhere_bytes));
}

void lids_process_add(luaL_Buffer *text, const idlesched_memory *memory) {
  uint64_t elsewhere_bytes = memory->anonymous_bytes;
  for (int i = 0; i < IDLESCHED_HEAPS_MAX; i++) {
    uint64_t bytes = memory->heaps[i].resident_bytes;
    elsewhere_bytes -= bytes < elsewhere_bytes ? bytes : elsewhere_bytes;
  }
  lids_add_format(text, "%.1f MiB of private memory, %" PRIu64 " thread%s\n",
                  lids_mib(memory->anonymous_bytes), memory->threads_count,
                  lids_plural(memory->threads_count));
  lids_process_add_heaps(text, memory->heaps, elsewhere_bytes);
  lids_add_format(text, "A release can give back %.1f MiB at most, and this script's garbage\n",
                  lids_mib(memory->releasable_bytes));
}

/* -------------------------------------------------------------------- the table */

/* The allocators of the process, as a list. */
static void push_heaps(lua_State *L, const idlesched_heap_memory *heaps) {
  lua_createtable(L, IDLESCHED_HEAPS_MAX, 0);
  for (int i = 0; i < IDLESCHED_HEAPS_MAX && heaps[i].name != NULL; i++) {
    lua_createtable(L, 0, 4);
    lua_pushstring(L, heaps[i].name);
    lua_setfield(L, -2, "name");
    lids_set_integer(L, "resident", heaps[i].resident_bytes);
    lids_set_integer(L, "live", heaps[i].live_bytes);
    lids_set_integer(L, "free", heaps[i].free_bytes);
    lua_rawseti(L, -2, i + 1);
  }
}

int lids_process_memory(lua_State *L) {
  idlesched_memory memory;
  int status = lids_process_read(L, &memory);
  if (status != 0)
    return lids_push_status(L, status);
  lua_createtable(L, 0, 8);
  lids_set_integer(L, "resident", memory.resident_bytes);
  lids_set_integer(L, "anonymous", memory.anonymous_bytes);
  lids_set_integer(L, "huge", memory.huge_bytes);
  lids_set_integer(L, "threads", memory.threads_count);
  lids_set_integer(L, "live", memory.live_bytes);
  lids_set_integer(L, "dead", memory.dead_bytes);
  lids_set_integer(L, "releasable", memory.releasable_bytes);
  push_heaps(L, memory.heaps);
  lua_setfield(L, -2, "heaps");
  luaL_setmetatable(L, MEMORY_TYPE);
  return 1;
}

void lids_process_get_heaps(lua_State *L, int index, const char *resident,
                            idlesched_heap_memory *out) {
  memset(out, 0, IDLESCHED_HEAPS_MAX * sizeof *out);
  bool is_list = lua_getfield(L, index, "heaps") == LUA_TTABLE;
  int list = lua_gettop(L);
  for (int i = 0; is_list && i < IDLESCHED_HEAPS_MAX; i++) {
    if (lua_rawgeti(L, list, i + 1) != LUA_TTABLE)
      return;
    int row = lua_gettop(L);
    out[i].resident_bytes = lids_get_integer(L, row, resident);
    out[i].live_bytes = lids_get_integer(L, row, "live");
    out[i].free_bytes = lids_get_integer(L, row, "free");
    out[i].name = lua_getfield(L, row, "name") == LUA_TSTRING ? lua_tostring(L, -1) : "?";
  }
}

/* As it was when it was read, as far as its fields are still there. */
static int memory_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  idlesched_memory memory = { .anonymous_bytes = lids_get_integer(L, 1, "anonymous"),
                              .threads_count = lids_get_integer(L, 1, "threads"),
                              .releasable_bytes = lids_get_integer(L, 1, "releasable") };
  lids_process_get_heaps(L, 1, "resident", memory.heaps);
  luaL_Buffer text;
  luaL_buffinit(L, &text);
  lids_process_add(&text, &memory);
  luaL_buffsub(&text, 1); /* the last line's end */
  luaL_pushresult(&text);
  return 1;
}

void lids_process_open(lua_State *L) {
  lids_text_class(L, MEMORY_TYPE, memory_tostring);
}
