/* SPDX-License-Identifier: MIT */
/*
 * cgroup_kit.c - see cgroup_kit.h.
 *
 * It looks for the spec's own group by itself: the platform's way to it is what it tests.
 */
#include "cgroup_kit.h"

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

/* Of the group that is made. */
static char folder[PATH_SIZE];
static bool is_v1;

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

/* The spec's own cgroup in the hierarchy: of version 1 with the controller, or, for NULL, of
 * version 2. */
static bool find_path(const char *controller, char path[PATH_SIZE]) {
  char line[2 * PATH_SIZE], controllers[PATH_SIZE];
  bool is_found = false;
  FILE *file = fopen("/proc/self/cgroup", "r");
  while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
    if (controller != NULL)
      is_found = sscanf(line, "%*d:%1023[^:]:%1023[^\n]", controllers, path) == 2 &&
                 has_word(controllers, controller);
    else
      is_found = sscanf(line, "0::%1023[^\n]", path) == 1;
  }
  if (file != NULL)
    fclose(file);
  return is_found;
}

/* Where the hierarchy is mounted, and from which of its groups on. */
static bool find_mount(const char *controller, char root[PATH_SIZE], char point[PATH_SIZE]) {
  char line[4 * PATH_SIZE], type[64], options[PATH_SIZE];
  bool is_found = false;
  FILE *file = fopen("/proc/self/mountinfo", "r");
  while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
    const char *rest = strstr(line, " - ");
    if (rest == NULL || sscanf(line, "%*d %*d %*s %1023s %1023s", root, point) != 2 ||
        sscanf(rest, " - %63s %*s %1023s", type, options) != 2)
      continue;
    is_found = controller != NULL ? strcmp(type, "cgroup") == 0 && has_word(options, controller)
                                  : strcmp(type, "cgroup2") == 0;
  }
  if (file != NULL)
    fclose(file);
  return is_found;
}

static bool find_own_cgroup(const char *controller, char own[3 * PATH_SIZE]) {
  char path[PATH_SIZE], root[PATH_SIZE], point[PATH_SIZE];
  if (!find_path(controller, path) || !find_mount(controller, root, point))
    return false;
  size_t root_length = strcmp(root, "/") == 0 ? 0 : strlen(root);
  if (strncmp(path, root, root_length) != 0)
    return false;
  snprintf(own, 3 * PATH_SIZE, "%s%s", point, path + root_length);
  return true;
}

/* --------------------------------------------------------------- one of its own */

static FILE *open_in(const char *file, const char *mode) {
  char path[2 * PATH_SIZE];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  return fopen(path, mode);
}

bool read_in_cgroup(const char *name, uint64_t *out) {
  FILE *file = open_in(name, "r");
  bool is_read = file != NULL && fscanf(file, "%" SCNu64, out) == 1;
  if (file != NULL)
    fclose(file);
  return is_read;
}

bool write_in_cgroup(const char *name, const char *text) {
  FILE *file = open_in(name, "w");
  if (file == NULL)
    return false;
  bool is_written = fputs(text, file) >= 0;
  return fclose(file) == 0 && is_written;
}

bool cgroup_is_v1(void) {
  return is_v1;
}

void make_cgroup(const struct cgroup_control *control) {
  char own[3 * PATH_SIZE];
  is_v1 = find_own_cgroup(control->name, own);
  if (!is_v1 && !find_own_cgroup(NULL, own))
    SKIP("no cgroup of the %s controller is to be seen", control->name);
  int length = snprintf(folder, sizeof folder, "%s/idlesched-spec-%d", own, (int)getpid());
  REQUIRE(length < (int)sizeof folder);
  if (mkdir(folder, 0755) != 0)
    SKIP("no cgroup can be made in %s (%s)", own, strerror(errno));
  const char *name = is_v1 ? control->v1_file : control->v2_file;
  FILE *file = open_in(name, "r");
  if (file == NULL) {
    rmdir(folder);
    SKIP("a cgroup in %s has no %s: the %s controller is not handed down", own, name,
         control->name);
  }
  fclose(file);
}

static bool remove_group(const char *inner) {
  char path[2 * PATH_SIZE];
  snprintf(path, sizeof path, "%s/%s", folder, inner == NULL ? "" : inner);
  if (inner != NULL && rmdir(path) != 0 && errno != ENOENT)
    return false;
  return rmdir(folder) == 0;
}

static bool enter(const char *inner) {
  char path[2 * PATH_SIZE], number[16];
  snprintf(number, sizeof number, "%d\n", (int)getpid());
  if (inner == NULL)
    return write_in_cgroup("cgroup.procs", number);
  snprintf(path, sizeof path, "%s/%s", folder, inner);
  if (mkdir(path, 0755) != 0)
    return false;
  snprintf(path, sizeof path, "%s/cgroup.procs", inner);
  return write_in_cgroup(path, number);
}

void run_in_cgroup(const char *inner, void (*body)(void)) {
  enum { REFUSED = 99 };
  pid_t child = fork();
  if (child == 0) {
    if (!enter(inner))
      _exit(REFUSED);
    body();
    fflush(NULL);
    _exit(0);
  }
  int status = 0;
  bool has_ended = child > 0 && waitpid(child, &status, 0) == child;
  /* The kernel takes a moment to see the group empty. */
  WAIT_UNTIL(remove_group(inner), SOON_MS);
  REQUIRE(has_ended);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == REFUSED)
    SKIP("no process may enter %s", folder);
  CHECK_EQ_INT(WEXITSTATUS(status), 0);
}
