/* SPDX-License-Identifier: MIT */
/* The clock, process groups and MAP_ANONYMOUS are hidden by a strict -std=c11. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* A check in a loop can fail a million times; the first few say it all. */
#define FAILURES_SHOWN_MAX 20

/* What is kept of a failing case's output, half of it from each end: a sanitizer's
 * report begins with the reason, a test's own story ends with it. */
#define OUTPUT_SHOWN_MAX (64 * 1024)

/* How long processes that a case started may outlive it before that is a fault. */
#define LEFTOVERS_LIMIT_NS (1 * NS_PER_S)

enum stage { STAGE_RUNNING, STAGE_RETURNED, STAGE_ENDED_BY_CHECK, STAGE_SKIPPED };

/*
 * What a case says about itself, in memory that its parent sees.  An exit code alone
 * would not do: exit(0) in the middle of a case looks like success.  Relaxed order
 * everywhere, because the parent reads only after it has waited for the process.
 */
struct verdict {
  _Atomic int stage;
  _Atomic int failures_count;
  char reason[512]; /* why it was skipped; written before `stage` by the one who skips */
};

/* One run of a case, as seen by its parent. */
struct trial {
  const struct spec_case *of;
  int status;            /* as waitpid() tells it */
  int stopped_by_signal; /* != 0: this process was told to stop, and killed the case */
  bool is_expired;
  bool has_leftovers;
  double seconds;
  char *output;
  char fault[512]; /* why it failed; empty if it did not */
};

static struct spec_case *cases;

/* Checks made outside of a case, in a constructor for instance, land in the first. */
static struct verdict own_verdict;
static struct verdict *verdict = &own_verdict;
static bool is_forked;

/* ---- registration ---- */

static int compare_places(const struct spec_case *one, const struct spec_case *other)
{
  int order = strcmp(one->file, other->file);

  return order != 0 ? order : one->line - other->line;
}

/* Sorted by place, because the order of constructors is the linker's business. */
void spec_register(struct spec_case *self)
{
  struct spec_case **link = &cases;

  while (*link && compare_places(*link, self) < 0) link = &(*link)->next;
  self->next = *link;
  *link = self;
}

/* ---- time ---- */

