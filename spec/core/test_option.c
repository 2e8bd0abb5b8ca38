/* SPDX-License-Identifier: MIT */
/*
 * test_option.c - overrides by name: which options there are, whose value is in force, what
 * the user set, lifts, and what the registry tells about itself.
 *
 * Method: the fake heap has the options, and yields to its user like the real one.  That one
 * is in test_mimalloc.c.
 */
#include "option.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eager_purge.h"
#include "fork.h"
#include "heap_fake.h"
#include "plat_fault.h"
#include "pool_kit.h"

#define DELAY IDS_HEAP_PURGE_DELAY_MS
#define MIN_SIZE IDS_HEAP_PURGE_MIN_SIZE_KIB
#define MULT IDS_HEAP_PURGE_MULT

static const char *const names[] = { "purge_delay", "purge_min_size", "purge_mult" };
enum { NAMES = sizeof names / sizeof names[0] };

/* What each is when nobody overrides it, after the process defaults. */
static const long defaults[] = { HEAP_FAKE_DELAY_DEFAULT_MS, HEAP_FAKE_MIN_SIZE_OURS_KIB,
                                 HEAP_FAKE_MULT_DEFAULT };

static void enter(idlesched_override *self, const char *name, int64_t value) {
  REQUIRE_EQ_INT(idlesched_override_enter(self, name, value, "here"), 0);
}

static idlesched_option_info info_of(enum ids_heap_option option) {
  idlesched_option_info info;
  REQUIRE_EQ_INT(idlesched_option_read(option, &info), 0);
  return info;
}

static void check_info(enum ids_heap_option option, long value, long put_back, bool is_overridden,
                       unsigned holders_count) {
  idlesched_option_info info = info_of(option);
  CHECK_EQ_INT(heap_fake_option(option), value);
  CHECK_EQ_INT(info.value, value);
  CHECK_EQ_INT(info.put_back, put_back);
  CHECK_EQ_INT(info.is_overridden, is_overridden);
  CHECK_EQ_INT(info.holders_count, holders_count);
}

static void check_none(void) {
  for (unsigned i = 0; i < NAMES; i++)
    CHECK_EQ_INT(info_of(i).holders_count, 0);
  static const char zeros[sizeof(idlesched_option_holder)];
  for (unsigned i = 0; i < NAMES; i++)
    CHECK_EQ_INT(memcmp(&info_of(i).holders[0], zeros, sizeof zeros), 0);
}

/* --------------------------------------------------------------------- which there are */

SPEC(each_option_is_overridden_by_name,
     "B9 the same mechanism serves several options, each alone") {
  idlesched_override self[NAMES];
  for (unsigned i = 0; i < NAMES; i++) {
    enter(&self[i], names[i], 7 + i);
    check_info(i, 7 + i, defaults[i], true, 1);
    CHECK_EQ_STR(info_of(i).name, names[i]);
  }
  for (unsigned i = 0; i < NAMES; i++) {
    idlesched_override_leave(&self[i]);
    check_info(i, defaults[i], defaults[i], false, 0);
    CHECK(i + 1 == NAMES || info_of(i + 1).is_overridden);
  }
  check_none();
}

SPEC(the_list_of_options_ends, "B9 the options are listed by number, and the list ends") {
  idlesched_option_info info;
  CHECK_EQ_INT(idlesched_option_read(NAMES, &info), -ENOENT);
  CHECK_EQ_PTR(info.name, NULL);
  for (unsigned i = 0; i < NAMES; i++)
    CHECK_EQ_PTR(idlesched_option_reason(names[i]), NULL);
}

SPEC(an_unknown_name_is_refused, "B9 an unknown name is refused, and the known ones are told") {
  idlesched_override self;
  static const char *const unknown[] = { "", "purge", "purge_delay ", "Purge_delay" };
  for (unsigned i = 0; i < 4; i++) {
    CHECK_EQ_INT(idlesched_override_enter(&self, unknown[i], 1, NULL), -EINVAL);
    for (unsigned j = 0; j < NAMES; j++)
      CHECK_CONTAINS(idlesched_option_reason(unknown[i]), names[j]);
  }
  check_none();
}

