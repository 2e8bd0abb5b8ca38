/* SPDX-License-Identifier: MIT */
/*
 * chooser.c - see chooser.h.
 */
#include "chooser.h"

#include <stdlib.h>
#include <string.h>

#include "inside.h"

static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
_Static_assert(sizeof digits - 1 == SIM_OPTIONS_MAX, "one digit for each option");

char sim_digit(unsigned option) {
  return digits[option];
}

unsigned sim_digit_value(char digit) {
  const char *found = digit == '\0' ? NULL : strchr(digits, digit);
  return found == NULL ? SIM_OPTIONS_MAX : (unsigned)(found - digits);
}

static unsigned nth_bit(uint64_t bits, unsigned n) {
  for (; n > 0; n--)
    bits &= bits - 1;
  return (unsigned)__builtin_ctzll(bits);
}

unsigned sim_choice_thread(uint64_t threads, unsigned current, unsigned n) {
  uint64_t bit = UINT64_C(1) << current;
  if (threads & bit) {
    if (n == 0)
      return current;
    n--;
  }
  uint64_t after = threads & ~(bit | (bit - 1));
  unsigned after_count = sim_count_bits(after);
  return n < after_count ? nth_bit(after, n) : nth_bit(threads & (bit - 1), n - after_count);
}

/* ------------------------------------------------------------- randomness */

uint64_t sim_mix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static inline uint32_t random_word(struct sim_chooser *self) {
  self->random += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t x = self->random;
  x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
  return (uint32_t)(x >> 32);
}

static inline unsigned random_below(struct sim_chooser *self, unsigned n) {
  return (unsigned)((uint64_t)random_word(self) * n >> 32);
}

static inline bool is_lucky(struct sim_chooser *self, uint32_t chance) {
  return chance != 0 && random_word(self) < chance;
}

#define CHANCE(part, whole) ((uint32_t)((UINT64_C(1) << 32) / (whole) * (part)))

/* Runs differ in what they are prone to: a bug may need many timers, or none at all. */
static void begin_random_run(struct sim_chooser *self) {
  static const uint32_t timer_chances[] = { 0, CHANCE(1, 64), CHANCE(6, 64), CHANCE(24, 64) };
  static const uint32_t rare_chances[] = { 0, CHANCE(1, 32), CHANCE(1, 8), CHANCE(1, 2) };
  static const uint32_t stay_chances[] = { 0, 0, CHANCE(1, 2), CHANCE(7, 8) };
  self->random = sim_mix(self->config.seed ^ sim_mix(self->runs_count));
  uint32_t draw = random_word(self);
  self->timer_chance = timer_chances[draw & 3];
  self->spurious_chance = rare_chances[draw >> 2 & 3];
  self->fault_chance = self->config.is_fault_a_tenth ? CHANCE(1, 10) : rare_chances[draw >> 4 & 3];
  self->stay_chance = stay_chances[draw >> 6 & 3];
}

static unsigned choose_random_but_thread(struct sim_chooser *self,
                                         const struct sim_choice *choice) {
  if (choice->kind == SIM_CHOICE_SPURIOUS)
    return is_lucky(self, self->spurious_chance);
  if (choice->kind == SIM_CHOICE_FAULT)
    return is_lucky(self, self->fault_chance);
  return random_below(self, choice->options_count);
}

/* An option that is a timer, or options_count for none. */
static unsigned choose_timer(struct sim_chooser *self, const struct sim_choice *choice) {
  unsigned timers_count = choice->options_count - choice->threads_count;
  if (timers_count == 0 || !is_lucky(self, self->timer_chance))
    return choice->options_count;
  return choice->threads_count + random_below(self, timers_count);
}

static unsigned choose_random(struct sim_chooser *self, const struct sim_choice *choice) {
  if (choice->kind != SIM_CHOICE_THREAD)
    return choose_random_but_thread(self, choice);
  unsigned timer = choose_timer(self, choice);
  if (timer < choice->options_count)
    return timer;
  if (choice->threads_count == 1 || is_lucky(self, self->stay_chance))
    return 0;
  return random_below(self, choice->threads_count);
}

static bool end_random_run(struct sim_chooser *self) {
  self->runs_count++;
  return true;
}

/* -------------------------------------------------------------------- pct */

static void begin_pct_run(struct sim_chooser *self) {
  begin_random_run(self);
  if (self->choices_count > self->choices_max)
    self->choices_max = self->choices_count;
  self->choices_count = 0;
  /* All above the depth: those below are for threads that were moved down. */
  for (unsigned i = 0; i < SIM_CHOOSER_THREADS_MAX; i++)
    self->priorities[i] = random_word(self) | UINT32_C(0x80000000);
  for (unsigned i = 0; i + 1 < self->config.depth; i++)
    self->change_at[i] = 1 + random_below(self, (unsigned)self->choices_max);
}

static unsigned highest(const struct sim_chooser *self, const struct sim_choice *choice) {
  unsigned best = 0;
  uint32_t best_priority = 0;
  for (unsigned i = 0; i < choice->threads_count; i++) {
    unsigned thread = sim_choice_thread(choice->threads, choice->current, i);
    if (self->priorities[thread] > best_priority) {
      best = i;
      best_priority = self->priorities[thread];
    }
  }
  return best;
}

