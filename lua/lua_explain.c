/* SPDX-License-Identifier: MIT */
/*
 * lua_explain.c - why is my memory not back?  In words, for people.
 *
 * First where the process's memory is, then one line for each reason that keeps some of it:
 * workers that have not released, what their Lua states hold, overrides and settings of the
 * allocator, free blocks in used pages, heaps that are nobody's business here.
 */
#include "lua_explain.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "idlesched.h"
#include "lua_pool.h"
#include "lua_util.h"

/* Less is not worth a line. */
#define NOTABLE_BYTES (UINT64_C(256) * 1024)
#define LINE_BYTES_MAX 400

struct text {
  luaL_Buffer buffer;
  unsigned reasons_count;
};

static double mib(uint64_t bytes) {
  return (double)bytes / (1024 * 1024);
}

static const char *plural(uint64_t count) {
  return count == 1 ? "" : "s";
}

__attribute__((format(printf, 2, 3))) static void add(struct text *self, const char *format, ...) {
  char line[LINE_BYTES_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  luaL_addstring(&self->buffer, line);
}

/* The first reason brings the heading. */
static void begin_reason(struct text *self) {
  luaL_addstring(&self->buffer, self->reasons_count++ == 0 ? "\nWhat keeps memory here:\n" : "");
  luaL_addstring(&self->buffer, "  - ");
}

#define REASON(self, ...) (begin_reason(self), add(self, __VA_ARGS__))

/* -------------------------------------------------------------- where it is */

static void add_places(struct text *self, const idlesched_memory *memory) {
  uint64_t elsewhere_bytes = memory->anonymous_bytes;
  add(self, "%.1f MiB of private memory, %" PRIu64 " thread%s", mib(memory->anonymous_bytes),
      memory->threads_count, plural(memory->threads_count));
  add(self, "; a release can give back %.1f MiB at most\n", mib(memory->releasable_bytes));
  for (int i = 0; i < IDLESCHED_HEAPS_MAX && memory->heaps[i].name != NULL; i++) {
    const idlesched_heap_memory *heap = &memory->heaps[i];
    add(self, "  %-16s %8.1f MiB: %.1f in use, %.1f free\n", heap->name, mib(heap->resident_bytes),
        mib(heap->live_bytes), mib(heap->free_bytes));
    elsewhere_bytes -= heap->resident_bytes < elsewhere_bytes ? heap->resident_bytes
                                                              : elsewhere_bytes;
  }
  add(self, "  %-16s %8.1f MiB: stacks, data, other heaps\n", "elsewhere", mib(elsewhere_bytes));
}

/* ------------------------------------------------------------------- workers */

/* What the workers of a pool say of themselves. */
struct totals {
  unsigned waiting_count; /* idle, and not released yet */
  uint64_t used_bytes, dead_bytes;
};

static struct totals total(idlesched_pool *pool) {
  struct totals totals = { .waiting_count = 0 };
  idlesched_worker_row rows[LIDS_WORKERS_MOST];
  unsigned count = idlesched_pool_workers_read(pool, rows, LIDS_WORKERS_MOST);
  for (unsigned i = 0; i < count; i++) {
    const idlesched_worker_row *row = &rows[i];
    totals.waiting_count += row->state == IDLESCHED_WORKER_PARKED && !row->has_released;
    totals.used_bytes += row->live_bytes > row->dead_bytes ? row->live_bytes - row->dead_bytes : 0;
    totals.dead_bytes += row->dead_bytes;
  }
  return totals;
}

static void explain_pool(struct text *self, const struct lids_pool_view *pool) {
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool->core, &stats);
  if (stats.running > 0)
    REASON(self, "pool '%s': %u worker%s run jobs, and release when they have been idle\n",
           pool->name, stats.running, plural(stats.running));
  struct totals totals = total(pool->core);
  unsigned waiting = totals.waiting_count;
  if (waiting > 0 && pool->idle_release_ns == IDLESCHED_NEVER)
    REASON(self, "pool '%s': %u idle worker%s never release: idle_release is false\n", pool->name,
           waiting, plural(waiting));
  else if (waiting > 0)
    REASON(self, "pool '%s': %u idle worker%s will release, %g s after the last job\n", pool->name,
           waiting, plural(waiting), lids_seconds(pool->idle_release_ns));
  if (totals.used_bytes >= NOTABLE_BYTES)
    REASON(self, "pool '%s': the workers' Lua states use %.1f MiB, for what jobs have left\n",
           pool->name, mib(totals.used_bytes));
  if (totals.dead_bytes >= NOTABLE_BYTES)
    REASON(self, "pool '%s': %.1f MiB are garbage of jobs, collected with the next release\n",
           pool->name, mib(totals.dead_bytes));
}