SPEC(what_decides_how_memory_is_taken_is_refused,
     "B11 options that change how memory is allocated are refused, each with its reason") {
  static const struct {
    const char *name, *reason;
  } forbidden[] = {
    { "allow_thp", "huge pages" },       { "allow_large_os_pages", "huge pages" },
    { "arena_reserve", "arenas" },       { "arena_eager_commit", "committed" },
    { "eager_commit", "committed" },     { "purge_decommits", "committed" },
    { "destroy_on_exit", "exit" },       { "page_reclaim_on_free", "heap" },
    { "disallow_arena_alloc", "arena" },
  };
  idlesched_override self;
  for (unsigned i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++) {
    CHECK_EQ_INT(idlesched_override_enter(&self, forbidden[i].name, 0, NULL), -EPERM);
    CHECK_CONTAINS(idlesched_option_reason(forbidden[i].name), forbidden[i].reason);
  }
  CHECK_EQ_STR(heap_fake_diary(), "");
  check_none();
}

SPEC(a_value_out_of_range_is_refused, "B9 a value out of the option's range is refused") {
  idlesched_override self;
  for (unsigned i = 0; i < NAMES; i++) {
    idlesched_option_info info = info_of(i);
    CHECK_EQ_INT(idlesched_override_enter(&self, names[i], info.least - 1, NULL), -EINVAL);
    CHECK_EQ_INT(idlesched_override_enter(&self, names[i], info.most + 1, NULL), -EINVAL);
    enter(&self, names[i], info.least);
    CHECK_EQ_INT(heap_fake_option(i), info.least);
    idlesched_override_leave(&self);
    enter(&self, names[i], info.most);
    CHECK_EQ_INT(heap_fake_option(i), info.most);
    idlesched_override_leave(&self);
  }
  check_none();
}

SPEC(without_options_nothing_is_held, "B7 an allocator without options: refused as such") {
  idlesched_override self;
  idlesched_option_info info;
  heap_fake_set_has_options(false);
  CHECK_EQ_INT(idlesched_override_enter(&self, "purge_delay", 1, NULL), -ENOTSUP);
  CHECK_EQ_INT(idlesched_override_enter(&self, "arena_reserve", 1, NULL), -EPERM);
  CHECK_EQ_INT(idlesched_override_enter(&self, "no such", 1, NULL), -EINVAL);
  CHECK_EQ_INT(idlesched_option_read(0, &info), -ENOTSUP);
  CHECK_CONTAINS(idlesched_option_reason("purge_delay"), "no options");
  CHECK(!ids_options_lift());
  ids_options_unlift();
  CHECK_EQ_STR(heap_fake_diary(), "");
}

/* ------------------------------------------------------------------- whose value it is */

SPEC(the_latest_value_is_in_force,
     "B4 in force is the value of the latest of those that are held") {
  /* All orders in which four can leave. */
  static const unsigned digits[4] = { 24, 6, 2, 1 };
  for (unsigned order = 0; order < 24; order++) {
    for (unsigned option = 0; option < NAMES; option++) {
      idlesched_override self[4];
      unsigned held[4] = { 0, 1, 2, 3 }, held_count = 4, rest = order;
      for (unsigned i = 0; i < 4; i++)
        enter(&self[i], names[option], 10 + i);
      while (held_count > 0) {
        CHECK_EQ_INT(heap_fake_option(option), 10 + held[held_count - 1]);
        CHECK_EQ_INT(info_of(option).put_back, defaults[option]);
        unsigned chosen = rest / digits[4 - held_count + (held_count > 1)] % held_count;
        rest %= digits[4 - held_count + (held_count > 1)];
        idlesched_override_leave(&self[held[chosen]]);
        held_count--;
        for (unsigned i = chosen; i < held_count; i++)
          held[i] = held[i + 1];
      }
      CHECK_EQ_INT(heap_fake_option(option), defaults[option]);
    }
  }
  check_none();
}

SPEC(the_same_value_is_written_once, "B3 an inner override that asks for the same writes nothing") {
  idlesched_override outer, inner;
  enter(&outer, "purge_mult", 9);
  unsigned writes_count = heap_fake_writes_count();
  enter(&inner, "purge_mult", 9);
  idlesched_override_leave(&outer);
  CHECK_EQ_INT(heap_fake_writes_count(), writes_count);
  idlesched_override_leave(&inner);
  CHECK_EQ_INT(heap_fake_writes_count(), writes_count + 1);
}

