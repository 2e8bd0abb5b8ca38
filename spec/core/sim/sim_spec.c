/* SPDX-License-Identifier: MIT */
/*
 * sim_spec.c - see sim_spec.h.
 */
#include "sim_spec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define SITES_MAX 256
/* Of the random part of a fault sweep, at full scale. */
#define FAULT_RUNS 20000

/* ---------------------------------------------------------- lines and totals */

/* Shared with the processes of the cases. */
struct totals {
  uint64_t runs_count;
  uint64_t replays_count;
};
static struct totals *totals;
static int lines_fd = -1;
static pid_t first_process;

__attribute__((constructor)) static void begin_program(void) {
  first_process = getpid();
  lines_fd = dup(STDOUT_FILENO);
  void *memory = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
  totals = memory == MAP_FAILED ? NULL : memory;
}

/* A replay that no search took would look like one that does not fail any more. */
static void check_replay_was_taken(void) {
  const char *text = getenv("IDLESCHED_SIM_REPLAY");
  if (text == NULL || *text == '\0' || totals->replays_count > 0)
    return;
  printf(
    "# IDLESCHED_SIM_REPLAY is '%s': no search that was selected has the name before its ';'\n",
    text);
  fflush(stdout);
  _exit(2);
}

__attribute__((destructor)) static void end_program(void) {
  if (getpid() != first_process || totals == NULL)
    return;
  check_replay_was_taken();
  if (totals->runs_count > 0)
    printf("# sim total: %" PRIu64 " schedules\n", totals->runs_count);
  fflush(stdout);
}

/* Past the file into which a case's output goes. */
static void print_line(const char *format, ...) SPEC_PRINTF(1, 2);
static void print_line(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length >= (int)sizeof text)
    length = sizeof text - 1;
  fflush(stdout);
  if (write(lines_fd, text, (size_t)length) != length)
    fprintf(stderr, "# sim: cannot write a line: %s\n", strerror(errno));
}

/* -------------------------------------------------------------- environment */

double sim_spec_scale(void) {
  const char *text = getenv("IDLESCHED_SIM_SCALE");
  if (text == NULL || *text == '\0')
    return 0.1;
  char *end;
  double scale = strtod(text, &end);
  if (*end != '\0' || !(scale > 0))
    FAIL("IDLESCHED_SIM_SCALE is '%s', expected a number above 0", text);
  return scale;
}

/* The plan's bound, and what the environment adds to it or takes off.  A bound of 0 stays:
 * such a case may be about what happens when everybody goes on as long as it can. */
static unsigned bound_of(const struct sim_plan *plan) {
  const char *text = getenv("IDLESCHED_SIM_BOUND_MORE");
  if (text == NULL || *text == '\0' || plan->bound == SIM_UNBOUNDED || plan->bound == 0)
    return plan->bound;
  char *end;
  long more = strtol(text, &end, 10);
  if (*end != '\0' || more < -10 || more > 10)
    FAIL("IDLESCHED_SIM_BOUND_MORE is '%s', expected a whole number from -10 to 10", text);
  long bound = (long)plan->bound + more;
  return bound < 0 ? 0 : (unsigned)bound;
}

static uint64_t scaled(uint64_t runs_count) {
  double count = (double)runs_count * sim_spec_scale();
  return count < 1 ? 1 : (uint64_t)count;
}

/* Whether one is given. */
static bool given_seed(uint64_t *out) {
  const char *text = getenv("IDLESCHED_SIM_SEED");
  if (text == NULL || *text == '\0')
    return false;
  char *end;
  *out = strtoull(text, &end, 10);
  if (*end != '\0')
    FAIL("IDLESCHED_SIM_SEED is '%s', expected a whole number", text);
  return true;
}

static uint64_t fresh_seed(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t mixed = sim_mix((uint64_t)now.tv_sec * IDS_S + (uint64_t)now.tv_nsec);
  return (mixed ^ sim_mix((uint64_t)getpid())) % 1000000000;
}

/* ------------------------------------------------------- to repeat a failure */

