/* SPDX-License-Identifier: MIT */
/*
 * sim.c - choices, failures, and the search: see sim.h.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "inside.h"
#ifdef SIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define RUNS_MAX_DEFAULT 1000
#define DEPTH_DEFAULT 3

struct sim sim = { .is_passive = true };

/* --------------------------------------------------------------- for people */

#ifdef SIM_TSAN
/* Of the sanitizer; in no header of it. */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

void sim_unwatched_begin(void) {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void sim_unwatched_end(void) {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
void sim_unwatched_begin(void) {
}

void sim_unwatched_end(void) {
}
#endif

const char *sim_thread_name(unsigned slot) {
  static char texts[4][48];
  static unsigned turn;
  char *text = texts[turn++ % 4];
  snprintf(text, sizeof texts[0], "%s#%u", sim.threads[slot].name, sim.threads[slot].number);
  return text;
}

static double past_ms(uint64_t moment_ns) {
  return ((double)moment_ns - (double)SIM_BEGIN_NS) / 1e6;
}

void sim_print(const char *did, const char *with) {
  sim_unwatched_begin();
  printf("# %5llu %+13.6f ms  %-18s %s %s\n", (unsigned long long)sim.steps_count,
         past_ms(sim.now_ns), sim_thread_name(sim.current), did, with == NULL ? "" : with);
  sim_unwatched_end();
}

void sim_note(const char *format, ...) {
  if (!sim.is_traced)
    return;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  sim_print("note:", text);
}

/* The schedule without the zeros at its end, which a replay does not need. */
static const char *write_schedule(void) {
  static char *text;
  size_t length = sim.choices_count;
  while (length > 0 && sim.choices[length - 1] == 0)
    length--;
  free(text);
  text = malloc(length + 2);
  if (text == NULL)
    abort();
  for (size_t i = 0; i < length; i++)
    text[i] = sim_digit(sim.choices[i]);
  if (length == 0)
    text[length++] = '-';
  text[length] = '\0';
  return text;
}

/* ----------------------------------------------------------------- failures */

/* Only the first failure of a run counts. */
static void note_failure(const char *format, va_list arguments) {
  if (sim.has_failed)
    return;
  sim.has_failed = true;
  sim_unwatched_begin();
  char *text = sim.result->message;
  size_t size = sizeof sim.result->message;
  int length = vsnprintf(text, size, format, arguments);
  if (length < 0 || (size_t)length >= size)
    length = (int)size - 1;
  const struct sim_thread *me = sim_me();
  if (sim.is_running)
    snprintf(text + length, size - (size_t)length, " [step %llu, %+.6f ms, %s: %s %s]",
             (unsigned long long)sim.steps_count, past_ms(sim.now_ns), sim_thread_name(sim.current),
             me->did, me->did_with == NULL ? "" : me->did_with);
  if (sim.is_traced)
    printf("# FAILED: %s\n", text);
  sim_unwatched_end();
}

static void note_end_failure(const char *format, ...) SIM_PRINTF(1, 2);
static void note_end_failure(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  note_failure(format, arguments);
  va_end(arguments);
}

void sim_fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (!sim.is_running) {
    vfprintf(stderr, format, arguments);
    fputs(" (outside of a simulated run)\n", stderr);
    abort();
  }
  note_failure(format, arguments);
  va_end(arguments);
  if (sim.is_looking)
    sim_unwatched_end();
  sim.is_looking = false;
  /* Left in the middle: the search is over, nobody comes back to this stack. */
  coroutine_leave(&sim_me()->coroutine, &sim.driver);
}

/* An assertion of the core. */
IDS_NORETURN void ids_die(const char *message) {
  sim_fail("%s", message);
}

/* ------------------------------------------------------------------ choices */

unsigned sim_decide(const struct sim_choice *choice) {
  ids_assert(choice->options_count <= SIM_OPTIONS_MAX);
  unsigned option = sim.chooser.ops->choose(&sim.chooser, choice);
  if (sim.choices_count == sim.choices_room) {
    sim.choices_room = sim.choices_room == 0 ? 4096 : 2 * sim.choices_room;
    sim.choices = realloc(sim.choices, sim.choices_room);
    if (sim.choices == NULL)
      abort();
  }
  sim.choices[sim.choices_count++] = (uint8_t)option;
  return option;
}

unsigned sim_decide_among(enum sim_choice_kind kind, unsigned n) {
  if (n <= 1)
    return 0;
  return sim_decide(&(struct sim_choice){ .kind = kind, .options_count = n });
}

unsigned sim_choose(unsigned n, const char *what) {
  if (n == 0)
    sim_fail("sim_choose(0, \"%s\"): expected at least one option", what);
  unsigned option;
  if (n <= SIM_OPTIONS_MAX) {
    option = sim_decide_among(SIM_CHOICE_DATA, n);
  } else {
    /* Blocks of as many as a digit can say; the last one may be shorter. */
    unsigned block = sim_choose((n + SIM_OPTIONS_MAX - 1) / SIM_OPTIONS_MAX, what);
    unsigned rest = n - block * SIM_OPTIONS_MAX;
    option = block * SIM_OPTIONS_MAX +
             sim_decide_among(SIM_CHOICE_DATA, rest < SIM_OPTIONS_MAX ? rest : SIM_OPTIONS_MAX);
  }
  if (sim.is_traced) {
    char text[96];
    snprintf(text, sizeof text, "%s = %u of %u", what, option, n);
    sim_print("chose", text);
  }
  return option;
}

/* ------------------------------------------------------- calls that can fail */

#define SITES_MAX 512

/* By the address of the name, which is a literal; equal names are put together at the end. */
static struct sim_site site_table[SITES_MAX];
static uint16_t site_order[SITES_MAX];
static unsigned sites_count;

static struct sim_site *find_site(const char *name) {
  size_t i = (size_t)(((uintptr_t)name * UINT64_C(0x9e3779b97f4a7c15)) >> 55);
  while (site_table[i].name != name) {
    if (site_table[i].name == NULL) {
      if (sites_count == SITES_MAX - 1)
        sim_fail("more than %d sites of calls that can fail", SITES_MAX - 1);
      site_table[i].name = name;
      site_order[sites_count++] = (uint16_t)i;
      break;
    }
    i = (i + 1) % SITES_MAX;
  }
  return &site_table[i];
}

bool sim_is_refused(const char *name) {
  struct sim_site *site = find_site(name);
  site->calls_count++;
  uint64_t number = ++sim.fallible_count;
  bool is_refused = false;
  switch (sim.plan->fault_mode) {
  case SIM_FAULT_CHOICE:
    if (sim.faults_left > 0 && sim_decide_among(SIM_CHOICE_FAULT, 2) == 1) {
      sim.faults_left--;
      is_refused = true;
    }
    break;
  case SIM_FAULT_NTH:
    is_refused = number == sim.plan->fault_nth;
    break;
  case SIM_FAULT_FROM:
    is_refused = sim.plan->fault_nth != 0 && number >= sim.plan->fault_nth;
    break;
  case SIM_FAULT_TENTH:
    is_refused = sim_decide_among(SIM_CHOICE_FAULT, 2) == 1;
    break;
  }
  if (is_refused) {
    site->faults_count++;
    sim.result->faults_count++;
    if (sim.is_traced)
      sim_print("is refused", name);
  }
  return is_refused;
}

static void write_sites(struct sim_result *out) {
  static struct sim_site sites[SITES_MAX];
  unsigned count = 0;
  for (unsigned i = 0; i < sites_count; i++) {
    const struct sim_site *site = &site_table[site_order[i]];
    unsigned known = 0;
    while (known < count && strcmp(sites[known].name, site->name) != 0)
      known++;
    if (known == count)
      sites[count++] = (struct sim_site){ .name = site->name };
    sites[known].calls_count += site->calls_count;
    sites[known].faults_count += site->faults_count;
  }
  out->sites = sites;
  out->sites_count = count;
}

/* --------------------------------------------------------------- the search */

static void begin_run(const struct sim_plan *plan) {
  sim.run_number++;
  sim.now_ns = SIM_BEGIN_NS;
  sim.runnable = sim.relaxed = sim.timed = 0;
  sim.timers_are_listed = false;
  sim.alive = sim.ended = sim.frozen = sim.posted = sim.futex_waiters = 0;
  sim.steps_count = 0;
  sim.current = 0;
  sim.invariants_count = sim.rests_count = 0;
  sim.spins_count = 0;
  sim.births_count = 0;
  sim.generation = plan->forks ? ++sim.generations_count : 0;
  sim.holds_count = 0;
  sim.spurious_left = plan->spurious_max;
  sim.faults_left = plan->faults_max;
  sim.fallible_count = 0;
  sim.choices_count = 0;
  sim.objects_count = 0;
  sim.has_failed = false;
  sim_set_special_step();
  sim_memory_begin_run();
  sim_heap_begin_run();
  sim_psi_begin_run();
  sim.chooser.ops->begin_run(&sim.chooser);
}

static void check_end(void) {
  char text[512];
  for (uint64_t left = sim.ended; left != 0; left &= left - 1) {
    unsigned slot = (unsigned)__builtin_ctzll(left);
    note_end_failure("%s was neither joined nor detached", sim_thread_name(slot));
  }
  if (!sim_memory_is_balanced(text, sizeof text) || !sim_objects_are_balanced(text, sizeof text))
    note_end_failure("%s", text);
}

/* Stacks that were left in the middle; most runs have none. */
static void forsake_stacks(void) {
  uint64_t left = sim.alive | sim.frozen;
  if (sim.has_failed)
    left |= SIM_BIT(sim.current);
  for (; left != 0; left &= left - 1)
    coroutine_forsake(&sim.threads[__builtin_ctzll(left)].coroutine, &sim.driver);
}

static void run_once(const struct sim_plan *plan) {
  begin_run(plan);
  unsigned slot;
  if (sim_thread_create(plan->scenario, plan->context, "scenario", &slot) != 0)
    abort();
  sim.threads[slot].is_detached = true;
  sim.is_running = true;
  sim.is_passive = false;
  coroutine_switch(&sim.driver, &sim.threads[slot].coroutine);
  sim.is_passive = true;
  sim.is_running = false;
#ifdef SIM_TSAN
  __tsan_acquire(&sim_thread_ends);
#endif
  if (!sim.has_failed)
    check_end();
  if ((sim.alive | sim.frozen) != 0 || sim.has_failed)
    forsake_stacks();
  sim_memory_end_run();
}

static void count_run(struct sim_result *out) {
  out->runs_count++;
  out->steps_count += sim.steps_count;
  out->steps_last = sim.steps_count;
  out->fallible_last = sim.fallible_count;
  if (sim.steps_count > out->steps_max)
    out->steps_max = sim.steps_count;
  if (sim.fallible_count > out->fallible_max)
    out->fallible_max = sim.fallible_count;
}

static uint64_t runs_limit(const struct sim_plan *plan, enum sim_strategy strategy) {
  if (plan->runs_max > 0)
    return plan->runs_max;
  bool has_end = strategy == SIM_DFS || strategy == SIM_DELAY || strategy == SIM_REPLAY;
  return has_end ? UINT64_MAX : RUNS_MAX_DEFAULT;
}

void sim_search(const struct sim_plan *plan, struct sim_result *out) {
  *out = (struct sim_result){ .seed = plan->seed };
  enum sim_strategy strategy = plan->replay != NULL ? SIM_REPLAY : plan->strategy;
  sim.plan = plan;
  sim.result = out;
  sim.is_hostile = plan->is_hostile;
  sim.is_traced = plan->is_traced;
  for (unsigned i = 0; i < sites_count; i++)
    site_table[site_order[i]] = (struct sim_site){ .name = NULL };
  sites_count = 0;
  bool is_nothing = plan->replay != NULL && strcmp(plan->replay, "-") == 0;
  sim_chooser_init(&sim.chooser, &(struct sim_chooser_config){
                                   .strategy = strategy,
                                   .seed = plan->seed,
                                   .bound = plan->bound,
                                   .depth = plan->depth == 0 ? DEPTH_DEFAULT : plan->depth,
                                   .replay = is_nothing ? "" : plan->replay,
                                   .is_fault_a_tenth = plan->fault_mode == SIM_FAULT_TENTH });
  coroutine_adopt(&sim.driver);
  uint64_t limit = runs_limit(plan, strategy);
  while (out->runs_count < limit) {
    run_once(plan);
    count_run(out);
    if (sim.has_failed) {
      out->failed = true;
      break;
    }
    if (!sim.chooser.ops->end_run(&sim.chooser)) {
      out->complete = strategy != SIM_REPLAY;
      break;
    }
  }
  out->schedule = write_schedule();
  write_sites(out);
  sim.is_traced = false;
}
