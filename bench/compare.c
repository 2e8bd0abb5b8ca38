/* SPDX-License-Identifier: MIT */
/*
 * compare.c - see compare.h.
 */
#include "compare.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "idlesched.h"
#include "measure.h"

#define LABEL_WIDTH 24
#define NUMBER_WIDTH 17
/* Of this program, and those that its cells are given besides. */
#define ARGUMENTS_MAX 64
#define MORE_ARGUMENTS_MAX 8

/* --------------------------------------------------------------- arguments */

static void print_options(const struct bench_option *options, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    printf("  %-12s %s\n%15sdefault %s, with --quick %s\n", options[i].name, options[i].what, "",
           options[i].usual, options[i].quick);
}

static void print_help(const struct bench *bench, const struct bench_option *runs) {
  printf("%s - %s\n\nusage: %s [OPTION VALUE]...\n\nOptions\n", program_invocation_short_name,
         bench->question, program_invocation_short_name);
  print_options(bench->options, bench->options_count);
  print_options(runs, 1);
  printf("  --arms       which arms, as a,b,c; the first of them in the order below is what\n"
         "               the others are compared with; default all\n"
         "  --lines      a file that each cell's values are appended to, as key=value\n"
         "  --cell       run this arm once, in this process, and print its values\n"
         "  --quick      small and short: shows that it works, not how it performs\n\nArms\n");
  for (unsigned i = 0; i < bench->arms_count; i++)
    printf("  %-15s %s%s\n", bench->arms[i].name, bench->arms[i].what,
           bench->arms[i].needs_mimalloc ? " (mimalloc only)" : "");
  printf("\nReading\n%s", bench->reading);
}

static void parse_numbers(const struct bench_option *option, const char *text) {
  struct bench_list list = { 0 };
  const char *rest = text;
  for (;;) {
    char *end;
    errno = 0;
    unsigned long number = strtoul(rest, &end, 10);
    bool is_number = *rest >= '0' && *rest <= '9' && errno == 0;
    bool goes_on = *end == ',' && option->list != NULL && list.count + 1 < BENCH_LIST_MAX;
    if (!is_number || number < option->least || number > option->most || (*end != '\0' && !goes_on))
      bench_fail("%s is '%s'; expected %s from %u to %u", option->name, text,
                 option->list != NULL ? "numbers, as 1,2,3," : "a number", option->least,
                 option->most);
    list.of[list.count++] = (unsigned)number;
    if (*end == '\0')
      break;
    rest = end + 1;
  }
  if (option->list != NULL)
    *option->list = list;
  else
    *option->number = list.of[0];
}

static const struct bench_option *find_option(const struct bench_option *options, unsigned count,
                                              const char *name) {
  for (unsigned i = 0; i < count; i++)
    if (strcmp(options[i].name, name) == 0)
      return &options[i];
  return NULL;
}

static unsigned find_arm(const struct bench *bench, const char *name, size_t length) {
  for (unsigned i = 0; i < bench->arms_count; i++)
    if (strncmp(bench->arms[i].name, name, length) == 0 && bench->arms[i].name[length] == '\0')
      return i;
  bench_fail("there is no arm '%.*s'; --help lists them", (int)length, name);
}

static void choose_arms(struct bench *bench, const char *names) {
  memset(bench->is_chosen, 0, sizeof bench->is_chosen);
  for (const char *name = names;; name++) {
    size_t length = strcspn(name, ",");
    bench->is_chosen[find_arm(bench, name, length)] = true;
    name += length;
    if (*name == '\0')
      return;
  }
}

/* Without the allocator that they need there is nothing to see. */
static void drop_arms(struct bench *bench) {
  for (unsigned i = 0; i < bench->arms_count; i++)
    if (bench->is_chosen[i] && bench->arms[i].needs_mimalloc && !bench_has_mimalloc()) {
      fprintf(stderr, "SKIPPED arm %s: it needs mimalloc, and this build has the allocator '%s'\n",
              bench->arms[i].name, idlesched_allocator());
      bench->is_chosen[i] = false;
    }
}

static void parse_option(struct bench *bench, const struct bench_option *runs, const char *name,
                         const char *value) {
  const struct bench_option *option = find_option(bench->options, bench->options_count, name);
  if (option == NULL)
    option = find_option(runs, 1, name);
  bool is_known = option != NULL || strcmp(name, "--arms") == 0 || strcmp(name, "--lines") == 0 ||
                  strcmp(name, "--cell") == 0;
  if (!is_known)
    bench_fail("there is no option '%s'; --help lists them", name);
  if (value == NULL)
    bench_fail("%s needs a value", name);
  if (option != NULL)
    parse_numbers(option, value);
  else if (strcmp(name, "--arms") == 0)
    choose_arms(bench, value);
  else if (strcmp(name, "--lines") == 0)
    bench->lines_path = value;
  else
    bench->cell = (int)find_arm(bench, value, strlen(value));
}

