/* SPDX-License-Identifier: MIT */
/*
 * heap.c - purges and trims one at a time, blocks counted, forks held off: see heap.h.
 */
#include "heap.h"

#include "counter.h"
#include "fork.h"

#define TRIM_LEAST_BYTES (UINT64_C(4) << 20)
/* Less than the 0.9 s after which a later pass follows, so that this one is not left out, too. */
#define TRIM_APART_NS (500 * IDS_MS)

/*
 * The process has one of these, as it has one allocator.  A request is a number; a
 * round serves all requests that were made before it began.
 *
 * Who purges makes a second round for those who asked during the first and went away
 * on that promise.  Who asks during the second waits and purges itself: so nobody
 * purges for others without end.
 */
static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  struct ids_cond served; /* L  broadcast after each round; waited on without a deadline */
  bool is_purging;        /* L */
  bool promises;          /* L  another round follows the one under way */
  uint64_t asked_count;   /* L  requests so far */
  uint64_t served_count;  /* L  requests that a finished round has served */
  uint64_t rounds_count;  /* L */
  uint64_t trimmed_at_ns; /* L  when the C library's heap was; 0: never */
  bool has_looked;        /* P  only by the thread that purges: whether the kernel */
  bool has_usual_huge;    /* P  makes huge pages where nobody asks for them */
} purge = { .lock = IDS_MUTEX_STATIC, .served = IDS_COND_STATIC };

static void lock(void) {
  if (ids_fork_is_first(&purge.fork)) {
    purge.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
    purge.served = (struct ids_cond)IDS_COND_STATIC;
    purge.is_purging = false; /* who did is not in this process */
    purge.served_count = purge.asked_count;
    ids_fork_done(&purge.fork);
  }
  ids_mutex_lock(&purge.lock);
}

bool ids_heap_keeps_huge_pages(void) {
  return ids_heap_ops.keeps_huge_pages != NULL && ids_heap_ops.keeps_huge_pages();
}

/* Of a huge page the kernel takes back nothing as long as it is one. */
static void split_huge_pages(void) {
  if (ids_heap_ops.owns == NULL)
    return;
  if (!purge.has_looked)
    purge.has_usual_huge = ids_huge_pages_are_usual();
  purge.has_looked = true;
  bool keeps = ids_heap_keeps_huge_pages();
  if (keeps || purge.has_usual_huge)
    (void)ids_huge_pages_split(ids_heap_ops.owns, keeps);
}

/* Lock held; dropped meanwhile. */
static void purge_round_locked(void) {
  uint64_t serves_count = purge.asked_count;
  ids_mutex_unlock(&purge.lock);
  ids_point("heap.purge");
  ids_fork_hold_off();
  ids_heap_ops.purge();
  split_huge_pages();
  ids_fork_let();
  ids_mutex_lock(&purge.lock);
  purge.rounds_count++;
  purge.served_count = serves_count;
  ids_cond_broadcast(&purge.served);
}

static void purge_locked(void) {
  ids_assert(ids_mutex_is_mine(&purge.lock) && !purge.is_purging);
  purge.is_purging = true;
  purge.promises = true;
  purge_round_locked();
  purge.promises = false;
  if (purge.served_count < purge.asked_count)
    purge_round_locked();
  purge.is_purging = false;
  ids_cond_broadcast(&purge.served);
}

static void purge_until_served(bool may_rely_on_promise) {
  lock();
  uint64_t number = ++purge.asked_count;
  bool is_promised = may_rely_on_promise && purge.is_purging && purge.promises;
  while (!is_promised && purge.served_count < number) {
    if (purge.is_purging)
      ids_cond_wait(&purge.served, &purge.lock, IDS_NEVER);
    else
      purge_locked();
  }
  ids_mutex_unlock(&purge.lock);
}

#define NAME_SIZE 32

/* Written once. */
static const char *name_once(char *text, void (*write)(char *text, size_t size)) {
  lock();
  if (text[0] == '\0')
    write(text, NAME_SIZE);
  ids_mutex_unlock(&purge.lock);
  return text;
}

const char *ids_heap_name(void) {
  static char text[NAME_SIZE];
  return name_once(text, ids_heap_ops.name);
}

const char *ids_heap_c_name(void) {
  static char text[NAME_SIZE];
  return name_once(text, ids_libc_name);
}

void *ids_heap_resize(void *block, size_t size) {
  uint64_t grown_bytes;
  void *resized = ids_heap_ops.resize(block, size, &grown_bytes);
  ids_counter_add_live(grown_bytes);
  return resized;
}

void ids_heap_free(void *block) {
  uint64_t grown_bytes;
  ids_heap_ops.free(block, &grown_bytes);
  ids_counter_add_live(grown_bytes);
}

void ids_heap_collect(void) {
  ids_fork_hold_off();
  ids_heap_ops.collect();
  ids_fork_let();
}

void *ids_heap_own(void) {
  ids_fork_hold_off();
  void *heap = ids_heap_ops.own();
  ids_fork_let();
  return heap;
}

void ids_heap_abandon(void *heap) {
  ids_fork_hold_off();
  ids_heap_ops.abandon(heap);
  ids_fork_let();
}

void ids_heap_thread_ends(void) {
  ids_fork_hold_off();
  ids_heap_ops.thread_ends();
  ids_fork_let();
}

void ids_heap_purge(void) {
  purge_until_served(true);
}

void ids_heap_purge_and_wait(void) {
  purge_until_served(false);
}

uint64_t ids_heap_purges_count(void) {
  lock();
  uint64_t count = purge.rounds_count;
  ids_mutex_unlock(&purge.lock);
  return count;
}

int ids_heap_keep_huge_pages(void) {
  if (ids_heap_ops.keep_huge_pages == NULL || !ids_huge_pages_can_split())
    return -ENOTSUP;
  lock();
  bool may_keep = ids_heap_ops.keep_huge_pages();
  ids_mutex_unlock(&purge.lock);
  if (!may_keep)
    return -EPERM;
  ids_huge_pages_allow(ids_heap_ops.owns); /* also in what it has taken already */
  return 0;
}

/* The moment counts as that of a trim, if one may be made. */
static bool may_trim(bool always) {
  uint64_t now_ns = ids_now_ns();
  lock();
  bool may = always || now_ns - purge.trimmed_at_ns >= TRIM_APART_NS;
  if (may)
    purge.trimmed_at_ns = now_ns;
  ids_mutex_unlock(&purge.lock);
  return may;
}

static bool is_worth_a_trim(void) {
  struct ids_c_heap heap;
  return ids_heap_ops.c_heap(&heap) && heap.free_bytes > TRIM_LEAST_BYTES;
}

void ids_heap_trim_c(bool always) {
  if (ids_heap_ops.c_trim == NULL)
    return;
  if ((always || is_worth_a_trim()) && may_trim(always))
    ids_heap_ops.c_trim();
}
