/* SPDX-License-Identifier: MIT */
/*
 * test_harness.c - a case that fails is reported as failed, however it ends.
 *
 * Method: each case here runs a victim, a case that is not registered, through
 * spec_case_run(), and looks at the verdict and at the TAP text.  What is about whole
 * programs (plan, counts, exit codes, leaks) is shown by spec/scripts/run_spec_test.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[256 * 1024];

/* Runs the victim and leaves what was printed in `text`. */
static enum spec_outcome outcome_of(struct spec_case victim)
{
  FILE *out = tmpfile();
  enum spec_outcome outcome;
  size_t length;

  REQUIRE(out != NULL);
  victim.sentence = "the victim";
  victim.name = "victim";
  victim.file = __FILE__;
  outcome = spec_case_run(&victim, 7, out);
  rewind(out);
  length = fread(text, 1, sizeof text - 1, out);
  text[length] = '\0';
  fclose(out);
  return outcome;
}

static void succeed(void)
{
  CHECK(true);
  CHECK_EQ_INT(-3, -3);
  CHECK_LT_INT(-1, 0u);
  CHECK_GE_U64(UINT64_MAX, 1);
  CHECK_EQ_STR("a", "a");
  CHECK_NE_STR("a", NULL);
  CHECK_CONTAINS("abc", "bc");
  CHECK_EQ_PTR(text, &text[0]);
  CHECK_NE_PTR(text, NULL);
  REQUIRE(true);
}

SPEC(a_case_whose_checks_hold_passes, "a case whose checks hold passes")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = succeed}), SPEC_PASSED);
  CHECK_EQ_STR(text, "ok 7 - the victim\n");
}

static void fail_two_checks(void)
{
  int threads = 3;

  CHECK_EQ_INT(threads, 2 + 2);
  CHECK_EQ_STR("one\n", "one");
  fprintf(stderr, "still running\n");
}

SPEC(a_failed_check_shows_both_values_and_goes_on, "a failed CHECK shows both values and goes on")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = fail_two_checks}), SPEC_FAILED);
  CHECK_CONTAINS(text, "not ok 7 - the victim\n");
  CHECK_CONTAINS(text, "2 failed checks");
  CHECK_CONTAINS(text, "expected threads == 2 + 2, but\n#     left:  3\n#     right: 4\n");
  CHECK_CONTAINS(text, "left:  \"one\\n\"\n#     right: \"one\"\n");
  CHECK_CONTAINS(text, "still running");
}

static void fail_every_relation(void)
{
  CHECK(false);
  CHECK_NE_INT(1, 1);
  CHECK_LT_INT(1, 1);
  CHECK_LE_INT(2, 1);
  CHECK_GT_INT(1, 1);
  CHECK_GE_INT(0, 1);
  CHECK_EQ_U64(UINT64_MAX, 0);
  CHECK_NE_U64(1, 1);
  CHECK_LT_U64(1, 1);
  CHECK_LE_U64(UINT64_MAX, 1);
  CHECK_GT_U64(1, UINT64_MAX);
  CHECK_GE_U64(0, 1);
  CHECK_EQ_STR("a", NULL);
  CHECK_NE_STR("a", "a");
  CHECK_CONTAINS(NULL, "a");
  CHECK_EQ_PTR(text, NULL);
  CHECK_NE_PTR(NULL, NULL);
}

SPEC(every_kind_of_check_can_fail, "every kind of CHECK can fail")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = fail_every_relation}), SPEC_FAILED);
  CHECK_CONTAINS(text, "17 failed checks");
  CHECK_CONTAINS(text, "18446744073709551615 (0xffffffffffffffff)");
  CHECK_CONTAINS(text, "left:  NULL");
}

static void fail_a_check_often(void)
{
  for (int i = 0; i < 100000; i++) CHECK_EQ_INT(i, -1);
}

