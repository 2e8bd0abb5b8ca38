/* SPDX-License-Identifier: MIT */
/*
 * plat.h - everything the core asks of the machine, and nothing else does.
 *
 * No other file of the core, but the allocators' heap_*.c, calls a pthread, a
 * clock, malloc, __thread, sleep or stdio: spec/scripts/seam_test checks the
 * undefined symbols of every object.  So the core can run on other machines than
 * a POSIX one, among them a simulated machine on which every thread is a coroutine,
 * time is virtual, and the order of things is chosen by a search (sim/).  That is why
 *
 *   - waits take an absolute deadline on one monotonic clock, in nanoseconds;
 *   - exactly these can fail: mutex and condition init, thread start,
 *     allocation, opening a pressure file.  Each names its site, so that a test can
 *     refuse it.  (Reading facts of the system can, too.)  Lock, unlock, signal,
 *     broadcast, deinit and join cannot fail; misuse aborts;
 *   - a wait may return early for no reason, and a waiter whose deadline has
 *     passed may still be signalled: callers look at state, never at the result;
 *   - thread-local values go through ids_tls_get(): simulated threads share one
 *     system thread, where __thread would be one variable for all of them;
 *   - every stretch without the lock, and every call to foreign code, is marked
 *     with ids_point(), where a simulator may switch threads.
 */
#ifndef IDS_PLAT_H
#define IDS_PLAT_H

#include "base.h"
#ifdef IDS_PLAT_SIM
#include "sim/plat_types_sim.h"
#else
#include "plat_types_posix.h"
#endif

/* Monotonic time: changes of the wall clock do not move it. */
uint64_t ids_now_ns(void);
/* The same as of the clock's last tick, up to 10 ms ago, at a quarter of the cost. */
uint64_t ids_tick_ns(void);
/* For hosts and scripts: the core itself waits on conditions only. */
void ids_sleep_until(uint64_t moment_ns);

/* The core's own blocks.  NULL when there is no memory.  Any thread may free. */
void *ids_alloc(size_t size, const char *site);
void ids_free(void *block);

/* 0, or -ENOMEM or -EAGAIN. */
int ids_mutex_init(struct ids_mutex *self, const char *site);
void ids_mutex_deinit(struct ids_mutex *self);
void ids_mutex_lock(struct ids_mutex *self);
void ids_mutex_unlock(struct ids_mutex *self);
/* Whether the calling thread holds it. */
bool ids_mutex_is_mine(const struct ids_mutex *self);

/*
 * A condition has one waiter in the core, wherever its signal is meant for one
 * thread; those that several threads wait on are only ever broadcast.
 */
/* 0, -ENOMEM or -EAGAIN. */
int ids_cond_init(struct ids_cond *self, const char *site);
void ids_cond_deinit(struct ids_cond *self);
void ids_cond_wait(struct ids_cond *self, struct ids_mutex *mutex, uint64_t deadline_ns);
void ids_cond_signal(struct ids_cond *self);
void ids_cond_broadcast(struct ids_cond *self);

/*
 * A word to sleep on.  wait() returns when somebody woke the word, when the deadline
 * has passed, at once when *word is not `expected`, or for no reason: callers look at
 * the word.  Looking and falling asleep are one step against a wake() that comes after a
 * change of the word.
 */
void ids_futex_wait(uint32_t *word, uint32_t expected, uint64_t deadline_ns);
/* Wake at most so many of the threads that sleep on the word. */
void ids_futex_wake(uint32_t *word, unsigned threads_count);

struct ids_thread_config {
  void (*main)(void *context);
  void *context;
  const char *name; /* what the system shows of it: the first 15 bytes */
  size_t stack_size;
};

/*
 * Start a thread that blocks all signals, so that the host's own threads get
 * them.  0, or -EAGAIN or -ENOMEM when the system refuses.  *self is written
 * before main() runs.  Each started thread is joined or detached exactly once.
 */
int ids_thread_start(struct ids_thread *self, const struct ids_thread_config *config,
                     const char *site);
void ids_thread_join(struct ids_thread *self);
/* The calling thread will not be joined: the system frees it when it ends. */
void ids_thread_detach_self(void);

/* CPUs this process may use, by affinity and by the quotas of its cgroups; at least 1. */
unsigned ids_cpus_count(void);

/* A number that no other living thread has, and that is never 0. */
uintptr_t ids_thread_number(void);

/* How many forks lie between the first process and this one: a child counts one more
 * than its parent.  Threads and locks of an earlier generation are not there. */
uint32_t ids_fork_generation(void);

/* Between the two calls the process does not fork: what an allocator is in the middle of,
 * nobody in the child would finish.  Not nested. */
void ids_fork_hold_off(void);
void ids_fork_let(void);

enum ids_tls_slot { IDS_TLS_WORKER, IDS_TLS_HOST_THREAD, IDS_TLS_COUNTER, IDS_TLS_SLOTS };
void *ids_tls_get(enum ids_tls_slot slot);
void ids_tls_set(enum ids_tls_slot slot, void *value);
/* Add to the word that the slot points to, which nobody but the calling thread changes, and
 * others read relaxed: no locked instruction.  False when it points nowhere. */