void bench_parse(struct bench *bench, char **arguments) {
  const struct bench_option runs = {
    .name = "--runs",
    .what = "how often each cell is run",
    .usual = bench->usual_runs,
    .quick = "2",
    .least = 1,
    .most = BENCH_RUNS_MAX,
    .number = &bench->runs_count,
  };
  bench->arguments = arguments;
  bench->cell = -1;
  for (unsigned i = 0; i < bench->arms_count; i++)
    bench->is_chosen[i] = true;
  bool is_quick = false;
  for (char **argument = arguments + 1; *argument != NULL; argument++) {
    if (strcmp(*argument, "--help") == 0) {
      print_help(bench, &runs);
      exit(EXIT_SUCCESS);
    }
    is_quick = is_quick || strcmp(*argument, "--quick") == 0;
    if (argument - arguments >= ARGUMENTS_MAX)
      bench_fail("there are more than %d arguments", ARGUMENTS_MAX - 1);
  }
  for (unsigned i = 0; i < bench->options_count; i++)
    parse_numbers(&bench->options[i], is_quick ? bench->options[i].quick : bench->options[i].usual);
  parse_numbers(&runs, is_quick ? runs.quick : runs.usual);
  for (char **argument = arguments + 1; *argument != NULL; argument++) {
    if (strcmp(*argument, "--quick") == 0)
      continue;
    parse_option(bench, &runs, argument[0], argument[1]);
    argument++;
  }
  if (bench->cell < 0)
    drop_arms(bench);
  else if (bench->arms[bench->cell].needs_mimalloc && !bench_has_mimalloc())
    bench_fail("arm %s needs mimalloc, and this build has the allocator '%s'",
               bench->arms[bench->cell].name, idlesched_allocator());
}

/* ------------------------------------------------------------ memory cgroup */

static struct {
  char folder[512];
  char charge[600]; /* the file that says what is charged; "" without one */
} cgroup;

static bool write_file(const char *path, const char *text) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  bool is_written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
  if (file >= 0)
    close(file);
  return is_written;
}

static void remove_cgroup(void) {
  /* The kernel still counts a process for a moment after it was waited for. */
  for (unsigned i = 0; i < 100 && rmdir(cgroup.folder) != 0 && errno == EBUSY; i++)
    idlesched_sleep(10 * IDLESCHED_MS);
}

static volatile pid_t running_cell; /* 0: none */

/* No group is left behind by who has seen enough.  Calls only what a handler may. */
static void end_early(int signal_number) {
  if (running_cell > 0) {
    kill(running_cell, SIGKILL);
    waitpid(running_cell, NULL, 0);
  }
  remove_cgroup();
  _exit(128 + signal_number);
}

static void remove_cgroup_at_end(void) {
  static const int signals[] = { SIGHUP, SIGINT, SIGPIPE, SIGTERM };
  atexit(remove_cgroup);
  for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
    signal(signals[i], end_early);
}

/* Try to make a group inside the one this process is in, below where that kind is mounted. */
static bool make_cgroup(const char *mounted, const char *own, const char *file) {
  snprintf(cgroup.folder, sizeof cgroup.folder, "%s%s/idlesched_bench.%d", mounted,
           strcmp(own, "/") == 0 ? "" : own, (int)getpid());
  if (mkdir(cgroup.folder, 0755) != 0)
    return false;
  snprintf(cgroup.charge, sizeof cgroup.charge, "%s/%s", cgroup.folder, file);
  if (access(cgroup.charge, R_OK) == 0) {
    remove_cgroup_at_end();
    return true;
  }
  rmdir(cgroup.folder); /* of another kind: the controller is not enabled below */
  return false;
}

/* Lines of /proc/self/cgroup are `number:controllers:path`; version 2 has none of the second. */
static bool make_cgroup_of_line(char *line) {
  char *controllers = strchr(line, ':');
  char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
  if (path == NULL)
    return false;
  path[strcspn(path, "\n")] = '\0';
  *path++ = '\0';
  if (strcmp(controllers + 1, "memory") == 0)
    return make_cgroup("/sys/fs/cgroup/memory", path, "memory.usage_in_bytes");
  return controllers[1] == '\0' && make_cgroup("/sys/fs/cgroup", path, "memory.current");
}

static void find_cgroup(void) {
  FILE *list = fopen("/proc/self/cgroup", "re");
  bool is_made = false;
  char line[512];
  while (list != NULL && !is_made && fgets(line, sizeof line, list) != NULL)
    is_made = make_cgroup_of_line(line);
  if (list != NULL)
    fclose(list);
  if (is_made)
    return;
  cgroup.charge[0] = '\0';
  fprintf(stderr, "SKIPPED what the kernel charges: no child of this process's memory cgroup can "
                  "be made (that takes root, or a delegated group)\n");
}