SPEC(a_check_that_fails_in_a_loop_is_shown_a_few_times, "a CHECK in a loop is shown a few times")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = fail_a_check_often}), SPEC_FAILED);
  CHECK_CONTAINS(text, "100000 failed checks");
  CHECK_CONTAINS(text, "others are not shown");
  CHECK_LT_INT(strlen(text), 8192);
}

static void fail_a_requirement(void)
{
  REQUIRE_EQ_PTR(text, NULL);
  fprintf(stderr, "came too far\n");
}

static void *fail_a_requirement_in_a_thread(void *unused)
{
  REQUIRE(unused != NULL);
  return NULL;
}

static void fail_on_another_thread(void)
{
  pthread_t thread;

  REQUIRE_EQ_INT(pthread_create(&thread, NULL, fail_a_requirement_in_a_thread, NULL), 0);
  pthread_join(thread, NULL);
  pause();
}

SPEC(a_failed_require_ends_the_case, "a failed REQUIRE ends the case, on any thread")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = fail_a_requirement}), SPEC_FAILED);
  CHECK_CONTAINS(text, "expected text == NULL");
  CHECK(strstr(text, "came too far") == NULL);

  CHECK_EQ_INT(outcome_of((struct spec_case){.run = fail_on_another_thread}), SPEC_FAILED);
  CHECK_CONTAINS(text, "expected unused != NULL, but it is false");
}

static void crash(void)
{
  printf("before the crash");
  raise(SIGSEGV);
}

SPEC(a_crash_fails_with_the_signal_named, "a crash fails, with the signal and the output shown")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = crash}), SPEC_FAILED);
  CHECK_CONTAINS(text, "before the crash");
  /* Under a sanitizer: it takes the signal, reports, and ends the process with a code. */
  CHECK(strstr(text, "killed by SIGSEGV (Segmentation fault)") ||
        (strstr(text, "before the case had returned") && strstr(text, "SEGV")));
}

static void abort_with_a_message(void)
{
  fprintf(stderr, "assertion failed: active >= 0\n");
  abort();
}

SPEC(an_abort_fails, "an abort that was not asked for fails")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = abort_with_a_message}), SPEC_FAILED);
  CHECK_CONTAINS(text, "killed by SIGABRT");
  CHECK_CONTAINS(text, "active >= 0");
}

SPEC(an_expected_abort_passes, "an abort with the message that was asked for passes")
{
  struct spec_case victim = {.run = abort_with_a_message, .aborts_with = "active >= 0"};

  CHECK_EQ_INT(outcome_of(victim), SPEC_PASSED);

  victim.aborts_with = "active < 0";
  CHECK_EQ_INT(outcome_of(victim), SPEC_FAILED);
  CHECK_CONTAINS(text, "without printing \"active < 0\"");

  victim.run = succeed;
  CHECK_EQ_INT(outcome_of(victim), SPEC_FAILED);
  CHECK_CONTAINS(text, "exit code 0, but it has to abort");
}

static void leave_early(void)
{
  exit(0);
}

SPEC(leaving_early_fails, "exit(0) in the middle of a case fails")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = leave_early}), SPEC_FAILED);
  CHECK_CONTAINS(text, "ended with exit code 0 before the case had returned");
}

static void exit_with_5(void)
{
  _exit(5);
}

static void find_something_at_exit(void)
{
  atexit(exit_with_5);
}

SPEC(a_bad_exit_code_after_the_case_fails, "an exit code that is not 0 fails a case that returned")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = find_something_at_exit}), SPEC_FAILED);
  CHECK_CONTAINS(text, "exit code 5 after the case had returned");
}

static void hang(void)
{
  sigset_t all;

  printf("about to hang\n");
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  for (;;) pause();
}

SPEC(a_hang_fails_at_the_limit, "a hang fails at the case's limit")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = hang, .limit_s = 1}), SPEC_FAILED);
  CHECK_CONTAINS(text, "its limit_s is 1");
  CHECK_CONTAINS(text, "about to hang");
}

