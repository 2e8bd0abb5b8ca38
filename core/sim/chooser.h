/* SPDX-License-Identifier: MIT */
/*
 * chooser.h - the strategies: who decides what nobody else decides.
 *
 * Everything that a program cannot know beforehand is one choice among n options: which
 * thread moves next, which waiter a signal wakes, whether memory runs out.  A strategy
 * answers, and that is all it does.  The numbers of the options it chose are the
 * schedule: with the same numbers everything happens again.  As a string each is one of
 * the digits 0 to 9, a to z, A to Z; zeros at the end are left off, and "-" is all zeros.
 *
 * Option 0 of a choice is what happens when nothing special does: the same thread goes
 * on, no fault.  A choice among threads has a price: 1 for leaving a thread that could
 * go on, and for letting a timer fire while threads can move.  All others are free.
 *
 *   dfs      every schedule that costs at most `bound`, one after the other
 *   delay    the same, where the price is how many threads were passed over
 *   random   each run draws at its begin how often timers fire, waits end for no reason,
 *            calls fail, and threads go on without a change
 *   pct      threads have random priorities, which change at depth - 1 random moments
 *   replay   what a string says, and option 0 after its end
 */
#ifndef IDS_SIM_CHOOSER_H
#define IDS_SIM_CHOOSER_H

#include <stdbool.h>
#include <stdint.h>

enum sim_strategy { SIM_DFS, SIM_RANDOM, SIM_PCT, SIM_DELAY, SIM_REPLAY };

/* More than any schedule costs. */
#define SIM_UNBOUNDED UINT32_MAX

/* What one digit of a schedule can say. */
#define SIM_OPTIONS_MAX 62

enum sim_choice_kind {
  SIM_CHOICE_THREAD,
  SIM_CHOICE_WAITER,
  SIM_CHOICE_SPURIOUS,
  SIM_CHOICE_FAULT,
  SIM_CHOICE_DATA
};

struct sim_choice {
  enum sim_choice_kind kind;
  unsigned options_count; /* at least 2, at most SIM_OPTIONS_MAX */
  /* Only of a choice among threads: */
  unsigned threads_count; /* these options are threads; those after them are timers */
  uint64_t threads;       /* one bit each */
  unsigned current;       /* who was running */
  uint64_t costly;        /* options that cost 1, one bit each */
};

/* In parallel, by sums of 2, 4 and 8 bits: a loop would mispredict its end at each step. */
static inline unsigned sim_count_bits(uint64_t bits) {
  bits -= bits >> 1 & UINT64_C(0x5555555555555555);
  bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
  bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
  return (unsigned)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* The thread that option n is: the running one if it can go on, then those after it, then
 * those from the first. */
unsigned sim_choice_thread(uint64_t threads, unsigned current, unsigned n);

struct sim_chooser_config {
  enum sim_strategy strategy;
  uint64_t seed;
  unsigned bound;        /* dfs, delay */
  unsigned depth;        /* pct */
  const char *replay;    /* replay */
  bool is_fault_a_tenth; /* random, pct: one of ten fallible calls fails */
};

struct sim_chooser;
struct sim_chooser_ops {
  const char *name;
  void (*begin_run)(struct sim_chooser *self);
  unsigned (*choose)(struct sim_chooser *self, const struct sim_choice *choice);
  /* Whether there is another run to make. */
  bool (*end_run)(struct sim_chooser *self);
};

#define SIM_CHOOSER_THREADS_MAX 64
#define SIM_PCT_DEPTH_MAX 32

/* A choice of dfs or delay that had an alternative it could pay. */
struct sim_node {
  uint64_t costly;
  uint32_t left; /* of the bound, before the choice */
  uint8_t chosen;
  uint8_t options_count;
  uint8_t threads_count; /* delay: options below this cost their number */
};

struct sim_chooser {
  const struct sim_chooser_ops *ops;
  struct sim_chooser_config config;
  uint64_t random;
  uint64_t runs_count;

  /* dfs, delay */
  struct sim_node *nodes;
  unsigned nodes_count, nodes_room;
  unsigned position; /* nodes passed in this run */
  uint32_t left;     /* of the bound */

  /* random, pct: out of 2^32 */
  uint32_t timer_chance, spurious_chance, fault_chance, stay_chance;

  /* pct */
  uint32_t priorities[SIM_CHOOSER_THREADS_MAX];
  uint64_t change_at[SIM_PCT_DEPTH_MAX];
  uint64_t choices_count, choices_max;

  /* replay */
  const char *rest;
};

void sim_chooser_init(struct sim_chooser *self, const struct sim_chooser_config *config);
const char *sim_strategy_name(enum sim_strategy strategy);

/* A digit of a schedule, and what a character says: SIM_OPTIONS_MAX if it is none. */
char sim_digit(unsigned option);
unsigned sim_digit_value(char digit);

/* A number of which every bit depends on every bit of x. */
uint64_t sim_mix(uint64_t x);

#endif
