/* SPDX-License-Identifier: MIT */
/*
 * host.c - the `idlesched` interpreter: Lua 5.4's stand-alone program with the
 * module built in and the core's allocator as the malloc of the process.
 *
 * Why there is a host at all.  Under a stock interpreter the script's own state
 * and every C module take their blocks from the C library, and giving those
 * back is not ours to do.  Here they all lie in the same arenas as the workers'
 * heaps, so one release covers the whole process.
 *
 * To a user it is `lua`: options, the `arg` table, LUA_INIT, messages, exit
 * codes.  What differs is on purpose and all of it is here:
 *   - package.preload.idlesched is the module inside this program, so no
 *     search path can put a second scheduler beside it;
 *   - -v names the scheduler, Lua and the allocator;
 *   - messages begin with "idlesched: " whatever path the program was run by;
 *   - the interactive mode reads plain lines, without editing or history.
 *
 * main() does what needs no Lua; run_host() is everything that may raise, so
 * that main() always closes the state: __gc and pending __close run at the end
 * of a script that failed as well.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "host_call.h"
#include "host_interact.h"
#include "idlesched.h"
#include "idlesched_version.h"
#include "lua_module.h"

#define LUA_INIT_PLAIN "LUA_INIT"
#define LUA_INIT_VERSIONED LUA_INIT_PLAIN "_" LUA_VERSION_MAJOR "_" LUA_VERSION_MINOR

/* What the command line asks for.  It is read in full before anything runs, so
 * that a wrong option is refused without side effects. */
struct host_options {
  int argc;
  char **argv;
  int script_index;       /* into argv; >= argc when there is no script */
  bool script_is_stdin;   /* the script is "-" */
  bool is_interactive;    /* -i */
  bool shows_version;     /* -v or -i */
  bool has_statement;     /* -e */
  bool ignores_variables; /* -E */
};

/* ---------------------------------------------------------------- options */

static const char usage_text[] =
  "usage: " HOST_NAME " [options] [script [args]]\n"
  "Options:\n"
  "  -e stat   run the Lua statements in 'stat'\n"
  "  -i        after the script, read and run lines typed by the user\n"
  "  -l mod    require 'mod' and keep it in a global of the same name\n"
  "  -l g=mod  require 'mod' and keep it in the global 'g'\n"
  "  -v        print the versions of " HOST_NAME ", Lua and the allocator\n"
  "  -E        do not look at LUA_INIT, LUA_PATH and LUA_CPATH\n"
  "  -W        show warnings\n"
  "  --        no more options; a script may follow\n"
  "  -         no more options; the script is read from standard input\n";

static void print_usage(const char *bad_option) {
  if (bad_option[1] == 'e' || bad_option[1] == 'l')
    fprintf(stderr, HOST_NAME ": '%s' needs argument\n", bad_option);
  else
    fprintf(stderr, HOST_NAME ": unrecognized option '%s'\n", bad_option);
  fputs(usage_text, stderr);
}

static void print_version(void) {
  printf(HOST_NAME " " IDLESCHED_VERSION_STRING ", " LUA_RELEASE ", %s\n", idlesched_allocator());
  fflush(stdout);
}

/* Notes an option that stands alone.  Returns false when there is none of that
 * name; options of one letter cannot be joined, as in `lua`. */
static bool note_plain_option(struct host_options *self, const char *option) {
  if (option[2] != '\0')
    return false;
  switch (option[1]) {
  case 'i':
    self->is_interactive = true;
    self->shows_version = true;
    return true;
  case 'v':
    self->shows_version = true;
    return true;
  case 'E':
    self->ignores_variables = true;
    return true;
  case 'W':
    return true; /* takes effect in its turn, see run_options() */
  default:
    return false;
  }
}

