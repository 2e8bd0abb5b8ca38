/* SPDX-License-Identifier: MIT */
/*
 * test_mimalloc.c - the options that are set for the process, and those of the user's
 * that are left alone.  Only in builds with mimalloc, and the only spec that knows it.
 */
#include <mimalloc.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_kit.h"

struct option {
  mi_option_t option;
  const char *environment;
  long value; /* what idlesched_process_defaults() sets */
};

static const struct option options[] = {
  { mi_option_allow_thp, "MIMALLOC_ALLOW_THP", 0 },
  { mi_option_arena_purge_min_size, "MIMALLOC_ARENA_PURGE_MIN_SIZE", 64 },
  { mi_option_page_reclaim_on_free, "MIMALLOC_PAGE_RECLAIM_ON_FREE", 0 },
};

enum { OPTIONS = sizeof options / sizeof options[0] };

static void need_no_environment(void) {
  for (unsigned i = 0; i < OPTIONS; i++)
    if (getenv(options[i].environment) != NULL)
      SKIP("%s is set", options[i].environment);
}

SPEC(the_defaults_are_set, "B10 the process defaults are set: no huge pages, 64 KiB, no reclaim") {
  need_no_environment();
  idlesched_process_defaults();
  for (unsigned i = 0; i < OPTIONS; i++)
    CHECK_EQ_INT(mi_option_get(options[i].option), options[i].value);
  idlesched_process_defaults(); /* as often as one likes */
  for (unsigned i = 0; i < OPTIONS; i++)
    CHECK_EQ_INT(mi_option_get(options[i].option), options[i].value);
  CHECK_GT_INT(mi_option_get(mi_option_purge_delay), 0);
}

SPEC(a_pool_sets_the_defaults, "B10 creating a pool sets the process defaults as well") {
  need_no_environment();
  idlesched_pool_destroy(POOL(.workers_max = 1));
  for (unsigned i = 0; i < OPTIONS; i++)
    CHECK_EQ_INT(mi_option_get(options[i].option), options[i].value);
}

SPEC(what_was_set_in_code_stays, "B10 an option that was set in code is left alone") {
  for (unsigned i = 0; i < OPTIONS; i++)
    mi_option_set(options[i].option, 1);
  idlesched_process_defaults();
  idlesched_pool_destroy(POOL(.workers_max = 1));
  for (unsigned i = 0; i < OPTIONS; i++)
    CHECK_EQ_INT(mi_option_get(options[i].option), 1);
}

static const char marker[] = "IDLESCHED_SPEC_ENVIRONMENT";

/* The allocator reads its environment before main(), so the case runs again in another
 * process; in that one this returns true, and there all of `environment` is set. */
