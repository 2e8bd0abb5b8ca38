/* SPDX-License-Identifier: MIT */
/*
 * shutdown.c - a program writes a large graph to a file and drops it, and then goes on for a
 * while: how much of the memory is back, and when?
 *
 * Worker threads allocate the graph, and leave free memory of temporaries in their heaps.
 * The main thread writes it node by node, encoded, and frees each node after that: so it
 * frees what others have allocated.  Meanwhile a second process loads data of its own.
 * That is the span.
 *
 * Nodes are dropped shard by shard, each with nodes from all over the heap, so most pages
 * become free only near the end.  Three seconds after the span the file is read back and
 * compared.  All of it is done twice in the process: cold, and warm with what the first
 * round has left.
 *
 * Memory is sampled from outside, every 100 ms: of both processes together (tree), and of
 * the first alone (own).
 */
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare.h"
#include "idlesched.h"
#include "measure.h"
#include "shutdown_store.h"

#define SAMPLE_NS (100 * IDLESCHED_MS)
#define SAMPLES_MAX 8192
#define LOAD_STEPS 32
#define LOAD_VARIABLE "BENCH_LOAD_KIB"
#define COARSE_RANGE_KIB 2048
#define FINE_RANGE_KIB 64

/* ----------------------------------------------------------------- the arms */

static const struct bench_arm arms[] = {
  { .name = "none", .what = "nothing is done, and threads stay" },
  { .name = "guard", .what = "the span is in an eager purge guard" },
  { .name = "release", .what = "a release before the span, and idlesched_purge_all() at its end" },
  { .name = "all", .what = "both" },
  { .name = "all_scoped",
    .what = "both, but the smallest purge range is 2 MiB but for the release and the purge",
    .needs_mimalloc = true },
  { .name = "collect",
    .what = "a forced collection at the end, on the thread that frees",
    .needs_mimalloc = true },
  { .name = "exit", .what = "threads end after 1 s" },
};

/* What each of them does; the same order. */
static const struct remedy {
  bool has_guard, has_release, has_scoped_range, has_collect, has_exit;
} remedies[] = {
  { 0 },
  { .has_guard = true },
  { .has_release = true },
  { .has_guard = true, .has_release = true },
  { .has_guard = true, .has_release = true, .has_scoped_range = true },
  { .has_collect = true },
  { .has_exit = true },
};

static const struct bench_column columns[] = {
  { "cold_peak_mib", 1 },           { "cold_peak_of_3_mib", 1 },  { "cold_span_peak_mib", 1 },
  { "cold_span_peak_of_3_mib", 1 }, { "cold_at_50_mib", 1 },      { "cold_at_75_mib", 1 },
  { "cold_at_90_mib", 1 },          { "cold_at_100_mib", 1 },     { "cold_after_1_s_mib", 1 },
  { "cold_after_3_s_mib", 1 },      { "cold_own_peak_mib", 1 },   { "cold_own_at_100_mib", 1 },
  { "cold_left_percent", 1 },       { "cold_span_wall_ms", 0 },   { "cold_span_user_ms", 0 },
  { "cold_span_system_ms", 0 },     { "cold_span_madvise", 0 },   { "warm_peak_mib", 1 },
  { "warm_peak_of_3_mib", 1 },      { "warm_span_peak_mib", 1 },  { "warm_span_peak_of_3_mib", 1 },
  { "warm_at_50_mib", 1 },          { "warm_at_75_mib", 1 },      { "warm_at_90_mib", 1 },
  { "warm_at_100_mib", 1 },         { "warm_after_1_s_mib", 1 },  { "warm_after_3_s_mib", 1 },
  { "warm_own_peak_mib", 1 },       { "warm_own_at_100_mib", 1 }, { "warm_left_percent", 1 },
  { "warm_span_wall_ms", 0 },       { "warm_span_user_ms", 0 },   { "warm_span_system_ms", 0 },
  { "warm_span_madvise", 0 },
};

static struct store store;
static unsigned load_mib;
static struct bench_list huge;

