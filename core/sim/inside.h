/* SPDX-License-Identifier: MIT */
/*
 * inside.h - what the files of the simulator share, and nobody else sees.
 *
 * All of it belongs to one system thread.  Sets of threads are words with one bit for each
 * slot, so that a step looks at a few words and nothing is cleared between runs.
 */
#ifndef IDS_SIM_INSIDE_H
#define IDS_SIM_INSIDE_H

#include "plat.h"
#include "coroutine.h"
#include "sim.h"

#define SIM_CHECKS_MAX 8
/* So that no moment is 0. */
#define SIM_BEGIN_NS (1000 * IDS_S)

enum sim_wait {
  SIM_RUNS,       /* or could */
  SIM_WAITS_LOCK, /* wants `mutex`; also at the end of a condition's wait */
  SIM_WAITS_COND, /* waits on `cond`, then wants `mutex` */
  SIM_WAITS_FUTEX,
  SIM_WAITS_SLEEP,
  SIM_WAITS_JOIN,
  SIM_WAITS_STEP, /* posted, not begun */
  SIM_ENDED
};

struct sim_thread {
  struct coroutine coroutine;
  enum sim_wait wait;
  uint64_t deadline_ns; /* if its bit is set in `timed` */
  struct ids_mutex *mutex;
  struct ids_cond *cond; /* NULL once it was signalled */
  const uint32_t *word;
  unsigned joined_slot;
  unsigned joiner;      /* slot + 1 of who joins it */
  const char *did;      /* the last call, for people */
  const char *did_with; /* and its object */
  uint64_t awaits;      /* relaxed: who has to move first */
  unsigned held_count;  /* mutexes */
  unsigned number;      /* of its birth */
  bool is_detached;
  bool is_in_wait; /* of a condition or futex, until it moves */
  uint64_t post_step;
  unsigned abandoning_count; /* who is abandoning this thread's heap */
  void *tls[IDS_TLS_SLOTS];
  void (*main)(void *context);
  void *context;
  char name[16];
};

enum sim_kind { SIM_MUTEX = 1, SIM_COND = 2, SIM_STATIC_MUTEX = 3, SIM_STATIC_COND = 4 };

/* A mutex or condition of this run. */
struct sim_object {
  const void *address; /* NULL: given back */
  const char *site;
  enum sim_kind kind;
  uint32_t generation;
};

struct sim {
  /* What each step looks at comes first. */
  uint64_t runnable;      /* whose next step is possible */
  uint64_t relaxed;       /* who lets others go first */
  uint64_t timed;         /* who waits with a deadline that has not passed */
  bool timers_are_listed; /* those of `timed`, in what follows */
  unsigned timers_count;
  uint8_t timers[SIM_THREADS_MAX]; /* a thread for each deadline */
  uint64_t steps_count;
  uint64_t special_step; /* the next at which something else is to be done */
  unsigned current;
  unsigned invariants_count;
  bool is_passive; /* no run, or inside a check: calls change no threads */
  bool is_looking; /* in a check of the scenario's */
  bool is_hostile;
  bool is_traced;
  uint64_t now_ns;
  uint64_t run_number; /* of all searches: what stamps carry */

  uint64_t alive;  /* begun or posted, not ended */
  uint64_t ended;  /* not joined yet */
  uint64_t frozen; /* left behind by a fork */
  uint64_t posted; /* not begun */
  uint64_t futex_waiters;
  unsigned spins_count; /* rounds in which only relaxed threads could move */
  unsigned births_count;
  uint32_t generation;
  uint32_t generations_count; /* of all searches: none is used twice */
  unsigned holds_count;       /* who holds off a fork */
  unsigned spurious_left, faults_left;
  uint64_t fallible_count;

  bool is_running; /* a run is under way */
  bool has_failed;

  struct {
    void (*check)(void *context);
    void *context;
  } invariants[SIM_CHECKS_MAX];
  struct {
    bool (*is_stuck)(void *context);
    void *context;
  } rests[SIM_CHECKS_MAX];
  unsigned rests_count;

  const struct sim_plan *plan;
  struct sim_result *result;
  struct sim_chooser chooser;
  struct coroutine driver;
  struct sim_thread threads[SIM_THREADS_MAX];