/*
 * The pools of this state, as an array that is pushed, below it a table that keeps them:
 * while a buffer is being filled the stack is the buffer's, and the collector may run.
 */
static const struct lids_pool_view *list_pools(lua_State *L, unsigned *out_count) {
  lids_pools_push(L);
  int pools = lua_gettop(L);
  lua_newtable(L);
  int kept = lua_gettop(L);
  unsigned count = 0;
  for (lua_pushnil(L); lua_next(L, pools) != 0; lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_rawseti(L, kept, (lua_Integer)++count);
  }
  struct lids_pool_view *views = lua_newuserdatauv(L, (count + 1) * sizeof *views, 0);
  *out_count = 0;
  for (unsigned i = 1; i <= count; i++) {
    lua_rawgeti(L, kept, (lua_Integer)i);
    if (lids_pool_view(L, -1, &views[*out_count])) /* else it is gone, and not quite */
      (*out_count)++;
    lua_pop(L, 1);
  }
  return views;
}

/* ------------------------------------------------------------------- options */

static void explain_option(struct text *self, const idlesched_option_info *option) {
  for (unsigned i = 0; i < option->holders_count && i < IDLESCHED_HOLDERS_MAX; i++) {
    const idlesched_option_holder *holder = &option->holders[i];
    const char *name = holder->name[0] == '\0' ? "somebody" : holder->name;
    uint64_t now_ns = idlesched_now_ns();
    double since_s = now_ns > holder->since_ns ? lids_seconds(now_ns - holder->since_ns) : 0;
    REASON(self, "%s has held %s = %" PRId64 " for %.1f s\n", name, option->name, holder->value,
           since_s);
  }
}

static void explain_options(struct text *self) {
  idlesched_option_info option;
  for (unsigned i = 0; idlesched_option_read(i, &option) == 0; i++) {
    explain_option(self, &option);
    if (strcmp(option.name, "purge_delay") == 0 && option.put_back < 0)
      REASON(self, "purging is switched off: %s is %" PRId64 " by the user's own setting\n",
             option.name, option.put_back);
  }
}

/* ------------------------------------------------------------------ the heaps */

static void explain_heaps(struct text *self, const idlesched_memory *memory) {
  if (memory->heaps[0].live_bytes >= NOTABLE_BYTES)
    REASON(self, "%.1f MiB are blocks in use: results and buffers of jobs, Lua states\n",
           mib(memory->heaps[0].live_bytes));
  if (memory->heaps[0].free_bytes >= NOTABLE_BYTES)
    REASON(self,
           "%.1f MiB are free, in pages not collected yet, or that hold a block in use each "
           "(after idlesched.release() it is these)\n",
           mib(memory->heaps[0].free_bytes));
  if (memory->heaps[1].name != NULL && memory->heaps[1].free_bytes >= NOTABLE_BYTES)
    REASON(self, "%.1f MiB are free in the heap of %s, which a release trims\n",
           mib(memory->heaps[1].free_bytes), memory->heaps[1].name);
  if (memory->huge_bytes >= NOTABLE_BYTES)
    REASON(self,
           "%.1f MiB are huge pages, which the kernel takes back whole or not at all "
           "(MIMALLOC_ALLOW_THP=0 avoids them)\n",
           mib(memory->huge_bytes));
}

int lids_explain(lua_State *L) {
  idlesched_memory memory;
  int status = idlesched_memory_read(&memory);
  if (status != 0)
    return lids_push_status(L, status);
  unsigned pools_count;
  const struct lids_pool_view *pools = list_pools(L, &pools_count);
  struct text text = { .reasons_count = 0 };
  luaL_buffinit(L, &text.buffer);
  add_places(&text, &memory);
  for (unsigned i = 0; i < pools_count; i++)
    explain_pool(&text, &pools[i]);
  explain_options(&text);
  explain_heaps(&text, &memory);
  luaL_pushresult(&text.buffer);
  return 1;
}
