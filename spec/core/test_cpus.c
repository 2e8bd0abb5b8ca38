/* SPDX-License-Identifier: MIT */
/*
 * test_cpus.c - how many CPUs the process may use, as the kernel holds it to, and so how many
 * workers a pool has by default.  What is read of kernels that are not this one is for
 * test_cgroup.c.
 */
#include <sched.h>

#include "cgroup_kit.h"
#include "pool_kit.h"

/* A machine with so many, unless it is 0. */
static unsigned pretended_cpus;

unsigned __real_ids_cpus_count(void);
unsigned __wrap_ids_cpus_count(void);
unsigned __wrap_ids_cpus_count(void) {
  return pretended_cpus > 0 ? pretended_cpus : __real_ids_cpus_count();
}

static unsigned default_workers_max(void) {
  idlesched_pool *pool = NULL;
  REQUIRE_EQ_INT(idlesched_pool_create(&pool, NULL), 0);
  unsigned count = stats_of(pool).workers_max;
  idlesched_pool_destroy(pool);
  return count;
}

static unsigned cpus_by_affinity(void) {
  cpu_set_t set;
  REQUIRE_EQ_INT(sched_getaffinity(0, sizeof set, &set), 0);
  return (unsigned)CPU_COUNT(&set);
}

static void check_one(void) {
  CHECK_EQ_INT(idlesched_cpus(), 1);
  CHECK_EQ_INT(default_workers_max(), 1);
  idlesched_pool *pool = POOL(.workers_max = 37);
  CHECK_EQ_INT(stats_of(pool).workers_max, 37);
  idlesched_pool_destroy(pool);
}

SPEC(the_default_size_is_the_cpus, "G1 as many workers as CPUs by default; a number given wins") {
  idlesched_pool *by_default = POOL(.name = "default"), *given = POOL(.workers_max = 37);
  CHECK_GE_INT(idlesched_cpus(), 1);
  CHECK_LE_INT(idlesched_cpus(), cpus_by_affinity());
  CHECK_EQ_INT(stats_of(by_default).workers_max, idlesched_cpus());
  CHECK_EQ_INT(default_workers_max(), idlesched_cpus());
  CHECK_EQ_INT(stats_of(given).workers_max, 37);
  idlesched_pool_destroy(by_default);
  idlesched_pool_destroy(given);
}

SPEC(an_affinity_to_one_cpu, "G1 a process that is bound to one CPU has one worker by default") {
  cpu_set_t all, one;
  REQUIRE_EQ_INT(sched_getaffinity(0, sizeof all, &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all))
    first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE_EQ_INT(sched_setaffinity(0, sizeof one, &one), 0);
  check_one();
}

SPEC(more_cpus_than_workers, "G1 by default a pool never has more workers than a pool can have") {
  pretended_cpus = 4096;
  CHECK_EQ_INT(default_workers_max(), 4096);
  pretended_cpus = 4097;
  CHECK_EQ_INT(idlesched_cpus(), 4097);
  CHECK_EQ_INT(default_workers_max(), 4096);
}

/* ---------------------------------------------------------------------- real cgroups */

static void make_cgroup_with_one_cpu(void) {
  static const struct cgroup_control cpu = { .name = "cpu",
                                             .v1_file = "cpu.cfs_quota_us",
                                             .v2_file = "cpu.max" };
  if (cpus_by_affinity() == 1)
    SKIP("this process may use one CPU: a quota of one takes none away");
  make_cgroup(&cpu);
  bool is_set = cgroup_is_v1() ? write_in_cgroup("cpu.cfs_period_us", "100000\n") &&
                                   write_in_cgroup("cpu.cfs_quota_us", "100000\n")
                               : write_in_cgroup("cpu.max", "100000 100000\n");
  CHECK(is_set);
}

SPEC(a_quota_of_one_cpu, "G1 in a cgroup with a quota of one CPU there is one worker by default") {
  make_cgroup_with_one_cpu();
  run_in_cgroup(NULL, check_one);
}

SPEC(a_quota_further_up, "G1 so it is in a cgroup without a quota below one that has it") {
  make_cgroup_with_one_cpu();
  run_in_cgroup("inner", check_one);
}
