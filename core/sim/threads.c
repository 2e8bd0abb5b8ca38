/* SPDX-License-Identifier: MIT */
/*
 * threads.c - simulated threads and their steps: who is next, and when time moves.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "inside.h"
#ifdef SIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define STACK_SIZE_DEFAULT (64 * 1024)
#define STEPS_MAX_DEFAULT 20000
/* Rounds of threads that only let each other go first, before time moves on. */
#define SPINS_MAX 8

/* ------------------------------------------------------------------- checks */

void sim_invariant(void (*check)(void *context), void *context) {
  if (sim.invariants_count == SIM_CHECKS_MAX)
    sim_fail("more than %d invariants", SIM_CHECKS_MAX);
  sim.invariants[sim.invariants_count].check = check;
  sim.invariants[sim.invariants_count++].context = context;
}

void sim_on_rest(bool (*is_stuck)(void *context), void *context) {
  if (sim.rests_count == SIM_CHECKS_MAX)
    sim_fail("more than %d questions at rest", SIM_CHECKS_MAX);
  sim.rests[sim.rests_count].is_stuck = is_stuck;
  sim.rests[sim.rests_count++].context = context;
}

/* A check looks at everything from outside, where no lock is asked for. */
static void begin_looking(void) {
  sim.is_passive = true;
  sim.is_looking = true;
  sim_unwatched_begin();
}

static void end_looking(void) {
  sim_unwatched_end();
  sim.is_looking = false;
  sim.is_passive = false;
}

static void check_invariants(void) {
  begin_looking();
  for (unsigned i = 0; i < sim.invariants_count; i++)
    sim.invariants[i].check(sim.invariants[i].context);
  end_looking();
}

static void append(char *text, size_t size, const char *format, ...) SIM_PRINTF(3, 4);
static void append(char *text, size_t size, const char *format, ...) {
  size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + length, size - length, format, arguments);
  va_end(arguments);
}

static void append_wait(char *text, size_t size, unsigned slot) {
  const struct sim_thread *thread = &sim.threads[slot];
  append(text, size, "; %s ", sim_thread_name(slot));
  switch (thread->wait) {
  case SIM_RUNS:
    append(text, size, "could run");
    break;
  case SIM_WAITS_LOCK:
    append(text, size, "wants %s", sim_mutex_name(thread->mutex));
    if (thread->mutex->owner != 0)
      append(text, size, ", which %s has", sim_thread_name(thread->mutex->owner - 1));
    break;
  case SIM_WAITS_COND:
    append(text, size, "waits on %s", sim_cond_name(thread->cond));
    break;
  case SIM_WAITS_FUTEX:
    append(text, size, "sleeps on a word that is %u", *thread->word);
    break;
  case SIM_WAITS_SLEEP:
    append(text, size, "sleeps");
    break;
  case SIM_WAITS_JOIN:
    append(text, size, "joins %s", sim_thread_name(thread->joined_slot));
    break;
  case SIM_WAITS_STEP:
    append(text, size, "waits for its step");
    break;
  case SIM_ENDED:
    append(text, size, "has ended");
    break;
  }
  for (unsigned i = 0; i < sim.objects_count; i++) {
    const struct sim_object *object = &sim.objects[i];
    const struct ids_mutex *mutex = object->address;
    bool is_mutex = object->kind == SIM_MUTEX || object->kind == SIM_STATIC_MUTEX;
    if (mutex != NULL && is_mutex && mutex->owner == slot + 1)
      append(text, size, ", has %s", object->site);
  }
}

IDS_NORETURN static void fail_stuck(const char *what) {
  char text[1500] = "";
  append(text, sizeof text, "%s", what);
  for (unsigned slot = 0; slot < SIM_THREADS_MAX; slot++) {
    if (sim.alive & SIM_BIT(slot))
      append_wait(text, sizeof text, slot);
  }
  sim_fail("%s", text);
}

/* -------------------------------------------------------------- time, steps */

static inline void pass_time_to(uint64_t moment_ns) {
  if (moment_ns > sim.now_ns)
    sim.now_ns = moment_ns;
  for (uint64_t left = sim.timed; left != 0; left &= left - 1) {
    unsigned slot = (unsigned)__builtin_ctzll(left);
    if (sim.threads[slot].deadline_ns <= sim.now_ns)
      sim_awake(slot);
  }
}

static uint64_t next_deadline(void) {
  uint64_t earliest_ns = IDS_NEVER;
  for (uint64_t left = sim.timed; left != 0; left &= left - 1)
    earliest_ns = ids_earlier_ns(earliest_ns, sim.threads[__builtin_ctzll(left)].deadline_ns);
  return earliest_ns;
}

static uint64_t steps_max(void) {
  return sim.plan->steps_max == 0 ? STEPS_MAX_DEFAULT : sim.plan->steps_max;
}

