/* SPDX-License-Identifier: MIT */
/*
 * idlesched.h - a worker scheduler that gives memory back when it is idle.
 *
 *   idlesched_pool *pool;
 *   idlesched_pool_create(&pool, &(idlesched_pool_config){ .workers_max = 4 });
 *   idlesched_pool_submit(pool, compile, module);
 *   idlesched_pool_wait(pool, IDLESCHED_NEVER);
 *   idlesched_pool_destroy(pool);
 *
 * A pool runs jobs on worker threads.  A worker that has had nothing to do for
 * idle_release_ns gives the free memory of its heap back to the system; one that
 * has had nothing to do for idle_exit_ns ends its thread, and the next job
 * starts a new one.
 *
 * Conventions
 *   Status    functions that can fail return 0 or a negative errno value;
 *             idlesched_strerror() explains it.
 *   Time      nanoseconds on a monotonic clock.  IDLESCHED_NEVER waits for ever.
 *   Sizes     bytes.
 *   Structs   zero means the default, so name only the fields that you set.
 *   Threads   every function may be called from any thread, unless it says
 *             otherwise, as long as no other thread destroys the object.
 *   Misuse    aborts with a message: of an object that is not there any more, of
 *             another thread's worker.
 *   Fork      in a child process the parent's pools are closed.  Submit, start_workers, resize,
 *             wait, release, and to wait for or to cancel a job that was under way return
 *             -ESHUTDOWN; stats are 0; close, destroy, retire, pause, resume and blocking do
 *             nothing.  A child makes pools of its own.
 */
#ifndef IDLESCHED_H
#define IDLESCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "idlesched_version.h"

#if defined(__GNUC__)
#define IDLESCHED_API __attribute__((visibility("default")))
#else
#define IDLESCHED_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define IDLESCHED_NEVER UINT64_MAX
#define IDLESCHED_US UINT64_C(1000)
#define IDLESCHED_MS (1000 * IDLESCHED_US)
#define IDLESCHED_S (1000 * IDLESCHED_MS)
/* A duration that is over at once, where 0 would mean "the default". */
#define IDLESCHED_AT_ONCE UINT64_C(1)

typedef struct idlesched_pool idlesched_pool;
typedef struct ids_worker idlesched_worker;
typedef struct idlesched_job idlesched_job;

/* ---------------------------------------------------------------- the process */

/* The version of the library that runs, as IDLESCHED_VERSION_NUMBER counts it. */
IDLESCHED_API unsigned idlesched_version(void);

/* The allocator of this build, for people: "mimalloc 3.6.0", or "system". */
IDLESCHED_API const char *idlesched_allocator(void);

/* What a status of this library means, in words.  Never NULL. */
IDLESCHED_API const char *idlesched_strerror(int status);

/*
 * Set the allocator's options so that what is released is really returned and
 * stays so: huge pages off (also where the kernel makes them by itself: what it has made
 * until the first purge is split there), the smallest range that is purged 64 KiB, no pages
 * taken over by threads that free other threads' blocks.  What the user has set
 * (MIMALLOC_ALLOW_THP=1, say) is left alone.
 *
 * Creating a pool does it, and repeating it does nothing.  A host whose malloc
 * is mimalloc calls it as the first thing in main(): huge pages are decided when
 * the allocator takes its first memory from the system.
 */
IDLESCHED_API void idlesched_process_defaults(void);

/*
 * Let the allocator have huge pages all the same, and split at each purge those of which a
 * part is free, so that what is given back is really free; where all of one is free again,
 * it may be had anew.  For heaps that are nearly empty between bursts: there a release costs
 * a fifth of what it costs without them, and up to twice as much where blocks that live on
 * lie all over the heap (bench/huge_pages.c).  What is freed under a guard, or purged by the
 * allocator itself, is split at the next release or pass.
 *
 * Does idlesched_process_defaults() first.  Holds for the process and its children, from the
 * call on, and for memory that the allocator has already as far as it is not in use; cannot
 * be taken back.  A user's own MIMALLOC_ALLOW_THP=1 is the same as calling it.
 *
 *   -ENOTSUP  the allocator of this build or the kernel has none, or the kernel cannot be
 *             asked to split them: that takes Linux 5.4, and /proc/self/pagemap
 *   -EPERM    the user has set MIMALLOC_ALLOW_THP=0
 */
IDLESCHED_API int idlesched_keep_huge_pages(void);
IDLESCHED_API bool idlesched_keeps_huge_pages(void);

/*
 * An assertion of the library does not hold: it, or what uses it, is broken, and nothing
 * it says can be relied on any more.  Assertions are on in every build.  Valid during the
 * call of the handler.
 */
typedef struct idlesched_failure {
  const char *expression; /* what should hold */
  const char *file;
  int line;
  bool has_numbers;     /* the expression compares these */
  uint64_t left, right; /* else 0 */
} idlesched_failure;

typedef void idlesched_failure_handler(const idlesched_failure *failure);

/*
 * Be told of a failure, on the thread that meets it, which may hold locks of the library:
 * the handler calls nothing of it.  It may end the process, or jump out of the call, and
 * then the library is not used any more.  When it returns, the library prints one line to
 * stderr and aborts; that is all that happens without a handler (NULL).
 *
 * Returns the handler that was set before.  Threads: to be called before others use the
 * library.
 */
IDLESCHED_API idlesched_failure_handler *
idlesched_set_failure_handler(idlesched_failure_handler *handler);

/* Now, on the monotonic clock that all times of the library are on. */
IDLESCHED_API uint64_t idlesched_now_ns(void);

