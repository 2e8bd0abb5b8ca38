/* SPDX-License-Identifier: MIT */
/*
 * test_cgroup.c - where the platform finds a process's cgroups, and how many CPUs their
 * quotas leave.
 *
 * Method: a folder stands in for /proc/self, and folders in it for the mounted trees, of
 * kernels and containers that this machine does not have.
 */
#include "plat_cgroup.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness.h"

/* Which is /proc/self here; below it is what is mounted. */
static char proc[] = "/tmp/idlesched-cgroup-XXXXXX";

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place) {
  (void)facts;
  (void)kind;
  (void)place;
  return remove(path);
}

static void remove_all(void) {
  nftw(proc, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void begin(void) {
  REQUIRE(mkdtemp(proc) != NULL);
  atexit(remove_all);
}

/* With the folders above it. */
static void write_file(const char *name, const char *text) {
  char path[2048];
  REQUIRE(snprintf(path, sizeof path, "%s/%s", proc, name) < (int)sizeof path);
  for (char *slash = path + sizeof proc; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = '\0';
    REQUIRE(mkdir(path, 0755) == 0 || errno == EEXIST);
    *slash = '/';
  }
  FILE *file = fopen(path, "w");
  REQUIRE(file != NULL);
  fputs(text, file);
  REQUIRE_EQ_INT(fclose(file), 0);
}

/* ------------------------------------------------------------------ mounted trees */

/* Lines of mountinfo; what is mounted begins with the folder of the case. */
static char mounts[4096];

static void mount_tree(const char *root, const char *point, const char *type_and_options) {
  size_t length = strlen(mounts);
  snprintf(mounts + length, sizeof mounts - length, "41 31 0:38 %s %s%s rw,nosuid shared:9 - %s\n",
           root, proc, point, type_and_options);
  write_file("mountinfo", mounts);
}

#define V2 "cgroup2 cgroup2 rw,nsdelegate"
#define V1_CPU "cgroup cgroup rw,cpu,cpuacct"

/* The name of the process's group, in the one tree there is. */
static void begin_v2(const char *name, const char *root) {
  char line[512];
  begin();
  snprintf(line, sizeof line, "0::%s\n", name);
  write_file("cgroup", line);
  mount_tree("/", "/elsewhere", "tmpfs tmpfs rw,mode=755");
  mount_tree(root, "/mnt", V2);
}

static void check_found(const char *controller, const char *expected, bool is_own) {
  struct ids_cgroup group;
  if (!CHECK_EQ_INT(ids_cgroup_find(&group, proc, controller), 0))
    return;
  CHECK_EQ_STR(group.folder + strlen(proc), expected);
  CHECK_EQ_INT(group.length, strlen(group.folder));
  CHECK_EQ_INT(group.is_own, is_own);
}

static void check_v2(const char *name, const char *root, const char *expected, bool is_own) {
  char line[512];
  snprintf(line, sizeof line, "0::%s\n", name);
  write_file("cgroup", line);
  *mounts = '\0';
  mount_tree(root, "/mnt", V2);
  check_found(NULL, expected, is_own);
}

SPEC(its_group_in_a_mount, "N8 the own cgroup is found where its tree is mounted") {
  begin();
  check_v2("/", "/", "/mnt", true);
  check_v2("/a/b", "/", "/mnt/a/b", true);
  check_v2("/a/b", "/a", "/mnt/b", true);
  check_v2("/a", "/a", "/mnt", true);
  check_v2("/with blank", "/with\\040blank", "/mnt", true);
  check_v2("/..dots", "/", "/mnt/..dots", true);
  *mounts = '\0';
  mount_tree("/", "/with\\040blank\\134", V2);
  check_found(NULL, "/with blank\\/..dots", true);
  *mounts = '\0';
  mount_tree("/", "/no\\9code\\x40\\04", V2);
  check_found(NULL, "/no\\9code\\x40\\04/..dots", true);
}

SPEC(a_mount_at_the_root, "N8 a tree may be mounted at the root of all files") {
  struct ids_cgroup group;
  begin();
  write_file("cgroup", "0::/\n");
  write_file("mountinfo", "41 31 0:38 / / rw - " V2 "\n");
  REQUIRE_EQ_INT(ids_cgroup_find(&group, proc, NULL), 0);
  CHECK_EQ_STR(group.folder, "");
  write_file("cgroup", "0::/a\n");
  REQUIRE_EQ_INT(ids_cgroup_find(&group, proc, NULL), 0);
  CHECK_EQ_STR(group.folder, "/a");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX); /* the walk ends */
}

SPEC(its_group_elsewhere, "N8 a cgroup that a mount does not show is not guessed") {
  begin();
  check_v2("/ab", "/a", "/mnt", false);
  check_v2("/", "/a", "/mnt", false);
  check_v2("/../outside", "/", "/mnt", false);
  check_v2("/..", "/", "/mnt", false);
  check_v2("/a", "/../..", "/mnt", false); /* mounted outside of the namespace */
}

SPEC(the_mount_that_shows_it, "N8 of several mounts the one that shows the own cgroup is taken") {
  begin_v2("/a/b", "/c");
  mount_tree("/", "/memory", "cgroup cgroup rw,memory");
  mount_tree("/a", "/second", V2);
  mount_tree("/", "/third", V2);
  check_found(NULL, "/second/b", true);
}

SPEC(a_controller_by_its_name, "G1 a controller's tree is found among others, by whole names") {
  begin();
  write_file("cgroup", "12:cpuset:/1\n11:name=cpu:/2\n10:cpuacct,cpu:/3\n9:cpu_x:/4\n0::/5\n");
  mount_tree("/", "/set", "cgroup cgroup rw,cpuset");
  mount_tree("/", "/acct", "cgroup cgroup rw,cpuacct");
  mount_tree("/", "/cpu", "cgroup cgroup rw,cpuacct,cpu");
  mount_tree("/", "/unified", V2);
  check_found("cpu", "/cpu/3", true);
  check_found("cpuset", "/set/1", true);
  check_found(NULL, "/unified/5", true);
  struct ids_cgroup group;
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, "memory"), -ENOENT);
}

