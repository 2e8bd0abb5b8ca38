/* SPDX-License-Identifier: MIT */
/*
 * sim.h - a machine on which the order of things is chosen by a search.
 *
 * A scenario is a function that uses the core as any program does.  It runs on simulated
 * threads: coroutines of one system thread, which change places only inside calls of
 * plat.h.  Time is virtual.  A search runs the scenario again and again, each time with
 * another schedule, and stops at the first run that breaks a rule; what it then hands back
 * is a short string with which SIM_REPLAY makes the same run again.  (What the strategies
 * are, and what the string says: chooser.h.)
 *
 *   static idlesched_pool *pool;
 *
 *   static void count(void *number) {
 *     ++*(unsigned *)number;
 *   }
 *
 *   static void client(void *number) {
 *     SIM_CHECK_EQUAL(idlesched_pool_submit(pool, count, number), 0);
 *   }
 *
 *   static void scenario(void *context) {
 *     unsigned counts[2] = { 0, 0 };
 *     struct ids_thread thread;
 *     const struct ids_thread_config config = { .main = client, .context = &counts[1],
 *                                               .name = "client" };
 *     SIM_CHECK_EQUAL(idlesched_pool_create(&pool, NULL), 0);
 *     SIM_CHECK_EQUAL(ids_thread_start(&thread, &config, "client"), 0);
 *     client(&counts[0]);
 *     ids_thread_join(&thread);
 *     SIM_CHECK_EQUAL(idlesched_pool_wait(pool, IDLESCHED_NEVER), 0);
 *     SIM_CHECK_EQUAL(counts[0] + counts[1], 2);
 *     idlesched_pool_destroy(pool);
 *   }
 *
 *   struct sim_result result;
 *   sim_search(&(struct sim_plan){ .name = "two clients", .scenario = scenario,
 *                                  .strategy = SIM_DFS, .bound = 1, .is_hostile = true },
 *              &result);
 *
 * The scenario is thread 0.  A run ends when it has returned and all other threads have
 * ended.  With the same choices a scenario has to do the same: it asks the machine through
 * plat.h alone, reads no clock and no random number but sim_choose(), and does not depend
 * on addresses.  What it changes in variables of its own it sets anew at its begin: runs
 * share the process, and the core's static variables go on from run to run.  After a failed
 * run they are as the failure left them, so the process should not search on; repeating a
 * run with a trace wants a process that was forked before the search.
 *
 * A spec calls sim_spec.h instead of sim_search(): that does so, and reports.
 *
 * A step ends at each place where threads may change: before a lock, an atomic, a futex
 * call, a point, a wait, a signal by a thread that does not hold the waiters' mutex, and
 * whenever a thread has to wait.  Not before unlock, start, alloc and the clock: they only enable
 * others, or nobody else can tell.
 *
 * Rules that fail a run, whatever the scenario checks itself:
 *   assertions of the core            and sim_fail(), SIM_CHECK()
 *   rest with work left               sim_on_rest()
 *   deadlock                          nothing can run and no timer is set
 *   livelock                          more than steps_max steps
 *   threads                           each is joined or detached exactly once, and ends
 *   balance                           blocks, mutexes and conditions are given back
 *   misuse                            of mutexes, conditions, threads, blocks and heaps
 *   invariants                        sim_invariant()
 *
 * Limits
 *   Memory is sequentially consistent, and threads change places inside plat.h only, which
 *   loses nothing as long as there is no data race: so the same scenarios are also run
 *   under the thread sanitizer, which sees simulated threads as threads.
 *   Only waits and sleeps take time; to compute takes none.  There are no signals, and what
 *   ids_residency_read() tells is always the same.
 *   At the same time: SIM_THREADS_MAX threads, with 64 KB of stack unless the plan says
 *   otherwise, and SIM_OPTIONS_MAX options of one choice.  In a run: 4096 threads, 256 MB
 *   of blocks, 256 calls of sim_heap_free(), 8 invariants and 8 questions at rest.  Whoever
 *   wants more fails the run, which says so; a thread more is refused, like one that the
 *   system refuses.
 */
#ifndef IDS_SIM_H
#define IDS_SIM_H

#include "base.h"
#include "chooser.h"
#include "heap.h"

