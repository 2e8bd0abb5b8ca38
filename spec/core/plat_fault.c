/* SPDX-License-Identifier: MIT */
/*
 * plat_fault.c - see plat_fault.h.
 *
 * What is armed is read without a lock, so that a case that asks for nothing runs
 * as if this file were not there: a lock of ours would hide races from the thread
 * sanitizer.
 */
#include "plat_fault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "harness.h"
#include "plat.h"

/* What the linker renames: __real_X is the platform's, __wrap_X is what the core calls. */
void *__real_ids_alloc(size_t size, const char *site);
void __real_ids_free(void *block);
int __real_ids_mutex_init(struct ids_mutex *self, const char *site);
void __real_ids_mutex_deinit(struct ids_mutex *self);
void __real_ids_mutex_lock(struct ids_mutex *self);
int __real_ids_cond_init(struct ids_cond *self, const char *site);
void __real_ids_cond_deinit(struct ids_cond *self);
void __real_ids_cond_wait(struct ids_cond *self, struct ids_mutex *mutex, uint64_t deadline_ns);
int __real_ids_thread_start(struct ids_thread *self, const struct ids_thread_config *config,
                            const char *site);
void __real_ids_thread_join(struct ids_thread *self);
void __real_ids_thread_detach_self(void);
void __real_ids_point(const char *where);
uint32_t __real_ids_load_acquire(const uint32_t *word);

void *__wrap_ids_alloc(size_t size, const char *site);
void __wrap_ids_free(void *block);
int __wrap_ids_mutex_init(struct ids_mutex *self, const char *site);
void __wrap_ids_mutex_deinit(struct ids_mutex *self);
void __wrap_ids_mutex_lock(struct ids_mutex *self);
int __wrap_ids_cond_init(struct ids_cond *self, const char *site);
void __wrap_ids_cond_deinit(struct ids_cond *self);
void __wrap_ids_cond_wait(struct ids_cond *self, struct ids_mutex *mutex, uint64_t deadline_ns);
int __wrap_ids_thread_start(struct ids_thread *self, const struct ids_thread_config *config,
                            const char *site);
void __wrap_ids_thread_join(struct ids_thread *self);
void __wrap_ids_thread_detach_self(void);
void __wrap_ids_point(const char *where);
uint32_t __wrap_ids_load_acquire(const uint32_t *word);

enum { HOLDS_MAX = 8 };

struct hold {
  const char *site;
  bool is_closed; /* L  threads stop here */
  unsigned count; /* L  threads that stand here */
};

static _Atomic bool refuses, holds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static struct hold hold_table[HOLDS_MAX]; /* L */

static struct {
  const char *site;
  unsigned first, last;
  unsigned one_in; /* 0: by number */
  uint64_t random;
  unsigned calls_count, refused_count;
} plan; /* L */

static _Thread_local bool holds_next_lock, holds_next_load;

/* ---------------------------------------------------------------- refusing */

static void set_plan(const char *site, unsigned first, unsigned last, unsigned one_in,
                     uint64_t seed) {
  pthread_mutex_lock(&lock);
  memset(&plan, 0, sizeof plan);
  plan.site = site;
  plan.first = first;
  plan.last = last;
  plan.one_in = one_in;
  plan.random = seed * 2 + 1;
  pthread_mutex_unlock(&lock);
  atomic_store_explicit(&refuses, first > 0 || one_in > 0, memory_order_relaxed);
}

void fault_refuse(const char *site, unsigned first, unsigned last) {
  set_plan(site, first, last, 0, 0);
}

void fault_refuse_at_random(const char *site, unsigned one_in, uint64_t seed) {
  set_plan(site, 0, 0, one_in, seed);
}

unsigned fault_refused_count(void) {
  pthread_mutex_lock(&lock);
  unsigned count = plan.refused_count;
  pthread_mutex_unlock(&lock);
  return count;
}

unsigned fault_calls_count(void) {
  pthread_mutex_lock(&lock);
  unsigned count = plan.calls_count;
  pthread_mutex_unlock(&lock);
  return count;
}

static bool is_drawn_locked(void) {
  plan.random = plan.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (plan.random >> 33) % plan.one_in == 0;
}