uint64_t spec_now_ns(void)
{
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t time_factor(void)
{
  const char *text = getenv("IDLESCHED_SPEC_TIME_FACTOR");
  char *end = NULL;
  unsigned long factor;

  if (!text || !*text) return 1;
  factor = strtoul(text, &end, 10);
  if (*end == '\0' && factor >= 1 && factor <= 1000) return factor;
  fprintf(stderr, "IDLESCHED_SPEC_TIME_FACTOR is '%s'; expected a whole number from 1 to 1000\n",
          text);
  exit(2);
}

static void pause_ns(uint64_t duration_ns)
{
  struct timespec pause = {.tv_sec = (time_t)(duration_ns / NS_PER_S),
                           .tv_nsec = (long)(duration_ns % NS_PER_S)};

  nanosleep(&pause, NULL);
}

/* ---- ending a case from inside ---- */

static _Noreturn void end_case(enum stage stage)
{
  fflush(NULL);
  atomic_store_explicit(&verdict->stage, stage, memory_order_relaxed);
  if (!is_forked && stage == STAGE_ENDED_BY_CHECK) abort();
  /* Not exit(): other threads are still running, and a case that was cut short has
   * freed nothing, so that a leak report would only hide the reason. */
  _exit(stage == STAGE_SKIPPED ? 0 : 1);
}

void spec_skip(const char *format, ...)
{
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(verdict->reason, sizeof verdict->reason, format, arguments);
  va_end(arguments);
  if (!is_forked) printf("# SKIP %s\n", verdict->reason);
  end_case(STAGE_SKIPPED);
}

/* Counts a failure and tells whether it is to be printed. */
static bool is_failure_shown(void)
{
  int before =
      atomic_fetch_add_explicit(&verdict->failures_count, 1, memory_order_relaxed);

  if (before == FAILURES_SHOWN_MAX)
    fprintf(stderr, "(more than %d failed checks: the others are not shown)\n",
            FAILURES_SHOWN_MAX);
  return before < FAILURES_SHOWN_MAX;
}

void spec_fail(const char *file, int line, const char *format, ...)
{
  char message[1024];
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (is_failure_shown()) fprintf(stderr, "%s:%d: %s\n", file, line, message);
  end_case(STAGE_ENDED_BY_CHECK);
}

/* ---- checks ---- */

static const char *const relation_texts[] = {
    [SPEC_EQ] = "==", [SPEC_NE] = "!=", [SPEC_LT] = "<",
    [SPEC_LE] = "<=", [SPEC_GT] = ">",  [SPEC_GE] = ">=",
    [SPEC_CONTAINS] = "contains",
};

/* Both operands in one call, so that checks of several threads do not mix their lines. */
static void report_operands(const struct spec_site *site, const char *left, const char *right)
{
  if (is_failure_shown())
    fprintf(stderr, "%s:%d: expected %s %s %s, but\n  left:  %s\n  right: %s\n", site->file,
            site->line, site->left, relation_texts[site->relation], site->right, left, right);
  if (site->is_required) end_case(STAGE_ENDED_BY_CHECK);
}

bool spec_check(const struct spec_site *site, bool holds)
{
  if (holds) return true;
  if (is_failure_shown())
    fprintf(stderr, "%s:%d: expected %s, but it is false\n", site->file, site->line, site->left);
  if (site->is_required) end_case(STAGE_ENDED_BY_CHECK);
  return false;
}

void spec_require_failed(const struct spec_site *site)
{
  spec_check(site, false);
  end_case(STAGE_ENDED_BY_CHECK);
}

/* `order` is below, at or above 0 as left is below, at or above right. */
static bool relation_holds(enum spec_relation relation, int order)
{
  switch (relation) {
    case SPEC_EQ: return order == 0;
    case SPEC_NE: return order != 0;
    case SPEC_LT: return order < 0;
    case SPEC_LE: return order <= 0;
    case SPEC_GT: return order > 0;
    case SPEC_GE: return order >= 0;
    case SPEC_CONTAINS: break;
  }
  return false;
}

bool spec_check_int(const struct spec_site *site, intmax_t left, intmax_t right)
{
  char left_text[32];
  char right_text[32];

  if (relation_holds(site->relation, (left > right) - (left < right))) return true;
  snprintf(left_text, sizeof left_text, "%jd", left);
  snprintf(right_text, sizeof right_text, "%jd", right);
  report_operands(site, left_text, right_text);
  return false;
}

bool spec_check_u64(const struct spec_site *site, uint64_t left, uint64_t right)
{
  char left_text[64];
  char right_text[64];

  if (relation_holds(site->relation, (left > right) - (left < right))) return true;
  snprintf(left_text, sizeof left_text, "%" PRIu64 " (0x%" PRIx64 ")", left, left);
  snprintf(right_text, sizeof right_text, "%" PRIu64 " (0x%" PRIx64 ")", right, right);
  report_operands(site, left_text, right_text);
  return false;
}

bool spec_check_ptr(const struct spec_site *site, const void *left, const void *right)
{
  char left_text[32];
  char right_text[32];

  if (relation_holds(site->relation, left != right)) return true;
  snprintf(left_text, sizeof left_text, "%p", left);
  snprintf(right_text, sizeof right_text, "%p", right);
  report_operands(site, left_text, right_text);
  return false;
}

/* In quotes and with escapes, so that a trailing space or a newline can be seen. */
static const char *quote(const char *text, char *out, size_t size)
{
  size_t used = 0;

  if (!text) return "NULL";
  out[used++] = '"';
  for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
    if (used + 10 > size) {
      memcpy(out + used, "...", 3);
      used += 3;
      break;
    }
    if (*at == '\n')
      used += (size_t)sprintf(out + used, "\\n");
    else if (*at == '"' || *at == '\\')
      used += (size_t)sprintf(out + used, "\\%c", *at);
    else if (*at < ' ' || *at == 0x7f)
      used += (size_t)sprintf(out + used, "\\x%02x", *at);
    else
      out[used++] = (char)*at;
  }
  out[used++] = '"';
  out[used] = '\0';
  return out;
}