/* Where a victim tells its caller who its child is. */
static pid_t *grandchild;

static void leave_a_grandchild(void)
{
  pid_t child = fork();

  if (child == 0) hang();
  *grandchild = child;
}

static void hang_with_a_grandchild(void)
{
  leave_a_grandchild();
  hang();
}

static void have_a_grandchild_that_goes(void)
{
  pid_t child = fork();

  REQUIRE_GE_INT(child, 0);
  if (child == 0) {
    usleep(20000);
    _exit(0);
  }
}

static bool is_gone(pid_t process)
{
  while (waitpid(-1, NULL, WNOHANG) > 0) continue;
  return kill(process, 0) != 0;
}

SPEC(grandchildren_do_not_survive_a_case, "grandchildren that stay are killed and fail the case")
{
  grandchild = mmap(NULL, sizeof *grandchild, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
  REQUIRE(grandchild != MAP_FAILED);

  CHECK_EQ_INT(outcome_of((struct spec_case){.run = hang_with_a_grandchild, .limit_s = 1}),
               SPEC_FAILED);
  REQUIRE_GT_INT(*grandchild, 0);
  WAIT_UNTIL(is_gone(*grandchild), 5000);

  CHECK_EQ_INT(outcome_of((struct spec_case){.run = leave_a_grandchild}), SPEC_FAILED);
  CHECK_CONTAINS(text, "left a process of its group running");
  WAIT_UNTIL(is_gone(*grandchild), 5000);

  CHECK_EQ_INT(outcome_of((struct spec_case){.run = have_a_grandchild_that_goes}), SPEC_PASSED);
  munmap(grandchild, sizeof *grandchild);
}

static void skip(void)
{
  SKIP("needs %d CPUs", 64);
}

static void skip_after_a_failure(void)
{
  CHECK(false);
  SKIP("too late");
}

SPEC(a_skip_is_counted_apart, "a SKIP is no pass, says why, and hides no failure")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = skip}), SPEC_SKIPPED);
  CHECK_EQ_STR(text, "ok 7 - the victim # SKIP needs 64 CPUs\n");
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = skip_after_a_failure}), SPEC_FAILED);
}

static void wait_in_vain(void)
{
  int rounds = 0;

  WAIT_UNTIL(++rounds < 0, 30);
}

static void fail_with_a_message(void)
{
  FAIL("%s is %d", "the answer", 42);
}

SPEC(a_wait_in_vain_fails_with_its_text, "WAIT_UNTIL fails with the text of what it waited for")
{
  int rounds = 0;

  WAIT_UNTIL(++rounds == 3, 5000);
  CHECK_EQ_INT(rounds, 3);
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = wait_in_vain}), SPEC_FAILED);
  CHECK_CONTAINS(text, "ms in vain for ++rounds < 0");
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = fail_with_a_message}), SPEC_FAILED);
  CHECK_CONTAINS(text, "the answer is 42");
}

SPEC(the_last_look_comes_after_the_deadline, "WAIT_UNTIL looks once more when its time is up")
{
  bool had_time = true;

  /* As on a machine that stalls between two looks: the state is there, the time gone. */
  WAIT_UNTIL(!had_time || (usleep(2000), had_time = false, false), 1);
  CHECK(!had_time);
}

static void print_a_lot(void)
{
  printf("first line\n");
  for (int i = 0; i < 100000; i++) printf("line %d\n", i);
  printf("last line\n");
  CHECK(false);
}

SPEC(long_output_keeps_both_ends, "long output is cut in the middle and keeps both ends")
{
  CHECK_EQ_INT(outcome_of((struct spec_case){.run = print_a_lot}), SPEC_FAILED);
  CHECK_CONTAINS(text, "first line");
  CHECK_CONTAINS(text, "bytes left out");
  CHECK_CONTAINS(text, "last line");
}