/* Block the calling thread for so long. */
IDLESCHED_API void idlesched_sleep(uint64_t duration_ns);

/*
 * CPUs this process may use, at least 1: as many as the calling thread's affinity allows, or
 * fewer where a cgroup has a quota, of which each begun CPU counts.  The smallest quota counts
 * of the process's cgroups and all above them, of both versions, as far up as is mounted: in a
 * container up to its own root, which alone counts if the process's cgroup is not to be seen.
 * Reads small files of the kernel's, which takes some 0.1 ms.
 */
IDLESCHED_API unsigned idlesched_cpus(void);

/* One of the allocators of the process. */
typedef struct idlesched_heap_memory {
  const char *name;        /* "mimalloc 3.6.0", "glibc 2.36"; NULL: there is no second one */
  uint64_t resident_bytes; /* what it has in memory; for the C library what it holds, and no
                            * more than is left of anonymous_bytes: what was trimmed it holds */
  uint64_t live_bytes;     /* of them in blocks in use: for the allocator of this build as in
                            * idlesched_memory, so a host's own malloc is not among them */
  uint64_t free_bytes;     /* the rest: resident_bytes is the sum of the two */
} idlesched_heap_memory;

/* The allocator of this build, and the C library's beside it, unless they are one. */
#define IDLESCHED_HEAPS_MAX 2

/* What the process has in memory now. */
typedef struct idlesched_memory {
  uint64_t resident_bytes;   /* all pages, those of shared libraries included */
  uint64_t anonymous_bytes;  /* pages of this process alone: heaps and stacks */
  uint64_t huge_bytes;       /* those of them that are huge pages */
  uint64_t threads_count;    /* threads of the process, ours and others */
  uint64_t live_bytes;       /* blocks of idlesched_realloc() that were not freed */
  uint64_t dead_bytes;       /* garbage on workers, as their hosts say (worker_set_memory) */
  uint64_t releasable_bytes; /* what a release can give back at most: free_bytes and dead_bytes,
                              * but for a purge delay below 0, under which they stay */
  idlesched_heap_memory heaps[IDLESCHED_HEAPS_MAX];
} idlesched_memory;

/*
 * 0, or -ENOTSUP or another -errno where the system does not tell (it needs
 * /proc/self/smaps_rollup, Linux 4.14, and for the allocator's part /proc/self/smaps), and
 * then 0 for what it does not.  Costs 0.1..1 ms, more in a process with many mappings: the
 * kernel walks its page tables twice, and the C library locks each of its arenas.
 */
IDLESCHED_API int idlesched_memory_read(idlesched_memory *out);

/* ------------------------------------------------------------------------ blocks */

/*
 * Blocks of the allocator that releases work on.  Under a host whose malloc is
 * another one, jobs that want their memory released take it from here.  Blocks
 * may be freed by any thread, and never with free().
 *
 * idlesched_realloc() makes a block when given NULL; a size of 0 counts as 1.  NULL when
 * there is no memory, and then the old block is as it was.
 */
IDLESCHED_API void *idlesched_realloc(void *block, size_t size);
IDLESCHED_API void idlesched_free(void *block);

/*
 * The calling thread is about to be idle: give up what its heap has cached, and
 * purge.  For an event loop that goes to sleep.  Safe on any thread that has not begun to
 * park (below); one without a heap gets an empty one first.  May wait for a purge that is
 * under way.
 */
IDLESCHED_API void idlesched_thread_idle(void);

/*
 * A thread of the host's that takes part in releases: while it waits for something, a
 * release pass of a pool, or idlesched_pool_release(), may give up what its heap has
 * cached, without waking it.  The struct is the host's, one for each such thread, and stays
 * where it is from enter to leave; its fields are the library's.
 *
 *   idlesched_thread self;
 *   idlesched_thread_enter(&self);
 *   for (;;) {
 *     idlesched_thread_park_begin(&self);
 *     ... wait for the next request, and allocate nothing ...
 *     idlesched_thread_park_end(&self);
 *     ... serve it ...
 *   }
 *   idlesched_thread_leave(&self);
 */
typedef struct idlesched_thread idlesched_thread;
struct idlesched_thread {
  idlesched_thread *next_, *previous_;
  void *heap_;
  uint64_t parked_at_ns_, round_;
  uint32_t state_, generation_;
  bool is_given_up_;
};

/*
 * The calling thread takes part, until it leaves; it must leave before it ends, and not
 * while it is parked.  It enters once at a time; workers of a pool need not.  In a child
 * process the thread that forked still takes part.
 */
IDLESCHED_API void idlesched_thread_enter(idlesched_thread *self);
IDLESCHED_API void idlesched_thread_leave(idlesched_thread *self);

/*
 * The calling thread, which has entered, is about to wait: until park_end it allocates and
 * frees nothing, from whatever allocator.  Builds for tests assert that of
 * idlesched_realloc() and idlesched_free().  A thread that has been parked for a pool's
 * idle_release_ns is given up by that pool's next pass, once in each park; no pass is made
 * for its sake alone.
 *
 * park_begin reads the clock.  park_end waits while the heap is being given up, some
 * 20..75 us, and costs a compare-and-swap otherwise (bench/park.c).
 */
IDLESCHED_API void idlesched_thread_park_begin(idlesched_thread *self);
IDLESCHED_API void idlesched_thread_park_end(idlesched_thread *self);

