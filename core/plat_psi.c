/* SPDX-License-Identifier: MIT */
/*
 * plat_psi.c - pressure stall information of Linux: its files, and triggers on them.
 *
 * A trigger is a text written to the file, and lives as long as the file is open.  When it
 * has fired, poll() says POLLPRI, once; POLLERR says that the file's cgroup is gone.
 * Writing is for files of the kernel alone: to any other one a trigger is refused, so that
 * nobody's file is overwritten by a wrong path.
 *
 * Threads without CAP_SYS_RESOURCE are refused by older kernels (EPERM); newer ones take
 * their triggers if the window is a multiple of 2 s, and else say EINVAL.  Source: the
 * kernel's Documentation/accounting/psi.rst.
 */
#include "plat.h"

#include "plat_cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PRESSURE_NAME "memory.pressure"
#define EVENTS_NAME "memory.events"

/* -------------------------------------------------------------------- where */

static int own_cgroup_path(char path[IDS_PSI_PATH_SIZE]) {
  struct ids_cgroup group;
  int status = ids_cgroup_find(&group, "/proc/self", NULL);
  if (status != 0)
    return status;
  if (!group.is_own) /* what another group suffers from is no news of this process */
    return -ENOENT;
  int length = snprintf(path, IDS_PSI_PATH_SIZE, "%s/" PRESSURE_NAME, group.folder);
  return length > 0 && length < IDS_PSI_PATH_SIZE ? 0 : -ENAMETOOLONG;
}

int ids_psi_path(unsigned place, char path[IDS_PSI_PATH_SIZE]) {
  if (place == 0)
    return own_cgroup_path(path);
  snprintf(path, IDS_PSI_PATH_SIZE, "/proc/pressure/memory");
  return 0;
}

/* --------------------------------------------------------------------- reading */

/* From its begin, as the kernel says it now. */
static int read_text(int file, char *text, size_t size) {
  ssize_t length;
  do
    length = pread(file, text, size - 1, 0);
  while (length < 0 && errno == EINTR);
  if (length < 0)
    return -errno;
  text[length] = '\0';
  return 0;
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS" is the first line. */
static int read_stalled(int file, uint64_t *out_ns) {
  char text[512];
  int status = read_text(file, text, sizeof text);
  if (status != 0)
    return status;
  text[strcspn(text, "\n")] = '\0';
  const char *total = strstr(text, " total=");
  if (strncmp(text, "some avg10=", 11) != 0 || total == NULL)
    return -EBADMSG;
  *out_ns = (uint64_t)strtoull(total + strlen(" total="), NULL, 10) * IDS_US;
  return 0;
}

/* How often the cgroup met its limits, also those above it. */
static int read_events(int file, uint64_t *out_count) {
  static const char *const names[] = { "high ", "max " };
  char text[512];
  int status = read_text(file, text, sizeof text);
  if (status != 0)
    return status;
  *out_count = 0;
  for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
    line += *line == '\n';
    for (size_t i = 0; i < ids_countof(names); i++)
      if (strncmp(line, names[i], strlen(names[i])) == 0)
        *out_count += (uint64_t)strtoull(line + strlen(names[i]), NULL, 10);
  }
  return 0;
}

int ids_psi_read(struct ids_psi *self, uint64_t *out_stalled_ns) {
  return read_stalled(self->file, out_stalled_ns);
}

/* --------------------------------------------------------------- open and close */

static int open_file(const char *path, int flags) {
  int file;
  do
    file = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  while (file < 0 && errno == EINTR);
  return file < 0 ? -errno : file;
}

static void close_file(int *file) {
  if (*file >= 0)
    close(*file);
  *file = -1;
}

static bool is_of_the_kernel(int file) {
  struct statfs system;
  return fstatfs(file, &system) == 0 &&
         (system.f_type == PROC_SUPER_MAGIC || system.f_type == CGROUP2_SUPER_MAGIC);
}

static int set_trigger(int file, uint64_t stall_ns, uint64_t window_ns) {
  if (!is_of_the_kernel(file))
    return -EINVAL;
  char text[64];
  int length = snprintf(text, sizeof text, "some %llu %llu",
                        (unsigned long long)((stall_ns + IDS_US - 1) / IDS_US),
                        (unsigned long long)(window_ns / IDS_US));
  ssize_t written;
  do
    written = write(file, text, (size_t)length + 1); /* with the final zero */
  while (written < 0 && errno == EINTR);
  return written < 0 ? -errno : 0;
}