static const struct bench_option options[] = {
  { .name = "--mib",
    .what = "MiB of the graph",
    .usual = "384",
    .quick = "48",
    .least = 1,
    .most = 1024 * 1024,
    .number = &store.mib },
  { .name = "--workers",
    .what = "workers that allocate it",
    .usual = "4",
    .quick = "4",
    .least = 1,
    .most = STORE_WORKERS_MAX,
    .number = &store.workers_count },
  { .name = "--shards",
    .what = "parts in which it is dropped; 1: in the order of allocation",
    .usual = "8",
    .quick = "8",
    .least = 1,
    .most = STORE_SHARDS_MAX,
    .number = &store.shards_count },
  { .name = "--load",
    .what = "MiB that the second process loads",
    .usual = "12",
    .quick = "2",
    .least = 0,
    .most = 1024 * 1024,
    .number = &load_mib },
  { .name = "--huge",
    .what = "0: without huge pages, 1: with them; a table for each",
    .usual = "0",
    .quick = "0",
    .least = 0,
    .most = 1,
    .list = &huge },
};

static void watch(struct bench *bench, struct bench_child *child, double *values);

static struct bench bench = {
  .question = "how much memory is back after a large graph was written and dropped, and when?",
  .reading =
    "  Resident, of both processes: the highest sample of all (peak) and of the span, raw and as\n"
    "  the highest median of three; at 50, 75, 90 and 100 % of the span; 1 and 3 s after it.\n"
    "  own: of the process with the graph; left_percent: own at the end of the span, of own\n"
    "  peak.  The span's costs are of that process.  The target is <= 8 % with all remedies.\n",
  .arms = arms,
  .arms_count = sizeof arms / sizeof *arms,
  .columns = columns,
  .columns_count = sizeof columns / sizeof *columns,
  .options = options,
  .options_count = sizeof options / sizeof *options,
  .usual_runs = "3",
  .watch = watch,
};

/* ------------------------------------------------------- the second process */

/* Small blocks, in steps of 50 ms; until it is ended. */
static void load_for_ever(unsigned load_kib) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when the first process fails */
  for (unsigned step = 0; step < LOAD_STEPS; step++) {
    for (size_t bytes = 0; bytes < (size_t)load_kib * 1024 / LOAD_STEPS; bytes += 1024) {
      void *block = idlesched_realloc(NULL, 1024);
      if (block == NULL)
        bench_fail("no memory for the data of the second process");
      memset(block, 1, 1024);
    }
    idlesched_sleep(50 * IDLESCHED_MS);
  }
  for (;;)
    pause();
}

/* Not by fork(): until its exec the child would count as much as this process once more. */
static pid_t start_loader(void) {
  char assignment[64];
  snprintf(assignment, sizeof assignment, LOAD_VARIABLE "=%u", load_mib * 1024);
  putenv(assignment);
  posix_spawn_file_actions_t actions;
  pid_t process_id;
  MUST(-posix_spawn_file_actions_init(&actions));
  MUST(-posix_spawn_file_actions_addclose(&actions, STDOUT_FILENO)); /* it would keep it open */
  MUST(-posix_spawn(&process_id, "/proc/self/exe", &actions, NULL,
                    (char *[]){ bench.arguments[0], NULL }, environ));
  posix_spawn_file_actions_destroy(&actions);
  unsetenv(LOAD_VARIABLE);
  return process_id;
}

static void stop_loader(pid_t process_id) {
  kill(process_id, SIGKILL);
  waitpid(process_id, NULL, 0);
}

/* ----------------------------------------------------------------- the cell */

static void set_range(const struct remedy *remedy, unsigned kib) {
  if (remedy->has_scoped_range)
    bench_set_purge_range_kib(kib);
}

static void span(const struct remedy *remedy, idlesched_pool *pool) {
  set_range(remedy, FINE_RANGE_KIB);
  if (remedy->has_release)
    MUST(idlesched_pool_release(pool, 0, NULL));
  set_range(remedy, COARSE_RANGE_KIB);
  if (remedy->has_guard)
    idlesched_eager_purge_enter();
  store_persist_and_drop();
  if (remedy->has_guard)
    idlesched_eager_purge_leave();
  set_range(remedy, FINE_RANGE_KIB);
  if (remedy->has_release)
    idlesched_purge_all(NULL);
  if (remedy->has_collect)
    bench_collect_by_force();
  set_range(remedy, COARSE_RANGE_KIB);
}