/* -------------------------------------------------------------------- cells */

/* The new process, until it is another program. */
static void become_cell(struct bench *bench, unsigned arm, const char *const *more) {
  const char *arguments[ARGUMENTS_MAX + MORE_ARGUMENTS_MAX];
  unsigned count = 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* it goes on only while somebody reads */
  for (char **argument = bench->arguments; *argument != NULL; argument++)
    arguments[count++] = *argument;
  while (more != NULL && *more != NULL)
    arguments[count++] = *more++;
  arguments[count++] = "--cell";
  arguments[count++] = bench->arms[arm].name;
  arguments[count] = NULL;
  for (unsigned i = 0; i < 3 && bench->arms[arm].environment[i] != NULL; i++)
    putenv((char *)bench->arms[arm].environment[i]);
  setenv("BENCH_CHARGE", cgroup.charge, 1);
  if (cgroup.charge[0] != '\0') {
    char path[600];
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup.folder);
    if (!write_file(path, "0"))
      bench_fail("%s cannot be written: %s", path, strerror(errno));
  }
  execv("/proc/self/exe", (char *const *)arguments);
  bench_fail("/proc/self/exe cannot be run: %s", strerror(errno));
}

static struct bench_child start_cell(struct bench *bench, unsigned arm, const char *const *more) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    bench_fail("no pipe for a cell: %s", strerror(errno));
  struct bench_child child = { .output = ends[0], .process_id = fork() };
  if (child.process_id < 0)
    bench_fail("no process for a cell: %s", strerror(errno));
  if (child.process_id == 0) {
    dup2(ends[1], STDOUT_FILENO);
    become_cell(bench, arm, more);
  }
  running_cell = child.process_id;
  close(ends[1]);
  return child;
}

static bool take_line(struct bench_child *child, char *name, double *value) {
  char *end = memchr(child->text, '\n', child->length);
  if (end == NULL)
    return false;
  *end++ = '\0';
  if (sscanf(child->text, "%63s %lf", name, value) != 2)
    bench_fail("a cell has said '%s'; expected `name value`", child->text);
  child->length -= (unsigned)(end - child->text);
  memmove(child->text, end, child->length);
  return true;
}

int bench_child_read(struct bench_child *child, uint64_t deadline_ns, char *name, double *value) {
  while (!take_line(child, name, value)) {
    uint64_t now_ns = idlesched_now_ns();
    int wait_ms = now_ns >= deadline_ns ? 0 : (int)((deadline_ns - now_ns) / IDLESCHED_MS) + 1;
    struct pollfd output = { .fd = child->output, .events = POLLIN };
    if (poll(&output, 1, deadline_ns == IDLESCHED_NEVER ? -1 : wait_ms) <= 0)
      return 0;
    ssize_t length = read(child->output, child->text + child->length,
                          sizeof child->text - child->length);
    if (length <= 0)
      return -1;
    child->length += (unsigned)length;
  }
  return 1;
}

void bench_set(const struct bench *bench, double *values, const char *name, double value) {
  for (unsigned i = 0; i < bench->columns_count; i++)
    if (strcmp(bench->columns[i].name, name) == 0)
      values[i] = value;
}

static void read_all(struct bench *bench, struct bench_child *child, double *values) {
  char name[64];
  double value;
  while (bench_child_read(child, IDLESCHED_NEVER, name, &value) > 0)
    bench_set(bench, values, name, value);
}

