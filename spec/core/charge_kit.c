/* SPDX-License-Identifier: MIT */
/*
 * charge_kit.c - see charge_kit.h.
 */
#include "charge_kit.h"

#include "cgroup_kit.h"
#include "harness.h"

static const struct cgroup_control memory = { .name = "memory",
                                              .v1_file = "memory.usage_in_bytes",
                                              .v2_file = "memory.current" };

uint64_t charged_bytes(void) {
  uint64_t bytes = 0;
  REQUIRE(read_in_cgroup(cgroup_is_v1() ? memory.v1_file : memory.v2_file, &bytes));
  return bytes;
}

void run_charged(void (*body)(void)) {
  make_cgroup(&memory);
  run_in_cgroup(NULL, body);
}