SPEC(guards_and_overrides_share_the_delay, "B3 guards and overrides of the delay are one order") {
  idlesched_override slow, slower;
  enter(&slow, "purge_delay", 5000);
  idlesched_eager_purge_enter();
  check_info(DELAY, 0, HEAP_FAKE_DELAY_DEFAULT_MS, true, 2);
  enter(&slower, "purge_delay", 6000);
  check_info(DELAY, 6000, HEAP_FAKE_DELAY_DEFAULT_MS, true, 3);
  idlesched_eager_purge_enter(); /* moves the nameless ones to the end */
  check_info(DELAY, 0, HEAP_FAKE_DELAY_DEFAULT_MS, true, 4);
  CHECK_EQ_INT(ids_eager_purge_holders(), 4);
  idlesched_eager_purge_leave();
  check_info(DELAY, 0, HEAP_FAKE_DELAY_DEFAULT_MS, true, 3);
  idlesched_eager_purge_leave();
  check_info(DELAY, 6000, HEAP_FAKE_DELAY_DEFAULT_MS, true, 2);
  idlesched_override_leave(&slower);
  check_info(DELAY, 5000, HEAP_FAKE_DELAY_DEFAULT_MS, true, 1);
  idlesched_override_leave(&slow);
  check_info(DELAY, HEAP_FAKE_DELAY_DEFAULT_MS, HEAP_FAKE_DELAY_DEFAULT_MS, false, 0);
}

SPEC(whatever_makes_the_delay_zero_purges_first,
     "B12 a leave that makes the delay 0 again purges first as well") {
  idlesched_override zero, slow, slower;
  enter(&zero, "purge_delay", 0);
  CHECK_EQ_INT(heap_fake_purges_count(), 1);
  enter(&slow, "purge_delay", 500);
  enter(&slower, "purge_delay", 600);
  idlesched_override_leave(&slower);
  CHECK_EQ_INT(heap_fake_purges_count(), 1);
  heap_fake_diary_clear();
  idlesched_override_leave(&slow);
  CHECK_EQ_STR(heap_fake_diary(), "gps");
  CHECK_EQ_INT(heap_fake_purges_count(), 2);
  idlesched_override_leave(&zero);
  CHECK_EQ_INT(heap_fake_purges_count(), 2);
}

SPEC(a_leave_without_enter_aborts, "B5 a leave without its enter is an assertion",
     .aborts_with = "assertion failed: inherited->count > 0") {
  idlesched_override held, self = { 0 };
  self.generation_ = ids_fork_generation() + 1; /* as if it were a parent's */
  enter(&held, "purge_delay", 1);
  idlesched_override_leave(&self);
}

SPEC(a_second_enter_aborts,
     "B5 an enter of what has entered is an assertion, for another option too",
     .aborts_with = "assertion failed: option_held_locked(self) == IDS_HEAP_OPTIONS") {
  idlesched_override self;
  enter(&self, "purge_delay", 1);
  enter(&self, "purge_mult", 2);
}

SPEC(a_second_leave_aborts, "B5 a second leave is an assertion",
     .aborts_with = "assertion failed: self->option_ < IDS_HEAP_OPTIONS") {
  idlesched_override held, self;
  enter(&held, "purge_delay", 1);
  enter(&self, "purge_delay", 1);
  idlesched_override_leave(&self);
  idlesched_override_leave(&self);
}

/* A struct is never believed before it was found. */
SPEC(a_leave_of_rubbish_aborts, "B5 a leave of a struct full of rubbish is an assertion",
     .aborts_with = "assertion failed: self->generation_ != ids_fork_generation()") {
  idlesched_override held, self;
  enter(&held, "purge_delay", 1);
  memset(&self, 0x5a, sizeof self);
  self.generation_ = ids_fork_generation();
  idlesched_override_leave(&self);
}

/* --------------------------------------------------------------------- what the user set */

SPEC(a_users_value_is_left_alone, "B10 what the user set is left alone, the holder counts") {
  static const enum ids_heap_option yielding[] = { MIN_SIZE, MULT };
  for (unsigned i = 0; i < 2; i++) {
    enum ids_heap_option option = yielding[i];
    idlesched_override outer, inner;
    heap_fake_user_sets(option, 128);
    unsigned writes_count = heap_fake_writes_count();
    enter(&outer, names[option], 32);
    check_info(option, 128, 128, false, 1);
    enter(&inner, names[option], 128);
    check_info(option, 128, 128, false, 2);
    CHECK_EQ_INT(info_of(option).holders[0].value, 128);
    CHECK_EQ_INT(info_of(option).holders[1].value, 32);
    idlesched_override_leave(&outer);
    idlesched_override_leave(&inner);
    check_info(option, 128, 128, false, 0);
    CHECK_EQ_INT(heap_fake_writes_count(), writes_count);
  }
}