static void tell_round(const char *round, const char *name, double value) {
  char text[64];
  snprintf(text, sizeof text, "%s_%s", round, name);
  bench_tell(text, value);
}

static void run_round(const struct remedy *remedy, idlesched_pool *pool, const char *round) {
  tell_round(round, "round_ns", (double)idlesched_now_ns());
  store_build(pool);
  pid_t loader = start_loader();
  bench_tell("loader", loader);
  struct bench_cost began = bench_cost_now();
  tell_round(round, "begin_ns", (double)began.wall_ns);
  span(remedy, pool);
  uint64_t end_ns = idlesched_now_ns();
  tell_round(round, "end_ns", (double)end_ns);
  char prefix[32];
  snprintf(prefix, sizeof prefix, "%s_span", round);
  bench_tell_cost(prefix, &began);
  bench_sleep_until(end_ns + 3 * IDLESCHED_S + 2 * SAMPLE_NS);
  tell_round(round, "round_end_ns", (double)idlesched_now_ns());
  stop_loader(loader);
  bench_tell("loader", 0);
  store_read_back();
}

static void run_cell(const struct remedy *remedy) {
  idlesched_process_defaults();
  set_range(remedy, COARSE_RANGE_KIB);
  store_open(&store);
  idlesched_pool *pool;
  MUST(idlesched_pool_create(
    &pool,
    &(idlesched_pool_config){ .workers_max = store.workers_count,
                              .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = remedy->has_exit ? IDLESCHED_S : IDLESCHED_NEVER }));
  run_round(remedy, pool, "cold");
  run_round(remedy, pool, "warm");
  idlesched_pool_destroy(pool);
  store_close();
}

/* -------------------------------------------------------------- the samples */

struct sample {
  uint64_t at_ns;
  double tree_mib, own_mib;
};

/* Of one round, as it is told and seen. */
static struct {
  struct sample samples[SAMPLES_MAX];
  unsigned count;
  int loader;
  uint64_t begin_ns, end_ns;
} seen;

static void take_sample(int process_id) {
  if (seen.count == SAMPLES_MAX)
    bench_fail("a cell takes more than %d samples", SAMPLES_MAX);
  double own_mib = bench_resident_mib_of(process_id);
  double loader_mib = seen.loader > 0 ? bench_resident_mib_of(seen.loader) : 0;
  seen.samples[seen.count++] = (struct sample){ idlesched_now_ns(), own_mib + loader_mib, own_mib };
}

/* The last sample up to a moment, or the first of all. */
static const struct sample *sample_at(uint64_t moment_ns) {
  const struct sample *found = &seen.samples[0];
  for (unsigned i = 0; i < seen.count && seen.samples[i].at_ns <= moment_ns; i++)
    found = &seen.samples[i];
  return found;
}

