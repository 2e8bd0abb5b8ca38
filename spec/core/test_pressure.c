/* SPDX-License-Identifier: MIT */
/*
 * test_pressure.c - the watcher of memory pressure: where it looks, what it makes of each
 * answer of the kernel's, and that it starts and stops whatever is under way.
 *
 * Method: the fake kernel tells when a case says so, and refuses what a case wants refused.
 * When a release follows an event, and when not, is in test_sim_pressure.c, where time is
 * virtual; the kernel's own files are in test_psi.c.
 */
#include <errno.h>
#include <string.h>

#include "plat_fault.h"
#include "pool_kit.h"
#include "pressure_fake.h"

#define WINDOW_NS (500 * IDLESCHED_MS)

static idlesched_pressure_stats stats_now(void) {
  idlesched_pressure_stats stats;
  idlesched_pressure_stats_read(&stats);
  return stats;
}

static int start(void) {
  return idlesched_pressure_start(&(const idlesched_pressure_config){ .window_ns = WINDOW_NS });
}

static void check_nothing_is_watched(void) {
  idlesched_pressure_stats stats = stats_now();
  CHECK(!stats.is_watching);
  CHECK(!stats.has_trigger);
  CHECK_EQ_STR(stats.path, "");
  CHECK_EQ_U64(stats.window_ns, 0);
  CHECK_EQ_INT(pressure_fake_files_count(), 0);
  CHECK_NOTHING_IS_LEFT();
}

static void check_opened(unsigned i, const char *path, uint64_t stall_ns, uint64_t window_ns) {
  struct pressure_fake_open open = pressure_fake_open(i);
  CHECK_EQ_STR(open.path, path);
  CHECK_EQ_U64(open.stall_ns, stall_ns);
  CHECK_EQ_U64(open.window_ns, window_ns);
}

/* ------------------------------------------------------------------------ events */

SPEC(an_event_releases, "N8 pressure releases at once, and the numbers say so") {
  pressure_fake_returns(4096);
  REQUIRE_EQ_INT(idlesched_pressure_start(&(const idlesched_pressure_config){
                   .window_ns = WINDOW_NS, .timeout_ns = 7 * IDLESCHED_MS }),
                 0);
  CHECK_EQ_INT(pressure_fake_releases_count(), 0);
  pressure_fake_tell();
  WAIT_UNTIL(stats_now().releases_count == 1, SOON_MS);
  idlesched_pressure_stats stats = stats_now();
  CHECK(stats.is_watching);
  CHECK(stats.has_trigger);
  CHECK_EQ_U64(stats.events_count, 1);
  CHECK_EQ_U64(stats.returned_bytes, 4096);
  CHECK_EQ_U64(pressure_fake_release_timeout_ns(), 7 * IDLESCHED_MS);

  /* Within the cooldown. */
  pressure_fake_tell();
  WAIT_UNTIL(stats_now().events_count == 2, SOON_MS);
  idlesched_pressure_stop();
  CHECK_EQ_INT(pressure_fake_releases_count(), 1);
  CHECK_EQ_U64(stats_now().releases_count, 1);
  check_nothing_is_watched();
}

SPEC(a_start_counts_anew, "N8 each start counts anew, and is counted") {
  for (unsigned i = 1; i <= 3; i++) {
    REQUIRE_EQ_INT(start(), 0);
    CHECK_EQ_U64(stats_now().events_count, 0);
    CHECK_EQ_U64(stats_now().starts_count, i);
    pressure_fake_tell();
    WAIT_UNTIL(stats_now().releases_count == 1, SOON_MS);
    idlesched_pressure_stop();
    check_nothing_is_watched();
  }
}

SPEC(a_tenth_of_the_window, "N8 the stall is a tenth of the window by default, also of another") {
  static const uint64_t windows_ns[] = { 500 * IDLESCHED_MS, 2 * IDLESCHED_S, 10 * IDLESCHED_S };
  for (unsigned i = 0; i < 3; i++) {
    REQUIRE_EQ_INT(
      idlesched_pressure_start(&(idlesched_pressure_config){ .window_ns = windows_ns[i] }), 0);
    check_opened(i, PRESSURE_FAKE_CGROUP, windows_ns[i] / 10, windows_ns[i]);
    idlesched_pressure_stop();
  }
}

