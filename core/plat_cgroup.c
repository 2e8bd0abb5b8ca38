/* SPDX-License-Identifier: MIT */
/*
 * plat_cgroup.c - see plat_cgroup.h.
 *
 * Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/, cgroups(7),
 * cgroup_namespaces(7), and proc(5) for the form of mountinfo.
 */
#include "plat_cgroup.h"

#include "base.h"
#include "plat_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ which group */

/* "cpu" is one of "cpu,cpuacct". */
static bool has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  while (strncmp(words, word, length) != 0 || (words[length] != ',' && words[length] != '\0')) {
    words = strchr(words, ',');
    if (words == NULL)
      return false;
    words++;
  }
  return true;
}

/* A line of /proc/self/cgroup, "number:controllers:name", and "0::name" of version 2: the
 * name, when it is of the tree that is meant. */
static const char *name_in(char *line, const char *controller) {
  char *controllers = strchr(line, ':');
  char *name = controllers == NULL ? NULL : strchr(controllers + 1, ':');
  if (name == NULL || name[1] != '/')
    return NULL;
  *controllers++ = '\0';
  *name++ = '\0';
  bool is_meant = controller == NULL ? strcmp(line, "0") == 0 && *controllers == '\0'
                                     : has_word(controllers, controller);
  return is_meant ? name : NULL;
}

static int open_lines(struct ids_lines *lines, const char *proc, const char *file) {
  char path[256];
  int length = snprintf(path, sizeof path, "%s/%s", proc, file);
  return length < (int)sizeof path ? ids_lines_open(lines, path) : -ENAMETOOLONG;
}

static int read_name(struct ids_lines *lines, const char *proc, const char *controller,
                     char out[PATH_MAX]) {
  int status = open_lines(lines, proc, "cgroup");
  if (status != 0)
    return status;
  const char *name = NULL;
  char *line;
  while (name == NULL && (line = ids_lines_next(lines)) != NULL)
    name = name_in(line, controller);
  status = name == NULL ? -ENOENT : 0;
  if (name != NULL && snprintf(out, PATH_MAX, "%s", name) >= PATH_MAX)
    status = -ENAMETOOLONG;
  int end = ids_lines_close(lines);
  return end != 0 ? end : status;
}

/* -------------------------------------------------------------- where it is seen */

/* In mountinfo a blank is \040, and so on: undo it, in place. */
static void unescape(char *text) {
  char *to = text;
  for (; *text != '\0'; text++) {
    if (text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] != '\0' && text[3] != '\0') {
      *to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
      text += 3;
    } else {
      *to++ = *text;
    }
  }
  *to = '\0';
}

struct mount {
  char *root; /* the group that is to be seen at its point */
  char *point;
  char *type;
  char *options; /* of the tree; in version 1 the controllers are among them */
};

/* "number parent device root point options more... - type source options" */
static bool split_mount(char *line, struct mount *out) {
  enum { ROOT = 3, POINT, TYPE = 0, OPTIONS = 2 };
  char *words[POINT + 1], *rest_words[OPTIONS + 1];
  char *rest = strstr(line, " - ");
  if (rest == NULL)
    return false;
  *rest = '\0';
  rest += strlen(" - ");
  for (int i = 0; i <= POINT; i++)
    words[i] = strsep(&line, " ");
  for (int i = 0; i <= OPTIONS; i++)
    rest_words[i] = strsep(&rest, " ");
  if (words[POINT] == NULL || rest_words[OPTIONS] == NULL)
    return false;
  *out = (struct mount){ .root = words[ROOT],
                         .point = words[POINT],
                         .type = rest_words[TYPE],
                         .options = rest_words[OPTIONS] };
  unescape(out->root);
  unescape(out->point);
  return *out->root == '/' && *out->point == '/';
}

static bool is_of_tree(const struct mount *mount, const char *controller) {
  if (controller == NULL)
    return strcmp(mount->type, "cgroup2") == 0;
  return strcmp(mount->type, "cgroup") == 0 && has_word(mount->options, controller);
}

/* The length of a path without the slash that it ends with. */
static size_t bare_length(const char *path) {
  size_t length = strlen(path);
  return length > 0 && path[length - 1] == '/' ? length - 1 : length;
}