/* All that a run depends on besides the scenario's code: plan, then schedule. */
static void write_replay(char *text, size_t size, const struct sim_plan *plan,
                         const char *schedule) {
  snprintf(text, size, "%s;%d,%u,%d,%u,%" PRIu64 ",%" PRIu64 ";%s", plan->name,
           plan->is_hostile ? 1 : 0, plan->spurious_max, (int)plan->fault_mode, plan->faults_max,
           plan->fault_nth, plan->sweep_step, schedule);
}

/* The plan of a replay, if the text is one of this search. */
static bool read_replay(const char *text, struct sim_plan *plan) {
  size_t length = strlen(plan->name);
  if (strncmp(text, plan->name, length) != 0 || text[length] != ';')
    return false;
  int is_hostile, fault_mode, at = 0;
  const char *rest = text + length + 1;
  if (sscanf(rest, "%d,%u,%d,%u,%" SCNu64 ",%" SCNu64 ";%n", &is_hostile, &plan->spurious_max,
             &fault_mode, &plan->faults_max, &plan->fault_nth, &plan->sweep_step, &at) != 6 ||
      at == 0)
    FAIL("IDLESCHED_SIM_REPLAY is '%s', expected what a failure printed", text);
  plan->is_hostile = is_hostile != 0;
  plan->fault_mode = (enum sim_fault_mode)fault_mode;
  plan->replay = rest + at;
  plan->is_traced = true;
  return true;
}

/* Whether a replay is asked for: then this search makes it, or nothing. */
static bool replays_only(const struct sim_plan *plan) {
  const char *text = getenv("IDLESCHED_SIM_REPLAY");
  if (text == NULL || *text == '\0')
    return false;
  static bool was_taken; /* by a search of the same name, on the other clock */
  struct sim_plan replay = *plan;
  if (!was_taken && read_replay(text, &replay)) {
    struct sim_result result;
    was_taken = true;
    if (totals != NULL)
      totals->replays_count++;
    sim_search(&replay, &result);
    if (result.failed)
      FAIL("the replay fails: %s", result.message);
    print_line("# sim %s: the replay does not fail\n", plan->name);
  }
  return true;
}

/*
 * A process as it was before the search.  It gets the text of a replay when a run fails,
 * and nothing when none does.
 */
struct spare {
  pid_t process;
  int to;
};

static void be_spare(int from, const struct sim_plan *plan) {
  static char text[1 << 16];
  size_t length = 0;
  ssize_t count;
  while (length < sizeof text - 1 &&
         (count = read(from, text + length, sizeof text - 1 - length)) > 0)
    length += (size_t)count;
  struct sim_plan replay = *plan;
  if (length > 0 && read_replay(text, &replay)) {
    struct sim_result result;
    sim_search(&replay, &result);
    if (!result.failed)
      printf("# the repeated run did not fail: something is not reset between runs\n");
    fflush(stdout);
  }
  _exit(0);
}

static struct spare keep_spare(const struct sim_plan *plan) {
  struct spare self = { .process = -1 };
  int ends[2];
  fflush(NULL);
  if (pipe(ends) != 0)
    return self;
  self.process = fork();
  if (self.process == 0) {
    close(ends[1]);
    be_spare(ends[0], plan);
  }
  close(ends[0]);
  self.to = ends[1];
  if (self.process < 0)
    close(self.to);
  return self;
}

static void use_spare(struct spare *self, const char *text) {
  if (self->process < 0)
    return;
  size_t length = strlen(text);
  if (write(self->to, text, length) != (ssize_t)length)
    printf("# the run cannot be repeated: %s\n", strerror(errno));
  close(self->to);
  while (waitpid(self->process, NULL, 0) < 0 && errno == EINTR)
    continue;
  self->process = -1;
}

/* ----------------------------------------------------------------- searches */

/* What a search, or a sweep of them, adds up to. */
struct sum {
  uint64_t runs_count, steps_count, faults_count, searches_count;
  uint64_t begin_ns;
  struct sim_site sites[SITES_MAX];
  unsigned sites_count;
};

