/* SPDX-License-Identifier: MIT */
/*
 * lua_state.c - see lua_state.h.
 */
#include "lua_state.h"

#include <lauxlib.h>
#include <lualib.h>

#include <string.h>

#include "lua_memory.h"
#include "lua_module.h"
#include "lua_value.h"

/* The first round may be the rest of one that a job began, and has marked what has
 * died since; the second finalises, the third frees what was finalised.  From then on
 * a round that frees less than this was the last. */
#define ROUNDS_LEAST 3
#define ROUNDS_MOST 20
#define FALLS_BYTES 1024

/* A step marks or sweeps what 8 KiB of allocation make up for, in 0.5 ms at most: a
 * round of them takes fewer than this. */
#define STEPS_MOST(live_bytes) (64 + (live_bytes) / (64 * 1024))

/* With the 260 of the libraries and our own more than 512, where the table doubles to 1024
 * entries.  A collection halves it while less than a quarter of them is used: whether that
 * is so is near the edge, and what it then has fits where the larger one was. */
#define STRINGS_COUNT 500

/*
 * Lua 5.4's state and libraries and our own tables take 44 KB of it; what does not
 * fit goes to the heap.  Only what is touched costs memory, and of this size mimalloc
 * puts one block into a page, so that nothing that passes is pinned beside it.
 */
#define CHUNK_BYTES (96 * 1024)

/* Key in the registry of a worker's Lua state. */
static const char state_key;

struct lids_state {
  lua_State *L;
  struct lids_home *home;
  lua_State *runs_in; /* L, or the stack that a waiting job has made for another one */
  const idlesched_job *job;
  const char *stack_base; /* of the C stack, where the outermost job began */
  unsigned blocking_count;
  bool is_started; /* the pool's on_start was called */
  struct lids_memory memory;
  struct lids_warner warner;
  bool is_collecting;    /* between the first step of a release and its last */
  unsigned rounds_count; /* collections finished since then */
  size_t steps_count;    /* made in the current round */
  size_t round_bytes;    /* live when the current round began */
  size_t kept_bytes;     /* live when the last round ended: what is more now may be garbage */
  char chunk[CHUNK_BYTES];
};

/* -------------------------------------------------------------------- home */

static char *copy_text(const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = idlesched_realloc(NULL, size);
  return copy == NULL ? NULL : memcpy(copy, text, size);
}

struct lids_home *lids_home_create(const char *pool_name, const char *path, const char *cpath) {
  struct lids_home *self = idlesched_realloc(NULL, sizeof *self);
  if (self == NULL)
    return NULL;
  *self = (struct lids_home){ .pool_name = copy_text(pool_name),
                              .path = copy_text(path),
                              .cpath = copy_text(cpath) };
  if (self->pool_name == NULL || self->path == NULL || self->cpath == NULL) {
    lids_home_destroy(self);
    return NULL;
  }
  return self;
}

void lids_home_destroy(struct lids_home *self) {
  if (self == NULL)
    return;
  idlesched_free(self->pool_name);
  idlesched_free(self->path);
  idlesched_free(self->cpath);
  lids_message_free(self->on_start);
  lids_message_free(self->on_stop);
  lids_message_free(self->on_release);
  lids_warnings_clear(&self->warnings);
  idlesched_free(self);
}

/* -------------------------------------------------------------------- life */