static void run_cell(struct bench *bench, unsigned arm, unsigned run, const char *const *more) {
  double *values = bench->values[arm][run];
  for (unsigned i = 0; i < bench->columns_count; i++)
    values[i] = NAN;
  struct bench_child child = start_cell(bench, arm, more);
  if (bench->watch != NULL)
    bench->watch(bench, &child, values);
  else
    read_all(bench, &child, values);
  close(child.output);
  int status;
  bool has_ended = waitpid(child.process_id, &status, 0) == child.process_id;
  running_cell = 0;
  if (!has_ended || status != 0)
    bench_fail("the cell of arm %s has failed (%s %d)", bench->arms[arm].name,
               WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* ------------------------------------------------------------------- tables */

void bench_print_label(const char *label) {
  printf("%-*s", LABEL_WIDTH, label);
}

/* The sign of plus or minus is two bytes and one place. */
void bench_print_number(double mean, double deviation, unsigned digits) {
  char text[64] = "-";
  if (!isnan(mean) && !isnan(deviation))
    snprintf(text, sizeof text, "%.*f \302\261%.*f", (int)digits, mean, (int)digits, deviation);
  else if (!isnan(mean))
    snprintf(text, sizeof text, "%.*f", (int)digits, mean);
  printf("%*s", NUMBER_WIDTH + (strchr(text, '\302') != NULL), text);
}

void bench_print_arms(const struct bench *bench) {
  for (unsigned arm = 0; arm < bench->arms_count; arm++)
    if (bench->is_chosen[arm])
      printf("%*s", NUMBER_WIDTH, bench->arms[arm].name);
  putchar('\n');
}

static int first_arm(const struct bench *bench) {
  for (unsigned arm = 0; arm < bench->arms_count; arm++)
    if (bench->is_chosen[arm])
      return (int)arm;
  return -1;
}

/* Of one column of an arm, or of its differences to another arm, over the runs in which
 * there is a number. */
static double moments(const struct bench *bench, unsigned arm, int base, unsigned column,
                      double *out_deviation) {
  double sum = 0, squares = 0;
  unsigned count = 0;
  for (unsigned run = 0; run < bench->runs_count; run++) {
    double value = bench->values[arm][run][column];
    if (base >= 0)
      value -= bench->values[base][run][column];
    if (isnan(value))
      continue;
    sum += value;
    squares += value * value;
    count++;
  }
  double mean = count > 0 ? sum / count : NAN;
  *out_deviation = count > 1 ? sqrt(fmax(0, squares - sum * mean) / (count - 1)) : NAN;
  return mean;
}

double bench_mean(const struct bench *bench, unsigned arm, const char *column) {
  double deviation;
  for (unsigned i = 0; i < bench->columns_count; i++)
    if (strcmp(bench->columns[i].name, column) == 0)
      return moments(bench, arm, -1, i, &deviation);
  return NAN;
}

static void print_table(const struct bench *bench, const char *title, int base) {
  bench_print_label(title);
  bench_print_arms(bench);
  for (unsigned column = 0; column < bench->columns_count; column++) {
    bench_print_label(bench->columns[column].name);
    for (unsigned arm = 0; arm < bench->arms_count; arm++) {
      if (!bench->is_chosen[arm])
        continue;
      double deviation;
      double mean = moments(bench, arm, base, column, &deviation);
      bench_print_number((int)arm == base ? NAN : mean, deviation, bench->columns[column].digits);
    }
    putchar('\n');
  }
  putchar('\n');
}

static void write_line(const struct bench *bench, const char *group, unsigned arm, unsigned run) {
  if (bench->lines_path == NULL)
    return;
  FILE *file = fopen(bench->lines_path, "ae");
  if (file == NULL)
    bench_fail("%s cannot be written: %s", bench->lines_path, strerror(errno));
  fprintf(file, "bench=%s %s arm=%s run=%u", program_invocation_short_name, group,
          bench->arms[arm].name, run + 1);
  for (unsigned i = 0; i < bench->columns_count; i++)
    fprintf(file, " %s=%.9g", bench->columns[i].name, bench->values[arm][run][i]);
  fputc('\n', file);
  fclose(file);
}

static void run_all(struct bench *bench, const char *group, const char *const *more) {
  for (unsigned run = 0; run < bench->runs_count; run++)
    for (unsigned i = 0; i < bench->arms_count; i++) {
      unsigned arm = run % 2 == 0 ? i : bench->arms_count - 1 - i;
      if (!bench->is_chosen[arm])
        continue;
      fprintf(stderr, "%s run %u of %u: %s\n", group, run + 1, bench->runs_count,
              bench->arms[arm].name);
      run_cell(bench, arm, run, more);
      write_line(bench, group, arm, run);
    }
}

void bench_compare(struct bench *bench, const char *group, const char *const *more) {
  int base = first_arm(bench);
  if (base < 0)
    bench_fail("no arm is left to run");
  if (bench->has_charge && cgroup.folder[0] == '\0')
    find_cgroup();
  run_all(bench, group, more);
  printf("%s, %u runs, allocator %s: mean \302\261 standard deviation\n", group, bench->runs_count,
         idlesched_allocator());
  print_table(bench, "", -1);
  printf("%s: paired differences to %s\n", group, bench->arms[base].name);
  print_table(bench, "", base);
  fflush(stdout);
}

void bench_compare_huge(struct bench *bench, const struct bench_list *huge) {
  for (unsigned i = 0; i < huge->count; i++) {
    bool is_on = huge->of[i] != 0;
    if (is_on && !bench_has_mimalloc()) {
      fprintf(stderr, "SKIPPED huge pages: that needs mimalloc, and this build has '%s'\n",
              idlesched_allocator());
      continue;
    }
    /* As the user's own wish, which goes before the library's. */
    setenv("MIMALLOC_ALLOW_THP", is_on ? "2" : "0", 1);
    bench_compare(bench, is_on ? "huge=1" : "huge=0",
                  (const char *const[]){ "--huge", is_on ? "1" : "0", NULL });
  }
}