bool spec_check_str(const struct spec_site *site, const char *left, const char *right)
{
  char left_text[1024];
  char right_text[1024];
  bool holds;

  if (site->relation == SPEC_CONTAINS)
    holds = left && right && strstr(left, right);
  else if (left && right)
    holds = relation_holds(site->relation, strcmp(left, right));
  else
    holds = relation_holds(site->relation, left != right);
  if (holds) return true;
  report_operands(site, quote(left, left_text, sizeof left_text),
                  quote(right, right_text, sizeof right_text));
  return false;
}

/* ---- waiting for a state ---- */

struct spec_wait spec_wait_begin(uint64_t limit_ms)
{
  uint64_t now_ns = spec_now_ns();

  return (struct spec_wait){
      .start_ns = now_ns,
      .deadline_ns = now_ns + limit_ms * time_factor() * NS_PER_MS,
      .pause_ns = 20000, /* about what a wake-up takes anyway */
  };
}

void spec_wait_step(struct spec_wait *self, const struct spec_site *site)
{
  uint64_t now_ns = spec_now_ns();

  if (self->was_last_look)
    spec_fail(site->file, site->line, "waited %" PRIu64 " ms in vain for %s",
              (now_ns - self->start_ns) / NS_PER_MS, site->left);
  if (now_ns >= self->deadline_ns) {
    self->was_last_look = true;
    return;
  }
  pause_ns(self->pause_ns);
  /* Short waits end promptly, and long ones take no CPU from what they wait for. */
  if (self->pause_ns < 2 * NS_PER_MS) self->pause_ns *= 2;
}

/* ---- running one case: the child ---- */

static _Noreturn void run_in_child(const struct spec_case *self, int output,
                                   const sigset_t *signals_before)
{
  const struct rlimit no_core = {0, 0};
  int null = open("/dev/null", O_RDONLY);

  setpgid(0, 0);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (null > STDERR_FILENO) close(null);
  /* What was printed before a crash has to be in the file.  Not _IOLBF: glibc keeps a
   * last line back when the stream was fully buffered before. */
  setvbuf(stdout, NULL, _IONBF, 0);
  sigprocmask(SIG_SETMASK, signals_before, NULL);

  self->run();

  atomic_store_explicit(&verdict->stage, STAGE_RETURNED, memory_order_relaxed);
  exit(atomic_load_explicit(&verdict->failures_count, memory_order_relaxed) == 0 ? 0 : 1);
}

/* ---- running one case: the parent ---- */

static int limit_of(const struct spec_case *self)
{
  return self->limit_s > 0 ? self->limit_s : SPEC_LIMIT_S;
}

static _Noreturn void die(const char *what)
{
  fprintf(stderr, "the spec harness cannot go on: %s: %s\n", what, strerror(errno));
  exit(2);
}

/* Blocked while a case runs, so that sigtimedwait() is the one place where they arrive. */
static void fill_watched_signals(sigset_t *out)
{
  sigemptyset(out);
  sigaddset(out, SIGCHLD);
  sigaddset(out, SIGTERM);
  sigaddset(out, SIGINT);
  sigaddset(out, SIGHUP);
}

/* Whether nobody is left in the group; reaps those of it that have become ours. */
static bool is_group_gone(pid_t group)
{
  while (waitpid(-group, NULL, WNOHANG) > 0) continue;
  return kill(-group, 0) != 0;
}