void sim_set_special_step(void) {
  sim.special_step = steps_max();
  for (uint64_t left = sim.posted; left != 0; left &= left - 1) {
    const struct sim_thread *thread = &sim.threads[__builtin_ctzll(left)];
    if (thread->post_step < sim.special_step)
      sim.special_step = thread->post_step;
  }
}

/* The posted thread whose step is first; there is one. */
static unsigned begin_posted(void) {
  unsigned first = (unsigned)__builtin_ctzll(sim.posted);
  for (uint64_t left = sim.posted; left != 0; left &= left - 1) {
    unsigned slot = (unsigned)__builtin_ctzll(left);
    if (sim.threads[slot].post_step < sim.threads[first].post_step)
      first = slot;
  }
  sim.posted &= ~SIM_BIT(first);
  sim.runnable |= SIM_BIT(first);
  sim.threads[first].wait = SIM_RUNS;
  sim_set_special_step();
  return first;
}

/* Nothing can run: make something possible, or end the run. */
static void idle(void) {
  if (sim.relaxed & sim.runnable) {
    /* All let each other go first.  They may well be waiting for somebody who sleeps. */
    if (sim.timed == 0 || ++sim.spins_count <= SPINS_MAX) {
      sim.relaxed = 0;
      return;
    }
    sim.spins_count = 0;
  } else {
    begin_looking();
    for (unsigned i = 0; i < sim.rests_count; i++) {
      if (sim.rests[i].is_stuck(sim.rests[i].context))
        fail_stuck("at rest, although there is something to do");
    }
    end_looking();
  }
  if (sim.timed != 0)
    pass_time_to(next_deadline());
  else if (sim.posted != 0)
    begin_posted();
  else
    fail_stuck("deadlock: no thread can run, and no timer is set");
}

/* One thread for each moment at which a timer would fire. */
static void list_timers(void) {
  unsigned count = 0;
  for (uint64_t left = sim.timed; left != 0; left &= left - 1) {
    unsigned slot = (unsigned)__builtin_ctzll(left);
    bool is_known = false;
    for (unsigned i = 0; i < count && !is_known; i++)
      is_known = sim.threads[sim.timers[i]].deadline_ns == sim.threads[slot].deadline_ns;
    if (!is_known)
      sim.timers[count++] = (uint8_t)slot;
  }
  sim.timers_count = count;
  sim.timers_are_listed = true;
}

static inline unsigned count_timers(void) {
  if (sim.timed == 0)
    return 0;
  if (!sim.timers_are_listed)
    list_timers();
  return sim.timers_count;
}

/*
 * Who makes the next step.  A step is paid for once: after a timer has fired, at a price,
 * or when time has moved by itself, it is free to go to any thread.
 */
static unsigned choose_thread(void) {
  bool is_free = false, may_fire = sim.is_hostile;
  for (;;) {
    uint64_t mask = sim.runnable & ~sim.relaxed;
    if (mask == 0) {
      idle();
      is_free = true;
      continue;
    }
    unsigned timers_count = may_fire ? count_timers() : 0;
    if (timers_count == 0 && (mask & (mask - 1)) == 0)
      return (unsigned)__builtin_ctzll(mask);
    unsigned threads_count = sim_count_bits(mask);
    if (!IDS_LIKELY(threads_count + timers_count <= SIM_OPTIONS_MAX))
      sim_fail("%u threads and %u timers to choose from; expected at most %u of both",
               threads_count, timers_count, SIM_OPTIONS_MAX);
    uint64_t all = SIM_BIT(threads_count + timers_count) - 1;
    bool is_left = (mask & SIM_BIT(sim.current)) && !is_free;
    struct sim_choice choice = { .kind = SIM_CHOICE_THREAD,
                                 .options_count = threads_count + timers_count,
                                 .threads_count = threads_count,
                                 .threads = mask,
                                 .current = sim.current,
                                 .costly = is_left ? all & ~UINT64_C(1)
                                                   : all & ~(SIM_BIT(threads_count) - 1) };
    unsigned option = sim_decide(&choice);
    if (option < threads_count)
      return sim_choice_thread(mask, sim.current, option);
    unsigned timer = sim.timers[option - threads_count];
    pass_time_to(sim.threads[timer].deadline_ns);
    if (sim.is_traced)
      sim_print("meanwhile a timer fires:", sim_thread_name(timer));
    is_free = true;
    may_fire = false;
  }
}

/* Who was relaxed may go on when those that it waited for have moved, or cannot. */
static void look_at_relaxed(unsigned moves) {
  for (uint64_t left = sim.relaxed; left != 0; left &= left - 1) {
    unsigned slot = (unsigned)__builtin_ctzll(left);
    struct sim_thread *thread = &sim.threads[slot];
    thread->awaits &= ~SIM_BIT(moves);
    if ((thread->awaits & sim.runnable & ~sim.relaxed) == 0)
      sim.relaxed &= ~SIM_BIT(slot);
  }
}