static void set_package_field(lua_State *L, const char *name, const char *value) {
  lua_getglobal(L, "package");
  lua_pushstring(L, value);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

/*
 * Let the string table grow to the size that it has for most of its life, inside
 * the chunk: else a job makes it grow, and its 4 KiB pin a page of what passes.
 */
static void grow_string_table(lua_State *L) {
  lids_memory_set_kind(L, LIDS_MEMORY_GROWING);
  for (int i = 0; i < STRINGS_COUNT; i++) {
    lua_pushfstring(L, "%d", i);
    lua_pop(L, 1);
  }
  lids_memory_set_kind(L, LIDS_MEMORY_STARTING);
}

/*
 * What the auxiliary library makes when it is first needed, and keeps: the metatable of
 * the box that a large buffer lives in.  Made by a job, its three small blocks pin three
 * pages, 0.13 MB.
 */
static void make_buffer_metatable(lua_State *L) {
  luaL_Buffer buffer;
  luaL_buffinitsize(L, &buffer, 2 * LUAL_BUFFERSIZE);
  luaL_pushresult(&buffer);
  lua_pop(L, 1);
}

/* Protected: libraries, the creator's search paths, the module itself. */
static int furnish(lua_State *L) {
  struct lids_state *self = lua_touserdata(L, 1);
  const struct lids_home *home = self->home;
  lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
  luaL_openlibs(L);
  set_package_field(L, "path", home->path);
  set_package_field(L, "cpath", home->cpath);
  luaL_requiref(L, "idlesched", luaopen_idlesched, 0);
  make_buffer_metatable(L);
  grow_string_table(L);
  return 0;
}

static struct lids_state *state_create(struct lids_home *home) {
  struct lids_state *self = idlesched_realloc(NULL, sizeof *self);
  if (self == NULL)
    return NULL;
  self->home = home;
  self->job = NULL;
  self->blocking_count = 0;
  self->is_started = false;
  self->is_collecting = false;
  lids_memory_init(&self->memory, self->chunk, CHUNK_BYTES);
  self->L = lua_newstate(lids_memory_allocate, &self->memory);
  if (self->L == NULL)
    goto free_self;
  self->runs_in = self->L;
  lids_warner_attach(&self->warner, self->L, &home->warnings);
  lua_pushcfunction(self->L, furnish);
  lua_pushlightuserdata(self->L, self);
  if (lua_pcall(self->L, 1, 0, 0) != LUA_OK)
    goto close_state;
  lids_memory_set_kind(self->L, LIDS_MEMORY_PASSING);
  self->kept_bytes = self->memory.live_bytes;
  return self;

close_state:
  lua_close(self->L);
free_self:
  idlesched_free(self);
  return NULL;
}

struct lids_state *lids_state_of(idlesched_worker *worker, struct lids_home *home) {
  struct lids_state *self = idlesched_worker_data(worker);
  if (self == NULL) {
    self = state_create(home);
    idlesched_worker_set_data(worker, self);
  } else {
    self->is_collecting = false; /* a release was broken off: the next starts anew */
  }
  return self;
}

struct lids_state *lids_state_of_lua(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
  struct lids_state *self = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return self;
}

struct lids_home *lids_state_home(const struct lids_state *self) {
  return self->home;
}

lua_State *lids_state_lua(const struct lids_state *self) {
  return self->runs_in;
}

lua_State *lids_state_set_lua(struct lids_state *self, lua_State *L) {
  lua_State *before = self->runs_in;
  self->runs_in = L;
  return before;
}

/* ---------------------------------------------------------------- callbacks */

/* Protected: call a function of the pool's maker, whose message is at 1. */
static int call_back(lua_State *L) {
  const struct lids_message *message = lua_touserdata(L, 1);
  lua_settop(L, 0);
  int count = lids_value_unpack_call(L, message);
  lua_call(L, count - 1, 0);
  return 0;
}

/* The message handler: an error of this module's, say, in its own words. */
static int put_in_words(lua_State *L) {
  if (luaL_getmetafield(L, 1, "__tostring") != LUA_TNIL)
    luaL_tolstring(L, 1, NULL);
  else
    lua_settop(L, 1);
  return 1;
}

/* NULL when it has returned; else what it raised, as long as that is on the stack, on top. */
static const char *try_callback(const struct lids_state *self, const struct lids_message *message) {
  lua_pushcfunction(self->L, put_in_words);
  lua_pushcfunction(self->L, call_back);
  lua_pushlightuserdata(self->L, (void *)message);
  int status = lua_pcall(self->L, 1, 0, -3);
  lua_remove(self->L, status == LUA_OK ? -1 : -2);
  if (status == LUA_OK)
    return NULL;
  const char *text = lua_tostring(self->L, -1);
  return text == NULL ? "an error that is no string" : text;
}

/* A failure is nobody's: it becomes a warning. */
static void call_back_or_warn(const struct lids_state *self, const char *name,
                              const struct lids_message *message) {
  if (message == NULL)
    return;
  const char *text = try_callback(self, message);
  if (text != NULL) {
    lua_warning(self->L, "error in ", 1);
    lua_warning(self->L, name, 1);
    lua_warning(self->L, ": ", 1);
    lua_warning(self->L, text, 0);
  }
  lua_settop(self->L, 0);
}

bool lids_state_start(struct lids_state *self, char **out_text) {
  if (self->is_started || self->home->on_start == NULL) {
    self->is_started = true;
    return true;
  }
  const char *text = try_callback(self, self->home->on_start);
  if (text != NULL)
    *out_text = copy_text(text);
  lua_settop(self->L, 0);
  self->is_started = text == NULL;
  return self->is_started;
}

/* -------------------------------------------------------------------- the job */

const idlesched_job *lids_state_job(const struct lids_state *self) {
  return self->job;
}

const idlesched_job *lids_state_set_job(struct lids_state *self, const idlesched_job *job) {
  const idlesched_job *before = self->job;
  if (before == NULL)
    self->stack_base = __builtin_frame_address(0);
  self->job = job;
  return before;
}

/* Half of the stack is for what a job does besides: Lua's own limit of 200 C calls begins anew
 * on each Lua stack, so it does not see how deep jobs are inside each other. */
bool lids_state_has_stack(const struct lids_state *self) {
  const char *here = __builtin_frame_address(0);
  size_t used_bytes = self->job == NULL || here > self->stack_base
                        ? 0
                        : (size_t)(self->stack_base - here);
  return used_bytes < self->home->stack_size / 2;
}

void lids_state_begin_blocking(struct lids_state *self) {
  if (self->blocking_count++ == 0)
    idlesched_blocking_begin();
}

void lids_state_end_blocking(struct lids_state *self) {
  if (--self->blocking_count == 0)
    idlesched_blocking_end();
}

void lids_state_tell_memory(const struct lids_state *self, idlesched_worker *worker) {
  size_t live_bytes = self->memory.live_bytes;
  idlesched_worker_set_memory(worker, live_bytes,
                              live_bytes > self->kept_bytes ? live_bytes - self->kept_bytes : 0);
}

/* A finaliser that waits for a job which is queued has this worker run it, in a new state. */
void lids_state_stop(idlesched_worker *worker, void *home) {
  (void)home;
  struct lids_state *self;
  while ((self = idlesched_worker_data(worker)) != NULL) {
    if (self->is_started)
      call_back_or_warn(self, "on_stop", self->home->on_stop);
    idlesched_worker_set_data(worker, NULL);
    lua_close(self->L);
    idlesched_free(self);
  }
}

/* -------------------------------------------------------------- collection */

static void begin_round(struct lids_state *self) {
  self->steps_count = 0;
  self->round_bytes = self->memory.live_bytes;
}

static void begin_collection(struct lids_state *self) {
  call_back_or_warn(self, "on_release", self->home->on_release);
  self->is_collecting = true;
  self->rounds_count = 0;
  begin_round(self);
  lids_value_forget(self->L);
}

/*
 * Whether the round is done.  A job may have chosen the generational mode, whose steps
 * never end one: that shows by their number, and then the round is ended at once.  To
 * change the mode instead would cost a full collection, each way.
 */
static bool step_round(struct lids_state *self) {
  if (lua_gc(self->L, LUA_GCSTEP, 0))
    return true;
  if (++self->steps_count < STEPS_MOST(self->round_bytes))
    return false;
  lua_gc(self->L, LUA_GCCOLLECT);
  return true;
}

/* Whether there is more to do. */
static bool collect_step(struct lids_state *self) {
  if (!self->is_collecting)
    begin_collection(self);
  if (!step_round(self))
    return true;

  self->kept_bytes = self->memory.live_bytes;
  self->rounds_count++;
  bool has_fallen = self->memory.live_bytes + FALLS_BYTES < self->round_bytes;
  begin_round(self);
  if (self->rounds_count < ROUNDS_LEAST || (has_fallen && self->rounds_count < ROUNDS_MOST))
    return true;
  self->is_collecting = false;
  return false;
}

bool lids_state_collect(idlesched_worker *worker, void *home) {
  (void)home;
  struct lids_state *self = idlesched_worker_data(worker);
  if (self == NULL)
    return false;
  bool has_more = collect_step(self);
  lids_state_tell_memory(self, worker);
  return has_more;
}

void lids_collect_fully(lua_State *L) {
  int before, after = lua_gc(L, LUA_GCCOUNT);
  do {
    before = after;
    lua_gc(L, LUA_GCCOLLECT);
    after = lua_gc(L, LUA_GCCOUNT);
  } while (after < before);
}