/*
 * While at least one guard is held, freed memory goes back to the system at
 * once instead of after the allocator's delay.  For a scope that frees a lot and
 * allocates little: inside it, allocation and free are up to 19 times slower.
 *
 * Guards count, across threads and pools, and may end in any order.  The
 * user's own delay is put back by the last one; a delay of 0 or below is left
 * alone at both ends.  Without mimalloc a guard does nothing.  A leave without its
 * enter aborts.
 */
IDLESCHED_API void idlesched_eager_purge_enter(void);
IDLESCHED_API void idlesched_eager_purge_leave(void);

/* --------------------------------------------------------------------- options */

/*
 * An override of one of the allocator's options, for a scope.  The struct is the caller's,
 * and stays where it is from enter to leave; its fields are the library's.
 *
 *   "purge_delay"      ms until what is free goes back to the system; 0: at once.
 *                      Overridden also where the user set it, unless it is 0 or below
 *   "purge_min_size"   KiB, the smallest range that goes back; 0: the allocator's choice
 *   "purge_mult"       how many times that delay an arena waits
 *
 * The user sets them for mimalloc as MIMALLOC_PURGE_DELAY, MIMALLOC_ARENA_PURGE_MIN_SIZE and
 * MIMALLOC_ARENA_PURGE_MULT in the environment, where a plain number of the second is bytes:
 * 128KiB has its unit.
 *
 * Overrides count.  An eager-purge guard is one of the purge delay by 0; those without a
 * struct, above, have one place among the others, that of the latest to enter.  In force is the
 * value of the one that entered last of those that are held; they may leave in any order, on any
 * thread, and the last one puts back what was there before.  All but the purge delay leave alone
 * what the user set, in the environment or in code.  A release lifts them all for its purge
 * (idlesched_release_report).
 *
 * In a child after fork they are held on: the child leaves those that its one thread held.
 * Enter does idlesched_process_defaults() first.
 */
typedef struct idlesched_override idlesched_override;
struct idlesched_override {
  idlesched_override *next_, *previous_;
  const char *holder_;
  uint64_t since_ns_;
  int64_t value_;
  uint32_t option_, generation_;
};

/*
 * holder says who it is, for people (a source position, say), and outlives the override;
 * NULL for nobody in particular.
 *
 *   -EINVAL   there is no option of this name, or the value is out of its range
 *   -EPERM    the option decides how memory is taken from the system, and what was taken
 *             already would not follow: it can be set before the first allocation only
 *   -ENOTSUP  the allocator of this build has no such options
 *
 * In all three cases nothing is held; idlesched_option_reason() says more, unless it is the
 * value: idlesched_option_read() tells its range.  Making the purge delay 0 purges first.
 *
 * A leave without its enter aborts.
 */
IDLESCHED_API int idlesched_override_enter(idlesched_override *self, const char *option,
                                           int64_t value, const char *holder);
IDLESCHED_API void idlesched_override_leave(idlesched_override *self);

/* Why an option of this name cannot be overridden, in words for people; NULL if it can. */
IDLESCHED_API const char *idlesched_option_reason(const char *option);

#define IDLESCHED_HOLDERS_MAX 16

typedef struct idlesched_option_holder {
  char name[64];     /* the beginning of what its enter was given */
  uint64_t since_ns; /* on the clock of idlesched_now_ns() */
  int64_t value;     /* that it asked for */
} idlesched_option_holder;

typedef struct idlesched_option_info {
  const char *name;
  int64_t value;          /* now */
  int64_t put_back;       /* what the last holder puts back; value, if it is not overridden */
  int64_t least, most;    /* that an override may ask for */
  bool is_overridden;     /* a value of a holder's is in force */
  unsigned holders_count; /* also those that left the option alone, by its rule */
  /* The latest of them first, whose value is in force if is_overridden. */
  idlesched_option_holder holders[IDLESCHED_HOLDERS_MAX];
} idlesched_option_info;

/* Option number i, from 0: 0, -ENOENT when there are no more, -ENOTSUP as above. */
IDLESCHED_API int idlesched_option_read(unsigned i, idlesched_option_info *out);

/* --------------------------------------------------------------------- workers */

/*
 * What a host does on a pool's workers, besides running jobs.  All are optional;
 * they are called on the worker's own thread, without any lock.
 */
typedef struct idlesched_worker_hooks {
  /* The worker has a new thread, or has been stopped and goes on all the same.  Before its
   * next job, if there is one.  The data is NULL, and may be set here. */
  void (*start)(idlesched_worker *worker, void *context);
  /*
   * The worker is about to release: tidy what the host keeps for it, in steps of
   * about a millisecond.  Return true when there is more to do; the worker looks
   * for a job between two steps.  Called only while the worker has data: one without
   * is not even woken for its release.
   */
  bool (*collect)(idlesched_worker *worker, void *context);
  /* The worker's thread is about to end: drop what the host keeps for it.  A job
   * that comes meanwhile keeps the thread: then the data is NULL again, start and jobs
   * follow, and stop is called once more at the end. */
  void (*stop)(idlesched_worker *worker, void *context);
  void *context; /* outlives every thread of the pool, also those left behind */
} idlesched_worker_hooks;

/* The worker whose thread calls, or NULL on any other thread.  It stays valid as long as
 * its pool. */
IDLESCHED_API idlesched_worker *idlesched_worker_current(void);
/* Its pool. */
IDLESCHED_API idlesched_pool *idlesched_worker_pool(const idlesched_worker *worker);
/* From 0: the same for the life of the pool.  Below workers_max, unless a job has blocked
 * meanwhile (idlesched_blocking_begin) or the pool was resized. */
