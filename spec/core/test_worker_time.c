/* SPDX-License-Identifier: MIT */
/*
 * test_worker_time.c - when a worker releases and when it leaves.
 *
 * Method: lower bounds are measured on the monotonic clock, by the job that ends and the
 * hook that is called; they hold on any machine, however loaded.  Upper bounds do not,
 * so here they are only what a case waits for; that nothing happens before its time or
 * a second time is looked at over a stretch several times as long.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "heap_fake.h"
#include "plat_fault.h"
#include "pool_kit.h"

static void destroy(idlesched_pool *pool) {
  check_tickets_add_up(pool);
  idlesched_pool_destroy(pool);
  CHECK_NOTHING_IS_LEFT();
}

/* When the worker came to its hooks last; 0: never. */
static _Atomic uint64_t job_ended_ns, collected_ns, stopped_ns;

static bool note_collect(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  note_time_ns(&collected_ns);
  heap_fake_diary_add('k');
  return false;
}

static void note_stop(idlesched_worker *worker, void *context) {
  (void)worker;
  (void)context;
  note_time_ns(&stopped_ns);
  heap_fake_diary_add('x');
}

static idlesched_pool *timed_pool(uint64_t idle_release_ns, uint64_t idle_exit_ns) {
  return POOL(.workers_max = 1, .idle_release_ns = idle_release_ns, .idle_exit_ns = idle_exit_ns,
              .hooks = { .start = give_data, .collect = note_collect, .stop = note_stop });
}

/* Let the time pass in which something must not happen. */
static void let_pass(uint64_t duration_ns) {
  uint64_t end_ns = spec_now_ns() + duration_ns;
  WAIT_UNTIL(spec_now_ns() >= end_ns, SOON_MS);
}

static void submit_note(idlesched_pool *pool) {
  REQUIRE_EQ_INT(idlesched_pool_submit(pool, note_time_ns, &job_ended_ns), 0);
}

/* ------------------------------------------------------------- the release */

SPEC(a_release_comes_after_its_delay, "A1 a release comes after idle_release, and not earlier") {
  const uint64_t delay_ns = 60 * IDLESCHED_MS;
  idlesched_pool *pool = timed_pool(delay_ns, IDLESCHED_NEVER);
  for (unsigned i = 1; i <= 5; i++) {
    submit_note(pool);
    WAIT_UNTIL(stats_of(pool).releases == i, SOON_MS);
    CHECK_GE_U64(collected_ns - job_ended_ns, delay_ns);
    printf("released %.3f ms after its time\n", (collected_ns - job_ended_ns - delay_ns) / 1e6);
  }
  CHECK_EQ_U64(stats_of(pool).starts, 1);
  destroy(pool);
}

SPEC(a_release_tidies_in_order,
     "A1 a release tidies what the host keeps, then the heap, then purges") {
  idlesched_pool *pool = timed_pool(IDLESCHED_AT_ONCE, IDLESCHED_NEVER);
  run_one_job(pool);
  WAIT_UNTIL(stats_of(pool).passes == 1, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).releases, 1);
  CHECK_EQ_STR(heap_fake_diary(), "kcp");
  destroy(pool);
}

SPEC(prompt_work_costs_nothing, "A2 jobs that come promptly: no release, and nothing else either") {
  idlesched_pool *pool = timed_pool(10 * IDLESCHED_S, IDLESCHED_NEVER);
  run_one_job(pool);
  uint64_t allocs_before = plat_balance().allocs_count;
  for (unsigned i = 0; i < 2000; i++)
    run_one_job(pool);
  CHECK_EQ_U64(plat_balance().allocs_count, allocs_before);
  CHECK_EQ_STR(heap_fake_diary(), "");
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  CHECK_EQ_U64(stats_of(pool).starts, 1);
  CHECK_EQ_U64(collected_ns, 0);
  destroy(pool);
}

/* The same with the worker really parked each time, and a delay that has to be long
 * enough for a stalled machine. */
