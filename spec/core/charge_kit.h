/* SPDX-License-Identifier: MIT */
/*
 * charge_kit.h - the truth about memory: what the kernel charges for it.
 *
 * The resident size of a process falls also where nothing is free for anybody else: when a
 * part of a huge page is unmapped, the whole page stays taken.  The charge of a memory
 * cgroup does not fall then.  So what is to be measured runs in a process that is alone
 * in a cgroup (cgroup_kit.h).
 */
#ifndef IDLESCHED_SPEC_CHARGE_KIT_H
#define IDLESCHED_SPEC_CHARGE_KIT_H

#include <stdint.h>

/* Run it in such a process, or skip the case with the reason why there is none.  Checks in
 * there count as the case's. */
void run_charged(void (*body)(void));

/* In there: bytes that are charged now. */
uint64_t charged_bytes(void);

#endif