SPEC(the_defaults, "N8 by default a tenth of 1 s, and a release takes 1 s at most") {
  REQUIRE_EQ_INT(idlesched_pressure_start(NULL), 0);
  check_opened(0, PRESSURE_FAKE_CGROUP, 100 * IDLESCHED_MS, IDLESCHED_S);
  pressure_fake_tell();
  WAIT_UNTIL(stats_now().releases_count == 1, SOON_MS);
  CHECK_EQ_U64(pressure_fake_release_timeout_ns(), IDLESCHED_S);
  idlesched_pressure_stop();
}

/* --------------------------------------------------------------------- arguments */

SPEC(times_out_of_range, "N8 a time that the kernel would not take is -EINVAL") {
  static const idlesched_pressure_config wrong[] = {
    { .window_ns = 499 * IDLESCHED_MS },
    { .window_ns = 10001 * IDLESCHED_MS },
    { .stall_ns = 1001 * IDLESCHED_MS },
    { .stall_ns = 3 * IDLESCHED_S, .window_ns = 2 * IDLESCHED_S },
  };
  for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
    CHECK_EQ_INT(idlesched_pressure_start(&wrong[i]), -EINVAL);
  CHECK_EQ_INT(pressure_fake_opens_count(), 0);
  check_nothing_is_watched();
}

SPEC(a_path_of_ones_own, "N8 a path that is given is the only one, up to 255 bytes") {
  char path[300];
  memset(path, 'x', sizeof path);
  path[255] = '\0';
  REQUIRE_EQ_INT(idlesched_pressure_start(&(const idlesched_pressure_config){ .path = path }), 0);
  CHECK_EQ_STR(stats_now().path, path);
  idlesched_pressure_stop();

  static const int absent[] = { -ENOENT, -ENOTSUP, -EBADMSG };
  for (unsigned i = 0; i < 3; i++) {
    pressure_fake_answer(&absent[i], 1);
    CHECK_EQ_INT(idlesched_pressure_start(&(const idlesched_pressure_config){ .path = path }),
                 absent[i]);
    CHECK_EQ_INT(pressure_fake_opens_count(), 1);
  }

  path[255] = 'x';
  path[256] = '\0';
  CHECK_EQ_INT(idlesched_pressure_start(&(const idlesched_pressure_config){ .path = path }),
               -ENAMETOOLONG);
  check_nothing_is_watched();
}

SPEC(one_at_a_time, "N8 one for the process: a second start is -EALREADY, and changes nothing") {
  REQUIRE_EQ_INT(start(), 0);
  CHECK_EQ_INT(idlesched_pressure_start(&(const idlesched_pressure_config){ .path = "/other" }),
               -EALREADY);
  CHECK_EQ_INT(pressure_fake_opens_count(), 1);
  CHECK_EQ_STR(stats_now().path, PRESSURE_FAKE_CGROUP);
  pressure_fake_tell();
  WAIT_UNTIL(stats_now().releases_count == 1, SOON_MS);
  idlesched_pressure_stop();
  idlesched_pressure_stop();
  check_nothing_is_watched();
}

/* ------------------------------------------------------------------------ places */

SPEC(the_nearest_file_first, "N8 its own cgroup's file, else the system's") {
  REQUIRE_EQ_INT(start(), 0);
  CHECK_EQ_STR(stats_now().path, PRESSURE_FAKE_CGROUP);
  idlesched_pressure_stop();

  pressure_fake_find(0, -ENOENT);
  REQUIRE_EQ_INT(start(), 0);
  CHECK_EQ_STR(stats_now().path, PRESSURE_FAKE_SYSTEM);
  idlesched_pressure_stop();

  pressure_fake_find(0, 0);
  static const int absent[] = { -ENOENT, -ENOTSUP };
  for (unsigned i = 0; i < 2; i++) {
    pressure_fake_answer(&absent[i], 1);
    REQUIRE_EQ_INT(start(), 0);
    CHECK_EQ_INT(pressure_fake_opens_count(), 2);
    CHECK_EQ_STR(stats_now().path, PRESSURE_FAKE_SYSTEM);
    idlesched_pressure_stop();
  }
  check_nothing_is_watched();
}