SPEC(what_the_user_sets_meanwhile_stays, "B10 what the user sets under an override stays as well") {
  idlesched_override outer, inner;
  enter(&outer, "purge_mult", 9);
  heap_fake_user_sets(MULT, 3);
  enter(&inner, "purge_mult", 10); /* finds that it has nothing to say any more */
  check_info(MULT, 3, 3, false, 2);
  idlesched_override_leave(&inner);
  idlesched_override_leave(&outer);
  check_info(MULT, 3, 3, false, 0);

  enter(&outer, "purge_min_size", 128);
  heap_fake_user_sets(MIN_SIZE, 256);
  idlesched_override_leave(&outer);
  check_info(MIN_SIZE, 256, 256, false, 0);
}

SPEC(a_users_delay_of_zero_is_left_alone, "B6 a user's delay of 0 or below is left alone") {
  static const long delays_ms[] = { 0, -1 };
  for (unsigned i = 0; i < 2; i++) {
    idlesched_override slow, zero;
    heap_fake_set_delay_ms(delays_ms[i]);
    enter(&slow, "purge_delay", 500);
    enter(&zero, "purge_delay", 0);
    check_info(DELAY, delays_ms[i], delays_ms[i], false, 2);
    idlesched_override_leave(&slow);
    idlesched_override_leave(&zero);
    CHECK_EQ_INT(heap_fake_writes_count(), 0);
    CHECK_EQ_INT(heap_fake_purges_count(), 0);
  }
}

/* Until the last one has left, the rule of the first holds. */
SPEC(left_alone_is_left_alone, "B8 an option that was left alone stays so until all have left") {
  idlesched_override outer, inner;
  heap_fake_set_delay_ms(0);
  enter(&outer, "purge_delay", 500);
  heap_fake_set_delay_ms(1000);
  enter(&inner, "purge_delay", 0);
  check_info(DELAY, 1000, 1000, false, 2);
  CHECK_EQ_INT(heap_fake_purges_count(), 0);
  idlesched_override_leave(&outer);
  idlesched_override_leave(&inner);
  enter(&outer, "purge_delay", 500);
  check_info(DELAY, 500, 1000, true, 1);
  idlesched_override_leave(&outer);
}

SPEC(the_process_defaults_come_first, "B10 an override before the first pool saves our default") {
  idlesched_override self;
  CHECK_EQ_INT(heap_fake_option(MIN_SIZE), HEAP_FAKE_MIN_SIZE_DEFAULT_KIB);
  enter(&self, "purge_min_size", 128);
  idlesched_process_defaults();
  idlesched_pool_destroy(POOL(.workers_max = 1));
  check_info(MIN_SIZE, 128, HEAP_FAKE_MIN_SIZE_OURS_KIB, true, 1);
  idlesched_override_leave(&self);
  check_info(MIN_SIZE, HEAP_FAKE_MIN_SIZE_OURS_KIB, HEAP_FAKE_MIN_SIZE_OURS_KIB, false, 0);
}

/* --------------------------------------------------------------------------- who holds */

SPEC(holders_are_listed, "N7 the registry tells who holds an option, since when, by which value") {
  idlesched_override first, second;
  uint64_t began_ns = idlesched_now_ns();
  REQUIRE_EQ_INT(idlesched_override_enter(&first, "purge_mult", 5, "compile.lua:12"), 0);
  uint64_t between_ns = idlesched_now_ns();
  REQUIRE_EQ_INT(idlesched_override_enter(&second, "purge_mult", 6, NULL), 0);
  idlesched_option_info info = info_of(MULT);
  CHECK_EQ_INT(info.holders_count, 2);
  CHECK_EQ_STR(info.holders[0].name, "");
  CHECK_EQ_INT(info.holders[0].value, 6);
  CHECK_GE_U64(info.holders[0].since_ns, between_ns);
  CHECK_EQ_STR(info.holders[1].name, "compile.lua:12");
  CHECK_EQ_INT(info.holders[1].value, 5);
  CHECK_GE_U64(info.holders[1].since_ns, began_ns);
  CHECK_LE_U64(info.holders[1].since_ns, between_ns);
  idlesched_override_leave(&first);
  idlesched_override_leave(&second);
}