static void add_sites(struct sum *self, const struct sim_result *result) {
  for (unsigned i = 0; i < result->sites_count; i++) {
    const struct sim_site *site = &result->sites[i];
    unsigned known = 0;
    while (known < self->sites_count && strcmp(self->sites[known].name, site->name) != 0)
      known++;
    if (known == SITES_MAX)
      FAIL("more than %d sites of fallible calls", SITES_MAX);
    if (known == self->sites_count)
      self->sites[self->sites_count++] = (struct sim_site){ .name = site->name };
    self->sites[known].calls_count += site->calls_count;
    self->sites[known].faults_count += site->faults_count;
  }
}

/* FAILs, after the spare has told how it happens, when a run does. */
static void search(const struct sim_plan *plan, struct spare *spare, struct sum *sum,
                   struct sim_result *out) {
  sim_search(plan, out);
  sum->runs_count += out->runs_count;
  sum->steps_count += out->steps_count;
  sum->faults_count += out->faults_count;
  sum->searches_count++;
  add_sites(sum, out);
  if (totals != NULL)
    __atomic_fetch_add(&totals->runs_count, out->runs_count, __ATOMIC_RELAXED);
  if (!out->failed)
    return;
  char *text = malloc(strlen(plan->name) + strlen(out->schedule) + 128);
  REQUIRE(text != NULL);
  write_replay(text, strlen(plan->name) + strlen(out->schedule) + 128, plan, out->schedule);
  printf("# sim %s: run %" PRIu64 " of %s, bound %u, seed %" PRIu64 " failed: %s\n", plan->name,
         out->runs_count, sim_strategy_name(plan->strategy), plan->bound, plan->seed, out->message);
  printf("# to repeat it: IDLESCHED_SIM_REPLAY='%s'\n", text);
  fflush(stdout);
  use_spare(spare, text);
  FAIL("sim %s: %s; IDLESCHED_SIM_REPLAY='%s'", plan->name, out->message, text);
}

static void print_sum(const struct sim_plan *plan, const struct sum *sum, const char *how) {
  double seconds = (double)(spec_now_ns() - sum->begin_ns) / 1e9;
  char strategy[48];
  snprintf(strategy, sizeof strategy, "%s", sim_strategy_name(plan->strategy));
  size_t length = strlen(strategy);
  if (plan->strategy == SIM_PCT)
    snprintf(strategy + length, sizeof strategy - length, " depth %u", plan->depth);
  else if (plan->strategy != SIM_RANDOM && plan->bound != SIM_UNBOUNDED)
    snprintf(strategy + length, sizeof strategy - length, " bound %u", plan->bound);
  print_line("# sim %s %s %s: %" PRIu64 " runs, %s, %.1f steps a run, %" PRIu64
             " faults, %.2f s, %.0f K runs/s\n",
             plan->name, strategy, plan->is_hostile ? "hostile" : "fair", sum->runs_count, how,
             (double)sum->steps_count / (double)sum->runs_count, sum->faults_count, seconds,
             (double)sum->runs_count / 1000 / (seconds > 0 ? seconds : 1e-9));
}

/* Searches with plans that differ in a little, told as one. */
struct series {
  struct sim_plan plan; /* of the next search */
  struct spare spare;
  struct sum sum;
  struct sim_result result; /* of the last one */
};

/* False when none is to be made: a replay is asked for. */
static bool begin_series(struct series *self, const struct sim_plan *plan) {
  if (replays_only(plan))
    return false;
  *self = (struct series){ .plan = *plan, .spare = keep_spare(plan) };
  self->sum.begin_ns = spec_now_ns();
  return true;
}

static void search_on(struct series *self) {
  search(&self->plan, &self->spare, &self->sum, &self->result);
}

/* No run has failed: the spare is not needed. */
static void end_series(struct series *self) {
  use_spare(&self->spare, "");
}

void sim_spec_exhaust(const struct sim_plan *plan) {
  struct series series;
  if (!begin_series(&series, plan))
    return;
  struct sim_plan *whole = &series.plan;
  whole->bound = bound_of(plan);
  search_on(&series);
  end_series(&series);
  if (!series.result.complete)
    FAIL("sim %s: %" PRIu64 " runs and not complete, expected all schedules within bound %u; "
         "runs_max is %" PRIu64,
         plan->name, series.result.runs_count, whole->bound, plan->runs_max);
  print_sum(whole, &series.sum, "complete");
}