SPEC(a_kernel_that_knows_none,
     "N8 where the kernel has none of it: -ENOTSUP, and nothing is left") {
  PRESSURE_FAKE_ANSWER(-ENOENT, -ENOTSUP);
  CHECK_EQ_INT(start(), -ENOTSUP);
  pressure_fake_find(0, -ENOENT);
  pressure_fake_find(1, -ENOENT);
  CHECK_EQ_INT(start(), -ENOTSUP);
  CHECK_EQ_U64(stats_now().starts_count, 0);
  idlesched_pressure_stop();
  check_nothing_is_watched();
}

SPEC(other_errors_are_told, "N8 what else the system refuses is told as it is") {
  static const int statuses[] = { -EMFILE, -ENOMEM, -EBADMSG, -EIO };
  for (unsigned i = 0; i < 4; i++) {
    pressure_fake_answer(&statuses[i], 1);
    CHECK_EQ_INT(start(), statuses[i]);
    CHECK_EQ_INT(pressure_fake_opens_count(), 1);
  }
  pressure_fake_find(0, -EACCES); /* the kernel hides what this process is in */
  CHECK_EQ_INT(start(), -EACCES);
  check_nothing_is_watched();
}

/* ---------------------------------------------------------------------- triggers */

SPEC(a_window_is_rounded_up, "N8 a window that is refused is rounded up to whole 2 s, the stall "
                             "with it") {
  static const uint64_t windows_ms[][2] = { { 500, 2000 }, { 2500, 4000 }, { 9999, 10000 } };
  for (unsigned i = 0; i < 3; i++) {
    uint64_t before_ns = windows_ms[i][0] * IDLESCHED_MS;
    uint64_t after_ns = windows_ms[i][1] * IDLESCHED_MS;
    PRESSURE_FAKE_ANSWER(-EINVAL);
    REQUIRE_EQ_INT(idlesched_pressure_start(&(const idlesched_pressure_config){
                     .window_ns = before_ns, .stall_ns = before_ns }),
                   0);
    check_opened(0, PRESSURE_FAKE_CGROUP, before_ns, before_ns);
    check_opened(1, PRESSURE_FAKE_CGROUP, after_ns, after_ns);
    CHECK(stats_now().has_trigger);
    CHECK_EQ_U64(stats_now().window_ns, after_ns);
    idlesched_pressure_stop();
  }
}

SPEC(without_a_trigger_it_reads,
     "N8 where no trigger is taken it reads, at the window it was told") {
  static const int refusals[] = { -EINVAL, -EPERM, -EACCES, -EROFS, -EBUSY };
  for (unsigned i = 0; i < 5; i++) {
    PRESSURE_FAKE_ANSWER(refusals[i], refusals[i]);
    REQUIRE_EQ_INT(start(), 0);
    CHECK_EQ_INT(pressure_fake_opens_count(), 3);
    check_opened(1, PRESSURE_FAKE_CGROUP, 200 * IDLESCHED_MS, 2 * IDLESCHED_S);
    check_opened(2, PRESSURE_FAKE_CGROUP, 0, WINDOW_NS);
    CHECK(stats_now().is_watching);
    CHECK(!stats_now().has_trigger);
    CHECK_EQ_U64(stats_now().window_ns, WINDOW_NS);
    idlesched_pressure_stop();
  }
  /* A window that needs no rounding is not tried twice. */
  PRESSURE_FAKE_ANSWER(-EINVAL);
  REQUIRE_EQ_INT(
    idlesched_pressure_start(&(const idlesched_pressure_config){ .window_ns = 4 * IDLESCHED_S }),
    0);
  CHECK_EQ_INT(pressure_fake_opens_count(), 2);
  check_opened(1, PRESSURE_FAKE_CGROUP, 0, 4 * IDLESCHED_S);
  idlesched_pressure_stop();

  PRESSURE_FAKE_ANSWER(-EACCES, -EACCES, -EACCES);
  CHECK_EQ_INT(start(), -EACCES);
  check_nothing_is_watched();
}

