/* SPDX-License-Identifier: MIT */
/*
 * heap.h - the allocator that jobs use, and how its memory gets back to the
 * system.
 *
 * Two steps, always in this order:
 *
 *   collect  a thread gives up what its heap has cached: free pages go back to the
 *            allocator.  The owner does it, or somebody else while the owner is
 *            parked (abandon).
 *   purge    the allocator gives its free pages back to the system.  Any thread
 *            can, and nothing does it by itself: an allocator only looks at its
 *            schedule when somebody allocates or frees.
 *
 * Purges are serialised for the whole process.  Two at once would not add up:
 * mimalloc lets one of them in and makes the other skip, so what the second
 * one's caller has just collected would stay.  Here, whoever asks while a purge
 * is under way makes the purging thread go round once more, and leaves; who asks
 * during that second round waits for its end, and purges itself.
 *
 * Source: experiments with mimalloc 3.6.0.  15 workers collecting and purging
 * at once left up to 136 of 278 MiB, one purge after all collects 0.5.
 */
#ifndef IDS_HEAP_H
#define IDS_HEAP_H

#include "base.h"

/* Options of an allocator that may be overridden while it runs. */
enum ids_heap_option {
  IDS_HEAP_PURGE_DELAY_MS,     /* 0 purges at once, below 0 never; default 1000 */
  IDS_HEAP_PURGE_MIN_SIZE_KIB, /* smaller free ranges stay */
  IDS_HEAP_PURGE_MULT,         /* the delay of an arena is so many times the other */
  IDS_HEAP_OPTIONS
};

/* What the C library's malloc says of itself. */
struct ids_c_heap {
  uint64_t held_bytes; /* it has from the system; also what was trimmed and is not in memory */
  uint64_t live_bytes; /* of them in blocks in use */
  uint64_t free_bytes; /* and in blocks that were freed; also what was trimmed */
};

/* What an allocator does for us.  A build has one: heap_mimalloc.c or heap_system.c. */
struct ids_heap_ops {
  /* Write name and version, for people. */
  void (*name)(char *text, size_t size);
  /* Before the first allocation: see idlesched_process_defaults(). */
  void (*set_defaults)(void);
  /* As realloc() and free(), and by how much the bytes in use have grown, counted by what
   * blocks really have; modulo 2^64.  0 when there was no memory. */
  void *(*resize)(void *block, size_t size, uint64_t *out_grown_bytes);
  void (*free)(void *block, uint64_t *out_grown_bytes);
  void (*collect)(void);
  void (*purge)(void);
  /* The calling thread's heap, made if there is none yet: valid until the thread ends. */
  void *(*own)(void);
  /* The calling thread ends: whatever the allocator would do later, it does now. */
  void (*thread_ends)(void);
  /* What collect does, for the heap of a thread that is parked and stays so. */
  void (*abandon)(void *heap);
  /* Whether there are such options at all; without them the other three are not called. */
  bool has_options;
  long (*option_get)(enum ids_heap_option option);
  void (*option_set)(enum ids_heap_option option, long value);
  /* The same, but yields to what the user set, in the environment or in code: false, and
   * nothing has changed.  From an option_set() on that is so for each option_set_default(). */
  bool (*option_set_default)(enum ids_heap_option option, long value);
  /* Whether a private mapping without a file, of which some is in memory, is the allocator's.
   * NULL: the allocator is the C library's, and what that says has to do. */
  bool (*owns)(uintptr_t begin, uintptr_t end);
  /* Whether it asks the kernel for huge pages: only after keep_huge_pages(), or if the user
   * has set that.  NULL, as is the next: it never does. */
  bool (*keeps_huge_pages)(void);
  /* Ask for them from now on.  False: the user does not want it. */
  bool (*keep_huge_pages)(void);
  /* The C library's heap.  False, and 0 for all: it does not tell, or its malloc is this very
   * allocator, and it has none. */
  bool (*c_heap)(struct ids_c_heap *out);
  /* Give back what is free in that heap.  NULL: purge() does. */
  void (*c_trim)(void);
};

extern const struct ids_heap_ops ids_heap_ops;

/* Name and version of the allocator, for people, and of the C library's. */
const char *ids_heap_name(void);
const char *ids_heap_c_name(void);

/* As realloc() and free(), and counted: counter.h. */
void *ids_heap_resize(void *block, size_t size);
void ids_heap_free(void *block);

/* Give up what the calling thread's heap has cached.  27..60 us with mimalloc, more with
 * many pages.  A thread that never allocated gets an empty heap first. */
void ids_heap_collect(void);

/* The calling thread's heap, for others to abandon: valid until the thread ends.  NULL with
 * an allocator that has no such thing. */
void *ids_heap_own(void);

/*
 * What collect does, for another thread's heap.  Its owner sleeps, and cannot wake up to
 * allocate or free anything before this returns: whoever calls has claimed it.
 */
void ids_heap_abandon(void *heap);

/* The last thing that a thread of ours does: what the allocator has to do at the end of a
 * thread is done here, where a fork does not come between. */
void ids_heap_thread_ends(void);

/* Give free pages back to the system: returns when that is done, or when
 * another thread has promised to do it. */
void ids_heap_purge(void);

/* The same, but returns only when what was free at the call has been purged. */
void ids_heap_purge_and_wait(void);

/*
 * Keep huge pages, and split at each purge those of which a part is free.  Without them,
 * where the kernel makes some all the same, a purge splits those it finds, so that they are
 * no more.  0, or
 *
 *   -ENOTSUP  the allocator or the kernel has none, or none that can be split
 *   -EPERM    the user has set that there are none
 */
int ids_heap_keep_huge_pages(void);
bool ids_heap_keeps_huge_pages(void);

/* Purges made so far in this process. */
uint64_t ids_heap_purges_count(void);

/*
 * Native code under a stock interpreter takes its memory from the C library, and that keeps
 * what was freed as well.  Trimming gives it back, from any thread, at some 1.3 ms for each
 * 10 MB; where nothing is left to give it still goes over all that is free: 0.1..2 ms.
 *
 * always = false: only if more than 4 MiB are free, and not within 0.5 s of the last time.
 * What is left out for that, a later pass does (0.9 s after the first: pass.h).
 *
 * That nothing was freed since the last time cannot be seen.  What was trimmed stays free in
 * the C library's books, so the figure is the same whether those pages are in memory again
 * or not: 64 MB in small blocks, one in 3000 of which stays, were 62 MB free before the
 * trim, after it, and again when as much had been taken and freed once more.
 */
void ids_heap_trim_c(bool always);

/* ------------------------------------------------------------ the C library's heap */

/* heap_libc.c: what the allocators' files make c_heap and c_trim of, and its name. */
void ids_libc_name(char *text, size_t size);
bool ids_libc_heap(struct ids_c_heap *out);
void ids_libc_trim(void);

#endif