  /* The schedule: options of all choices so far. */
  uint8_t *choices;
  size_t choices_count, choices_room;

  struct sim_object *objects;
  unsigned objects_count, objects_room;
};

extern struct sim sim;

#define SIM_BIT(slot) (UINT64_C(1) << (slot))

static inline struct sim_thread *sim_me(void) {
  return &sim.threads[sim.current];
}

/* Count the step and choose who makes the next one. */
unsigned sim_end_step(void);

/* heap_sim.c: any step at all of a thread whose heap somebody abandons; it matters to
 * must_sleep_on only. */
void sim_heap_owner_woke(void);

/* The end of a step: somebody else may run before this returns.  A thread that cannot go
 * on has taken itself out of `runnable`.  Inline, as after a switch the processor predicts
 * each return wrongly. */
static inline void sim_step(void) {
  if (!IDS_LIKELY(!sim.is_passive))
    return;
  unsigned before = sim.current;
  unsigned next = sim_end_step();
  if (next != before) {
    sim.current = next;
    coroutine_switch(&sim.threads[before].coroutine, &sim.threads[next].coroutine);
  }
  if (!IDS_LIKELY(sim.threads[before].abandoning_count == 0))
    sim_heap_owner_woke();
}

/* Look when something is to be done besides the next step: a posted thread begins, or there
 * were too many steps. */
void sim_set_special_step(void);

#ifdef SIM_TSAN
/* What a thread did comes before what the driver does after the run. */
extern char sim_thread_ends;
#endif

/* One of n options, n > 1. */
unsigned sim_decide(const struct sim_choice *choice);
/* Of a kind that is not THREAD; n may be 1. */
unsigned sim_decide_among(enum sim_choice_kind kind, unsigned n);

/* Whether this call fails. */
bool sim_is_refused(const char *site);

/* Its timer fires, or it wakes up otherwise: its next step is possible, or needs a lock. */
void sim_awake(unsigned slot);

/* A thread that nobody has to join; 0, or -EAGAIN when there are too many. */
int sim_thread_create(void (*main)(void *context), void *context, const char *name,
                      unsigned *out_slot);

/* What it is called, for people: in one of a few buffers that are used in turn. */
const char *sim_thread_name(unsigned slot);
const char *sim_mutex_name(const struct ids_mutex *mutex);
const char *sim_cond_name(const struct ids_cond *cond);

/* Between the two the thread sanitizer, which sees simulated threads as threads, does not
 * look: all of them write for people into the same buffers, and checks ask for no lock. */
void sim_unwatched_begin(void);
void sim_unwatched_end(void);

void sim_print(const char *did, const char *with);
/* Remember, and print if asked to, what the running thread does. */
static inline void sim_do(const char *did, const char *with) {
  struct sim_thread *me = sim_me();
  me->did = did;
  me->did_with = with;
  if (sim.is_traced)
    sim_print(did, with);
}

/* Calls that change threads have no place in a check, nor outside of a run. */
static inline void sim_must_be_active(const char *call) {
  if (!IDS_LIKELY(!sim.is_passive))
    sim_fail("%s: called inside a check, or outside of a run", call);
}

/* memory_sim.c: its part of a run's begin and end. */
void sim_memory_begin_run(void);
void sim_memory_end_run(void);
/* Begin to count anew what has to be given back. */
void sim_memory_fork(void);
/* Whether all is given back; else it writes what is missing. */
bool sim_memory_is_balanced(char *text, size_t size);
void *sim_memory_resize(void *block, size_t size, const char *site);
/* Of a block of this run; 0 for NULL. */
size_t sim_memory_size(void *block);

/* plat_sim.c: the same for mutexes and conditions. */
bool sim_objects_are_balanced(char *text, size_t size);

/* psi_sim.c */
void sim_psi_begin_run(void);

/* heap_sim.c */
void sim_heap_begin_run(void);
/* The running thread does something that an owner must not do while its heap is
 * abandoned. */
void sim_heap_owner_moved(const char *what);
static inline void sim_check_owner(const char *what) {
  if (!IDS_LIKELY(sim_me()->abandoning_count == 0))
    sim_heap_owner_moved(what);
}

#endif