IDLESCHED_API unsigned idlesched_worker_index(const idlesched_worker *worker);
/* One pointer of the host's for each worker, NULL at first and after stop.  Only
 * on the worker's own thread. */
IDLESCHED_API void *idlesched_worker_data(const idlesched_worker *worker);
IDLESCHED_API void idlesched_worker_set_data(idlesched_worker *worker, void *data);

/*
 * What the host keeps for this worker: bytes in use, and bytes that a collection would free.
 * For people and budgets; 0 after stop.  Only on the worker's own thread.
 */
IDLESCHED_API void idlesched_worker_set_memory(idlesched_worker *worker, uint64_t live_bytes,
                                               uint64_t dead_bytes);

/*
 * The worker takes no further job: it ends its thread after the one it runs, or at once.
 * Its place in the pool, with the same index and pointer, is then free for a new thread;
 * jobs that are queued wait for that, or for other workers.
 *
 * Threads: any; a job may say so of its own worker.  From elsewhere it means whoever has
 * the place at that moment, and does nothing if that has no thread, or not yet.  Returns
 * at once: the thread has ended when stats count it among `retires`.
 */
IDLESCHED_API void idlesched_worker_retire(idlesched_worker *worker);

/* ----------------------------------------------------------------------- pools */

typedef struct idlesched_pool_config {
  /* Shown by the system as the name of the threads; 15 bytes of it are copied.
   * Default "idlesched". */
  const char *name;
  /* Most workers that run jobs at a time, 1 to 4096.  Default idlesched_cpus().
   * IDLESCHED_NO_WORKERS: each job runs in the thread that submits it. */
  unsigned workers_max;
  /* So many threads do not end after idle_exit_ns; they release all the same.  No more than
   * workers_max.  Default 0. */
  unsigned workers_min;
  /* Most threads at a time in place of those whose job blocks (idlesched_blocking_begin).
   * At most 4096.  Default workers_max; IDLESCHED_NO_WORKERS: none. */
  unsigned blocking_max;
  /* Most jobs in the queue, delayed ones included.  Default 0: no limit. */
  uint64_t queue_max;
  /* How long a submit waits for room in the queue.  Default 0: not at all; it fails. */
  uint64_t queue_timeout_ns;
  /* A worker that found nothing to do for so long releases its memory.  Default
   * 100 ms; IDLESCHED_AT_ONCE: each time it finds nothing; IDLESCHED_NEVER. */
  uint64_t idle_release_ns;
  /* A worker that found nothing to do for so long ends its thread, which
   * releases as well.  Default 10 s; IDLESCHED_NEVER.  As long as jobs are delayed, or may
   * expire, one thread stays for them while workers are idle, released. */
  uint64_t idle_exit_ns;
  /* Of each thread.  Default 1 MiB; at least 64 KiB. */
  size_t stack_size;
  /* Each job has a worker, and so a thread, of its own, which retires after it: no more
   * than workers_max at a time, others wait in the queue.  Default false. */
  bool is_dedicated;
  idlesched_worker_hooks hooks;
  /*
   * A plain job (idlesched_pool_submit) was dropped when the pool closed: it will
   * not run.  Called on the closing thread, without any lock.
   */
  void (*dropped)(void (*run)(void *context), void *context);
  /*
   * Memory is about to be given back: the host empties caches of its own.  Called by each
   * pass of this pool and by each release that visits it, once, before the purge, on the
   * thread that makes it and without any lock; with the context of the hooks.  It must not
   * submit, wait, release or close.
   */
  void (*on_release)(void *context);
} idlesched_pool_config;

/*
 * For workers_max and blocking_max, where 0 means the default.
 *
 * A pool without workers has no threads.  A submit runs its job, and then those that it
 * submits, before it returns: 0 says that the job was taken in, not how it has ended.  One
 * thread at a time: others wait for their turn, first come, first served, for as long as it
 * takes; so two threads whose jobs submit to each other's pool would wait for ever.  A job
 * with a delay is taken in at its moment: until then its submit sleeps.
 *
 * In a job idlesched_worker_current() is the pool's one worker, with the index 0.  Its hooks
 * are called on the thread that has the turn: start before the first job, collect by a release
 * while no job runs, and stop by the close, or after the job that a close has left behind.
 * Idle times, workers_min, is_dedicated, pause, blocking and retire mean nothing.  A child
 * process that a job forks returns from it, and out of the submit.
 */
#define IDLESCHED_NO_WORKERS UINT32_MAX

/*
 * Make a pool.  No thread is started.  On failure *out is NULL.
 *
 *   -EINVAL  a field is out of its range
 *   -ENOMEM  no memory
 *   -EAGAIN  no more of another resource
 */
IDLESCHED_API int idlesched_pool_create(idlesched_pool **out, const idlesched_pool_config *config);

/*
 * Close the pool if that was not done (dropping what is queued, with the default
 * time limit), and free it.  NULL is fine.  Threads that could not be stopped in
 * time keep what they need, and the last of them frees it.  Not from a job of
 * this pool.
 */
IDLESCHED_API void idlesched_pool_destroy(idlesched_pool *pool);

/*
 * Queue run(context), with priority 0; first in, first out.  On failure nothing is kept.
 *
 *   -EINVAL     run is NULL
 *   -ESHUTDOWN  the pool is closing or closed
 *   -ENOBUFS    the queue is full, and stayed so for queue_timeout_ns; who waits first gets
 *               in first.  A job of this pool would keep its worker waiting: unless
 *               queue_timeout_ns is 0 it makes room at once, and runs the job that is next
 *               itself, inside the submit; not if all are delayed, or 16 are inside each other
 *               like that already
 *   -ENOMEM     no memory for the queue
 *   -EAGAIN, -ENOMEM, ...  there is no worker and the system refuses a thread;
 *               while there is a worker, a refused thread is no error, and the
 *               job waits for that worker
 *
 * May block for the time it takes to start the pool's first thread.
 */