static void end_group(struct trial *self, pid_t group)
{
  uint64_t deadline_ns = spec_now_ns() + LEFTOVERS_LIMIT_NS * time_factor();

  while (!is_group_gone(group)) {
    if (spec_now_ns() >= deadline_ns) {
      self->has_leftovers = true;
      kill(-group, SIGKILL);
      return;
    }
    pause_ns(NS_PER_MS);
  }
}

static void await_child(struct trial *self, pid_t child, const sigset_t *watched)
{
  uint64_t limit_ns = (uint64_t)limit_of(self->of) * time_factor() * NS_PER_S;
  uint64_t start_ns = spec_now_ns();

  while (waitpid(child, &self->status, WNOHANG) != child) {
    uint64_t spent_ns = spec_now_ns() - start_ns;
    int signal_number = -1;

    if (spent_ns < limit_ns) {
      uint64_t left_ns = limit_ns - spent_ns;
      struct timespec timeout = {.tv_sec = (time_t)(left_ns / NS_PER_S),
                                 .tv_nsec = (long)(left_ns % NS_PER_S)};
      signal_number = sigtimedwait(watched, NULL, &timeout);
      if (signal_number < 0 || signal_number == SIGCHLD) continue;
    }
    self->is_expired = signal_number < 0;
    self->stopped_by_signal = signal_number < 0 ? 0 : signal_number;
    kill(-child, SIGKILL);
    waitpid(child, &self->status, 0);
    break;
  }
  self->seconds = (double)(spec_now_ns() - start_ns) / (double)NS_PER_S;
  end_group(self, child);
}