SPEC(a_long_name_is_cut, "N7 the beginning of a long name is told, and the latest 16 holders") {
  char name[200];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  idlesched_override self[20];
  for (unsigned i = 0; i < 20; i++)
    REQUIRE_EQ_INT(idlesched_override_enter(&self[i], "purge_mult", 1 + i, name), 0);
  idlesched_option_info info = info_of(MULT);
  CHECK_EQ_INT(info.holders_count, 20);
  CHECK_EQ_INT(strlen(info.holders[0].name), sizeof info.holders[0].name - 1);
  for (unsigned i = 0; i < IDLESCHED_HOLDERS_MAX; i++)
    CHECK_EQ_INT(info.holders[i].value, 20 - i);
  for (unsigned i = 0; i < 20; i++)
    idlesched_override_leave(&self[i]);
}

SPEC(nameless_guards_are_listed, "N7 guards without a struct are listed too, each of them") {
  idlesched_override self;
  idlesched_eager_purge_enter();
  uint64_t since_ns = info_of(DELAY).holders[0].since_ns;
  for (unsigned i = 1; i < 18; i++)
    idlesched_eager_purge_enter();
  enter(&self, "purge_delay", 3);
  idlesched_option_info info = info_of(DELAY);
  CHECK_EQ_INT(info.holders_count, 19);
  CHECK_EQ_STR(info.holders[0].name, "here");
  for (unsigned i = 1; i < IDLESCHED_HOLDERS_MAX; i++) {
    CHECK_EQ_STR(info.holders[i].name, "");
    CHECK_EQ_U64(info.holders[i].since_ns, since_ns);
  }
  idlesched_override_leave(&self);
  for (unsigned i = 0; i < 18; i++)
    idlesched_eager_purge_leave();
}

/* --------------------------------------------------------------------------- lifting */

SPEC(a_lift_puts_overrides_aside, "B27 a lift puts all overrides aside, and back") {
  idlesched_override self[NAMES];
  for (unsigned i = 0; i < NAMES; i++)
    enter(&self[i], names[i], 7 + i);
  CHECK(ids_options_lift());
  for (unsigned i = 0; i < NAMES; i++)
    check_info(i, defaults[i], defaults[i], false, 1);
  ids_options_unlift();
  for (unsigned i = 0; i < NAMES; i++) {
    check_info(i, 7 + i, defaults[i], true, 1);
    idlesched_override_leave(&self[i]);
  }
  check_none();
}

SPEC(a_lift_of_nothing_writes_nothing,
     "B27 a lift without an override says so, and writes nothing") {
  CHECK(!ids_options_lift());
  ids_options_unlift();
  heap_fake_set_delay_ms(-1);
  idlesched_eager_purge_enter(); /* left alone */
  CHECK(!ids_options_lift());
  ids_options_unlift();
  idlesched_eager_purge_leave();
  CHECK_EQ_INT(heap_fake_writes_count(), 0);
  CHECK_EQ_INT(heap_fake_purges_count(), 0);
}

SPEC(lifts_nest, "B27 lifts nest: overrides are back at the last unlift") {
  idlesched_eager_purge_enter();
  CHECK(ids_options_lift());
  CHECK(ids_options_lift());
  ids_options_unlift();
  check_info(DELAY, HEAP_FAKE_DELAY_DEFAULT_MS, HEAP_FAKE_DELAY_DEFAULT_MS, false, 1);
  ids_options_unlift();
  check_info(DELAY, 0, HEAP_FAKE_DELAY_DEFAULT_MS, true, 1);
  idlesched_eager_purge_leave();
}

/* The purge that the lift was made for began before what was freed during it. */
SPEC(the_end_of_a_lift_purges_first, "B12 the end of a lift purges before the delay is 0 again") {
  idlesched_eager_purge_enter();
  ids_options_lift();
  heap_fake_diary_clear();
  ids_options_unlift();
  CHECK_EQ_STR(heap_fake_diary(), "gpggs");
  idlesched_eager_purge_leave();
}

