/* SPDX-License-Identifier: MIT */
/*
 * test_psi.c - the watcher on files: the kernel's own, where it has some, and others.
 *
 * Method: no pressure is made.  A file that reads like the kernel's stands in for one, as
 * the watcher reads what takes no trigger; so the way from the file to the release is shown
 * on every machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_kit.h"

#define TEXT_OF(total)                                                                             \
  "some avg10=0.00 avg60=0.00 avg300=0.00 total=" total "\n"                                       \
  "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"

static char folder[] = "/tmp/idlesched-psi-XXXXXX";
static char path[64];

static void remove_files(void) {
  unlink(path);
  rmdir(folder);
}

static const char *new_path(const char *name) {
  REQUIRE(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  atexit(remove_files);
  return path;
}

/* Over what is there, in one write: a reader sees the one or the other. */
static void write_file(const char *text) {
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(file >= 0);
  REQUIRE_EQ_INT(pwrite(file, text, strlen(text), 0), strlen(text));
  close(file);
}

static idlesched_pressure_stats stats_now(void) {
  idlesched_pressure_stats stats;
  idlesched_pressure_stats_read(&stats);
  return stats;
}

static int start_on(const char *file) {
  return idlesched_pressure_start(&(const idlesched_pressure_config){
    .stall_ns = IDLESCHED_MS, .window_ns = 500 * IDLESCHED_MS, .path = file });
}

/* The next one that the process would open: when it is the same again, nothing was left. */
static int next_file(void) {
  int file = dup(0);
  REQUIRE(file >= 0);
  close(file);
  return file;
}

/* ------------------------------------------------------------ the kernel's own files */

SPEC(on_the_kernels_files, "N8 starts and stops on what this kernel has, and says if it has none") {
  int before = next_file();
  int status = idlesched_pressure_start(NULL);
  if (status == -ENOTSUP)
    SKIP("this kernel tells of no memory pressure: %s", idlesched_strerror(status));
  REQUIRE_EQ_INT(status, 0);
  idlesched_pressure_stats stats = stats_now();
  printf("%s, trigger: %d, window %llu ns\n", stats.path, stats.has_trigger,
         (unsigned long long)stats.window_ns);
  CHECK(stats.is_watching);
  CHECK_CONTAINS(stats.path, "pressure");
  CHECK_GE_U64(stats.window_ns, IDLESCHED_S);
  CHECK_EQ_INT(idlesched_pressure_start(NULL), -EALREADY);
  uint64_t began_ns = spec_now_ns();
  idlesched_pressure_stop();
  CHECK_LE_U64(spec_now_ns() - began_ns, SOON_MS * IDLESCHED_MS);
  CHECK(!stats_now().is_watching);
  CHECK_EQ_INT(next_file(), before);
}

SPEC(on_the_systems_file, "N8 starts on the system's file by its path, and again and again") {
  static const char file[] = "/proc/pressure/memory";
  if (access(file, R_OK) != 0)
    SKIP("there is no %s", file);
  int before = next_file();
  for (unsigned i = 0; i < 20; i++) {
    int status = start_on(file);
    if (status == -ENOTSUP)
      SKIP("%s is there, but the kernel accounts for nothing", file);
    REQUIRE_EQ_INT(status, 0);
    CHECK_EQ_STR(stats_now().path, file);
    idlesched_pressure_stop();
  }
  CHECK_EQ_INT(next_file(), before);
}

/* ------------------------------------------------------------------------ other files */

static char latest[256];

/* Another millisecond of stall, unless one was answered. */
static bool has_released_for_more(void) {
  static unsigned total_us = 1000000;
  if (stats_now().releases_count > 0)
    return true;
  snprintf(latest, sizeof latest, TEXT_OF("%u"), total_us += 1000);
  write_file(latest);
  return false;
}