/* Returns 0, or the index of the first argument that is not a legal option. */
static int read_options(struct host_options *self) {
  int i = 1;
  for (; i < self->argc && self->argv[i][0] == '-'; i++) {
    const char *option = self->argv[i];
    if (option[1] == '\0') {
      self->script_is_stdin = true;
      break;
    }
    if (strcmp(option, "--") == 0) {
      i++;
      break;
    }
    if (option[1] != 'e' && option[1] != 'l') {
      if (!note_plain_option(self, option))
        return i;
      continue;
    }
    self->has_statement = self->has_statement || option[1] == 'e';
    if (option[2] == '\0') { /* the argument is the next word, and never an option */
      if (i + 1 >= self->argc || self->argv[i + 1][0] == '-')
        return i;
      i++;
    }
  }
  self->script_index = i;
  return 0;
}

/* Reports the error of a call that has failed; returns whether it has not. */
static bool succeeded(lua_State *L, int status) {
  if (status != LUA_OK)
    host_report(L, HOST_NAME ": ");
  return status == LUA_OK;
}

/* ------------------------------------------------------------ what is run */

/* Runs a chunk that has just been loaded with the given status. */
static bool run_loaded(lua_State *L, int status) {
  if (status == LUA_OK)
    status = host_call(L, 0, 0);
  return succeeded(L, status);
}

/* `file` is NULL for standard input. */
static bool run_file(lua_State *L, const char *file) {
  return run_loaded(L, luaL_loadfile(L, file));
}

static bool run_string(lua_State *L, const char *text, const char *chunk_name) {
  return run_loaded(L, luaL_loadbuffer(L, text, strlen(text), chunk_name));
}

/* `text` is "mod" or "global=mod".  What follows a '-' in "mod" tells versions
 * of one module apart and is no part of the global's name, as for require's
 * own luaopen_ functions. */
static bool require_as_global(lua_State *L, const char *text) {
  const char *equals = strchr(text, '=');
  const char *module = equals ? equals + 1 : text;
  lua_pushlstring(L, text, equals ? (size_t)(equals - text) : strcspn(text, "-"));
  lua_getglobal(L, "require");
  lua_pushstring(L, module);
  if (!succeeded(L, host_call(L, 1, 1)))
    return false;
  lua_setglobal(L, lua_tostring(L, -2));
  lua_pop(L, 1);
  return true;
}

/* Obeys -e, -l and -W in the order in which they were given. */
static bool run_options(lua_State *L, const struct host_options *options) {
  for (int i = 1; i < options->argc && i < options->script_index; i++) {
    char letter = options->argv[i][1];
    if (letter == 'W')
      lua_warning(L, "@on", 0);
    if (letter != 'e' && letter != 'l')
      continue;
    const char *text = options->argv[i] + 2;
    if (*text == '\0')
      text = options->argv[++i];
    bool ok = letter == 'e' ? run_string(L, text, "=(command line)") : require_as_global(L, text);
    if (!ok)
      return false;
  }
  return true;
}

/* LUA_INIT holds statements, or "@" and the name of a file; the variable with
 * the version in its name goes first. */
static bool run_init_variable(lua_State *L) {
  const char *chunk_name = "=" LUA_INIT_VERSIONED; /* "=": messages show it as it is */
  const char *text = getenv(chunk_name + 1);
  if (text == NULL) {
    chunk_name = "=" LUA_INIT_PLAIN;
    text = getenv(chunk_name + 1);
  }
  if (text == NULL)
    return true;
  return text[0] == '@' ? run_file(L, text + 1) : run_string(L, text, chunk_name);
}

/* The script's arguments are read from the global `arg`, not from argv: -e and
 * LUA_INIT may have changed it. */
static int push_script_arguments(lua_State *L) {
  if (lua_getglobal(L, "arg") != LUA_TTABLE)
    luaL_error(L, "'arg' is not a table");
  int arg_index = lua_gettop(L);
  int count = (int)luaL_len(L, arg_index);
  luaL_checkstack(L, count + LUA_MINSTACK, "too many arguments to script");
  for (int i = 1; i <= count; i++)
    lua_rawgeti(L, arg_index, i);
  lua_remove(L, arg_index);
  return count;
}