static unsigned choose_pct(struct sim_chooser *self, const struct sim_choice *choice) {
  if (choice->kind != SIM_CHOICE_THREAD)
    return choose_random_but_thread(self, choice);
  unsigned timer = choose_timer(self, choice);
  if (timer < choice->options_count)
    return timer;
  self->choices_count++;
  for (unsigned i = 0; i + 1 < self->config.depth; i++) {
    if (self->change_at[i] == self->choices_count) {
      unsigned best = highest(self, choice);
      self->priorities[sim_choice_thread(choice->threads, choice->current, best)] = 1 + i;
    }
  }
  return highest(self, choice);
}

/* ---------------------------------------------------------- dfs and delay */

static uint32_t cost_of(const struct sim_node *node, unsigned option) {
  if (option < node->threads_count)
    return option;
  return node->costly >> option & 1;
}

/* The first option from this one on that can be paid; options_count for none. */
static unsigned next_option(const struct sim_node *node, unsigned option) {
  while (option < node->options_count && cost_of(node, option) > node->left)
    option++;
  return option;
}

static unsigned choose_next(struct sim_chooser *self, const struct sim_choice *choice,
                            unsigned threads_count) {
  struct sim_node node = { .costly = choice->kind == SIM_CHOICE_THREAD ? choice->costly : 0,
                           .left = self->left,
                           .options_count = (uint8_t)choice->options_count,
                           .threads_count = (uint8_t)threads_count };
  if (self->position < self->nodes_count) {
    /* A choice without an affordable alternative is no node, now as then. */
    if (next_option(&node, 1) == node.options_count)
      return 0;
    const struct sim_node *known = &self->nodes[self->position++];
    if (known->options_count != node.options_count || known->left != node.left ||
        known->costly != node.costly)
      sim_fail("the scenario is not deterministic: the same choices led to another one");
    self->left -= cost_of(known, known->chosen);
    return known->chosen;
  }
  if (next_option(&node, 1) == node.options_count)
    return 0;
  if (self->nodes_count == self->nodes_room) {
    self->nodes_room = self->nodes_room == 0 ? 1024 : 2 * self->nodes_room;
    self->nodes = realloc(self->nodes, self->nodes_room * sizeof *self->nodes);
    if (self->nodes == NULL)
      abort();
  }
  self->nodes[self->nodes_count++] = node;
  self->position = self->nodes_count;
  return 0;
}

static void begin_dfs_run(struct sim_chooser *self) {
  self->position = 0;
  self->left = self->config.bound;
}

static unsigned choose_dfs(struct sim_chooser *self, const struct sim_choice *choice) {
  return choose_next(self, choice, 0);
}

static unsigned choose_delay(struct sim_chooser *self, const struct sim_choice *choice) {
  bool is_thread = choice->kind == SIM_CHOICE_THREAD;
  return choose_next(self, choice, is_thread ? choice->threads_count : 0);
}

static bool end_dfs_run(struct sim_chooser *self) {
  self->runs_count++;
  while (self->nodes_count > 0) {
    struct sim_node *last = &self->nodes[self->nodes_count - 1];
    unsigned next = next_option(last, last->chosen + 1u);
    if (next < last->options_count) {
      last->chosen = (uint8_t)next;
      return true;
    }
    self->nodes_count--;
  }
  return false;
}

/* ----------------------------------------------------------------- replay */

static void begin_replay(struct sim_chooser *self) {
  self->rest = self->config.replay;
}

static unsigned choose_replay(struct sim_chooser *self, const struct sim_choice *choice) {
  if (*self->rest == '\0')
    return 0;
  unsigned option = sim_digit_value(*self->rest++);
  if (option >= choice->options_count)
    sim_fail("the schedule does not fit the scenario: its character %u is '%c', expected a digit "
             "below %u",
             (unsigned)(self->rest - self->config.replay), self->rest[-1], choice->options_count);
  return option;
}

static bool end_replay(struct sim_chooser *self) {
  self->runs_count++;
  return false;
}

static const struct sim_chooser_ops strategies[] = {
  [SIM_DFS] = { "dfs", begin_dfs_run, choose_dfs, end_dfs_run },
  [SIM_RANDOM] = { "random", begin_random_run, choose_random, end_random_run },
  [SIM_PCT] = { "pct", begin_pct_run, choose_pct, end_random_run },
  [SIM_DELAY] = { "delay", begin_dfs_run, choose_delay, end_dfs_run },
  [SIM_REPLAY] = { "replay", begin_replay, choose_replay, end_replay },
};

const char *sim_strategy_name(enum sim_strategy strategy) {
  return strategies[strategy].name;
}

void sim_chooser_init(struct sim_chooser *self, const struct sim_chooser_config *config) {
  struct sim_node *nodes = self->nodes;
  unsigned nodes_room = self->nodes_room;
  *self = (struct sim_chooser){ .ops = &strategies[config->strategy],
                                .config = *config,
                                .nodes = nodes,
                                .nodes_room = nodes_room,
                                .choices_max = 32 };
  if (self->config.depth > SIM_PCT_DEPTH_MAX)
    self->config.depth = SIM_PCT_DEPTH_MAX;
}
