/* SPDX-License-Identifier: MIT */
/*
 * harness.h - what a C spec needs: cases, checks, waiting for a state, main().
 *
 * A spec is one executable: one or more test_*.c linked with harness.c.  A case is
 * a function whose name is a sentence; SPEC() defines and registers it, so there is
 * no second list to forget it in:
 *
 *   SPEC(notify_during_the_release_is_not_lost, "A8 a notify during the release is not lost")
 *   {
 *     struct pool *pool = pool_new();
 *     REQUIRE(pool != NULL);
 *     WAIT_UNTIL(pool_is_releasing(pool), 2000);
 *     CHECK_EQ_INT(pool_submit(pool), 0);
 *     CHECK_GE_INT(pool_polls_count(pool), 1);
 *   }
 *
 * The sentence begins with the id of the requirement that the case shows.  After it
 * come the case's own settings, by name:
 *
 *   .limit_s = 60            seconds until it is killed and failed; SPEC_LIMIT_S
 *                            without it
 *   .aborts_with = "text"    the case passes if, and only if, it ends in abort() after
 *                            it printed the text: the form of an assertion's own test
 *
 * Each case runs in a forked child that leads a process group of its own, reads
 * /dev/null and prints into a file.  So a crash, an abort, a hang, an exit(0) in the
 * middle or a process left behind fails this case, says what happened and shows what
 * the case printed, and the next case starts clean.  A case that returns ends its
 * process with exit(), so that what a sanitizer finds at exit fails the case too.
 *
 * A CHECK that fails is printed with both values, counted, and the case goes on; it
 * gives its verdict back, for `if (!CHECK(...)) return;`.  A REQUIRE that fails ends
 * the case.  Both may be used on any thread, evaluate their operands once, and do not
 * depend on NDEBUG.
 *
 * Command line: [--list] [--no-fork] [FILTER...]; a FILTER is a part of a case's name
 * or sentence.  --no-fork runs the cases in this process, for a debugger: without
 * limits, and REQUIRE stops with abort().  Output is TAP, the plan first, and a last
 * line `N passed, N failed`, with `, N skipped` if any were.  Exit code 0 if no case
 * failed, 1 if one did or none was selected, 2 for a wrong option.
 *
 * IDLESCHED_SPEC_TIME_FACTOR=N (a whole number) multiplies every limit, of cases and
 * of WAIT_UNTIL, for machines or tools that are slow.
 */
#ifndef IDLESCHED_SPEC_HARNESS_H
#define IDLESCHED_SPEC_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Long enough for any honest case on a loaded machine: the slowest wait in the
 * product is idle_exit, 10 s by default. */
#define SPEC_LIMIT_S 20

#define SPEC_PRINTF(text, first) __attribute__((format(printf, text, first)))

struct spec_case {
  const char *sentence;
  const char *aborts_with; /* NULL: the case has to return */
  int limit_s;             /* 0: SPEC_LIMIT_S */

  /* Filled in by SPEC(). */
  void (*run)(void);
  const char *name;
  const char *file;
  int line;
  struct spec_case *next;
};

enum spec_outcome { SPEC_PASSED, SPEC_FAILED, SPEC_SKIPPED };