static bool is_refused(const char *site) {
  if (!atomic_load_explicit(&refuses, memory_order_relaxed))
    return false;
  bool result = false;
  pthread_mutex_lock(&lock);
  if (plan.site == FAULT_ANY_SITE || strcmp(plan.site, site) == 0) {
    plan.calls_count++;
    result = plan.one_in > 0 ? is_drawn_locked()
                             : plan.calls_count >= plan.first && plan.calls_count <= plan.last;
    plan.refused_count += result;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* ----------------------------------------------------------------- holding */

static struct hold *find_hold_locked(const char *site) {
  struct hold *hold = hold_table;
  while (hold->site != NULL && strcmp(hold->site, site) != 0) {
    hold++;
    REQUIRE(hold < hold_table + HOLDS_MAX);
  }
  return hold;
}

void hold_at(const char *site) {
  pthread_mutex_lock(&lock);
  struct hold *hold = find_hold_locked(site);
  hold->site = site;
  hold->is_closed = true;
  pthread_mutex_unlock(&lock);
  atomic_store_explicit(&holds, true, memory_order_relaxed);
}

unsigned hold_count(const char *site) {
  pthread_mutex_lock(&lock);
  unsigned count = find_hold_locked(site)->count;
  pthread_mutex_unlock(&lock);
  return count;
}

void hold_open(const char *site) {
  pthread_mutex_lock(&lock);
  find_hold_locked(site)->is_closed = false;
  pthread_cond_broadcast(&opened);
  pthread_mutex_unlock(&lock);
}

void hold_my_next_lock(void) {
  hold_at("lock");
  holds_next_lock = true;
}

void hold_my_next_load(void) {
  hold_at("load");
  holds_next_load = true;
}

static void stop_if_held(const char *site) {
  if (!atomic_load_explicit(&holds, memory_order_relaxed))
    return;
  pthread_mutex_lock(&lock);
  struct hold *hold = find_hold_locked(site);
  if (hold->site != NULL) {
    hold->count++;
    while (hold->is_closed)
      pthread_cond_wait(&opened, &lock);
    hold->count--;
  }
  pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------- counting */

/* Relaxed: they are read when the threads that write them have been joined. */
static _Atomic int64_t blocks, mutexes, conds, threads, waiting;
static _Atomic uint64_t allocs_count;

static void add(_Atomic int64_t *count, int64_t difference) {
  atomic_fetch_add_explicit(count, difference, memory_order_relaxed);
}

static int64_t value_of(_Atomic int64_t *count) {
  return atomic_load_explicit(count, memory_order_relaxed);
}

struct plat_balance plat_balance(void) {
  return (struct plat_balance){
    .blocks = value_of(&blocks),
    .mutexes = value_of(&mutexes),
    .conds = value_of(&conds),
    .threads = value_of(&threads),
    .allocs_count = atomic_load_explicit(&allocs_count, memory_order_relaxed),
  };
}

unsigned plat_waiting_count(void) {
  return (unsigned)value_of(&waiting);
}

void check_plat_balance(const char *file, int line) {
  struct plat_balance left = plat_balance();
  if (left.blocks == 0 && left.mutexes == 0 && left.conds == 0 && left.threads == 0)
    return;
  spec_fail(file, line, "left behind: %d blocks, %d mutexes, %d conditions, %d threads",
            (int)left.blocks, (int)left.mutexes, (int)left.conds, (int)left.threads);
}

/* ----------------------------------------------------- what the core calls */

void *__wrap_ids_alloc(size_t size, const char *site) {
  void *block = is_refused(site) ? NULL : __real_ids_alloc(size, site);
  add(&blocks, block != NULL);
  atomic_fetch_add_explicit(&allocs_count, 1, memory_order_relaxed);
  return block;
}

void __wrap_ids_free(void *block) {
  add(&blocks, block == NULL ? 0 : -1);
  __real_ids_free(block);
}

int __wrap_ids_mutex_init(struct ids_mutex *self, const char *site) {
  int status = is_refused(site) ? -EAGAIN : __real_ids_mutex_init(self, site);
  add(&mutexes, status == 0);
  return status;
}

void __wrap_ids_mutex_deinit(struct ids_mutex *self) {
  add(&mutexes, -1);
  __real_ids_mutex_deinit(self);
}

void __wrap_ids_mutex_lock(struct ids_mutex *self) {
  if (holds_next_lock) {
    holds_next_lock = false;
    stop_if_held("lock");
  }
  __real_ids_mutex_lock(self);
}

int __wrap_ids_cond_init(struct ids_cond *self, const char *site) {
  int status = is_refused(site) ? -ENOMEM : __real_ids_cond_init(self, site);
  add(&conds, status == 0);
  return status;
}

void __wrap_ids_cond_deinit(struct ids_cond *self) {
  add(&conds, -1);
  __real_ids_cond_deinit(self);
}

void __wrap_ids_cond_wait(struct ids_cond *self, struct ids_mutex *mutex, uint64_t deadline_ns) {
  add(&waiting, 1);
  __real_ids_cond_wait(self, mutex, deadline_ns);
  add(&waiting, -1);
}

int __wrap_ids_thread_start(struct ids_thread *self, const struct ids_thread_config *config,
                            const char *site) {
  stop_if_held(site);
  if (is_refused(site))
    return -EAGAIN;
  /* Counted first: the thread may be joined before its start returns. */
  add(&threads, 1);
  int status = __real_ids_thread_start(self, config, site);
  if (status != 0)
    add(&threads, -1);
  return status;
}

void __wrap_ids_thread_join(struct ids_thread *self) {
  __real_ids_thread_join(self);
  add(&threads, -1);
}

void __wrap_ids_thread_detach_self(void) {
  __real_ids_thread_detach_self();
  add(&threads, -1);
}

void __wrap_ids_point(const char *where) {
  stop_if_held(where);
  __real_ids_point(where);
}

uint32_t __wrap_ids_load_acquire(const uint32_t *word) {
  uint32_t value = __real_ids_load_acquire(word);
  if (holds_next_load) {
    holds_next_load = false;
    stop_if_held("load");
  }
  return value;
}
