/* SPDX-License-Identifier: MIT */
/*
 * host_call.c - see host_call.h.
 */
#include "host_call.h"

#include <lauxlib.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

void host_report(lua_State *L, const char *prefix) {
  /* Not a string: what __tostring itself has raised while a message was made. */
  const char *message = lua_tostring(L, -1);
  fprintf(stderr, "%s%s\n", prefix, message ? message : "(error message not a string)");
  fflush(stderr);
  lua_pop(L, 1);
}

/* Makes a message with traceback out of any error object.  An object that can
 * name itself does, and gets no traceback: its author chose what to show. */
static int add_traceback(lua_State *L) {
  const char *message = lua_tostring(L, 1);
  if (message == NULL) {
    if (luaL_callmeta(L, 1, "__tostring") && lua_type(L, -1) == LUA_TSTRING)
      return 1;
    message = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
  }
  luaL_traceback(L, L, message, 1);
  return 1;
}

/* The state that an interrupt stops and the thread it runs on; constant from
 * host_call_open(), before the first handler is installed. */
static lua_State *script_state;
static pthread_t script_thread;

void host_call_open(lua_State *L) {
  script_state = L;
  script_thread = pthread_self();
}

static void set_interrupt_handler(void (*handler)(int)) {
  /* No SA_RESTART: a script that sleeps in a system call shall wake up. */
  struct sigaction action = { .sa_handler = handler };
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
}

static void raise_interrupted(lua_State *L, lua_Debug *event) {
  (void)event;
  lua_sethook(L, NULL, 0, 0);
  luaL_error(L, "interrupted!");
}

/*
 * A signal handler may not raise, so it asks Lua to do it at the next event.
 * lua_sethook() is made for that, but only on the thread that runs the state:
 * it walks the call frames, which another thread would see while they change.
 * A process with workers may get the signal on any of them, so it is handed on.
 *
 * The second interrupt finds the default action and ends the process: the way
 * out when the script is stuck in C and no event comes.
 */
static void on_interrupt(int signal_number) {
  if (!pthread_equal(pthread_self(), script_thread)) {
    pthread_kill(script_thread, signal_number);
    return;
  }
  set_interrupt_handler(SIG_DFL);
  int any_event = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT;
  lua_sethook(script_state, raise_interrupted, any_event, 1);
}

int host_call(lua_State *L, int arguments_count, int results_count) {
  int handler_index = lua_gettop(L) - arguments_count; /* where the function is now */
  lua_pushcfunction(L, add_traceback);
  lua_insert(L, handler_index);
  set_interrupt_handler(on_interrupt);
  int status = lua_pcall(L, arguments_count, results_count, handler_index);
  set_interrupt_handler(SIG_DFL);
  lua_remove(L, handler_index);
  return status;
}
