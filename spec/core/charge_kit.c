/* SPDX-License-Identifier: MIT */
/*
 * charge_kit.c - see charge_kit.h.
 */
#include "charge_kit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_kit.h"

enum { PATH_SIZE = 1024 };

/* Of the cgroup that is made, and the file in it that has the figure. */
static char folder[PATH_SIZE];
static const char *figure;

/* ------------------------------------------------------------ where the spec is */

/* One of the words between the commas. */
static bool has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words; (at = strstr(at, word)) != NULL; at += length) {
    bool begins = at == words || at[-1] == ',';
    if (begins && strchr(",\n", at[length]) != NULL) /* or its end */
      return true;
  }
  return false;
}

/* The spec's own cgroup in the hierarchy: of version 1 with the controller, or version 2. */
static bool find_path(bool is_v1, char path[PATH_SIZE]) {
  char line[2 * PATH_SIZE], controllers[PATH_SIZE];
  bool is_found = false;
  FILE *file = fopen("/proc/self/cgroup", "r");
  while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
    if (is_v1)
      is_found = sscanf(line, "%*d:%1023[^:]:%1023[^\n]", controllers, path) == 2 &&
                 has_word(controllers, "memory");
    else
      is_found = sscanf(line, "0::%1023[^\n]", path) == 1;
  }
  if (file != NULL)
    fclose(file);
  return is_found;
}

/* Where the hierarchy is mounted, and from which of its groups on. */
static bool find_mount(bool is_v1, char root[PATH_SIZE], char point[PATH_SIZE]) {
  char line[4 * PATH_SIZE], type[64], options[PATH_SIZE];
  bool is_found = false;
  FILE *file = fopen("/proc/self/mountinfo", "r");
  while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
    const char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(line, "%*d %*d %*s %1023s %1023s", root, point) != 2 ||
        sscanf(rest, " - %63s %*s %1023s", type, options) != 2)
      continue;
    is_found = is_v1 ? strcmp(type, "cgroup") == 0 && has_word(options, "memory")
                     : strcmp(type, "cgroup2") == 0;
  }
  if (file != NULL)
    fclose(file);
  return is_found;
}

static bool find_own_cgroup(bool is_v1, char own[3 * PATH_SIZE]) {
  char path[PATH_SIZE], root[PATH_SIZE], point[PATH_SIZE];
  if (!find_path(is_v1, path) || !find_mount(is_v1, root, point))
    return false;
  size_t root_length = strcmp(root, "/") == 0 ? 0 : strlen(root);
  if (strncmp(path, root, root_length) != 0)
    return false;
  snprintf(own, 3 * PATH_SIZE, "%s%s", point, path + root_length);
  return true;
}

/* --------------------------------------------------------------- one of its own */

static bool read_figure(uint64_t *out) {
  char path[2 * PATH_SIZE];
  snprintf(path, sizeof path, "%s/%s", folder, figure);
  FILE *file = fopen(path, "r");
  bool is_read = file != NULL && fscanf(file, "%" SCNu64, out) == 1;
  if (file != NULL)
    fclose(file);
  return is_read;
}

static void make_cgroup(void) {
  char own[3 * PATH_SIZE];
  uint64_t bytes;
  bool is_v1 = find_own_cgroup(true, own);
  if (!is_v1 && !find_own_cgroup(false, own))
    SKIP("no memory cgroup is to be seen: the charge cannot be measured");
  figure = is_v1 ? "memory.usage_in_bytes" : "memory.current";
  int length = snprintf(folder, sizeof folder, "%s/idlesched-spec-%d", own, (int)getpid());
  REQUIRE(length < (int)sizeof folder);
  if (mkdir(folder, 0755) != 0)
    SKIP("no cgroup can be made in %s (%s): the charge cannot be measured", own, strerror(errno));
  if (!read_figure(&bytes)) {
    rmdir(folder);
    SKIP("a cgroup in %s has no %s: the memory controller is not handed down", own, figure);
  }
}

static bool enter_cgroup(void) {
  char path[2 * PATH_SIZE];
  snprintf(path, sizeof path, "%s/cgroup.procs", folder);
  FILE *file = fopen(path, "w");
  if (file == NULL)
    return false;
  bool is_written = fprintf(file, "%d\n", (int)getpid()) > 0;
  return fclose(file) == 0 && is_written;
}

uint64_t charged_bytes(void) {
  uint64_t bytes = 0;
  REQUIRE(read_figure(&bytes));
  return bytes;
}

void run_charged(void (*body)(void)) {
  enum { REFUSED = 99 };
  make_cgroup();
  pid_t child = fork();
  if (child == 0) {
    if (!enter_cgroup())
      _exit(REFUSED);
    body();
    fflush(NULL);
    _exit(0);
  }
  int status = 0;
  bool has_ended = child > 0 && waitpid(child, &status, 0) == child;
  /* The kernel takes a moment to see the group empty. */
  WAIT_UNTIL(rmdir(folder) == 0, SOON_MS);
  REQUIRE(has_ended);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == REFUSED)
    SKIP("no process may enter %s: the charge cannot be measured", folder);
  CHECK_EQ_INT(WEXITSTATUS(status), 0);
}