IDLESCHED_API int idlesched_pool_submit(idlesched_pool *pool, void (*run)(void *context),
                                        void *context);

/*
 * Start threads ahead of jobs, so that the first ones need not wait for them, until
 * workers_count workers have one; more than workers_max means all.
 *
 *   -ESHUTDOWN, -EAGAIN, -ENOMEM  not all could be started; those that were stay
 */
IDLESCHED_API int idlesched_pool_start_workers(idlesched_pool *pool, unsigned workers_count);

/*
 * From now on the pool has so many workers at most, 1 to 4096, and keeps workers_min threads.
 * With fewer than now, those that are too many end: parked ones at once, others after their
 * job; with more, threads are started as the queue wants them.  blocking_max stays as it is.
 * Not for a pool that was made with IDLESCHED_NO_WORKERS.
 *
 *   -EINVAL     a number is out of its range, or workers_min above workers_max; or the pool
 *               has no workers
 *   -ENOMEM, -EAGAIN  no resources for so many; the pool is as it was
 *   -ESHUTDOWN  the pool is closing or closed
 */
IDLESCHED_API int idlesched_pool_resize(idlesched_pool *pool, unsigned workers_max,
                                        unsigned workers_min);

/*
 * Begin no more jobs until resumed; those that run go on, and what they wait for
 * (idlesched_job_wait).  Submits are taken in, also without a thread; a job that finds the queue
 * full makes no room then.  The workers are idle meanwhile: they release, and their threads end
 * in time.  Pauses do not count: one resume ends them.  A close resumes, as what is queued has to
 * run or be dropped. Neither does anything with a pool that is closed.
 *
 * A resume that needs a thread, as all have ended, may be refused one: -EAGAIN or -ENOMEM, and
 * the pool is still paused.  A close then drops what is queued.  Else it is 0.
 */
IDLESCHED_API void idlesched_pool_pause(idlesched_pool *pool);
IDLESCHED_API int idlesched_pool_resume(idlesched_pool *pool);

/*
 * The calling worker's job is about to block, on a system call or a lock, say: until it says
 * that this is over the pool may have one more worker in its place, so that others go on.  The
 * job goes on as soon as it is over; of those that are too many then, who ends its job first
 * takes no other, and their threads end in the usual time.  If no thread can be had, what is
 * queued waits as if the job had said nothing.
 *
 * Not nested, and a job that begins it ends it before it returns, or its done callback: what
 * else is misuse.  Does nothing in hooks, and on any thread that is not a worker's.
 */
IDLESCHED_API void idlesched_blocking_begin(void);
IDLESCHED_API void idlesched_blocking_end(void);

/*
 * Wait until no job is queued and none is running; timeout_ns = 0 only looks.  A job runs
 * until its done callback has returned; that of a cancelled one may still be to come, on the
 * thread that cancelled it.
 *
 *   -ETIMEDOUT  there still was one after timeout_ns
 *   -EDEADLK    called from a job of this pool, which would wait for itself
 */
IDLESCHED_API int idlesched_pool_wait(idlesched_pool *pool, uint64_t timeout_ns);

enum idlesched_close_mode {
  IDLESCHED_CLOSE_DRAIN, /* run what is queued, or due in time; at the limit drop the rest */
  IDLESCHED_CLOSE_CANCEL /* drop what is queued; what runs is let finish */
};

/* Which ones are left behind, and for how long each has run its job, say the rows of
 * idlesched_pool_workers_read() whose worker has a thread, until the pool is destroyed. */
typedef struct idlesched_close_report {
  uint64_t dropped_count;     /* queued jobs that were cancelled */
  unsigned left_behind_count; /* threads that still run a job; they are never killed */
} idlesched_close_report;

/*
 * Take no more jobs, end all workers.  Returns within timeout_ns and 100 ms:
 * the time limit is for the jobs, the rest for workers on their way out.
 * timeout_ns = 0 means the default, 2 s.  A second close drops nothing: it waits for
 * one that is under way, and reports the threads that are left now.  out may be NULL.
 *
 * The callbacks of dropped jobs run on the closing thread, beyond the limit; they
 * must not destroy the pool, nor wait for one of the other jobs.
 *
 *   -EINVAL     mode is none of the two
 *   -ETIMEDOUT  some threads still run a job or a hook, and leave when it ends; or
 *               another close has not finished
 *   -EDEADLK    called from a job of this pool, or from a callback of its close
 */
IDLESCHED_API int idlesched_pool_close(idlesched_pool *pool, enum idlesched_close_mode mode,
                                       uint64_t timeout_ns, idlesched_close_report *out);