unsigned sim_end_step(void) {
  sim.steps_count++;
  if (sim.invariants_count > 0)
    check_invariants();
  if (!IDS_LIKELY(sim.steps_count < sim.special_step)) {
    if (sim.steps_count >= steps_max())
      fail_stuck("livelock: too many steps");
    return begin_posted();
  }
  unsigned next = choose_thread();
  if (!IDS_LIKELY(sim.relaxed == 0))
    look_at_relaxed(next);
  return next;
}

uint64_t sim_steps_count(void) {
  return sim.steps_count;
}

uint64_t sim_sweep_step(void) {
  return sim.plan->sweep_step;
}

/* ------------------------------------------------------------------ threads */

#ifdef SIM_TSAN
char sim_thread_ends;
#endif

static void end_thread(void) {
  unsigned slot = sim.current;
  struct sim_thread *me = sim_me();
  if (me->held_count > 0)
    sim_fail("the thread ends with %u mutexes locked", me->held_count);
  sim_check_owner("ends");
  sim_do("ends", NULL);
  me->wait = SIM_ENDED;
  sim.spins_count = 0;
  sim.alive &= ~SIM_BIT(slot);
  sim.runnable &= ~SIM_BIT(slot);
  if (!me->is_detached)
    sim.ended |= SIM_BIT(slot);
  if (me->joiner != 0)
    sim_awake(me->joiner - 1);
#ifdef SIM_TSAN
  __tsan_release(&me->name);
  __tsan_release(&sim_thread_ends);
#endif
  if ((sim.alive & ~sim.posted) == 0)
    coroutine_leave(&me->coroutine, &sim.driver);
  unsigned next = sim_end_step();
  sim.current = next;
  coroutine_leave(&me->coroutine, &sim.threads[next].coroutine);
}

static void thread_main(void *context) {
  struct sim_thread *me = context;
#ifdef SIM_TSAN
  __tsan_acquire(&me->name);
#endif
  sim_do("begins", NULL);
  me->main(me->context);
  end_thread();
}

int sim_thread_create(void (*main)(void *context), void *context, const char *name,
                      unsigned *out_slot) {
  uint64_t taken = sim.alive | sim.ended | sim.frozen;
  /* A thread that ends is not yet off its stack. */
  if (sim.is_running)
    taken |= SIM_BIT(sim.current);
  unsigned slot = (unsigned)__builtin_ctzll(~taken);
  if (slot >= SIM_THREADS_MAX)
    return -EAGAIN;
  struct sim_thread *self = &sim.threads[slot];
  size_t stack_size = sim.plan->stack_size;
  if (!coroutine_prepare(&self->coroutine, stack_size == 0 ? STACK_SIZE_DEFAULT : stack_size,
                         thread_main, self))
    return -EAGAIN;
  self->wait = SIM_RUNS;
  self->joiner = 0;
  self->held_count = 0;
  self->abandoning_count = 0;
  self->number = sim.births_count++;
  self->is_detached = false;
  self->is_in_wait = false;
  self->did = "";
  self->did_with = NULL;
  for (unsigned i = 0; i < IDS_TLS_SLOTS; i++)
    self->tls[i] = NULL;
  self->main = main;
  self->context = context;
  unsigned length = 0;
  for (; length < sizeof self->name - 1 && name[length] != '\0'; length++)
    self->name[length] = name[length];
  self->name[length] = '\0';
  sim.alive |= SIM_BIT(slot);
  sim.runnable |= SIM_BIT(slot);
#ifdef SIM_TSAN
  __tsan_release(&self->name);
#endif
  *out_slot = slot;
  return 0;
}

void sim_post_at_step(uint64_t k, void (*function)(void *context), void *context) {
  if (k == 0)
    return;
  unsigned slot;
  if (sim_thread_create(function, context, "posted", &slot) != 0)
    sim_fail("sim_post_at_step: more than %d threads", SIM_THREADS_MAX);
  struct sim_thread *thread = &sim.threads[slot];
  thread->is_detached = true;
  thread->post_step = k;
  thread->wait = SIM_WAITS_STEP;
  sim.posted |= SIM_BIT(slot);
  sim.runnable &= ~SIM_BIT(slot);
  sim_set_special_step();
}

void sim_fork(void) {
  if (!sim.plan->forks)
    sim_fail("sim_fork: the plan does not say that it forks");
  while (sim.holds_count > 0)
    ids_relax();
  uint64_t others = (sim.alive | sim.ended) & ~SIM_BIT(sim.current);
  sim.frozen |= others;
  sim.alive &= ~others;
  sim.ended = 0;
  sim.runnable &= ~others;
  sim.relaxed = 0;
  sim.timed &= ~others;
  sim.timers_are_listed = false;
  sim.posted = 0;
  sim.futex_waiters &= ~others;
  sim.generation = ++sim.generations_count;
  /* The scenario itself may be among those left behind: the child ends when it ends. */
  sim_me()->is_detached = true;
  sim_memory_fork();
  sim_set_special_step();
  sim_do("forks", NULL);
}