SPEC(a_file_that_reads_so, "N8 a file that reads like the kernel's is read, and never written") {
  write_file((new_path("memory.pressure"), TEXT_OF("1000000")));
  idlesched_pool *pool = POOL(.workers_max = 1);
  run_one_job(pool);
  REQUIRE_EQ_INT(start_on(path), 0);
  CHECK(!stats_now().has_trigger);
  CHECK_EQ_U64(stats_now().window_ns, 500 * IDLESCHED_MS);
  WAIT_UNTIL(has_released_for_more(), SOON_MS);
  idlesched_pressure_stop();
  CHECK_EQ_U64(stats_now().releases_count, 1);
  char now[256] = "";
  int file = open(path, O_RDONLY | O_CLOEXEC);
  CHECK_GE_INT(read(file, now, sizeof now - 1), 1);
  close(file);
  CHECK_EQ_STR(now, latest);
  idlesched_pool_destroy(pool);
}

static void check_refused(const char *file, int expected) {
  int before = next_file();
  CHECK_EQ_INT(start_on(file), expected);
  CHECK(!stats_now().is_watching);
  CHECK_EQ_INT(next_file(), before);
}

SPEC(files_of_another_kind, "N8 files of another kind are refused, untouched and at once") {
  write_file((new_path("plain"), "what somebody wrote\n"));
  check_refused(path, -EBADMSG);
  struct stat facts;
  REQUIRE_EQ_INT(stat(path, &facts), 0);
  CHECK_EQ_INT(facts.st_size, strlen("what somebody wrote\n"));
  check_refused(folder, -EBADMSG);
  check_refused("/proc/self/stat", -EBADMSG);
  check_refused("/dev/null", -EBADMSG);
  check_refused("/nonexistent/memory.pressure", -ENOENT);
  check_refused("", -ENOENT);
  unlink(path);
  REQUIRE_EQ_INT(mkfifo(path, 0600), 0);
  check_refused(path, -EBADMSG); /* an open would wait for a writer */
}

SPEC(a_file_that_stops_reading_so, "N8 a file that does not read so any more ends the watch") {
  write_file((new_path("memory.pressure"), TEXT_OF("1000000")));
  REQUIRE_EQ_INT(start_on(path), 0);
  write_file("nothing of that kind");
  WAIT_UNTIL(!stats_now().is_watching, SOON_MS);
  idlesched_pressure_stop();
}

SPEC(no_more_files, "N8 no file number left: -EMFILE, and nothing is kept") {
  write_file((new_path("memory.pressure"), TEXT_OF("0")));
  struct rlimit limit;
  REQUIRE_EQ_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
  int first = next_file();
  for (int left = 0; left < 2; left++) { /* the file, and what wakes the thread */
    limit.rlim_cur = (rlim_t)(first + left);
    REQUIRE_EQ_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_EQ_INT(start_on(path), -EMFILE);
    CHECK(!stats_now().is_watching);
  }
  limit.rlim_cur = (rlim_t)(first + 2);
  REQUIRE_EQ_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
  CHECK_EQ_INT(start_on(path), 0);
  idlesched_pressure_stop();
}

/* ------------------------------------------------------------------------------ fork */

static int live_as_child(int first_file) {
  if (stats_now().is_watching)
    return 1;
  idlesched_pressure_stop();
  int file = dup(0); /* the parent's are closed here */
  if (file != first_file)
    return 2;
  close(file);
  if (start_on(path) != 0 || !stats_now().is_watching)
    return 3;
  idlesched_pressure_stop();
  return stats_now().is_watching ? 4 : 0;
}

SPEC(a_child_watches_nothing, "N8 in a child nothing is watched, and a start is anew") {
#ifdef __SANITIZE_THREAD__
  SKIP("the thread sanitizer allows no threads after a fork of a process that has some");
#endif
  write_file((new_path("memory.pressure"), TEXT_OF("0")));
  int first_file = next_file();
  REQUIRE_EQ_INT(start_on(path), 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0)
    _exit(live_as_child(first_file));
  int status;
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  CHECK_EQ_INT(status, 0);
  CHECK(stats_now().is_watching);
  idlesched_pressure_stop();
}
