/* SPDX-License-Identifier: MIT */
/*
 * test_psi_text.c - what the platform reads out of the kernel's texts: in which folder the
 * own cgroup is, how long somebody has stalled, how often a limit was met.
 *
 * Method: the platform's file is compiled here once more, and its inner functions are given
 * texts of kernels and cgroups that this machine does not have.
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define ids_psi_path text_psi_path
#define ids_psi_open text_psi_open
#define ids_psi_close text_psi_close
#define ids_psi_wait text_psi_wait
#define ids_psi_wake text_psi_wake
#define ids_psi_read text_psi_read
#include "plat_psi.c"

/* ---------------------------------------------------------------- where it is */

#define LINE_OF(root, point)                                                                       \
  "41 31 0:38 " root " " point " rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"

static void check_place(const char *mount, const char *cgroup, const char *expected) {
  char line[512], place[IDS_PSI_PATH_SIZE];
  snprintf(line, sizeof line, "%s", mount);
  int status = place_in_mount(line, cgroup, place);
  if (expected == NULL)
    CHECK_EQ_INT(status, -ENOENT);
  else if (CHECK_EQ_INT(status, 0))
    CHECK_EQ_STR(place, expected);
}

SPEC(its_cgroup_in_a_mount, "N8 the own cgroup is found where its hierarchy is mounted") {
  check_place(LINE_OF("/", "/sys/fs/cgroup"), "/", "/sys/fs/cgroup/memory.pressure");
  check_place(LINE_OF("/", "/sys/fs/cgroup"), "/a/b", "/sys/fs/cgroup/a/b/memory.pressure");
  check_place(LINE_OF("/a", "/mnt"), "/a/b", "/mnt/b/memory.pressure");
  check_place(LINE_OF("/a", "/mnt"), "/a", "/mnt/memory.pressure");
  check_place(LINE_OF("/", "/with\\040blank\\134"), "/", "/with blank\\/memory.pressure");
}

SPEC(its_cgroup_elsewhere, "N8 a cgroup that a mount does not show is not guessed") {
  check_place(LINE_OF("/a", "/mnt"), "/ab", NULL);
  check_place(LINE_OF("/a", "/mnt"), "/", NULL);
  check_place(LINE_OF("/", "/mnt"), "/../outside", NULL);
  check_place("36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "/", NULL);
  check_place("36 31 0:33 / /proc rw,nosuid\n", "/", NULL);
  check_place("", "/", NULL);
}

SPEC(a_long_way_down, "N8 a path that is too long is said to be so") {
  char cgroup[300], place[IDS_PSI_PATH_SIZE], line[] = LINE_OF("/", "/mnt");
  memset(cgroup, 'x', sizeof cgroup);
  cgroup[0] = '/';
  cgroup[sizeof cgroup - 1] = '\0';
  CHECK_EQ_INT(place_in_mount(line, cgroup, place), -ENAMETOOLONG);
}

/* --------------------------------------------------------------- what it says */

static int file_of(const char *text) {
  char name[] = "/tmp/idlesched-psi-XXXXXX";
  int file = mkstemp(name);
  REQUIRE(file >= 0);
  unlink(name);
  REQUIRE_EQ_INT(pwrite(file, text, strlen(text), 0), strlen(text));
  return file;
}

static void check_stalled(const char *text, int status, uint64_t expected_ns) {
  uint64_t stalled_ns = 0;
  int file = file_of(text);
  CHECK_EQ_INT(read_stalled(file, &stalled_ns), status);
  CHECK_EQ_U64(stalled_ns, expected_ns);
  close(file);
}

SPEC(how_long_somebody_stalled, "N8 the total of the line `some` counts, and no other") {
  check_stalled("some avg10=8.50 avg60=2.51 avg300=0.57 total=1814040\n"
                "full avg10=2.32 avg60=0.67 avg300=0.15 total=533783\n",
                0, 1814040 * IDS_US);
  check_stalled("some avg10=0.00 avg60=0.00 avg300=0.00 total=7", 0, 7 * IDS_US);
  check_stalled("", -EBADMSG, 0);
  check_stalled("some avg10=0.00\n total=7", -EBADMSG, 0);
  check_stalled("full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", -EBADMSG, 0);
}

static void check_events(const char *text, uint64_t expected) {
  uint64_t count = 77;
  int file = file_of(text);
  CHECK_EQ_INT(read_events(file, &count), 0);
  CHECK_EQ_U64(count, expected);
  close(file);
}

SPEC(how_often_a_limit_was_met,
     "N8 of a cgroup's events those of memory.high and memory.max count") {
  check_events("low 1\nhigh 20\nmax 300\noom 4000\noom_kill 50000\noom_group_kill 600000\n", 320);
  check_events("max 3\nhigh 2", 5);
  check_events("low 1\nhighest 5\n", 0);
  check_events("", 0);
}

SPEC(a_limit_is_met_again, "N8 only a limit that was met once more is news") {
  struct ids_psi psi = { .file = -1, .wake = -1, .events = file_of("high 1\nmax 0\n") };
  CHECK(limit_was_met(&psi));
  CHECK(!limit_was_met(&psi));
  REQUIRE_EQ_INT(pwrite(psi.events, "high 1\nmax 1\n", 13, 0), 13);
  CHECK(limit_was_met(&psi));
  CHECK(!limit_was_met(&psi));
  close(psi.events);
  psi.events = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* of which nothing can be read */
  CHECK(!limit_was_met(&psi));
  CHECK_EQ_INT(psi.events, -1);
}