SPEC(nothing_mounted, "N8 no files, no tree, no mount: each is said, and nothing is found") {
  struct ids_cgroup group;
  CHECK_EQ_INT(ids_cgroup_find(&group, "/nonexistent", NULL), -ENOENT);
  begin();
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -ENOENT);
  write_file("cgroup", "4:memory:/a\n");
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -ENOENT);
  write_file("cgroup", "0::/a\n");
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -ENOENT);
  write_file("mountinfo", "36 31 0:33 / /proc rw,nosuid - proc proc rw\n");
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -ENOENT);
}

SPEC(other_lines, "N8 lines of another form are passed over") {
  begin();
  write_file("cgroup", "\n:\n::\n0\n0:\n0::\n0::a\n1::/a\n0:x:/a\n0::/own\n0::/later\n");
  write_file("mountinfo", "\n - \n- cgroup2 cgroup2 rw\n - cgroup2 cgroup2 rw\n"
                          "41 31 0:38 / - cgroup2 cgroup2 rw\n41 31 0:38 / /x rw - cgroup2\n"
                          "41 31 0:38 root /x rw - cgroup2 cgroup2 rw\n"
                          "41 31 0:38 / x rw - cgroup2 cgroup2 rw\n41 31 0:38 / /mnt rw\n");
  struct ids_cgroup group;
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -ENOENT);
  mount_tree("/", "/mnt", V2);
  check_found(NULL, "/mnt/own", true);
}

SPEC(a_long_way_down, "N8 a path that is too long is said to be so") {
  static char line[8000];
  struct ids_cgroup group;
  begin_v2("/", "/");
  memcpy(line, "0::/", 4);
  memset(line + 4, 'x', PATH_MAX - 8); /* fits as a name, and not below a mount */
  line[strlen(line)] = '\n';
  write_file("cgroup", line);
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -ENAMETOOLONG);
  memset(line + 4, 'x', sizeof line - 6);
  line[sizeof line - 2] = '\n';
  write_file("cgroup", line);
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -ENAMETOOLONG);
  memset(line, 'x', sizeof line - 1);
  CHECK_EQ_INT(ids_cgroup_find(&group, line, NULL), -ENAMETOOLONG);
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX);
}

/* -------------------------------------------------------------------- the quota */

static void check_quota(const char *text, unsigned expected) {
  write_file("mnt/cpu.max", text);
  CHECK_EQ_INT(ids_cgroup_cpus(proc), expected);
}

SPEC(a_part_of_a_cpu, "G1 a quota counts in whole CPUs, rounded up") {
  begin_v2("/", "/");
  check_quota("100000 100000\n", 1);
  check_quota("1000 100000\n", 1);
  check_quota("100001 100000\n", 2);
  check_quota("200000 100000\n", 2);
  check_quota("25000 10000\n", 3);
  check_quota("6400000 100000\n", 64);
}

SPEC(no_quota, "G1 no quota, or a text that is none, takes no CPU away") {
  begin_v2("/", "/");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX);
  static const char *const texts[] = { "max 100000\n",
                                       "",
                                       "\n",
                                       "100000",
                                       "max",
                                       "-1 100000\n",
                                       "0 100000\n",
                                       "100000 0\n",
                                       "100000 -1\n",
                                       "what 100000\n",
                                       "100000 what\n",
                                       "9223372036854775807 1\n" };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    check_quota(texts[i], UINT_MAX);
}