void sim_spec_sample(const struct sim_plan *plan, uint64_t runs_count) {
  struct series series;
  if (!begin_series(&series, plan))
    return;
  struct sim_plan *part = &series.plan;
  bool is_seeded = plan->strategy == SIM_RANDOM || plan->strategy == SIM_PCT;
  bool is_given = given_seed(&part->seed);
  part->runs_max = scaled(runs_count);
  char how[64];
  if (!is_seeded) {
    search_on(&series);
    snprintf(how, sizeof how, "%s", series.result.complete ? "complete" : "the first ones");
  } else if (is_given) {
    search_on(&series);
    snprintf(how, sizeof how, "seed %" PRIu64, part->seed);
  } else {
    part->runs_max = (part->runs_max + 1) / 2;
    part->seed = 1;
    search_on(&series);
    part->seed = fresh_seed();
    search_on(&series);
    snprintf(how, sizeof how, "seeds 1 and %" PRIu64, part->seed);
  }
  end_series(&series);
  print_sum(plan, &series.sum, how);
}

/* ------------------------------------------------------------------- sweeps */

static void check_all_were_refused(const struct sim_plan *plan, const struct sum *sum) {
  char missing[512] = "";
  for (unsigned i = 0; i < sum->sites_count; i++) {
    const struct sim_site *site = &sum->sites[i];
    print_line("#   site %s: %" PRIu64 " calls, %" PRIu64 " refused\n", site->name,
               site->calls_count, site->faults_count);
    size_t length = strlen(missing);
    if (site->faults_count == 0)
      snprintf(missing + length, sizeof missing - length, " %s", site->name);
  }
  if (missing[0] != '\0')
    FAIL("sim %s: these sites were never refused:%s", plan->name, missing);
}

void sim_spec_faults(const struct sim_plan *plan) {
  struct series series;
  if (!begin_series(&series, plan))
    return;
  struct sim_plan *part = &series.plan;
  const enum sim_fault_mode modes[] = { SIM_FAULT_NTH, SIM_FAULT_FROM };
  for (unsigned i = 0; i < 2; i++) {
    part->fault_mode = modes[i];
    part->fault_nth = 0;
    do {
      part->fault_nth++;
      search_on(&series);
    } while (series.result.faults_count > 0);
  }
  part->fault_mode = SIM_FAULT_TENTH;
  part->strategy = SIM_RANDOM;
  part->runs_max = scaled(FAULT_RUNS);
  if (!given_seed(&part->seed))
    part->seed = fresh_seed();
  search_on(&series);
  end_series(&series);
  char how[80];
  snprintf(how, sizeof how, "fault sweep of %" PRIu64 " searches", series.sum.searches_count);
  print_sum(plan, &series.sum, how);
  check_all_were_refused(plan, &series.sum);
}

/* The runs at each of a sweep's steps are given for the plain test, and for a full gate,
 * which makes more of samples: fewer below, more beyond. */
static uint64_t scaled_step(uint64_t runs_count) {
  double scale = sim_spec_scale();
  double count = (double)runs_count * (scale < 0.1 ? 10 * scale : scale > 1 ? scale : 1);
  return count < 1 ? 1 : (uint64_t)count;
}

void sim_spec_sweep(const struct sim_plan *plan) {
  struct series series;
  if (!begin_series(&series, plan))
    return;
  struct sim_plan *part = &series.plan;
  if (part->runs_max > 0)
    part->runs_max = scaled_step(part->runs_max);
  part->sweep_step = 0;
  search_on(&series);
  uint64_t steps_max = series.result.steps_max;
  for (part->sweep_step = 1; part->sweep_step <= steps_max; part->sweep_step++)
    search_on(&series);
  end_series(&series);
  char how[80];
  snprintf(how, sizeof how, "sweep over %" PRIu64 " steps", steps_max);
  print_sum(plan, &series.sum, how);
}