SPEC(a_wake_within_the_delay_prevents_the_release, "A2 woken within idle_release: no release") {
  idlesched_pool *pool = timed_pool(2 * IDLESCHED_S, IDLESCHED_NEVER);
  for (unsigned i = 0; i < 300; i++) {
    run_one_job(pool);
    WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  }
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  CHECK_EQ_STR(heap_fake_diary(), "");
  destroy(pool);
}

static void exit_comes_first(uint64_t idle_release_ns, uint64_t idle_exit_ns) {
  idlesched_pool *pool = timed_pool(idle_release_ns, idle_exit_ns);
  run_one_job(pool);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  CHECK_EQ_U64(stats_of(pool).exits, 1);
  CHECK_EQ_STR(heap_fake_diary(), "xcp"); /* the exit releases, and purges */
  heap_fake_diary_clear();
  destroy(pool);
}

SPEC(a_short_exit_has_no_release, "A3 idle_exit < idle_release: no release, the exit comes first") {
  exit_comes_first(80 * IDLESCHED_MS, 40 * IDLESCHED_MS);
}

SPEC(an_equal_exit_has_no_release,
     "A3 idle_exit = idle_release: no release, the exit comes first") {
  exit_comes_first(40 * IDLESCHED_MS, 40 * IDLESCHED_MS);
}

SPEC(one_release_for_each_time_of_work,
     "A4 one release for each work cycle, however long it waits") {
  const uint64_t delay_ns = 20 * IDLESCHED_MS;
  idlesched_pool *pool = timed_pool(delay_ns, IDLESCHED_NEVER);
  for (unsigned i = 1; i <= 3; i++) {
    run_one_job(pool);
    WAIT_UNTIL(stats_of(pool).releases == i, SOON_MS);
    for (unsigned j = 0; j < 5; j++) {
      wake_for_nothing(pool, 0);
      let_pass(delay_ns);
    }
    CHECK_EQ_U64(stats_of(pool).releases, i);
  }
  CHECK_EQ_STR(heap_fake_diary(), "kcpkcpkcp");
  destroy(pool);
}

/* A visit is a release as well: what it released need not be released again. */
SPEC(a_visit_counts_as_the_release, "A4 after a visit the same idle time has no second release") {
  const uint64_t delay_ns = IDLESCHED_S; /* not over before the visit, however slow we are */
  idlesched_pool *pool = timed_pool(delay_ns, IDLESCHED_NEVER);
  run_one_job(pool);
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, NULL), 0);
  CHECK_EQ_U64(stats_of(pool).releases, 1);
  let_pass(delay_ns * 5 / 4);
  CHECK_EQ_U64(stats_of(pool).releases, 1);
  destroy(pool);
}

SPEC(release_at_once_releases_at_every_park, "A23 idle_release at once: a release at every park") {
  idlesched_pool *pool = timed_pool(IDLESCHED_AT_ONCE, IDLESCHED_NEVER);
  for (unsigned i = 1; i <= 100; i++) {
    run_one_job(pool);
    WAIT_UNTIL(stats_of(pool).releases == i, SOON_MS);
  }
  destroy(pool);
}

SPEC(release_never_never_releases,
     "A23 idle_release never: no release, while the exit still comes") {
  idlesched_pool *pool = timed_pool(IDLESCHED_NEVER, 150 * IDLESCHED_MS);
  for (unsigned i = 1; i <= 3; i++) {
    run_one_job(pool);
    WAIT_UNTIL(stats_of(pool).exits == i, SOON_MS);
  }
  CHECK_EQ_U64(stats_of(pool).releases, 0);
  destroy(pool);
}

/* --------------------------------------------------- spurious wakes, deadline */