typedef struct idlesched_release_report {
  unsigned pools_count;
  unsigned visited_count;          /* workers that have released */
  unsigned missed_count;           /* workers that have not; they release when next parked: */
  unsigned missed_running_count;   /* they ran a job or a hook, or were not awake in time, */
  unsigned missed_starting_count;  /* or their thread was starting, */
  unsigned missed_exiting_count;   /* or ending */
  uint64_t anonymous_before_bytes; /* as idlesched_memory_read() tells; 0 where it does not */
  uint64_t anonymous_after_bytes;
  uint64_t returned_bytes; /* by how much it fell; 0 when it did not */
  /* Why the rest is still there; the sum of the three is anonymous_after_bytes. */
  uint64_t kept_live_bytes;  /* blocks in use, as far as they are in memory */
  uint64_t kept_free_bytes;  /* free blocks: in pages that others still use, or not collected */
  uint64_t kept_other_bytes; /* what is not of these allocators: stacks, data, other heaps */
  idlesched_heap_memory before[IDLESCHED_HEAPS_MAX], after[IDLESCHED_HEAPS_MAX];
  int64_t purge_delay_ms; /* without guards; 0 or below is the user's will, or there is no such
                           * option: what was freed is back already, or with -1 stays */
  bool lifted_guards;     /* overrides were put aside for the purge, and are back */
  uint64_t time_ns;       /* what the call took */
} idlesched_release_report;

/*
 * Release now: the heap of every worker that has a thread is tidied, on that thread or
 * while it sleeps, then those of the host's threads that are parked (idlesched_thread) and
 * of the calling thread, and what became free goes back to the system, also while a guard
 * is held.  Then the C library's heap is trimmed.  Starts no thread and runs no job.
 *
 *   timeout_ns  how long to wait for workers that are busy; 0 means the default,
 *               1 s
 *   out         may be NULL
 *
 *   -ETIMEDOUT  some workers were missed; the others, and the caller, have
 *               released
 *   -EDEADLK    called from a job or a hook of this pool: nothing was done
 *   -ESHUTDOWN  the pool is a parent process's: nothing was done
 */
IDLESCHED_API int idlesched_pool_release(idlesched_pool *pool, uint64_t timeout_ns,
                                         idlesched_release_report *out);

/*
 * The same for every pool of the process, or for those of a list, where each counts once.  All
 * are asked first, and then waited for until one common time limit.  From a job or a hook, its
 * own worker counts as the caller, and is neither visited nor missed; of two workers whose jobs
 * release at the same time one may miss the other, or both would wait for ever.
 *
 * Pools may be made and destroyed meanwhile: a new one is not visited, and a destroyed one is
 * not waited for any longer.  Threads that a destroy has left behind still count.
 *
 *   -ETIMEDOUT  as above; there is no -EDEADLK
 *   -ESHUTDOWN  one of the list is a parent process's: nothing was done
 */
IDLESCHED_API int idlesched_release(uint64_t timeout_ns, idlesched_release_report *out);
IDLESCHED_API int idlesched_release_pools(idlesched_pool *const *pools, unsigned pools_count,
                                          uint64_t timeout_ns, idlesched_release_report *out);

/*
 * Give back what is free now, of the whole process, down to the smallest range, and visit
 * nobody: also what an earlier pass has left at a coarser range.  Sets the process defaults,
 * as a release and a pool do; a coarser range that the user set stays.  out may be NULL.
 */
IDLESCHED_API void idlesched_purge_all(idlesched_release_report *out);

/*
 * The calling thread, a worker or not, has freed so much of what the pool's jobs allocated
 * that it should go back soon: the pool makes a pass about 0.9 s from now, or one that is due
 * sooner looks after it.  With no worker parked, the next one that parks makes it; with no
 * thread, or none that stays, the caller purges, at most once in 0.9 s.  Does nothing with
 * idle_release_ns never.  Costs a lock: for each MiB, not for each block.
 */
IDLESCHED_API void idlesched_pool_freed(idlesched_pool *pool);

/* One consistent snapshot, and counts since the pool was made. */
typedef struct idlesched_pool_stats {
  /* Workers now.  active = running + tickets; threads is the sum of the five. */
  unsigned workers_max, threads, active, tickets;
  unsigned starting, running, parked, releasing, exiting;
  /* Of those that run, those whose job blocks; and the settings. */
  unsigned blocking, workers_min;
  bool is_paused;
  /* Jobs now; delayed ones are among the queued. */
  uint64_t jobs_queued, jobs_running, jobs_delayed;
  /* Jobs so far; submitted = queued + running + done + failed + cancelled. */
  uint64_t jobs_submitted, jobs_done, jobs_failed, jobs_cancelled;
  /* Workers so far: tickets given, polls made with one, threads started, threads
   * that the system refused, releases by parked workers, threads ended after idle_exit_ns. */
  uint64_t wakes, polls, starts, starts_refused, releases, exits;
  /* Release passes of the pool's timer, each with one purge; workers that retired and whose
   * thread has ended; tickets that were lost with a refused thread. */
  uint64_t passes, retires, tickets_lost;
  /* Purges of the process so far, by whoever. */
  uint64_t purges;
} idlesched_pool_stats;

/* May wait for a thread that is just ending, so that it counts. */
IDLESCHED_API void idlesched_pool_stats_read(idlesched_pool *pool, idlesched_pool_stats *out);

enum idlesched_worker_state {
  IDLESCHED_WORKER_ABSENT, /* it has no thread */
  IDLESCHED_WORKER_STARTING,
  IDLESCHED_WORKER_RUNNING,
  IDLESCHED_WORKER_PARKED,
  IDLESCHED_WORKER_RELEASING,
  IDLESCHED_WORKER_EXITING
};

typedef struct idlesched_worker_row {
  unsigned index;
  enum idlesched_worker_state state;
  bool has_released;               /* since its last job */
  uint64_t running_ns;             /* for how long its job has run, to some 10 ms; else 0 */
  uint64_t live_bytes, dead_bytes; /* as idlesched_worker_set_memory() was told */
} idlesched_worker_row;

/* One row for each worker, at most rows_max; returns how many there are: workers_max, or more
 * where there were more at some time. */
