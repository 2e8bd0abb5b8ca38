/* SPDX-License-Identifier: MIT */
/*
 * test_psi_text.c - what the platform reads out of the kernel's texts on pressure: how long
 * somebody has stalled, how often a limit was met.
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
