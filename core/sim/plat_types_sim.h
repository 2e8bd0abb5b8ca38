/* SPDX-License-Identifier: MIT */
/*
 * plat_types_sim.h - what the platform's objects are made of on the simulated machine.
 *
 * The stamp says in which run an object was initialised, so that nothing has to be
 * cleared between runs: an object of an earlier run is no object.  Objects of static
 * storage begin with zeros and are adopted by each run at their first use.
 */
#ifndef IDS_PLAT_TYPES_SIM_H
#define IDS_PLAT_TYPES_SIM_H

#include <stdint.h>

struct ids_mutex {
  uint64_t stamp;
  uint64_t lockers; /* threads whose next step is to take it, one bit each */
  uint32_t owner;   /* slot of the thread + 1; 0 when free */
  uint32_t object;  /* index of its name */
};

struct ids_cond {
  uint64_t stamp;
  uint64_t waiters;        /* who can still be signalled, one bit each */
  struct ids_mutex *mutex; /* what its last waiter waited with */
  uint32_t object;         /* index of its name */
};

struct ids_thread {
  uint64_t run;
  uint32_t slot;
  uint32_t number; /* of its birth in the run: slots are used again */
};

struct ids_psi {
  void *block;       /* to be given back, as a file is */
  uint32_t word;     /* what there is to tell: bits of psi_sim.c */
  uint64_t stall_ns; /* of the trigger; 0: there is none */
};

#define IDS_MUTEX_STATIC                                                                           \
  { 0, 0, 0, 0 }
#define IDS_COND_STATIC                                                                            \
  { 0, 0, 0, 0 }

#endif
