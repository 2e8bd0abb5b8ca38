/* SPDX-License-Identifier: MIT */
/*
 * host_interact.c - the interpreter's interactive mode: read a line, run it,
 * print what it gives.
 *
 * A line is tried as an expression first, so that its values are shown without
 * a `return`.  If it is none, it is a statement, and more lines are read as long
 * as Lua says that it ends too early.  The globals _PROMPT and _PROMPT2 replace
 * the prompts.
 *
 * Stack: every attempt starts empty and keeps the text read so far at index 1.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

#include "host_interact.h"
#include "host_call.h"

#define CHUNK_NAME "=stdin"
#define SOURCE_INDEX 1

static void show_prompt(lua_State *L, const char *global, const char *otherwise) {
  bool is_set = lua_getglobal(L, global) != LUA_TNIL;
  fputs(is_set ? luaL_tolstring(L, -1, NULL) : otherwise, stdout);
  fflush(stdout);
  lua_pop(L, is_set ? 2 : 1);
}

/* Shows a prompt and pushes the next line of standard input, without its end.
 * At the end of the input pushes nothing and returns false. */
static bool ask_line(lua_State *L, const char *prompt_global, const char *prompt) {
  show_prompt(L, prompt_global, prompt);
  luaL_Buffer line;
  luaL_buffinit(L, &line);
  int byte = getc(stdin);
  bool is_end = byte == EOF;
  while (byte != EOF && byte != '\n') {
    luaL_addchar(&line, (char)byte);
    byte = getc(stdin);
  }
  luaL_pushresult(&line);
  if (is_end)
    lua_pop(L, 1);
  return !is_end;
}

/* "=x" is how Lua 5.2 and older were asked for a value; hands still know it. */
static void replace_equals_sign(lua_State *L) {
  const char *line = lua_tostring(L, SOURCE_INDEX);
  if (line[0] != '=')
    return;
  lua_pushfstring(L, "return %s", line + 1);
  lua_replace(L, SOURCE_INDEX);
}

static int load_source(lua_State *L, int index) {
  size_t length;
  const char *source = lua_tolstring(L, index, &length);
  return luaL_loadbuffer(L, source, length, CHUNK_NAME);
}

/* Lua says so by naming the end of the source as the place of the error. */
static bool ends_too_early(lua_State *L, int status) {
  static const char mark[] = "<eof>";
  size_t mark_length = sizeof mark - 1, length;
  if (status != LUA_ERRSYNTAX)
    return false;
  const char *message = lua_tolstring(L, -1, &length);
  return length >= mark_length && strcmp(message + length - mark_length, mark) == 0;
}

/* Pushes the compiled line and returns true if it is a list of expressions;
 * else pushes nothing. */
static bool load_expression(lua_State *L) {
  lua_pushfstring(L, "return %s;", lua_tostring(L, SOURCE_INDEX));
  if (load_source(L, -1) == LUA_OK) {
    lua_remove(L, -2);
    return true;
  }
  lua_pop(L, 2);
  return false;
}

/* Pushes the compiled statement, or the message why there is none, and returns
 * Lua's status. */
static int load_statement(lua_State *L) {
  for (;;) {
    int status = load_source(L, SOURCE_INDEX);
    if (!ends_too_early(L, status))
      return status;
    if (!ask_line(L, "_PROMPT2", ">> "))
      return status; /* the message about the early end is still on top */
    lua_remove(L, -2);
    lua_pushliteral(L, "\n");
    lua_insert(L, -2);
    lua_concat(L, 3);
  }
}

/* Prints all that is on the stack by the global `print`, which the user may have
 * replaced. */
static void print_results(lua_State *L) {
  int count = lua_gettop(L);
  if (count == 0)
    return;
  luaL_checkstack(L, LUA_MINSTACK, "too many results to print");
  lua_getglobal(L, "print");
  lua_insert(L, 1);
  if (lua_pcall(L, count, 0, 0) == LUA_OK)
    return;
  lua_pushfstring(L, "error calling 'print' (%s)", luaL_tolstring(L, -1, NULL));
  host_report(L, "");
}

void host_interact(lua_State *L) {
  for (;;) {
    lua_settop(L, 0);
    if (!ask_line(L, "_PROMPT", "> "))
      break;
    replace_equals_sign(L);
    int status = load_expression(L) ? LUA_OK : load_statement(L);
    lua_remove(L, SOURCE_INDEX);
    if (status == LUA_OK)
      status = host_call(L, 0, LUA_MULTRET);
    if (status == LUA_OK)
      print_results(L);
    else
      host_report(L, "");
  }
  fputc('\n', stdout);
  fflush(stdout);
}