/* What follows in the name behind the root that is mounted, "" or "/..."; NULL when the group
 * is not below it.  A name that leaves the namespace begins with "/..". */
static const char *below(const char *name, const char *root) {
  size_t length = bare_length(root);
  bool leaves = strcmp(name, "/..") == 0 || strncmp(name, "/../", 4) == 0;
  if (leaves || strncmp(name, root, length) != 0)
    return NULL;
  return name[length] == '/' || name[length] == '\0' ? name + length : NULL;
}

/* 0, or -ENAMETOOLONG. */
static int place(struct ids_cgroup *self, const struct mount *mount, const char *name) {
  const char *rest = below(name, mount->root);
  self->is_own = rest != NULL;
  self->mount_length = bare_length(mount->point);
  int length = snprintf(self->folder, sizeof self->folder, "%.*s%s", (int)self->mount_length,
                        mount->point, rest == NULL ? "" : rest);
  if (length < 0 || (size_t)length >= sizeof self->folder)
    return -ENAMETOOLONG;
  self->length = bare_length(self->folder);
  self->folder[self->length] = '\0';
  return 0;
}

int ids_cgroup_find(struct ids_cgroup *self, const char *proc, const char *controller) {
  struct ids_lines lines; /* one, as it is large */
  char name[PATH_MAX];
  int status = read_name(&lines, proc, controller, name);
  if (status != 0)
    return status;
  status = open_lines(&lines, proc, "mountinfo");
  if (status != 0)
    return status;
  status = -ENOENT;
  struct mount mount;
  char *line;
  /* The first mount, unless a later one shows the group itself. */
  while ((status == -ENOENT || (status == 0 && !self->is_own)) &&
         (line = ids_lines_next(&lines)) != NULL)
    if (split_mount(line, &mount) && is_of_tree(&mount, controller) &&
        (status == -ENOENT || below(name, mount.root) != NULL))
      status = place(self, &mount, name);
  int end = ids_lines_close(&lines);
  return end != 0 ? end : status;
}

/* -------------------------------------------------------------------- the quota */

/* False when the whole mount has been seen. */
static bool ascend(struct ids_cgroup *self) {
  if (self->length <= self->mount_length)
    return false;
  while (self->folder[--self->length] != '/')
    continue;
  self->folder[self->length] = '\0';
  return true;
}

/* A file of the group's, as an empty text where it has none: the length. */
static size_t read_file(struct ids_cgroup *self, const char *name, char *text, size_t size) {
  size_t room = sizeof self->folder - self->length;
  int length = 0;
  *text = '\0';
  if ((size_t)snprintf(self->folder + self->length, room, "/%s", name) < room)
    length = ids_file_read(self->folder, text, size);
  self->folder[self->length] = '\0';
  return length > 0 ? (size_t)length : 0;
}

/* "quota period", both in us.  Without a quota version 2 says "max" and version 1 -1; a text
 * of another form counts as none. */
static unsigned cpus_of(const char *text) {
  char *rest;
  long long quota = strtoll(text, &rest, 10);
  long long period = strtoll(rest, NULL, 10);
  if (quota <= 0 || period <= 0)
    return UINT_MAX;
  long long cpus = quota / period + (quota % period > 0);
  return cpus < UINT_MAX ? (unsigned)cpus : UINT_MAX;
}

static unsigned cpus_of_group(struct ids_cgroup *self, const char *controller) {
  char text[128];
  if (controller == NULL) {
    read_file(self, "cpu.max", text, sizeof text);
  } else {
    size_t length = read_file(self, "cpu.cfs_quota_us", text, sizeof text / 2);
    text[length++] = ' ';
    read_file(self, "cpu.cfs_period_us", text + length, sizeof text / 2);
  }
  return cpus_of(text);
}

unsigned ids_cgroup_cpus(const char *proc) {
  static const char *const controllers[] = { "cpu", NULL };
  unsigned least = UINT_MAX;
  for (size_t i = 0; i < ids_countof(controllers); i++) {
    struct ids_cgroup group;
    if (ids_cgroup_find(&group, proc, controllers[i]) != 0)
      continue;
    do {
      unsigned cpus = cpus_of_group(&group, controllers[i]);
      least = cpus < least ? cpus : least;
    } while (ascend(&group));
  }
  return least;
}