static struct verdict *new_shared_verdict(void)
{
  void *memory = mmap(NULL, sizeof(struct verdict), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

  if (memory == MAP_FAILED) die("mmap of one page");
  return memory;
}

/* The case's output with the middle left out if it is long.  The caller frees it. */
static char *read_output(int output)
{
  const size_t half = OUTPUT_SHOWN_MAX / 2;
  struct stat info;
  char *text = malloc(OUTPUT_SHOWN_MAX + 128);
  size_t used = 0;
  ssize_t got;

  if (!text || fstat(output, &info) != 0) die("reading a case's output");
  if (info.st_size <= OUTPUT_SHOWN_MAX) {
    got = pread(output, text, OUTPUT_SHOWN_MAX, 0);
    if (got > 0) used = (size_t)got;
  } else {
    got = pread(output, text, half, 0);
    if (got > 0) used = (size_t)got;
    used += (size_t)sprintf(text + used, "\n... %jd bytes left out ...\n",
                            (intmax_t)info.st_size - OUTPUT_SHOWN_MAX);
    got = pread(output, text + used, half, info.st_size - (off_t)half);
    if (got > 0) used += (size_t)got;
  }
  for (size_t i = 0; i < used; i++)
    if (text[i] == '\0') text[i] = '?';
  text[used] = '\0';
  return text;
}

static const char *signal_name(int number)
{
  static char other[32];

  switch (number) {
    case SIGABRT: return "SIGABRT";
    case SIGALRM: return "SIGALRM";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGHUP: return "SIGHUP";
    case SIGILL: return "SIGILL";
    case SIGINT: return "SIGINT";
    case SIGKILL: return "SIGKILL";
    case SIGPIPE: return "SIGPIPE";
    case SIGSEGV: return "SIGSEGV";
    case SIGSYS: return "SIGSYS";
    case SIGTERM: return "SIGTERM";
    case SIGTRAP: return "SIGTRAP";
    default: snprintf(other, sizeof other, "signal %d", number); return other;
  }
}

static void describe_status(int status, char *out, size_t size)
{
  if (WIFSIGNALED(status))
    snprintf(out, size, "killed by %s (%s)", signal_name(WTERMSIG(status)),
             strsignal(WTERMSIG(status)));
  else
    snprintf(out, size, "ended with exit code %d", WEXITSTATUS(status));
}

/* Fills in `fault`; the first thing found is the one that explains the others. */
static void find_fault(struct trial *self)
{
  int stage = atomic_load_explicit(&verdict->stage, memory_order_relaxed);
  int failures_count = atomic_load_explicit(&verdict->failures_count, memory_order_relaxed);
  const char *message = self->of->aborts_with;
  char *out = self->fault;
  const size_t size = sizeof self->fault;
  char how[96];

  describe_status(self->status, how, sizeof how);
  if (self->is_expired)
    snprintf(out, size, "still running after %.1f s, and killed (its limit_s is %d)",
             self->seconds, limit_of(self->of));
  else if (self->stopped_by_signal)
    snprintf(out, size, "still running after %.1f s when %s told the spec to stop",
             self->seconds, signal_name(self->stopped_by_signal));
  else if (failures_count > 0)
    snprintf(out, size, "%d failed check%s", failures_count, failures_count == 1 ? "" : "s");
  else if (self->has_leftovers)
    snprintf(out, size, "left a process of its group running, which was killed");
  else if (stage == STAGE_SKIPPED)
    return;
  else if (message && !(WIFSIGNALED(self->status) && WTERMSIG(self->status) == SIGABRT))
    snprintf(out, size, "%s, but it has to abort and print \"%s\"", how, message);
  else if (message && !strstr(self->output, message))
    snprintf(out, size, "aborted, but without printing \"%s\"", message);
  else if (message)
    return;
  else if (WIFSIGNALED(self->status))
    snprintf(out, size, "%s", how);
  else if (stage != STAGE_RETURNED)
    snprintf(out, size, "%s before the case had returned", how);
  else if (self->status != 0)
    snprintf(out, size, "%s after the case had returned (a sanitizer's report?)", how);
}

static void print_as_comment(FILE *out, const char *text)
{
  while (*text) {
    size_t length = strcspn(text, "\n");

    fprintf(out, "#   %.*s\n", (int)length, text);
    text += length;
    if (*text == '\n') text++;
  }
}

static enum spec_outcome report(const struct trial *self, int number, FILE *out)
{
  const struct spec_case *of = self->of;
  enum spec_outcome outcome = SPEC_PASSED;

  if (self->fault[0] != '\0') {
    outcome = SPEC_FAILED;
    fprintf(out, "not ok %d - %s\n# %s:%d: %s: %s\n", number, of->sentence, of->file, of->line,
            of->name, self->fault);
  } else if (atomic_load_explicit(&verdict->stage, memory_order_relaxed) == STAGE_SKIPPED) {
    outcome = SPEC_SKIPPED;
    fprintf(out, "ok %d - %s # SKIP %s\n", number, of->sentence, verdict->reason);
  } else {
    fprintf(out, "ok %d - %s\n", number, of->sentence);
  }
  /* An assertion that had to fail has printed its message: no news, and it alarms. */
  if (outcome != SPEC_PASSED || !of->aborts_with) print_as_comment(out, self->output);
  if (self->seconds >= 1) fprintf(out, "# took %.1f s\n", self->seconds);
  fflush(out);
  return outcome;
}

enum spec_outcome spec_case_run(const struct spec_case *self, int number, FILE *out)
{
  struct verdict *verdict_before = verdict;
  struct trial trial = {.of = self};
  FILE *output = tmpfile();
  sigset_t signals_before;
  sigset_t watched;
  enum spec_outcome outcome;
  pid_t child;

  if (!output) die("a temporary file for a case's output");
#ifdef __linux__
  /* Orphans of a case come to us, so that we can tell when the last has gone. */
  prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
  verdict = new_shared_verdict();
  fill_watched_signals(&watched);
  sigprocmask(SIG_BLOCK, &watched, &signals_before);
  fflush(NULL);

