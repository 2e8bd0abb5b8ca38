/* SPDX-License-Identifier: MIT */
/*
 * plat_types_posix.h - what the platform's objects are made of on POSIX.
 *
 * The types are complete so that they can be members: no heap object for each
 * mutex.  Only the files plat_X.c look inside.
 */
#ifndef IDS_PLAT_TYPES_POSIX_H
#define IDS_PLAT_TYPES_POSIX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ids_mutex {
  pthread_mutex_t mutex;
  /* Who holds it, for assertions only: a thread can read its own number here or
   * somebody else's, and only the first answer means anything. */
  _Atomic uintptr_t owner;
};

struct ids_cond {
  pthread_cond_t cond;
};

struct ids_thread {
  pthread_t thread;
};

/* Files; -1 for one that is not open. */
struct ids_psi {
  int file;   /* of the pressure; a trigger is set on it, if there is one */
  int events; /* the cgroup's memory.events beside it */
  int wake;
  bool has_trigger;
  uint64_t events_count; /* as the file said when it was last read */
};

#define IDS_MUTEX_STATIC                                                                           \
  { PTHREAD_MUTEX_INITIALIZER, 0 }
/* For waits without a deadline only: a static condition knows the wrong clock. */
#define IDS_COND_STATIC                                                                            \
  { PTHREAD_COND_INITIALIZER }

#endif