SPEC(an_unlift_too_many_aborts, "B27 an unlift without its lift is an assertion",
     .aborts_with = "assertion failed: registry.lifts_count > 0") {
  ids_options_lift();
  ids_options_unlift();
  ids_options_unlift();
}

/*
 * All short programs of an outer and an inner override, two lifts, and a user who may have set
 * the option: after each step the option is what the model says.
 */
enum step { OUTER, INNER, LIFT, SECOND_LIFT, STEPS };

struct model {
  bool is_on[STEPS];
  enum step newest;
  bool is_aside; /* something was in force when the lift that goes on began */
};

static bool is_lifted(const struct model *model) {
  return model->is_on[LIFT] || model->is_on[SECOND_LIFT];
}

static bool is_held(const struct model *model) {
  return model->is_on[OUTER] || model->is_on[INNER];
}

static void do_step(struct model *model, enum ids_heap_option option, enum step step,
                    idlesched_override *self) {
  bool begins = !model->is_on[step], was_lifted = is_lifted(model);
  model->is_on[step] = begins;
  if (step == LIFT || step == SECOND_LIFT) {
    if (!was_lifted)
      model->is_aside = is_held(model) && heap_fake_option(option) != 77;
    if (begins)
      CHECK_EQ_INT(ids_options_lift(), model->is_aside);
    else
      ids_options_unlift();
  } else if (begins) {
    enter(&self[step], names[option], 20 + step);
    model->newest = step;
  } else {
    idlesched_override_leave(&self[step]);
    model->newest = step == OUTER ? INNER : OUTER;
  }
}

static long expected_of(const struct model *model, enum ids_heap_option option, bool is_users) {
  if (is_users && option != DELAY)
    return 77;
  if (!is_held(model) || is_lifted(model))
    return is_users ? 78 : defaults[option];
  return 20 + model->newest;
}

SPEC(all_short_programs, "B27 B4 overrides that come and go under lifts: after every step of all "
                         "programs of six the option is right") {
  enum { LENGTH = 6 };
  unsigned programs_count = 1;
  for (unsigned i = 0; i < LENGTH; i++)
    programs_count *= STEPS;
  idlesched_process_defaults();
  for (unsigned setting = 0; setting < 2 * NAMES; setting++) {
    enum ids_heap_option option = setting % NAMES;
    bool is_users = setting >= NAMES;
    if (is_users)
      heap_fake_user_sets(option, option == DELAY ? 78 : 77);
    for (unsigned program = 0; program < programs_count; program++) {
      struct model model = { 0 };
      idlesched_override self[2];
      unsigned rest = program;
      for (unsigned i = 0; i < LENGTH; i++, rest /= STEPS) {
        do_step(&model, option, rest % STEPS, self);
        CHECK_EQ_INT(heap_fake_option(option), expected_of(&model, option, is_users));
        CHECK_EQ_INT(ids_option_holders(option), model.is_on[OUTER] + model.is_on[INNER]);
      }
      for (enum step step = OUTER; step < STEPS; step++)
        if (model.is_on[step])
          do_step(&model, option, step, self);
      CHECK_EQ_INT(heap_fake_option(option), expected_of(&model, option, is_users));
    }
  }
  check_none();
}

/* ------------------------------------------------------------------------------ a fork */

/* What the child returns is its exit code: the number of checks that failed. */
static int in_child(int (*main)(void)) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0)
    exit(main()); /* and not _exit(): coverage counts at exit */
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static idlesched_override inherited[2];

static int leave_in_child(void) {
  int wrong = 0;
  idlesched_override own;
  wrong += !CHECK_EQ_INT(heap_fake_delay_ms(), 6); /* before the first look, too */
  check_info(DELAY, 6, HEAP_FAKE_DELAY_DEFAULT_MS, true, 3);
  wrong += !CHECK_EQ_STR(info_of(DELAY).holders[0].name, "the parent process");
  enter(&own, "purge_delay", 50);
  wrong += !CHECK_EQ_INT(heap_fake_delay_ms(), 50);
  idlesched_override_leave(&inherited[1]);
  idlesched_eager_purge_enter();
  wrong += !CHECK_EQ_INT(heap_fake_delay_ms(), 0);
  idlesched_eager_purge_leave();
  idlesched_override_leave(&own);
  wrong += !CHECK_EQ_INT(heap_fake_delay_ms(), 6); /* of those two that are left it is not known */
  idlesched_override_leave(&inherited[0]);
  idlesched_eager_purge_leave(); /* the parent's */
  wrong += !CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
  check_none();
  return wrong;
}