bool ids_tls_add(enum ids_tls_slot slot, uint64_t difference);

/*
 * Words that are read without a lock.  An acquire that reads what a release
 * stored also sees everything written before that store.
 */
uint32_t ids_load_acquire(const uint32_t *word);
void ids_store_release(uint32_t *word, uint32_t value);
/* Store `value` if the word is `expected`; whether it was.  Acquires and releases. */
bool ids_store_if_equal(uint32_t *word, uint32_t expected, uint32_t value);

/*
 * Words that count.  Nothing is ordered by the relaxed ones, and a simulator lets nobody in
 * between: what depends on their order would depend on luck.
 */
uint64_t ids_load_relaxed(const uint64_t *word);
void ids_store_relaxed(uint64_t *word, uint64_t value);
/* The new value.  Acquires and releases. */
uint64_t ids_add(uint64_t *word, uint64_t difference);

/* A place where the order of threads matters.  Does nothing on POSIX. */
void ids_point(const char *where);
/* Somebody else has to move before this thread can: the body of a spin loop. */
void ids_relax(void);

/* What the kernel says this process has in memory. */
struct ids_residency {
  uint64_t resident_bytes;  /* all pages, shared libraries included */
  uint64_t anonymous_bytes; /* pages that belong to this process alone */
  uint64_t huge_bytes;      /* those of them that are huge pages */
  uint64_t threads_count;   /* of the whole process */
};

/*
 * Read it: 0, or -errno where the system does not tell, and then 0 for what it does not.
 * Takes 40..120 us, more with many mappings, as the kernel walks the page tables.
 */
int ids_residency_read(struct ids_residency *out);

/* A stretch of the process's addresses, as the kernel lists them. */
struct ids_mapping {
  uintptr_t begin, end;
  bool is_anonymous; /* private, and no file's */
  uint64_t resident_bytes;
  bool forbids_huge_pages;
};

/*
 * Tell of each mapping, in the order of addresses: 0, or -errno where the system does not
 * tell; then some may have been told of.  Allocates nothing.  Takes a few us per mapping.
 */
int ids_mappings_read(void (*tell)(void *context, const struct ids_mapping *mapping),
                      void *context);

/* Whether the kernel makes huge pages also where nobody has asked for them. */
bool ids_huge_pages_are_usual(void);
/* Whether there are any, and the kernel splits them when it is asked to: Linux 5.4. */
bool ids_huge_pages_can_split(void);

/*
 * Split the huge pages in those mappings that are ours, so that what is not mapped of them
 * is free, and forbid new ones there.  keeps: only where some is mapped and some is not;
 * elsewhere they stay, and where nothing is mapped any more they are allowed again.  How
 * many, or -errno.  0.2 ms for each, besides ids_mappings_read().
 */
int ids_huge_pages_split(bool (*is_ours)(uintptr_t begin, uintptr_t end), bool keeps);
/* Ask for huge pages there, as far as the kernel grants it. */
void ids_huge_pages_allow(bool (*is_ours)(uintptr_t begin, uintptr_t end));

/*
 * Pressure stall information: a file of the kernel's that says for how long threads have
 * stalled for memory, and that tells when they have for so long within a window, by a
 * trigger that is set on it.  One thread waits on a struct ids_psi; any thread may wake it.
 */
#define IDS_PSI_PATH_SIZE 256

/* The places where this process finds it, from 0, the nearest first: its own cgroup's, the
 * system's.  0, or -errno when it has no such place, -ENOENT as a rule. */
#define IDS_PSI_PLACES 2
int ids_psi_path(unsigned place, char path[IDS_PSI_PATH_SIZE]);

/*
 * Open a file, and set a trigger; stall_ns = 0 sets none.  Beside a cgroup's
 * memory.pressure, its memory.events is listened to as well.  0, or
 *
 *   -ENOENT   there is no such file
 *   -ENOTSUP  the kernel does not account for pressure
 *   -EBADMSG  the file is of another kind
 *   -EINVAL, -EPERM, -EACCES, -EROFS, -EBUSY  this trigger is refused, or the file
 *   -EMFILE, -ENOMEM, ...  no resources
 */
int ids_psi_open(struct ids_psi *self, const char *path, uint64_t stall_ns, uint64_t window_ns,
                 const char *site);
void ids_psi_close(struct ids_psi *self);

enum ids_psi_news {
  IDS_PSI_QUIET, /* the deadline, a wake, or no reason */
  IDS_PSI_TOLD,  /* the trigger has fired; or the cgroup met one of its limits */
  IDS_PSI_GONE   /* there will be no more news: the cgroup is no more, say */
};

/* Sleep until there is something to tell; without `listens`, which keeps it for later,
 * until the deadline or a wake. */
enum ids_psi_news ids_psi_wait(struct ids_psi *self, bool listens, uint64_t deadline_ns);
/* From here on no wait lasts. */
void ids_psi_wake(struct ids_psi *self);
/* For how long some thread has stalled so far: 0, or -errno when the file is gone. */
int ids_psi_read(struct ids_psi *self, uint64_t *out_stalled_ns);

#endif