IDLESCHED_API unsigned idlesched_pool_workers_read(idlesched_pool *pool, idlesched_worker_row *rows,
                                                   unsigned rows_max);

/* One invariant that does not hold, with the two numbers that should be equal. */
typedef struct idlesched_finding {
  const char *rule; /* in words, with its number; a literal */
  uint64_t left, right;
} idlesched_finding;

#define IDLESCHED_FINDINGS_MAX 8

typedef struct idlesched_audit {
  unsigned broken_count; /* invariants that do not hold; the first ones are here: */
  idlesched_finding findings[IDLESCHED_FINDINGS_MAX];
} idlesched_audit;

/*
 * Check the pool's book-keeping, worker by worker and in sum, while it goes on: every wake
 * is a ticket, and is used once; active, threads and jobs add up; nothing that could run
 * is left lying.
 *
 * Returns how many invariants do not hold, which is 0 unless the library is broken or its
 * memory was overwritten.  out may be NULL.  Any thread, jobs and callbacks included.
 * Costs a few ns per worker under the pool's lock.
 */
IDLESCHED_API unsigned idlesched_pool_audit(idlesched_pool *pool, idlesched_audit *out);

/* -------------------------------------------------------------------- pressure */

/*
 * A watcher that releases every pool at once when the kernel says that memory is short: when
 * threads of the system, or of the process's cgroup, have stalled for it.  One for the
 * process; a thread of its own that sleeps until then.
 */
typedef struct idlesched_pressure_config {
  /* Some thread has stalled for so long within a window: then it releases.  Default a tenth of
   * the window, and that 1 s; the kernel takes windows of 0.5 to 10 s, and not above the window
   * for the stall. */
  uint64_t stall_ns, window_ns;
  /* Releases are so far apart at least, as long as the pressure lasts; when two windows have
   * passed without any, the next one releases at once.  Default 10 s. */
  uint64_t cooldown_ns;
  /* For each release, as of idlesched_release().  Default 1 s. */
  uint64_t timeout_ns;
  /* Whose pressure: a file as of the kernel's PSI.  Default: the own cgroup's
   * memory.pressure, else /proc/pressure/memory.  Beside a memory.pressure the cgroup's
   * memory.events is watched too: that it meets memory.high or memory.max counts as well. */
  const char *path;
} idlesched_pressure_config;

/*
 * Start to watch.  NULL for all defaults.
 *
 * The kernel wakes the thread by a trigger on the file.  Where it refuses that (some let
 * only the privileged set one, or take only windows of whole multiples of 2 s from others),
 * the window is rounded up to such a multiple, and the stall with it; if that is refused as
 * well, or the file cannot be written, the thread reads the file once a window instead.
 * idlesched_pressure_stats_read() says what has become of it.
 *
 *   -EALREADY  it is being watched
 *   -ENOTSUP   the kernel has no such file (CONFIG_PSI, cgroup v2)
 *   -ENOENT, -EBADMSG, -ENAMETOOLONG  there is no file at the path that was given, it is of
 *              another kind, or the path is longer than the 255 bytes that stats can tell
 *   -EACCES, -EAGAIN, -EMFILE, -ENOMEM, ...  the system refuses the file or a thread
 *   -EINVAL    a time is out of its range
 *
 * In a child process nothing is watched, and it may start anew.
 */
IDLESCHED_API int idlesched_pressure_start(const idlesched_pressure_config *config);
/* Stop; returns when the thread has ended, after the release that is under way.  Does nothing
 * when nothing is watched.  Several threads may, and a job, too: a release that is under way
 * then waits for that job in vain, for its timeout. */
IDLESCHED_API void idlesched_pressure_stop(void);

typedef struct idlesched_pressure_stats {
  bool is_watching;      /* not any more, too, when the file's cgroup is gone */
  bool has_trigger;      /* the kernel wakes the thread, which else looks once a window */
  uint64_t starts_count; /* in this process and those it was forked from: the last one's number */
  uint64_t window_ns;    /* as it was rounded; 0 when nothing is watched */
  char path[256];        /* of the file; "" when nothing is watched */
  /* Since the last start. */
  uint64_t events_count;   /* times that the kernel told, at most one in a window */
  uint64_t releases_count; /* that followed; the others came within the cooldown */
  uint64_t returned_bytes; /* by those releases */
} idlesched_pressure_stats;

IDLESCHED_API void idlesched_pressure_stats_read(idlesched_pressure_stats *out);

/* ------------------------------------------------------------------------ jobs */

enum idlesched_job_state {
  IDLESCHED_JOB_NEW,
  IDLESCHED_JOB_QUEUED,
  IDLESCHED_JOB_RUNNING,
  IDLESCHED_JOB_DONE,     /* run() returned 0 or more */
  IDLESCHED_JOB_FAILED,   /* run() returned a negative status */
  IDLESCHED_JOB_CANCELLED /* it will not run */
};

#define IDLESCHED_PRIORITY_MOST 7

/*
 * Cancels many jobs, of any pools.  The struct is the host's, all zero at first, and outlives
 * the jobs that have it; its fields are the library's.
 */
typedef struct idlesched_token {
  uint32_t is_cancelled_;
} idlesched_token;

/* A moment at which the library has to look after a job; its fields are the library's. */
typedef struct idlesched_alarm {
  struct idlesched_alarm *child_, *next_, *previous_;
  uint64_t at_ns_, number_;
} idlesched_alarm;