/* It is a file that can be read like the kernel's: of a pipe or a device not even an open
 * is safe. */
static int open_pressure(struct ids_psi *self, const char *path, bool writes) {
  struct stat facts;
  if (stat(path, &facts) != 0)
    return -errno;
  if (!S_ISREG(facts.st_mode))
    return -EBADMSG;
  int file = open_file(path, writes ? O_RDWR : O_RDONLY);
  if (file < 0)
    return file;
  self->file = file;
  uint64_t ignored;
  return read_stalled(file, &ignored);
}

/* Most cgroups have one; the root has not. */
static int open_events(struct ids_psi *self, const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash == NULL ? path : slash + 1;
  if (strcmp(name, PRESSURE_NAME) != 0)
    return 0;
  char events_path[PATH_MAX];
  int length = snprintf(events_path, sizeof events_path, "%.*s" EVENTS_NAME, (int)(name - path),
                        path);
  if (length < 0 || (size_t)length >= sizeof events_path)
    return -ENAMETOOLONG;
  int file = open_file(events_path, O_RDONLY);
  if (file < 0)
    return file == -ENOENT || file == -EACCES ? 0 : file;
  self->events = file;
  if (!is_of_the_kernel(file) || read_events(file, &self->events_count) != 0)
    close_file(&self->events);
  return 0;
}

int ids_psi_open(struct ids_psi *self, const char *path, uint64_t stall_ns, uint64_t window_ns,
                 const char *site) {
  (void)site;
  *self = (struct ids_psi){ .file = -1, .events = -1, .wake = -1, .has_trigger = stall_ns > 0 };
  int status = open_pressure(self, path, self->has_trigger);
  if (status == 0 && self->has_trigger)
    status = set_trigger(self->file, stall_ns, window_ns);
  if (status == 0)
    status = open_events(self, path);
  if (status == 0) {
    self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = self->wake < 0 ? -errno : 0;
  }
  if (status != 0)
    ids_psi_close(self);
  return status;
}

void ids_psi_close(struct ids_psi *self) {
  close_file(&self->file);
  close_file(&self->events);
  close_file(&self->wake);
}

/* ---------------------------------------------------------------------- waiting */

static int milliseconds_until(uint64_t deadline_ns) {
  if (deadline_ns == IDS_NEVER)
    return -1;
  uint64_t now_ns = ids_now_ns();
  if (deadline_ns <= now_ns)
    return 0;
  uint64_t left_ms = (deadline_ns - now_ns + IDS_MS - 1) / IDS_MS;
  return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

/* The file also tells of other counters. */
static bool limit_was_met(struct ids_psi *self) {
  uint64_t count;
  if (read_events(self->events, &count) != 0) {
    close_file(&self->events);
    return false;
  }
  bool is_more = count > self->events_count;
  self->events_count = count;
  return is_more;
}

enum ids_psi_news ids_psi_wait(struct ids_psi *self, bool listens, uint64_t deadline_ns) {
  struct pollfd files[] = {
    { .fd = self->wake, .events = POLLIN },
    { .fd = listens && self->has_trigger ? self->file : -1, .events = POLLPRI },
    { .fd = listens ? self->events : -1, .events = POLLPRI },
  };
  if (poll(files, ids_countof(files), milliseconds_until(deadline_ns)) <= 0)
    return IDS_PSI_QUIET;
  if (files[0].revents != 0)
    return IDS_PSI_QUIET;
  if (files[1].revents & (POLLERR | POLLNVAL))
    return IDS_PSI_GONE;
  if (files[1].revents != 0)
    return IDS_PSI_TOLD;
  return limit_was_met(self) ? IDS_PSI_TOLD : IDS_PSI_QUIET;
}

void ids_psi_wake(struct ids_psi *self) {
  uint64_t one = 1;
  ssize_t written;
  do
    written = write(self->wake, &one, sizeof one);
  while (written < 0 && errno == EINTR);
}
