/* SPDX-License-Identifier: MIT */
/*
 * pressure_fake.h - a kernel that tells of memory that is short when a case says so, and a
 * release that only keeps books: what is above and below the watcher of pressure.
 *
 * The linker puts both there (--wrap).  So what the watcher asks of the kernel, and what it
 * does with each answer, can be checked on machines whose kernel knows no pressure.
 */
#ifndef IDLESCHED_SPEC_PRESSURE_FAKE_H
#define IDLESCHED_SPEC_PRESSURE_FAKE_H

#include <stdint.h>

/* The two places; each can be found, unless a case says otherwise. */
#define PRESSURE_FAKE_CGROUP "/fake/own/memory.pressure"
#define PRESSURE_FAKE_SYSTEM "/fake/pressure/memory"
void pressure_fake_find(unsigned place, int status);

/* What the next opens return; those after them succeed.  Clears the list of opens. */
void pressure_fake_answer(const int *statuses, unsigned count);
#define PRESSURE_FAKE_ANSWER(...)                                                                  \
  pressure_fake_answer((const int[]){ __VA_ARGS__ },                                               \
                       sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))

struct pressure_fake_open {
  char path[256];
  uint64_t stall_ns, window_ns;
};
/* How often the core has opened since the last answers, and how it did for the i-th time. */
unsigned pressure_fake_opens_count(void);
struct pressure_fake_open pressure_fake_open(unsigned i);
/* Files that are open now. */
unsigned pressure_fake_files_count(void);

/* The trigger fires. */
void pressure_fake_tell(void);
/* Somebody has stalled for so long, which is only to be read. */
void pressure_fake_stall(uint64_t duration_ns);
/* What a read of the file returns from now on, and how many were made. */
void pressure_fake_read(int status);
unsigned pressure_fake_reads_count(void);
/* The cgroup is no more. */
void pressure_fake_remove(void);

/* ---- the release ---- */

/* Each reports so many bytes. */
void pressure_fake_returns(uint64_t bytes);
unsigned pressure_fake_releases_count(void);
uint64_t pressure_fake_release_timeout_ns(void);
/* Releases do not end before they are let go. */
void pressure_fake_hold_releases(void);
void pressure_fake_let_releases_go(void);

#endif
