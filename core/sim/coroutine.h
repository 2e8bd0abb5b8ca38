/* SPDX-License-Identifier: MIT */
/*
 * coroutine.h - stacks to switch between: what a simulated thread runs on.
 *
 * On x86-64 a switch is a dozen instructions; elsewhere, or with SIM_UCONTEXT, it is
 * swapcontext(), which asks the kernel twice and is some ten times slower.  Address and
 * thread sanitizer are told of each switch.
 *
 * A coroutine is left behind by not switching to it again: its stack is used for the next
 * one.  The stack of the system's own thread is a coroutine, too: coroutine_adopt().
 */
#ifndef IDS_SIM_COROUTINE_H
#define IDS_SIM_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>

#if !defined(__x86_64__) && !defined(SIM_UCONTEXT)
#define SIM_UCONTEXT 1
#endif
#ifdef SIM_UCONTEXT
#include <ucontext.h>
#endif

/* gcc says that it sanitizes with a macro, clang with a feature.  The simulator's own files
 * are not instrumented for the thread sanitizer: there the build says it (SIM_TSAN). */
#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#endif

struct coroutine {
#ifdef SIM_UCONTEXT
  ucontext_t registers;
#else
  void *stack_pointer; /* the other registers lie on the stack */
#endif
  char *stack; /* its lowest byte; below it is a page that cannot be touched */
  size_t stack_size;
  void (*main)(void *context);
  void *context;
  void *fake_stack; /* address sanitizer's */
  void *fibre;      /* thread sanitizer's */
};

/* The stack this is called on. */
void coroutine_adopt(struct coroutine *self);

/*
 * Make it begin with main(context), which must not return, when it is switched to for the
 * first time.  A zeroed one gets its stack here; a larger stack replaces a smaller one.
 * Whether there was memory for it.
 */
bool coroutine_prepare(struct coroutine *self, size_t stack_size, void (*main)(void *context),
                       void *context);

/* The stack's coroutine was left in the middle and will not be switched to again.  What it
 * did is past for `current`, which calls this. */
void coroutine_forsake(struct coroutine *self, struct coroutine *current);

void coroutine_switch(struct coroutine *from, struct coroutine *to);

/* Switch away for the last time: `from` has ended. */
__attribute__((noreturn)) void coroutine_leave(struct coroutine *from, struct coroutine *to);

#endif