static double median(double a, double b, double c) {
  return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

/* The highest sample of a time, or the highest median of three that follow one another there. */
static double tree_peak_mib(uint64_t from_ns, uint64_t to_ns, bool is_of_3) {
  double peak_mib = 0;
  const struct sample *all = seen.samples;
  for (unsigned i = 0; i < seen.count; i++) {
    unsigned first = is_of_3 ? i - 2 : i;
    if ((is_of_3 && i < 2) || all[first].at_ns < from_ns || all[i].at_ns > to_ns)
      continue;
    double here_mib = is_of_3
                        ? median(all[first].tree_mib, all[first + 1].tree_mib, all[i].tree_mib)
                        : all[i].tree_mib;
    peak_mib = fmax(peak_mib, here_mib);
  }
  return peak_mib > 0 ? peak_mib : NAN;
}

static double own_peak_mib(void) {
  double peak_mib = 0;
  for (unsigned i = 0; i < seen.count; i++)
    peak_mib = fmax(peak_mib, seen.samples[i].own_mib);
  return peak_mib;
}

static void set_round(const struct bench *of, double *values, const char *round, const char *name,
                      double value) {
  char text[64];
  snprintf(text, sizeof text, "%s_%s", round, name);
  bench_set(of, values, text, value);
}

static void finish_round(const struct bench *of, double *values, const char *round) {
  uint64_t begin_ns = seen.begin_ns, span_ns = seen.end_ns - begin_ns;
  uint64_t sampled_ns = seen.end_ns + SAMPLE_NS / 2; /* that of the end comes right after it */
  const struct sample *end = sample_at(sampled_ns);
  double own_mib = own_peak_mib();
  const struct {
    const char *name;
    double value;
  } figures[] = {
    { "peak_mib", tree_peak_mib(0, UINT64_MAX, false) },
    { "peak_of_3_mib", tree_peak_mib(0, UINT64_MAX, true) },
    { "span_peak_mib", tree_peak_mib(begin_ns, sampled_ns, false) },
    { "span_peak_of_3_mib", tree_peak_mib(begin_ns, sampled_ns, true) },
    { "at_50_mib", sample_at(begin_ns + span_ns / 2)->tree_mib },
    { "at_75_mib", sample_at(begin_ns + span_ns / 4 * 3)->tree_mib },
    { "at_90_mib", sample_at(begin_ns + span_ns / 10 * 9)->tree_mib },
    { "at_100_mib", end->tree_mib },
    { "after_1_s_mib", sample_at(seen.end_ns + IDLESCHED_S)->tree_mib },
    { "after_3_s_mib", sample_at(seen.end_ns + 3 * IDLESCHED_S)->tree_mib },
    { "own_peak_mib", own_mib },
    { "own_at_100_mib", end->own_mib },
    { "left_percent", 100 * end->own_mib / own_mib },
  };
  for (unsigned i = 0; i < sizeof figures / sizeof *figures; i++)
    set_round(of, values, round, figures[i].name, figures[i].value);
}

static bool is_of_round(const char *name, const char *round, const char *what) {
  size_t length = strlen(round);
  return strncmp(name, round, length) == 0 && name[length] == '_' &&
         strcmp(name + length + 1, what) == 0;
}

static void take_line(const struct bench *of, const char *name, double value, double *values,
                      int process_id) {
  static const char *const rounds[] = { "cold", "warm" };
  if (strcmp(name, "loader") == 0)
    seen.loader = (int)value;
  for (unsigned i = 0; i < 2; i++) {
    if (is_of_round(name, rounds[i], "round_ns"))
      seen.count = 0;
    if (is_of_round(name, rounds[i], "begin_ns"))
      seen.begin_ns = (uint64_t)value;
    if (is_of_round(name, rounds[i], "end_ns")) {
      seen.end_ns = (uint64_t)value;
      take_sample(process_id);
    }
    if (is_of_round(name, rounds[i], "round_end_ns"))
      finish_round(of, values, rounds[i]);
  }
  bench_set(of, values, name, value);
}

static void watch(struct bench *of, struct bench_child *child, double *values) {
  memset(&seen, 0, sizeof seen);
  uint64_t next_ns = idlesched_now_ns() + SAMPLE_NS;
  char name[64];
  double value;
  for (int status = 0; status >= 0;) {
    status = bench_child_read(child, next_ns, name, &value);
    if (status > 0)
      take_line(of, name, value, values, child->process_id);
    if (idlesched_now_ns() >= next_ns) {
      take_sample(child->process_id);
      next_ns += SAMPLE_NS;
    }
  }
}

/* ------------------------------------------------------------- the question */

int main(int argc, char **argv) {
  (void)argc;
  const char *load_kib = getenv(LOAD_VARIABLE);
  if (load_kib != NULL)
    load_for_ever((unsigned)strtoul(load_kib, NULL, 10));
  bench_parse(&bench, argv);
  if (bench.cell >= 0) {
    run_cell(&remedies[bench.cell]);
    return EXIT_SUCCESS;
  }
  bench_compare_huge(&bench, &huge);
  return EXIT_SUCCESS;
}