SPEC(reading_finds_the_stall, "N8 a stall that is read releases, and one that is old does not") {
  pressure_fake_stall(IDLESCHED_S);
  PRESSURE_FAKE_ANSWER(-EPERM, -EPERM);
  REQUIRE_EQ_INT(start(), 0);
  WAIT_UNTIL(pressure_fake_reads_count() == 2, SOON_MS);
  CHECK_EQ_U64(stats_now().events_count, 0);
  pressure_fake_stall(100 * IDLESCHED_MS);
  WAIT_UNTIL(stats_now().releases_count == 1, SOON_MS);
  idlesched_pressure_stop();
  check_nothing_is_watched();
}

/* -------------------------------------------------------------------- end of news */

SPEC(a_file_that_is_gone, "N8 when the file is gone nothing is watched, and a start is anew") {
  REQUIRE_EQ_INT(start(), 0);
  pressure_fake_remove();
  WAIT_UNTIL(!stats_now().is_watching, SOON_MS);
  CHECK_EQ_STR(stats_now().path, "");
  REQUIRE_EQ_INT(start(), 0);
  CHECK(stats_now().is_watching);
  CHECK_EQ_U64(stats_now().starts_count, 2);
  CHECK_EQ_INT(pressure_fake_files_count(), 1);
  pressure_fake_remove();
  WAIT_UNTIL(!stats_now().is_watching, SOON_MS);
  idlesched_pressure_stop();
  check_nothing_is_watched();
}

SPEC(a_file_that_cannot_be_read, "N8 when the file cannot be read any more nothing is watched") {
  PRESSURE_FAKE_ANSWER(-EPERM, -EPERM);
  REQUIRE_EQ_INT(start(), 0);
  pressure_fake_read(-ENODEV);
  WAIT_UNTIL(!stats_now().is_watching, SOON_MS);
  idlesched_pressure_stop();
  check_nothing_is_watched();
}

/* ---------------------------------------------------------------- start and stop */

SPEC(a_thread_is_refused, "N8 a refused thread: the start fails and keeps nothing") {
  fault_refuse("pressure.thread", 1, 1);
  CHECK_EQ_INT(start(), -EAGAIN);
  check_nothing_is_watched();
  REQUIRE_EQ_INT(start(), 0);
  idlesched_pressure_stop();
  check_nothing_is_watched();
}

static void *stop(void *context) {
  idlesched_pressure_stop();
  atomic_fetch_add((_Atomic unsigned *)context, 1);
  return NULL;
}

SPEC(a_stop_during_a_release, "N8 a stop waits for the release that is under way, also a second "
                              "one, and so does a start") {
  _Atomic unsigned stopped_count = 0;
  pthread_t threads[2];
  pressure_fake_hold_releases();
  REQUIRE_EQ_INT(start(), 0);
  pressure_fake_tell();
  WAIT_UNTIL(pressure_fake_releases_count() == 1, SOON_MS);
  threads[0] = thread_run(stop, &stopped_count);
  WAIT_UNTIL(!stats_now().is_watching, SOON_MS);
  threads[1] = thread_run(stop, &stopped_count);
  WAIT_UNTIL(plat_waiting_count() == 1, SOON_MS);
  CHECK_EQ_INT(stopped_count, 0);
  pressure_fake_let_releases_go();
  CHECK_EQ_INT(start(), 0); /* not -EALREADY */
  for (unsigned i = 0; i < 2; i++)
    thread_result(threads[i]);
  CHECK_EQ_INT(stopped_count, 2);
  idlesched_pressure_stop();
  check_nothing_is_watched();
}

static void *start_and_stop(void *context) {
  (void)context;
  for (unsigned i = 0; i < 200; i++) {
    int status = start();
    CHECK(status == 0 || status == -EALREADY);
    if (i % 3 == 0)
      pressure_fake_tell();
    (void)stats_now();
    idlesched_pressure_stop();
  }
  return NULL;
}

SPEC(many_threads_start_and_stop, "N8 many threads start and stop, and it ends in order",
     .limit_s = 60) {
  pthread_t threads[4];
  for (unsigned i = 0; i < 4; i++)
    threads[i] = thread_run(start_and_stop, NULL);
  for (unsigned i = 0; i < 4; i++)
    thread_result(threads[i]);
  check_nothing_is_watched();
  CHECK_GE_INT(stats_now().starts_count, 200);
}