/* At the same time, the scenario's own included. */
#define SIM_THREADS_MAX 60

enum sim_fault_mode {
  SIM_FAULT_CHOICE, /* a choice at each fallible call, as long as faults_max lasts */
  SIM_FAULT_NTH,    /* call number fault_nth of the run fails */
  SIM_FAULT_FROM,   /* that one and all after it */
  SIM_FAULT_TENTH   /* a choice at each call; random and pct let one of ten fail */
};

struct sim_plan {
  const char *name;
  void (*scenario)(void *context);
  void *context;

  enum sim_strategy strategy;
  /* The hostile clock: timers may fire while threads can run, at the price of 1, so any
   * thread may be slow.  Without it the clock is fair: time moves only when nothing can run,
   * and then to the next timer, so what takes no time takes exactly none. */
  bool is_hostile;
  /* Signals come from threads that hold the waiters' mutex; one that does not fails the run.
   * Then nothing can come between a look and the wait, and the search leaves it out. */
  bool signals_are_locked;
  unsigned bound;        /* dfs: preemptions, delay: delays.  SIM_UNBOUNDED for all */
  unsigned depth;        /* pct; 0 for 3 */
  unsigned spurious_max; /* waits of a run that may end for no reason */
  enum sim_fault_mode fault_mode;
  unsigned faults_max; /* SIM_FAULT_CHOICE: failures in a run */
  uint64_t fault_nth;  /* 0 for none, 1 for the first fallible call of the run */
  uint64_t runs_max;   /* 0: as many as there are (dfs, delay), or 1000 */
  uint64_t seed;
  uint64_t steps_max; /* of a run; 0 for 20,000 */
  /* It may call sim_fork().  What the process has one of is then put in order at the begin of
   * each run, as in a child: a fork may have left it half done in the run before. */
  bool forks;
  const char *replay;  /* if set, the strategy is SIM_REPLAY */
  bool is_traced;      /* print a line for each step */
  size_t stack_size;   /* 0 for 64 KB */
  unsigned cpus_count; /* what ids_cpus_count() says; 0 for 2 */
  /* What sim_sweep_step() says: a driver that tries one step after the other sets it. */
  uint64_t sweep_step;
};

/* A call that can fail. */
struct sim_site {
  const char *name;
  uint64_t calls_count;
  uint64_t faults_count;
};

struct sim_result {
  bool failed;
  bool complete; /* there is no further schedule within the bound */
  uint64_t runs_count;
  uint64_t steps_count;   /* of all runs */
  uint64_t steps_last;    /* of the last run */
  uint64_t steps_max;     /* of the longest run */
  uint64_t fallible_last; /* calls of the last run that could have failed */
  uint64_t fallible_max;  /* of any run */
  uint64_t faults_count;  /* of all runs */
  uint64_t seed;
  char message[2048];
  /* Both are valid until the next search. */
  const char *schedule;         /* of the last run: "-" if nothing special was chosen */
  const struct sim_site *sites; /* reached in any run, in the order of their first call */
  unsigned sites_count;
};

void sim_search(const struct sim_plan *plan, struct sim_result *out);

/* ---------------------------------------------------------- in a scenario */

#define SIM_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* Ends the run as failed. */
IDS_NORETURN void sim_fail(const char *format, ...) SIM_PRINTF(1, 2);