static bool is_in_environment(const char *case_name, const char *const environment[][2]) {
  if (getenv(marker) != NULL)
    return true;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv(marker, "1", 1);
    for (unsigned i = 0; environment[i][0] != NULL; i++)
      setenv(environment[i][0], environment[i][1], 1);
    execl("/proc/self/exe", "test_mimalloc", "--no-fork", case_name, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ_INT(WEXITSTATUS(status), 0);
  return false;
}

SPEC(what_was_set_in_the_environment_stays, "B10 an option set in the environment is left alone") {
  static const char *const environment[][2] = { { "MIMALLOC_ALLOW_THP", "1" },
                                                { "MIMALLOC_ARENA_PURGE_MIN_SIZE", "128KiB" },
                                                { "MIMALLOC_PAGE_RECLAIM_ON_FREE", "1" },
                                                { NULL, NULL } };
  if (!is_in_environment("what_was_set_in_the_environment_stays", environment))
    return;
  idlesched_process_defaults();
  CHECK_EQ_INT(mi_option_get(mi_option_allow_thp), 1);
  CHECK_EQ_INT(mi_option_get(mi_option_arena_purge_min_size), 128);
  CHECK_EQ_INT(mi_option_get(mi_option_page_reclaim_on_free), 1);
}

/* ------------------------------------------------------------------------ overrides */

/* Those that yield to the user, and what they are when nobody overrides them. */
static const struct {
  const char *name;
  mi_option_t option;
  long value;
} yielding[] = {
  { "purge_min_size", mi_option_arena_purge_min_size, 64 },
  { "purge_mult", mi_option_arena_purge_mult, 4 },
};

static void enter(idlesched_override *self, const char *name, int64_t value) {
  REQUIRE_EQ_INT(idlesched_override_enter(self, name, value, NULL), 0);
}

SPEC(an_override_is_put_back_exactly,
     "B10 an override by \"set default\" is put back exactly, also "
     "when it asked for the value that was there") {
  need_no_environment();
  if (getenv("MIMALLOC_ARENA_PURGE_MULT") != NULL)
    SKIP("MIMALLOC_ARENA_PURGE_MULT is set");
  for (unsigned i = 0; i < 2; i++) {
    for (long value = yielding[i].value - 1; value <= yielding[i].value + 1; value++) {
      idlesched_override outer, inner;
      enter(&outer, yielding[i].name, value);
      CHECK_EQ_INT(mi_option_get(yielding[i].option), value);
      enter(&inner, yielding[i].name, 7);
      CHECK_EQ_INT(mi_option_get(yielding[i].option), 7);
      idlesched_override_leave(&inner);
      CHECK_EQ_INT(mi_option_get(yielding[i].option), value);
      idlesched_override_leave(&outer);
      CHECK_EQ_INT(mi_option_get(yielding[i].option), yielding[i].value);
    }
  }
}

/* For a value of the user's that is asked for, too: there it would show later only. */
static void check_left_alone(long value) {
  idlesched_option_info info;
  for (unsigned i = 0; i < 2; i++) {
    for (long asked = value - 1; asked <= value + 1; asked++) {
      idlesched_override outer, inner;
      enter(&outer, yielding[i].name, asked);
      enter(&inner, yielding[i].name, 7);
      CHECK_EQ_INT(mi_option_get(yielding[i].option), value);
      CHECK_EQ_INT(idlesched_option_read(1 + i, &info), 0);
      CHECK_EQ_STR(info.name, yielding[i].name);
      CHECK(!info.is_overridden);
      CHECK_EQ_INT(info.put_back, value);
      CHECK_EQ_INT(info.holders_count, 2);
      idlesched_override_leave(&outer);
      idlesched_override_leave(&inner);
      CHECK_EQ_INT(mi_option_get(yielding[i].option), value);
    }
  }
}

SPEC(an_override_yields_to_code, "B10 no override of what was set in code, the holder counts") {
  for (unsigned i = 0; i < 2; i++)
    mi_option_set(yielding[i].option, 33);
  check_left_alone(33);
}

SPEC(an_override_yields_to_the_environment,
     "B10 no override of what was set in the environment, the holder counts") {
  static const char *const environment[][2] = { { "MIMALLOC_ARENA_PURGE_MIN_SIZE", "128KiB" },
                                                { "MIMALLOC_ARENA_PURGE_MULT", "128" },
                                                { "MIMALLOC_PURGE_DELAY", "50" },
                                                { NULL, NULL } };
  if (!is_in_environment("an_override_yields_to_the_environment", environment))
    return;
  check_left_alone(128);
  idlesched_override self;
  enter(&self, "purge_delay", 9); /* but this one by B6 */
  CHECK_EQ_INT(mi_option_get(mi_option_purge_delay), 9);
  idlesched_override_leave(&self);
  CHECK_EQ_INT(mi_option_get(mi_option_purge_delay), 50);
}

SPEC(the_guards_delay_is_put_back,
     "B6 a delay that the user set in code is put back by the guard") {
  mi_option_set(mi_option_purge_delay, 123);
  idlesched_eager_purge_enter();
  CHECK_EQ_INT(mi_option_get(mi_option_purge_delay), 0);
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(mi_option_get(mi_option_purge_delay), 123);
}

static uint64_t anonymous_bytes(void) {
  idlesched_memory memory;
  REQUIRE_EQ_INT(idlesched_memory_read(&memory), 0);
  return memory.anonymous_bytes;
}

enum { MIBS = 64, BLOCKS_IN_MIB = 1024, BLOCK_BYTES = 1024 };

/* One block per MiB stays, so a pass at 2 MiB finds nothing, and marks all as done. */
SPEC(a_coarse_pass_does_not_disarm_ours,
     "B21 small free ranges come back, right after a coarse pass") {
  static void *blocks[MIBS * BLOCKS_IN_MIB];
  need_no_environment();
  idlesched_process_defaults();
  uint64_t before = anonymous_bytes();
  for (unsigned i = 0; i < MIBS * BLOCKS_IN_MIB; i++)
    blocks[i] = memset(idlesched_realloc(NULL, BLOCK_BYTES), 1, BLOCK_BYTES);
  for (unsigned i = 0; i < MIBS * BLOCKS_IN_MIB; i++)
    if (i % BLOCKS_IN_MIB != 0)
      idlesched_free(blocks[i]);
  mi_option_set(mi_option_arena_purge_min_size, 2048);
  mi_collect(true);
  mi_option_set(mi_option_arena_purge_min_size, 64);
  CHECK_GT_INT(anonymous_bytes() - before, 48 << 20);
  idlesched_thread_idle();
  CHECK_LT_INT(anonymous_bytes() - before, 8 << 20);
}

SPEC(the_allocator_says_its_version, "A16 the allocator's name says which version runs") {
  char expected[32];
  int version = mi_version();
  snprintf(expected, sizeof expected, "mimalloc %d.%d.%d", version / 10000, version / 100 % 100,
           version % 100);
  CHECK_EQ_STR(idlesched_allocator(), expected);
}