/* The sentence is the first of the variable arguments because C11 wants at least one. */
#define SPEC(function, ...)                                                                        \
  static void function(void);                                                                      \
  static struct spec_case function##_case = {                                                      \
      .run = function, .name = #function, .file = __FILE__, .line = __LINE__,                      \
      .sentence = __VA_ARGS__};                                                                    \
  __attribute__((constructor)) static void function##_register(void)                               \
  {                                                                                                \
    spec_register(&function##_case);                                                               \
  }                                                                                                \
  static void function(void)

void spec_register(struct spec_case *self);

/*
 * Runs one case, registered or not, and prints its TAP line and its diagnostics to
 * `out`.  SPEC() and main() are enough for every spec but the harness's own.
 */
enum spec_outcome spec_case_run(const struct spec_case *self, int number, FILE *out);

/* ---- checks ---- */

enum spec_relation {
  SPEC_EQ,
  SPEC_NE,
  SPEC_LT,
  SPEC_LE,
  SPEC_GT,
  SPEC_GE,
  SPEC_CONTAINS,
};

/* Where a check stands, what it says, and whether the case ends when it fails. */
struct spec_site {
  const char *file;
  int line;
  bool is_required;
  enum spec_relation relation;
  const char *left;
  const char *right;
};

bool spec_check(const struct spec_site *site, bool holds);
_Noreturn void spec_require_failed(const struct spec_site *site);
bool spec_check_int(const struct spec_site *site, intmax_t left, intmax_t right);
bool spec_check_u64(const struct spec_site *site, uint64_t left, uint64_t right);
bool spec_check_str(const struct spec_site *site, const char *left, const char *right);
bool spec_check_ptr(const struct spec_site *site, const void *left, const void *right);

#define SPEC_SITE(is_required, relation, left, right)                                              \
  (&(const struct spec_site){__FILE__, __LINE__, is_required, relation, left, right})

#define CHECK(condition) spec_check(SPEC_SITE(false, SPEC_NE, #condition, "0"), (condition) ? 1 : 0)
/* Shaped so that compilers know the condition to hold in what follows. */
#define REQUIRE(condition)                                                                         \
  ((condition) ? (void)0 : spec_require_failed(SPEC_SITE(true, SPEC_NE, #condition, "0")))

#define SPEC_INT(is_required, relation, a, text_a, b, text_b)                                      \
  spec_check_int(SPEC_SITE(is_required, relation, text_a, text_b), (intmax_t)(a), (intmax_t)(b))
#define SPEC_U64(is_required, relation, a, text_a, b, text_b)                                      \
  spec_check_u64(SPEC_SITE(is_required, relation, text_a, text_b), (uint64_t)(a), (uint64_t)(b))

/* Signed or unsigned integers, enums, bool: whatever fits intmax_t. */
#define CHECK_EQ_INT(a, b) SPEC_INT(false, SPEC_EQ, a, #a, b, #b)
#define CHECK_NE_INT(a, b) SPEC_INT(false, SPEC_NE, a, #a, b, #b)
#define CHECK_LT_INT(a, b) SPEC_INT(false, SPEC_LT, a, #a, b, #b)
#define CHECK_LE_INT(a, b) SPEC_INT(false, SPEC_LE, a, #a, b, #b)
#define CHECK_GT_INT(a, b) SPEC_INT(false, SPEC_GT, a, #a, b, #b)
#define CHECK_GE_INT(a, b) SPEC_INT(false, SPEC_GE, a, #a, b, #b)
#define REQUIRE_EQ_INT(a, b) SPEC_INT(true, SPEC_EQ, a, #a, b, #b)
#define REQUIRE_NE_INT(a, b) SPEC_INT(true, SPEC_NE, a, #a, b, #b)
#define REQUIRE_LT_INT(a, b) SPEC_INT(true, SPEC_LT, a, #a, b, #b)
#define REQUIRE_LE_INT(a, b) SPEC_INT(true, SPEC_LE, a, #a, b, #b)
#define REQUIRE_GT_INT(a, b) SPEC_INT(true, SPEC_GT, a, #a, b, #b)
#define REQUIRE_GE_INT(a, b) SPEC_INT(true, SPEC_GE, a, #a, b, #b)

/* Times, sizes and masks that use the whole of uint64_t; printed in decimal and hex. */
#define CHECK_EQ_U64(a, b) SPEC_U64(false, SPEC_EQ, a, #a, b, #b)
#define CHECK_NE_U64(a, b) SPEC_U64(false, SPEC_NE, a, #a, b, #b)
#define CHECK_LT_U64(a, b) SPEC_U64(false, SPEC_LT, a, #a, b, #b)
#define CHECK_LE_U64(a, b) SPEC_U64(false, SPEC_LE, a, #a, b, #b)
#define CHECK_GT_U64(a, b) SPEC_U64(false, SPEC_GT, a, #a, b, #b)
#define CHECK_GE_U64(a, b) SPEC_U64(false, SPEC_GE, a, #a, b, #b)
#define REQUIRE_EQ_U64(a, b) SPEC_U64(true, SPEC_EQ, a, #a, b, #b)
#define REQUIRE_LE_U64(a, b) SPEC_U64(true, SPEC_LE, a, #a, b, #b)
#define REQUIRE_GE_U64(a, b) SPEC_U64(true, SPEC_GE, a, #a, b, #b)

/* Strings, by content; NULL is equal to NULL only and contains nothing. */
#define CHECK_EQ_STR(a, b) spec_check_str(SPEC_SITE(false, SPEC_EQ, #a, #b), a, b)
#define CHECK_NE_STR(a, b) spec_check_str(SPEC_SITE(false, SPEC_NE, #a, #b), a, b)
#define CHECK_CONTAINS(text, part)                                                                 \
  spec_check_str(SPEC_SITE(false, SPEC_CONTAINS, #text, #part), text, part)
#define REQUIRE_EQ_STR(a, b) spec_check_str(SPEC_SITE(true, SPEC_EQ, #a, #b), a, b)
#define REQUIRE_CONTAINS(text, part)                                                               \
  spec_check_str(SPEC_SITE(true, SPEC_CONTAINS, #text, #part), text, part)

#define CHECK_EQ_PTR(a, b) spec_check_ptr(SPEC_SITE(false, SPEC_EQ, #a, #b), a, b)
#define CHECK_NE_PTR(a, b) spec_check_ptr(SPEC_SITE(false, SPEC_NE, #a, #b), a, b)
#define REQUIRE_EQ_PTR(a, b) spec_check_ptr(SPEC_SITE(true, SPEC_EQ, #a, #b), a, b)
#define REQUIRE_NE_PTR(a, b) spec_check_ptr(SPEC_SITE(true, SPEC_NE, #a, #b), a, b)

/* Fails and ends the case with a message of its own, as printf() would print it. */
#define FAIL(...) spec_fail(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void spec_fail(const char *file, int line, const char *format, ...) SPEC_PRINTF(3, 4);

/*
 * Ends the case without a verdict, for what this machine cannot show.  It is counted
 * apart from what passed and printed with the reason; a failed check before it wins.
 */
#define SKIP(...) spec_skip(__VA_ARGS__)
_Noreturn void spec_skip(const char *format, ...) SPEC_PRINTF(1, 2);

/* ---- waiting for a state ---- */

/*
 * Looks at the expression until it is true; fails and ends the case when it is still
 * false limit_ms later.  The expression is looked at once more after the time is up,
 * because a stalled machine may have spent all of it between two looks.  A generous
 * limit costs nothing: it is spent only by a case that fails.
 */
#define WAIT_UNTIL(expression, limit_ms)                                                           \
  do {                                                                                             \
    struct spec_wait spec_wait_ = spec_wait_begin(limit_ms);                                       \
    while (!(expression)) spec_wait_step(&spec_wait_, SPEC_SITE(true, SPEC_NE, #expression, "0")); \
  } while (0)

struct spec_wait {
  uint64_t start_ns;
  uint64_t deadline_ns;
  uint64_t pause_ns;
  bool was_last_look;
};

struct spec_wait spec_wait_begin(uint64_t limit_ms);
void spec_wait_step(struct spec_wait *self, const struct spec_site *site);

/* The monotonic clock, for a case that has to measure. */
uint64_t spec_now_ns(void);

#endif
