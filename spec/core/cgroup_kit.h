/* SPDX-License-Identifier: MIT */
/*
 * cgroup_kit.h - what holds in a cgroup: a process that is alone in one, made for it below the
 * spec's own.
 *
 * That takes the right to make one, and a controller for it: cgroup v1, or a v2 group that
 * hands the controller down to its children.  A case makes one group at most.
 */
#ifndef IDLESCHED_SPEC_CGROUP_KIT_H
#define IDLESCHED_SPEC_CGROUP_KIT_H

#include <stdbool.h>
#include <stdint.h>

/* A controller, and a file that each version shows by it. */
struct cgroup_control {
  const char *name;
  const char *v1_file, *v2_file;
};

/* Make the group, or skip the case with the reason why it cannot be made.  Whoever makes it
 * runs something in it. */
void make_cgroup(const struct cgroup_control *control);

/* Once it is made. */
bool cgroup_is_v1(void);
/* False when there is no such file, or no number in it; or when the kernel takes no such text. */
bool read_in_cgroup(const char *file, uint64_t *out);
bool write_in_cgroup(const char *file, const char *text);

/* Run it in a process of the group's, or of a group `inner` within it, unless that is NULL; and
 * remove the group.  Checks in there count as the case's. */
void run_in_cgroup(const char *inner, void (*body)(void));

#endif