SPEC(the_own_groups_quota, "G1 the quota of the own cgroup counts, and none of its neighbours") {
  begin_v2("/a/own", "/");
  write_file("mnt/a/own/cpu.max", "300000 100000\n");
  write_file("mnt/a/other/cpu.max", "100000 100000\n");
  write_file("mnt/a/own/below/cpu.max", "100000 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
}

SPEC(the_smallest_quota, "G1 of the own cgroup and all above it the smallest quota counts") {
  begin_v2("/a/b/c", "/");
  write_file("mnt/a/b/c/cpu.max", "500000 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 5);
  write_file("mnt/a/cpu.max", "300000 100000\n"); /* b has no file */
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
  write_file("mnt/a/b/cpu.max", "max 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
  write_file("mnt/cpu.max", "200000 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 2);
  write_file("mnt/a/b/c/cpu.max", "100000 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 1);
}

SPEC(a_part_of_the_tree,
     "G1 where a part of the tree is mounted, its root is the last that counts") {
  begin_v2("/a/b", "/a");
  write_file("cpu.max", "100000 100000\n"); /* above the mount: whatever this is, it is no group */
  write_file("mnt/b/cpu.max", "400000 100000\n");
  write_file("mnt/cpu.max", "300000 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
}

SPEC(a_container_without_a_namespace,
     "G1 where the own cgroup is not to be seen, the root of what is mounted counts") {
  begin();
  write_file("mnt/cpu.max", "300000 100000\n");
  write_file("cpu.max", "100000 100000\n");
  check_v2("/docker/other", "/docker/id", "/mnt", false);
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
  check_v2("/../other", "/", "/mnt", false);
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
}

SPEC(a_group_that_is_gone, "G1 of a cgroup that is gone those above it count") {
  begin_v2("/a/b (deleted)", "/");
  write_file("mnt/a/cpu.max", "300000 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
}

SPEC(files_that_cannot_be_read, "G1 a file that cannot be read counts as none") {
  begin_v2("/a", "/");
  write_file("mnt/cpu.max", "300000 100000\n");
  write_file("mnt/a/cpu.max/which/is/a/folder", "");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
  CHECK_EQ_INT(ids_cgroup_cpus("/nonexistent"), UINT_MAX);
}

SPEC(a_failed_read_of_mounts, "G1 mounts that cannot be read are none, and it is said why") {
  struct ids_cgroup group;
  begin();
  write_file("mountinfo/is/a/folder", "");
  write_file("cgroup", "0::/a\n");
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -EISDIR);
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX);
}

SPEC(a_failed_read_of_the_name,
     "G1 a cgroup's name that cannot be read is none, and it is said why") {
  struct ids_cgroup group;
  begin();
  write_file("cgroup/is/a/folder", "");
  CHECK_EQ_INT(ids_cgroup_find(&group, proc, NULL), -EISDIR);
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX);
}

SPEC(version_1, "G1 version 1 keeps quota and period in two files of the controller's tree") {
  begin();
  write_file("cgroup", "2:memory:/m\n1:cpu,cpuacct:/a/b\n");
  mount_tree("/", "/cpu", V1_CPU);
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX);
  write_file("cpu/a/b/cpu.cfs_quota_us", "-1\n");
  write_file("cpu/a/b/cpu.cfs_period_us", "100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX);
  write_file("cpu/a/cpu.cfs_quota_us", "75000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), UINT_MAX); /* of what period? */
  write_file("cpu/a/cpu.cfs_period_us", "25000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
  write_file("cpu/a/b/cpu.cfs_quota_us", "150000"); /* without the line's end */
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 2);
  write_file("cpu/a/b/cpu.max", "100000 100000\n"); /* is of version 2 */
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 2);
}

SPEC(both_versions, "G1 where both versions are mounted, the smaller quota counts") {
  begin();
  write_file("cgroup", "1:cpu:/one\n0::/two\n");
  mount_tree("/", "/cpu", V1_CPU);
  mount_tree("/", "/unified", V2);
  write_file("cpu/one/cpu.cfs_quota_us", "400000\n");
  write_file("cpu/one/cpu.cfs_period_us", "100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 4);
  write_file("unified/two/cpu.max", "300000 100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 3);
  write_file("cpu/cpu.cfs_quota_us", "200000\n");
  write_file("cpu/cpu.cfs_period_us", "100000\n");
  CHECK_EQ_INT(ids_cgroup_cpus(proc), 2);
}
