/* SPDX-License-Identifier: MIT */
/*
 * lua_explain.c - why is my memory not back?  In words, for people.
 *
 * First where the process's memory is; then one line for each reason that keeps some of it:
 * workers that have not released, what their Lua states hold, settings of the allocator, blocks
 * in use, free blocks in used pages, huge pages; and then who holds an option, which keeps
 * nothing by itself.
 */
#include "lua_explain.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <string.h>

#include "idlesched.h"
#include "lua_pool.h"
#include "lua_process.h"
#include "lua_util.h"

/* Less is not worth a line. */
#define NOTABLE_BYTES (UINT64_C(256) * 1024)

struct text {
  luaL_Buffer buffer;
  const char *heading; /* of the lines to come; the first of them brings it.  NULL: it is there */
};

static void begin_line(struct text *self) {
  if (self->heading != NULL)
    luaL_addstring(&self->buffer, self->heading);
  self->heading = NULL;
  luaL_addstring(&self->buffer, "  - ");
}

#define LINE(self, ...) (begin_line(self), lids_add_format(&(self)->buffer, __VA_ARGS__))

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
  bool has_release = pool->idle_release_ns != IDLESCHED_NEVER;
  idlesched_pool_stats stats;
  idlesched_pool_stats_read(pool->core, &stats);
  unsigned running = stats.running;
  if (running > 0)
    LINE(self, "pool '%s': %u worker%s run%s jobs, %s\n", pool->name, running, lids_plural(running),
         running == 1 ? "s" : "", has_release ? "released when idle" : "and idle_release is false");
  struct totals totals = total(pool->core);
  unsigned waiting = totals.waiting_count;
  if (waiting > 0 && !has_release)
    LINE(self, "pool '%s': %u idle worker%s never release%s: idle_release is false\n", pool->name,
         waiting, lids_plural(waiting), waiting == 1 ? "s" : "");
  else if (waiting > 0)
    LINE(self, "pool '%s': %u idle worker%s will release, %g s after the last job\n", pool->name,
         waiting, lids_plural(waiting), lids_seconds(pool->idle_release_ns));
  if (totals.used_bytes >= NOTABLE_BYTES)
    LINE(self, "pool '%s': the workers' Lua states use %.1f MiB, for what jobs have left\n",
         pool->name, lids_mib(totals.used_bytes));
  if (totals.dead_bytes >= NOTABLE_BYTES)
    LINE(self, "pool '%s': %.1f MiB are garbage of jobs, collected with the next release\n",
         pool->name, lids_mib(totals.dead_bytes));
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

/* ----------------------------------------------------------------- the heaps */

/* They are off by default. */
static void explain_huge_pages(struct text *self, const idlesched_memory *memory) {
  if (memory->huge_bytes < NOTABLE_BYTES)
    return;
  LINE(self, "%.1f MiB are huge pages, %s\n", lids_mib(memory->huge_bytes),
       idlesched_keeps_huge_pages()
         ? "as huge_pages(\"keep\") or MIMALLOC_ALLOW_THP wants: a release splits those of which "
           "a part is free"
         : "as this system makes them for everybody: a release splits those of idlesched");
}

static void explain_heaps(struct text *self, const idlesched_memory *memory) {
  const idlesched_heap_memory *own = &memory->heaps[0], *libc = &memory->heaps[1];
  if (own->live_bytes >= NOTABLE_BYTES)
    LINE(self, "%.1f MiB are blocks in use: results and buffers of jobs, Lua states\n",
         lids_mib(own->live_bytes));
  if (own->free_bytes >= NOTABLE_BYTES)
    LINE(self,
         "%.1f MiB are free, in pages not collected yet, or that hold a block in use each "
         "(after idlesched.release() it is these)\n",
         lids_mib(own->free_bytes));
  if (libc->live_bytes >= NOTABLE_BYTES)
    LINE(self, "%.1f MiB are blocks in use of %s: this script's, and C modules'\n",
         lids_mib(libc->live_bytes), libc->name);
  if (libc->free_bytes >= NOTABLE_BYTES)
    LINE(self, "%.1f MiB are free in the heap of %s, which a release trims\n",
         lids_mib(libc->free_bytes), libc->name);
  explain_huge_pages(self, memory);
}

/* ------------------------------------------------------------------- options */

static void explain_settings(struct text *self) {
  idlesched_option_info option;
  for (unsigned i = 0; idlesched_option_read(i, &option) == 0; i++)
    if (strcmp(option.name, "purge_delay") == 0 && option.put_back < 0)
      LINE(self, "purging is switched off: %s is %" PRId64 " by the user's own setting\n",
           option.name, option.put_back);
}

static void list_holders(struct text *self, const idlesched_option_info *option) {
  uint64_t now_ns = idlesched_now_ns();
  unsigned shown = option->holders_count < IDLESCHED_HOLDERS_MAX ? option->holders_count
                                                                 : IDLESCHED_HOLDERS_MAX;
  for (unsigned i = 0; i < shown; i++) {
    const idlesched_option_holder *holder = &option->holders[i];
    const char *name = holder->name[0] == '\0' ? "somebody" : holder->name;
    LINE(self, "%s has held %s = %" PRId64 " for %.1f s\n", name, option->name, holder->value,
         now_ns > holder->since_ns ? lids_seconds(now_ns - holder->since_ns) : 0);
  }
  if (option->holders_count > shown)
    LINE(self, "%u more hold%s %s, for longer\n", option->holders_count - shown,
         option->holders_count - shown == 1 ? "s" : "", option->name);
}

static void list_all_holders(struct text *self) {
  idlesched_option_info option;
  for (unsigned i = 0; idlesched_option_read(i, &option) == 0; i++)
    list_holders(self, &option);
}

int lids_explain(lua_State *L) {
  idlesched_memory memory;
  int status = lids_process_read(L, &memory);
  if (status != 0)
    return lids_push_status(L, status);
  unsigned pools_count;
  const struct lids_pool_view *pools = list_pools(L, &pools_count);
  struct text text = { .heading = "\nWhat keeps memory here:\n" };
  luaL_buffinit(L, &text.buffer);
  lids_process_add(&text.buffer, &memory);
  if (idlesched_worker_current() != NULL)
    lids_add_format(&text.buffer, "In a job: of the pools it knows those of its own Lua state\n");
  for (unsigned i = 0; i < pools_count; i++)
    explain_pool(&text, &pools[i]);
  explain_heaps(&text, &memory);
  explain_settings(&text);
  text.heading = "\nWho holds an option, which a release lifts for its purge:\n";
  list_all_holders(&text);
  luaL_pushresult(&text.buffer);
  return 1;
}