/*
 * A job that can be waited for, delayed and cancelled.  It is a part of a struct of the
 * caller's, so that submitting it allocates nothing of its own.  Set run, and what you want
 * of the fields up to the priority, and leave the rest zero.
 *
 * The job stays where it is until it has ended: until wait returned, or, when it
 * has a done callback, until that was called.
 */
struct idlesched_job {
  /* On a worker.  What it returns decides between DONE and FAILED. */
  int (*run)(idlesched_job *job, idlesched_worker *worker);
  /*
   * The job has ended, in whatever way, and waiters have been told.  On the
   * thread that ended it, without any lock: the worker, or whoever closed the
   * pool or cancelled it; if it expired, any worker, or whoever waits for it.  It is
   * the last thing that happens to the job, so it may free it.  It should be short: a
   * job that it submits is for this worker, which is warm, and begins when it has
   * returned, or when it waits for that job.  May be NULL.
   */
  void (*done)(idlesched_job *job);
  void *context;
  /* May be NULL. */
  idlesched_token *token;
  /* Begun no earlier than so long after it was submitted; then it queues behind those of
   * its priority.  A worker that is free begins it at that moment, unless all that have a
   * thread run jobs or give memory back: those do when they have finished that. */
  uint64_t delay_ns;
  /* If it was not begun so long after it was submitted, it never is: it is cancelled, with
   * the status -ETIMEDOUT.  Who waits for it is told at that moment; while all workers run
   * jobs, and nobody waits, the first of them to come back ends it.  0: it may wait for ever. */
  uint64_t expire_ns;
  /* Jobs of a higher priority are begun before all others; inside one, first in, first
   * out.  -IDLESCHED_PRIORITY_MOST to IDLESCHED_PRIORITY_MOST. */
  int priority;

  /* The pool's; read them with the functions below.  In the order of use: what is up to
   * next_ is touched for each job, and the rest only for those with an alarm. */
  uint32_t state_;
  idlesched_pool *pool_;
  void *segment_; /* its place in the queue */
  uint32_t cell_;
  int status_;
  uint64_t expires_at_ns_;
  bool is_delayed_;
  uint32_t is_cancelled_;
  idlesched_worker *worker_;
  void *waiters_;
  idlesched_job *next_;
  idlesched_alarm alarm_;
};

/*
 * Queue a job.  It may be one that has ended, to run it again, as long as nobody
 * still waits for it.  As idlesched_pool_submit(), and
 *
 *   -EINVAL     job->run is NULL, or its priority is out of range
 *   -EALREADY   the job is queued or running
 *   -ECANCELED  its token is cancelled
 */
IDLESCHED_API int idlesched_pool_submit_job(idlesched_pool *pool, idlesched_job *job);

IDLESCHED_API enum idlesched_job_state idlesched_job_state_read(const idlesched_job *job);
/* What run() returned; -ECANCELED or -ETIMEDOUT when it did not run; 0 before it has ended. */
IDLESCHED_API int idlesched_job_status(const idlesched_job *job);

/*
 * Wait until the job has ended, in whatever way: 0.  timeout_ns = 0 only looks.
 *
 * From a job of the same pool, or its done callback, the calling worker runs the awaited job
 * itself if it is still queued and the time limit is not over: also beyond it, on the same
 * stack, and before others of a higher priority.  If it runs already, the wait counts as
 * blocking (idlesched_blocking_begin), so that the pool has another worker meanwhile.
 *
 *   -ETIMEDOUT  it has not after timeout_ns
 *   -EINVAL     it was never submitted, or the submit failed while this waited
 *   -ENOMEM, -EAGAIN  no resources to wait with
 *   -EDEADLK    the job waits for the caller: it is the caller's own, or one that the
 *               calling worker runs further down, or waits, through any number of jobs of
 *               this pool, for one of those.  Told at once, whatever the time limit, to the
 *               one that closes the circle; the others wait on
 */
IDLESCHED_API int idlesched_job_wait(idlesched_job *job, uint64_t timeout_ns);

/* Wait for all of them, within one common time limit.  As above; at the first error the
 * others are not waited for. */
IDLESCHED_API int idlesched_jobs_wait(idlesched_job *const *jobs, unsigned jobs_count,
                                      uint64_t timeout_ns);

/*
 * The job is not wanted any more.  One that is queued ends at once, without having run: its
 * done callback is called by this thread, without any lock.  One that runs is asked to stop
 * (idlesched_job_is_cancelled), and ends as it likes.
 *
 * Meanwhile it may end, or be submitted to its pool once more, but not to another pool.
 *
 *   0           it was queued, and is cancelled
 *   -EBUSY      it runs, and has been asked
 *   -EALREADY   it has ended, or was never submitted; or it has a done callback, and another
 *               thread that cancels it is about to call that
 *   -ESHUTDOWN  the pool is a parent process's
 */
IDLESCHED_API int idlesched_job_cancel(idlesched_job *job);
/* Whether its job, or its token, was cancelled.  For the job itself, between two steps. */
IDLESCHED_API bool idlesched_job_is_cancelled(const idlesched_job *job);

/*
 * Cancel every job that has this token, as above, in all pools; and refuse those that are
 * submitted with it from now on.  How many were queued, and are cancelled.  Looks at each
 * queued job of the process, under the lock of its pool.  The done callbacks, which this
 * thread calls, must not destroy a pool, nor wait for one of the other jobs.
 */
IDLESCHED_API uint64_t idlesched_token_cancel(idlesched_token *token);
IDLESCHED_API bool idlesched_token_is_cancelled(const idlesched_token *token);

#ifdef __cplusplus
}
#endif

#endif
