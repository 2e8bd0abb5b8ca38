/* SPDX-License-Identifier: MIT */
/*
 * toy_sim.c - see toy_sim.h.
 */
#include "toy_sim.h"

#include <string.h>

void toy_start(struct ids_thread *thread, void (*body)(void *context), void *context,
               const char *name) {
  const struct ids_thread_config config = { .main = body, .context = context, .name = name };
  SIM_CHECK_EQUAL(ids_thread_start(thread, &config, "start"), 0);
}

void toy_init_lock(struct ids_mutex *lock) {
  SIM_CHECK_EQUAL(ids_mutex_init(lock, "lock"), 0);
}

void toy_init_cond(struct ids_cond *cond) {
  SIM_CHECK_EQUAL(ids_cond_init(cond, "cond"), 0);
}

void toy_must_find(struct sim_plan plan, const char *text) {
  struct sim_result found, again;
  sim_search(&plan, &found);
  if (!CHECK(found.failed))
    return;
  CHECK_CONTAINS(found.message, text);
  char schedule[4096];
  REQUIRE(strlen(found.schedule) < sizeof schedule);
  strcpy(schedule, found.schedule);
  plan.replay = schedule;
  for (unsigned i = 0; i < 2; i++) {
    sim_search(&plan, &again);
    CHECK(again.failed);
    CHECK_EQ_STR(again.message, found.message);
    CHECK_EQ_STR(again.schedule, schedule);
    CHECK_EQ_U64(again.steps_last, found.steps_last);
  }
}

void toy_must_find_by_all(struct sim_plan plan, const char *text) {
  plan.strategy = SIM_DFS;
  plan.bound = plan.bound == 0 ? 2 : plan.bound;
  toy_must_find(plan, text);
  plan.strategy = SIM_DELAY;
  toy_must_find(plan, text);
  plan.runs_max = 100000;
  for (plan.seed = 1; plan.seed <= 5; plan.seed++) {
    plan.strategy = SIM_RANDOM;
    toy_must_find(plan, text);
    plan.strategy = SIM_PCT;
    toy_must_find(plan, text);
  }
}

uint64_t toy_must_pass(struct sim_plan plan) {
  struct sim_result result;
  sim_search(&plan, &result);
  if (result.failed)
    FAIL("%s: run %llu failed: %s", plan.name, (unsigned long long)result.runs_count,
         result.message);
  CHECK(result.complete);
  return result.runs_count;
}

struct sim_plan toy_plan(void (*scenario)(void *context), const char *word) {
  return (struct sim_plan){ .name = word == NULL ? "toy" : word,
                            .scenario = scenario,
                            .context = (void *)(uintptr_t)word,
                            .strategy = SIM_DFS,
                            .bound = SIM_UNBOUNDED };
}

bool toy_is(const void *context, const char *word) {
  return strcmp(context, word) == 0;
}
