/* SPDX-License-Identifier: MIT */
/*
 * test_failure.c - a failed assertion tells the host's handler, then prints one line and
 * ends the process.
 *
 * Method: the linker puts a function of ours in place of ids_die() (--wrap), which keeps
 * the line and jumps back into the case; a case that does not ask for that sees the
 * process end.
 */
#include "failure.h"

#include <limits.h>
#include <setjmp.h>
#include <string.h>

#include "harness.h"
#include "idlesched.h"

IDS_NORETURN void __real_ids_die(const char *message);
IDS_NORETURN void __wrap_ids_die(const char *message);

static jmp_buf back;
static bool keeps_line;
static char line_kept[4096];

IDS_NORETURN void __wrap_ids_die(const char *message) {
  if (!keeps_line)
    __real_ids_die(message);
  snprintf(line_kept, sizeof line_kept, "%s", message);
  longjmp(back, 1);
}

/* Evaluates a statement that fails and leaves its line in line_kept. */
#define KEEP_LINE_OF(statement)                                                                    \
  do {                                                                                             \
    keeps_line = true;                                                                             \
    line_kept[0] = '\0';                                                                           \
    if (setjmp(back) == 0) {                                                                       \
      statement;                                                                                   \
      FAIL("came back from %s", #statement);                                                       \
    }                                                                                              \
    keeps_line = false;                                                                            \
  } while (0)

/* What the handler was told; copied, as it is valid during the call only. */
static idlesched_failure told;
static unsigned told_count;

static void note_failure(const idlesched_failure *failure) {
  told = *failure;
  told_count++;
}

static void note_and_jump(const idlesched_failure *failure) {
  note_failure(failure);
  longjmp(back, 1);
}

/* ------------------------------------------------------------- the handler */

SPEC(the_handler_before_is_returned, "N5 setting a failure handler returns the one before") {
  CHECK(idlesched_set_failure_handler(note_failure) == NULL);
  CHECK(idlesched_set_failure_handler(note_and_jump) == note_failure);
  CHECK(idlesched_set_failure_handler(NULL) == note_and_jump);
  CHECK(idlesched_set_failure_handler(NULL) == NULL);
}

SPEC(the_handler_is_told_what_and_where, "N5 a handler sees expression, file and line") {
  idlesched_set_failure_handler(note_failure);
  KEEP_LINE_OF(ids_assert(1 + 1 == 3));
  int line = __LINE__ - 1;
  CHECK_EQ_INT(told_count, 1);
  CHECK_EQ_STR(told.expression, "1 + 1 == 3");
  CHECK_EQ_STR(told.file, __FILE__);
  CHECK_EQ_INT(told.line, line);
  CHECK(!told.has_numbers);
  CHECK_EQ_U64(told.left, 0);
  CHECK_EQ_U64(told.right, 0);
}

SPEC(the_handler_is_told_the_numbers, "N5 a handler sees both numbers of a comparison") {
  uint64_t none = 0, most = UINT64_MAX;
  idlesched_set_failure_handler(note_failure);
  KEEP_LINE_OF(ids_assert_equal(none, most));
  CHECK_EQ_INT(told_count, 1);
  CHECK_EQ_STR(told.expression, "none == most");
  CHECK(told.has_numbers);
  CHECK_EQ_U64(told.left, 0);
  CHECK_EQ_U64(told.right, UINT64_MAX);
}

SPEC(a_handler_may_jump_away, "N5 a handler may jump away, and the process goes on") {
  idlesched_set_failure_handler(note_and_jump);
  for (volatile unsigned i = 1; i <= 3; i++) {
    if (setjmp(back) == 0)
      ids_fatal("again", "elsewhere.c", 7);
    CHECK_EQ_INT(told_count, i);
    CHECK_EQ_STR(told.file, "elsewhere.c");
    CHECK_EQ_INT(told.line, 7);
  }
}

SPEC(what_holds_tells_nobody, "N5 an assertion that holds tells the handler nothing") {
  idlesched_set_failure_handler(note_failure);
  ids_assert(told_count == 0);
  ids_assert_equal(told_count, 0);
  CHECK_EQ_INT(told_count, 0);
}

/* ---------------------------------------------------- the line and the end */

SPEC(without_a_handler_the_line_is_printed, "N5 without a handler: one line, then abort",
     .aborts_with = "idlesched: assertion failed: a == b (some.c:12)\n") {
  ids_fatal("a == b", "some.c", 12);
}

static void say_it_was_told(const idlesched_failure *failure) {
  fprintf(stderr, "told of %s\n", failure->expression);
}

SPEC(a_handler_that_returns_does_not_save, "N5 a handler that returns: the line, then abort",
     .aborts_with = "told of a == b\nidlesched: assertion failed: a == b: 1 against 2 (s.c:3)\n") {
  idlesched_set_failure_handler(say_it_was_told);
  ids_fatal_numbers("a == b", 1, 2, "s.c", 3);
}

SPEC(numbers_are_printed_in_full, "N5 the line carries the least and the greatest number") {
  KEEP_LINE_OF(ids_fatal_numbers("a == b", 0, UINT64_MAX, "s.c", INT_MAX));
  CHECK_EQ_STR(line_kept, "idlesched: assertion failed: a == b: 0 against 18446744073709551615"
                          " (s.c:2147483647)");
  KEEP_LINE_OF(ids_fatal_numbers("a == b", 10, 9, "s.c", 0));
  CHECK_EQ_STR(line_kept, "idlesched: assertion failed: a == b: 10 against 9 (s.c:0)");
}

/* Whatever of the line is there is its beginning, and it ends within the room. */
static void check_cut(const char *expression) {
  enum { ROOM = 511 };
  static char whole[2100];
  KEEP_LINE_OF(ids_fatal_numbers(expression, 12345, 67890, "some.c", 42));
  int length = snprintf(whole, sizeof whole,
                        "idlesched: assertion failed: %s: 12345 against 67890 (some.c:42)",
                        expression);
  whole[ROOM] = '\0';
  CHECK_EQ_INT(strlen(line_kept), length < ROOM ? length : ROOM);
  REQUIRE_EQ_STR(line_kept, whole);
}

/* Every length around the end of the room for the line.  The address sanitizer sees the
 * rest. */
SPEC(a_long_expression_is_cut, "N5 an expression too long for the line is cut, not overrun") {
  static char expression[2001];
  for (size_t length = 0; length < sizeof expression; length++) {
    memset(expression, 'x', length);
    expression[length] = '\0';
    check_cut(expression);
  }
}