SPEC(a_spurious_wake_changes_nothing,
     "A11 spurious wakes: no early release, no early exit, no poll") {
  const uint64_t release_ns = 100 * IDLESCHED_MS, exit_ns = 250 * IDLESCHED_MS;
  idlesched_pool *pool = timed_pool(release_ns, exit_ns);
  submit_note(pool);
  WAIT_UNTIL((wake_for_nothing(pool, 0), stats_of(pool).exits == 1), SOON_MS);
  CHECK_GE_U64(collected_ns - job_ended_ns, release_ns);
  CHECK_GE_U64(stopped_ns - job_ended_ns, exit_ns);
  CHECK_EQ_U64(stats_of(pool).polls, 1); /* the one of the submit */
  CHECK_EQ_U64(stats_of(pool).releases, 1);
  CHECK_EQ_INT(stats_of(pool).active, 0);
  destroy(pool);
}

SPEC(the_deadline_does_not_move,
     "A12 neither spurious wakes nor a slow release move the deadline") {
  const uint64_t release_ns = 20 * IDLESCHED_MS, exit_ns = 30 * IDLESCHED_S;
  idlesched_pool *pool = timed_pool(release_ns, exit_ns);
  hold_at("pass.purge");
  submit_note(pool);
  WAIT_UNTIL(stats_of(pool).releasing == 1, SOON_MS);
  struct ids_worker before = worker_of(pool, 0);
  CHECK_EQ_U64(before.exit_at_ns - before.release_at_ns, exit_ns - release_ns);
  CHECK_GE_U64(before.release_at_ns, job_ended_ns + release_ns);
  let_pass(5 * release_ns);
  hold_open("pass.purge");
  WAIT_UNTIL(stats_of(pool).parked == 1, SOON_MS);
  for (unsigned i = 0; i < 100; i++)
    wake_for_nothing(pool, 0);
  CHECK_EQ_INT(idlesched_pool_release(pool, 0, NULL), 0);
  struct ids_worker after = worker_of(pool, 0);
  CHECK_EQ_U64(after.release_at_ns, before.release_at_ns);
  CHECK_EQ_U64(after.exit_at_ns, before.exit_at_ns);
  destroy(pool);
}

/* The same seen from outside: if the release's end were the beginning of a new delay,
 * the exit would come a whole second after it. */
SPEC(a_release_that_lasts_beyond_the_exit,
     "A12 a release that ends after idle_exit: the exit follows") {
  const uint64_t exit_ns = IDLESCHED_S;
  idlesched_pool *pool = timed_pool(IDLESCHED_AT_ONCE, exit_ns);
  hold_at("pass.purge");
  submit_note(pool);
  WAIT_UNTIL(hold_count("pass.purge") == 1, SOON_MS);
  let_pass(exit_ns + 10 * IDLESCHED_MS);
  CHECK_EQ_INT(stats_of(pool).releasing, 1);
  uint64_t release_ended_ns = spec_now_ns();
  hold_open("pass.purge");
  WAIT_UNTIL(stats_of(pool).exits == 1, SOON_MS);
  CHECK_LT_U64(stopped_ns - release_ended_ns, exit_ns * 9 / 10);
  destroy(pool);
}

/* -------------------------------------------------------------------- the exit */

SPEC(an_exit_comes_after_its_delay, "A13 the thread ends after idle_exit, and a purge follows") {
  const uint64_t exit_ns = 60 * IDLESCHED_MS;
  idlesched_pool *pool = timed_pool(10 * IDLESCHED_MS, exit_ns);
  for (unsigned i = 1; i <= 3; i++) {
    heap_fake_diary_clear();
    submit_note(pool);
    WAIT_UNTIL(stats_of(pool).exits == i, SOON_MS);
    CHECK_GE_U64(stopped_ns - job_ended_ns, exit_ns);
    /* Released first, then left: both end with a purge. */
    CHECK_EQ_STR(heap_fake_diary(), "kcpxcp");
    CHECK_EQ_INT(stats_of(pool).threads, 0);
    CHECK_EQ_U64(stats_of(pool).starts, i); /* the next wake starts a thread again */
    CHECK_EQ_INT(worker_of(pool, 0).state, IDS_WORKER_ABSENT);
  }
  destroy(pool);
}