#define SIM_CHECK(condition)                                                                       \
  (IDS_LIKELY(condition) ? (void)0 : sim_fail("%s:%d: expected %s", __FILE__, __LINE__, #condition))
/* Integers that fit 64 bits. */
#define SIM_CHECK_EQUAL(left, right) SIM_CHECK_RELATION(left, ==, right)
#define SIM_CHECK_RELATION(left, relation, right)                                                  \
  do {                                                                                             \
    long long sim_left = (long long)(left), sim_right = (long long)(right);                        \
    if (!IDS_LIKELY(sim_left relation sim_right))                                                  \
      sim_fail("%s:%d: expected %s " #relation " %s; they are %lld and %lld", __FILE__, __LINE__,  \
               #left, #right, sim_left, sim_right);                                                \
  } while (0)

/* A number below n that is part of the schedule: data that the search goes through, too. */
unsigned sim_choose(unsigned n, const char *what);

/* Asked after every step of this run, on the thread that made it: cheap looks only, which
 * call sim_fail().  What it looks at may be locked by somebody: sim_is_locked(). */
void sim_invariant(void (*check)(void *context), void *context);
/* Asked when no thread can run, before time moves on: whether that should not be. */
void sim_on_rest(bool (*is_stuck)(void *context), void *context);

struct ids_mutex;
bool sim_is_locked(const struct ids_mutex *mutex);

/* Steps made so far in this run. */
uint64_t sim_steps_count(void);
/* The plan's sweep_step. */
uint64_t sim_sweep_step(void);

/*
 * At the begin of step number k, let a thread of its own do this, before any other moves.
 * Nothing happens if the run ends before, or k is 0; if all others wait for it, it comes
 * earlier.  Nobody joins the thread.
 */
void sim_post_at_step(uint64_t k, void (*function)(void *context), void *context);

/*
 * From here on the calling thread is the only one of a child process: the fork generation
 * is one more, and all other threads stand still for ever.  Mutexes stay as they are.
 * What was made before need not be given back.
 */
void sim_fork(void);

/* Let virtual time pass for the caller. */
void sim_sleep_ns(uint64_t duration_ns);

/* A line in the trace. */
void sim_note(const char *format, ...) SIM_PRINTF(1, 2);

/* ------------------------------------------------- the kernel's pressure files */

/* Where the simulated kernel has its one file, for all processes. */
#define SIM_PSI_PATH "/sim/memory.pressure"

struct sim_psi_config {
  bool takes_no_trigger; /* -EPERM */
};
/* For the rest of this run. */
void sim_psi_configure(const struct sim_psi_config *config);
/* Some thread has stalled for so long; whoever set a trigger for that much is told. */
void sim_psi_stall(uint64_t duration_ns);
/* The file's cgroup is no more. */
void sim_psi_remove(void);

/* ------------------------------------------------ the simulated allocator */

/*
 * It keeps books of who collects whose heap.  A run fails when a heap is abandoned that is
 * the caller's own or a dead thread's, or by two threads at once; when the owner, meanwhile,
 * calls the allocator, passes an ids_point(), sleeps otherwise than in a condition or futex
 * wait, ends, or starts a thread; and when two purges are under way at once, or two writes
 * of the option.  Waking up, looking around under a lock, and going back to sleep is no harm
 * to the heap, unless must_sleep_on says so.
 */
struct sim_heap_config {
  /* How long each takes, in virtual time; 0 still lets others move in its middle. */
  uint64_t collect_ns, abandon_ns, purge_ns;
  /* The owner must be in a condition or futex wait when abandon begins, and not even wake up
   * until it ends: any step of it fails the run. */
  bool must_sleep_on;
  /* What the C library's heap says is free in it. */
  uint64_t c_free_bytes;
};
/* For the rest of this run. */
void sim_heap_configure(const struct sim_heap_config *config);

struct sim_heap_counts {
  unsigned collected, abandoned; /* finished */
  uint64_t last_at_ns;           /* when the last of either finished */
};
/* Of the heap that ids_heap_own() gave. */
struct sim_heap_counts sim_heap_counts(const void *heap);
/* Of all threads, in this run. */
struct sim_heap_counts sim_heap_counts_all(void);
unsigned sim_heap_purges_count(void);
uint64_t sim_heap_purged_at_ns(void);
/* How often the C library's heap was trimmed. */
unsigned sim_heap_trims_count(void);

/* Free something into a heap, of which nothing is left when the heap was collected after
 * that, and purged after that. */
unsigned sim_heap_free(void *heap);
bool sim_heap_is_returned(unsigned number);

/* The allocator's options, as a reader sees them, and how often one was written; the delay of
 * purges has shorter names.  What the user sets yields to no "set default" any more. */
#define SIM_HEAP_DELAY_DEFAULT_MS 1000
#define SIM_HEAP_MIN_SIZE_DEFAULT_KIB 64
#define SIM_HEAP_MULT_DEFAULT 4
long sim_heap_option(enum ids_heap_option option);
void sim_heap_user_sets(enum ids_heap_option option, long value);
long sim_heap_delay_ms(void);
void sim_heap_set_delay_ms(long delay_ms);
unsigned sim_heap_delay_writes_count(void);

#endif