  child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    is_forked = true;
    run_in_child(self, fileno(output), &signals_before);
  }
  /* By both, because nobody knows who comes first, and a kill must find the group. */
  setpgid(child, child);
  await_child(&trial, child, &watched);

  trial.output = read_output(fileno(output));
  find_fault(&trial);
  outcome = report(&trial, number, out);

  free(trial.output);
  fclose(output);
  munmap(verdict, sizeof *verdict);
  verdict = verdict_before;
  /* Now that the running case is accounted for, do what was asked. */
  if (trial.stopped_by_signal) raise(trial.stopped_by_signal);
  sigprocmask(SIG_SETMASK, &signals_before, NULL);
  return outcome;
}

static enum spec_outcome run_here(const struct spec_case *self, int number)
{
  int failures_before = atomic_load_explicit(&verdict->failures_count, memory_order_relaxed);
  bool is_failed;

  printf("# %s:%d: %s\n", self->file, self->line, self->name);
  fflush(stdout);
  self->run();
  is_failed =
      atomic_load_explicit(&verdict->failures_count, memory_order_relaxed) != failures_before;
  printf("%s %d - %s\n", is_failed ? "not ok" : "ok", number, self->sentence);
  fflush(stdout);
  return is_failed ? SPEC_FAILED : SPEC_PASSED;
}

/* ---- main ---- */

struct selection {
  char **filters;
  int filters_count;
  bool only_lists;
  bool is_unforked;
};

static bool is_selected(const struct selection *self, const struct spec_case *candidate)
{
  if (self->filters_count == 0) return true;
  for (int i = 0; i < self->filters_count; i++)
    if (strstr(candidate->name, self->filters[i]) || strstr(candidate->sentence, self->filters[i]))
      return true;
  return false;
}

/* Exits when the options end the run: a wrong one, or --help. */
static struct selection read_arguments(int argc, char **argv)
{
  struct selection selection = {.filters = argv + 1};

  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--list") == 0) {
      selection.only_lists = true;
    } else if (strcmp(argv[i], "--no-fork") == 0) {
      selection.is_unforked = true;
    } else if (argv[i][0] == '-') {
      bool is_help = strcmp(argv[i], "--help") == 0;

      if (!is_help) fprintf(stderr, "unknown option '%s'\n", argv[i]);
      fprintf(is_help ? stdout : stderr, "usage: %s [--list] [--no-fork] [FILTER...]\n", argv[0]);
      exit(is_help ? 0 : 2);
    } else {
      selection.filters[selection.filters_count++] = argv[i];
    }
  }
  return selection;
}

int main(int argc, char **argv)
{
  struct selection selection = read_arguments(argc, argv);
  int counts[3] = {0};
  int selected_count = 0;
  int number = 0;

  for (struct spec_case *each = cases; each; each = each->next) {
    if (!is_selected(&selection, each)) continue;
    selected_count++;
    if (selection.only_lists) printf("%s: %s\n", each->name, each->sentence);
  }
  if (selected_count == 0)
    fprintf(stderr, "%s: no case %s; --list prints those there are\n", argv[0],
            selection.filters_count > 0 ? "matches the filter" : "is registered");
  if (selection.only_lists) return selected_count > 0 ? 0 : 1;

  printf("1..%d\n", selected_count);
  for (struct spec_case *each = cases; each; each = each->next) {
    if (!is_selected(&selection, each)) continue;
    number++;
    counts[selection.is_unforked ? run_here(each, number) : spec_case_run(each, number, stdout)]++;
  }

  printf("%d passed, %d failed", counts[SPEC_PASSED], counts[SPEC_FAILED]);
  if (counts[SPEC_SKIPPED] > 0) printf(", %d skipped", counts[SPEC_SKIPPED]);
  printf("\n");
  return counts[SPEC_FAILED] == 0 && selected_count > 0 ? 0 : 1;
}