SPEC(a_child_has_its_parents_overrides,
     "B8 a child has its parent's overrides and can leave them") {
  idlesched_eager_purge_enter();
  enter(&inherited[0], "purge_delay", 5);
  enter(&inherited[1], "purge_delay", 6);
  CHECK_EQ_INT(in_child(leave_in_child), 0);
  check_info(DELAY, 6, HEAP_FAKE_DELAY_DEFAULT_MS, true, 3);
  CHECK_EQ_STR(info_of(DELAY).holders[0].name, "here");
}

static int look_in_child(void) {
  return !CHECK_EQ_INT(info_of(DELAY).value, 5) + !CHECK_EQ_INT(heap_fake_delay_ms(), 5);
}

SPEC(a_child_of_a_lift_is_not_lifted, "B27 what was lifted at a fork is in force in the child") {
  enter(&inherited[0], "purge_delay", 5);
  CHECK(ids_options_lift());
  CHECK_EQ_INT(in_child(look_in_child), 0);
  CHECK_EQ_INT(heap_fake_delay_ms(), HEAP_FAKE_DELAY_DEFAULT_MS);
  ids_options_unlift();
  idlesched_override_leave(&inherited[0]);
}

static int leave_twice_in_child(void) {
  for (unsigned i = 0; i < 2; i++)
    idlesched_override_leave(&inherited[0]);
  return 0;
}

SPEC(a_second_leave_aborts_in_a_child_too, "B5 a second leave of the parent's override aborts") {
  enter(&inherited[0], "purge_delay", 5);
  enter(&inherited[1], "purge_delay", 5);
  CHECK_EQ_INT(in_child(leave_twice_in_child), -1);
}

static int leave_what_was_left(void) {
  idlesched_override_leave(&inherited[0]);
  return 0;
}

SPEC(a_child_does_not_leave_for_its_parent, "B5 what the parent has left, a child cannot leave") {
  enter(&inherited[0], "purge_delay", 5);
  enter(&inherited[1], "purge_delay", 5);
  idlesched_override_leave(&inherited[0]);
  CHECK_EQ_INT(in_child(leave_what_was_left), -1);
}

static int leave_own_struct_of_another_option(void) {
  idlesched_override self = { .option_ = MULT };
  idlesched_override_leave(&self);
  return 0;
}

SPEC(a_child_leaves_only_what_it_has, "B5 nor what nobody held in either process") {
  enter(&inherited[0], "purge_delay", 5);
  CHECK_EQ_INT(in_child(leave_own_struct_of_another_option), -1);
}

/* ----------------------------------------------------------------------------- a storm */

enum { THREADS = 4 };
#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 25000 };
#else
enum { ROUNDS = 100000 };
#endif

static void *storm(void *context) {
  unsigned seed = (unsigned)(uintptr_t)context;
  idlesched_override self[NAMES];
  for (unsigned round = 0; round < ROUNDS; round++) {
    seed = seed * 1664525 + 1013904223;
    unsigned first = seed >> 28;
    bool is_lifter = seed >> 20 & 1;
    for (unsigned i = 0; i < NAMES; i++) {
      unsigned option = (first + i) % NAMES;
      /* Not 0: each would be a purge more. */
      REQUIRE_EQ_INT(
        idlesched_override_enter(&self[option], names[option], 10 + (seed >> 16 & 7), "storm"), 0);
    }
    if (is_lifter)
      ids_options_lift();
    for (unsigned i = 0; i < NAMES; i++)
      idlesched_override_leave(&self[(first * 2 + i) % NAMES]);
    if (is_lifter)
      ids_options_unlift();
  }
  return NULL;
}

SPEC(a_storm_of_overrides,
     "B13 a storm of 4 threads, 100000 times 3 options each: right at the end", .limit_s = 120) {
  pthread_t threads[THREADS];
  idlesched_process_defaults();
  for (unsigned i = 0; i < THREADS; i++)
    threads[i] = thread_run(storm, (void *)(uintptr_t)(i + 1));
  for (unsigned i = 0; i < THREADS; i++)
    thread_result(threads[i]);
  for (unsigned i = 0; i < NAMES; i++)
    check_info(i, defaults[i], defaults[i], false, 0);
  check_none();
}
