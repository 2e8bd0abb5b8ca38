/* SPDX-License-Identifier: MIT */
/*
 * plat_cgroup.h - where the files of this process's cgroups are, and the quota in them.  For
 * plat_X.c alone.
 *
 * Cgroups are a tree, for version 2, or several, for version 1: one for each controller, or
 * for some together.  /proc/self/cgroup names the process's group in each tree, and
 * /proc/self/mountinfo where a tree, or a part of it, is to be seen as folders.  A container
 * may see only its own part, and its groups under names that nothing there has: then the
 * process's own group is not found, and the folder that is nearest to it is the mount's.
 *
 * `proc` is "/proc/self", but for specs.  Nothing is allocated.
 */
#ifndef IDS_PLAT_CGROUP_H
#define IDS_PLAT_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct ids_cgroup {
  char folder[PATH_MAX];
  size_t length;       /* of the folder's name, which does not end with a slash */
  size_t mount_length; /* of the part of it that is the mount: nothing is to be seen above */
  bool is_own;         /* false: the group is not to be seen, and this is the mount */
};

/*
 * Find this process's group in the tree of a controller of version 1, or, for NULL, of
 * version 2.  0, or
 *
 *   -ENOENT        there is no such tree, or it is mounted nowhere
 *   -ENAMETOOLONG  it is too deep down
 *   another        the files of `proc` are not to be read
 */
int ids_cgroup_find(struct ids_cgroup *self, const char *proc, const char *controller);

/* How many CPUs the quotas of the process's groups and of all above them leave it, rounded
 * up; UINT_MAX without a quota, or when nothing is to be read. */
unsigned ids_cgroup_cpus(const char *proc);

#endif