static bool run_script(lua_State *L, const struct host_options *options) {
  const char *file = options->script_is_stdin ? NULL : options->argv[options->script_index];
  int status = luaL_loadfile(L, file);
  if (status == LUA_OK) {
    int count = push_script_arguments(L);
    status = host_call(L, count, 0);
  }
  return succeeded(L, status);
}

/* ---------------------------------------------------------------- the state */

/* The script's name is arg[0], what stands before it has negative indices;
 * without a script arg[0] is the program. */
static void set_argument_table(lua_State *L, const struct host_options *options) {
  bool has_script = options->script_index < options->argc;
  int zero = has_script ? options->script_index : 0;
  lua_createtable(L, has_script ? options->argc - zero - 1 : 0, zero + 1);
  for (int i = 0; i < options->argc; i++) {
    lua_pushstring(L, options->argv[i]);
    lua_rawseti(L, -2, i - zero);
  }
  lua_setglobal(L, "arg");
}

static void preload_module(lua_State *L) {
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_idlesched);
  lua_setfield(L, -2, "idlesched");
  lua_pop(L, 1);
}

static void open_state(lua_State *L, const struct host_options *options) {
  /* liblua is found when the program starts, and need not be the one whose
   * headers it was compiled with. */
  luaL_checkversion(L);
  if (options->ignores_variables) {
    lua_pushboolean(L, true); /* read by the package library when it opens */
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
  }
  luaL_openlibs(L);
  preload_module(L);
  set_argument_table(L, options);
  lua_gc(L, LUA_GCGEN, 0, 0); /* the mode that `lua` 5.4 runs scripts in */
}

/* The whole run, as a Lua function of (options).  Returns true, or nothing when
 * something failed that has been reported already. */
static int run_host(lua_State *L) {
  const struct host_options *options = lua_touserdata(L, 1);
  host_call_open(L);
  open_state(L, options);
  if (!options->ignores_variables && !run_init_variable(L))
    return 0;
  if (!run_options(L, options))
    return 0;

  bool has_script = options->script_index < options->argc;
  if (has_script && !run_script(L, options))
    return 0;

  bool has_nothing_to_do = !has_script && !options->has_statement && !options->shows_version;
  if (options->is_interactive) {
    host_interact(L);
  } else if (has_nothing_to_do && isatty(STDIN_FILENO)) {
    print_version();
    host_interact(L);
  } else if (has_nothing_to_do) {
    run_file(L, NULL); /* its failure is reported, yet not in the exit code; so does `lua` */
  }
  lua_pushboolean(L, true);
  return 1;
}

int main(int argc, char **argv) {
  /*
   * First of all, before anything can allocate.  The allocator maps its first
   * arena at the first malloc() of the process and decides then, for good,
   * whether it lies on huge pages.  On huge pages what is given back does not
   * last: the kernel fills the gaps again within minutes (measured: 40 MiB
   * after a release, 528 MiB six minutes later, nobody touching anything).  No
   * library linked here allocates while it is loaded, so the start of main()
   * is early enough.  MIMALLOC_* variables set by the user still win.
   */
  idlesched_process_defaults();

  struct host_options options = { .argc = argc, .argv = argv };
  int bad_index = read_options(&options);
  if (bad_index != 0) {
    print_usage(argv[bad_index]);
    return EXIT_FAILURE;
  }
  if (options.shows_version)
    print_version();

  lua_State *L = luaL_newstate();
  if (L == NULL) {
    fputs(HOST_NAME ": cannot create the Lua state: not enough memory\n", stderr);
    return EXIT_FAILURE;
  }
  lua_pushcfunction(L, run_host);
  lua_pushlightuserdata(L, &options);
  bool ok = succeeded(L, lua_pcall(L, 1, 1, 0)) && lua_toboolean(L, -1);
  lua_close(L);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