SPEC(exit_never_keeps_the_thread, "A13 idle_exit never: the thread stays") {
  idlesched_pool *pool = timed_pool(10 * IDLESCHED_MS, IDLESCHED_NEVER);
  run_one_job(pool);
  WAIT_UNTIL(stats_of(pool).releases == 1, SOON_MS);
  CHECK_EQ_U64(worker_of(pool, 0).exit_at_ns, IDS_NEVER);
  let_pass(100 * IDLESCHED_MS);
  CHECK_EQ_INT(stats_of(pool).parked, 1);
  destroy(pool);
}

SPEC(every_pool_inherits_it, "A18 each of several pools releases and exits by itself") {
  idlesched_pool *pools[3];
  for (unsigned i = 0; i < 3; i++) {
    pools[i] = timed_pool(10 * IDLESCHED_MS, 40 * IDLESCHED_MS * (i + 1));
    run_one_job(pools[i]);
  }
  for (unsigned i = 0; i < 3; i++) {
    WAIT_UNTIL(stats_of(pools[i]).exits == 1, SOON_MS);
    CHECK_EQ_U64(stats_of(pools[i]).releases, 1);
    check_tickets_add_up(pools[i]);
  }
  for (unsigned i = 0; i < 3; i++)
    idlesched_pool_destroy(pools[i]);
  CHECK_NOTHING_IS_LEFT();
}

/* ------------------------------------------------------------------ at rest */

/* Context switches so far of all threads of this process but the calling one. */
static uint64_t switches_of_others(void) {
  uint64_t count = 0;
  DIR *tasks = opendir("/proc/self/task");
  if (tasks == NULL)
    SKIP("this system does not tell the context switches of a thread");
  for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
    char path[300], line[128];
    if (entry->d_name[0] == '.' || atol(entry->d_name) == syscall(SYS_gettid))
      continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE *status = fopen(path, "r");
    if (status == NULL)
      continue;
    while (fgets(line, sizeof line, status) != NULL) {
      const char *number = strstr(line, "ctxt_switches:");
      if (number != NULL)
        count += strtoull(number + strlen("ctxt_switches:"), NULL, 10);
    }
    fclose(status);
  }
  closedir(tasks);
  return count;
}

SPEC(a_released_pool_does_not_run, "G8 a pool that has released makes no context switch") {
#ifdef __SANITIZE_THREAD__
  SKIP("the thread sanitizer has a thread of its own, which runs");
#endif
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = 10 * IDLESCHED_MS);
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
  WAIT_UNTIL(stats_of(pool).releases == 4, SOON_MS);
  WAIT_UNTIL(stats_of(pool).passes == 2 && stats_of(pool).parked == 4, SOON_MS); /* the later one */
  /* The last ones may be about to go to sleep: two readings far apart agree soon. */
  uint64_t before;
  do {
    before = switches_of_others();
    let_pass(50 * IDLESCHED_MS);
  } while (switches_of_others() != before);
  let_pass(500 * IDLESCHED_MS);
  CHECK_EQ_U64(switches_of_others(), before);
  destroy(pool);
}

static void *nothing(void *context) {
  return context;
}

SPEC(a_pool_at_rest_has_no_thread, "G8 after the exit there is no thread, as the system sees it") {
  idlesched_memory memory;
  idlesched_pool *pool = POOL(.workers_max = 4, .idle_release_ns = IDLESCHED_NEVER,
                              .idle_exit_ns = IDLESCHED_MS);
  thread_result(thread_run(nothing, NULL)); /* a sanitizer starts one of its own with it */
  REQUIRE_EQ_INT(idlesched_memory_read(&memory), 0);
  uint64_t before = memory.threads_count;
  REQUIRE_EQ_INT(idlesched_pool_start_workers(pool, 4), 0);
  WAIT_UNTIL(stats_of(pool).threads == 0, SOON_MS);
  CHECK_EQ_U64(stats_of(pool).exits, 4);
  WAIT_UNTIL((idlesched_memory_read(&memory), memory.threads_count == before), SOON_MS);
  destroy(pool);
}
