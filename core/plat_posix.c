/* SPDX-License-Identifier: MIT */
/*
 * plat_posix.c - time, memory, locks, threads and fork, on POSIX and what Linux adds.
 */
#include "plat.h"

#include "failure.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------ fatal */

IDS_NORETURN void ids_die(const char *message) {
  fprintf(stderr, "%s\n", message);
  abort();
}

/* A pthread call that can only fail through misuse. */
static void must(int status, const char *call, int line) {
  if (status != 0)
    ids_fatal(call, __FILE__, line);
}
#define MUST(call) must(call, #call, __LINE__)

/* ------------------------------------------------------------------ clock */

static uint64_t read_clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * IDS_S + (uint64_t)now.tv_nsec;
}

uint64_t ids_now_ns(void) {
  return read_clock_ns(CLOCK_MONOTONIC);
}

uint64_t ids_tick_ns(void) {
  return read_clock_ns(CLOCK_MONOTONIC_COARSE);
}

void ids_sleep_until(uint64_t moment_ns) {
  const struct timespec moment = { .tv_sec = (time_t)(moment_ns / IDS_S),
                                   .tv_nsec = (long)(moment_ns % IDS_S) };
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR)
    continue;
}

/* ----------------------------------------------------------------- memory */

void *ids_alloc(size_t size, const char *site) {
  (void)site;
  return malloc(size);
}

void ids_free(void *block) {
  free(block);
}

/* ---------------------------------------------------- mutex and condition */

/*
 * A thread's own values come with its stack.  The default for a library that is loaded
 * late is to allocate them at their first use, which aborts when there is no memory.
 * The room for such values is small; these take 32 bytes of some 1700.
 */
#define THREAD_LOCAL static _Thread_local __attribute__((tls_model("initial-exec")))

/* The address of a thread-local is a number that no other live thread has. */
THREAD_LOCAL char thread_mark;

uintptr_t ids_thread_number(void) {
  return (uintptr_t)&thread_mark;
}

int ids_mutex_init(struct ids_mutex *self, const char *site) {
  (void)site;
  atomic_init(&self->owner, 0);
  return -pthread_mutex_init(&self->mutex, NULL);
}

void ids_mutex_deinit(struct ids_mutex *self) {
  MUST(pthread_mutex_destroy(&self->mutex));
}

/* The owner is relaxed: whoever reads its own number wrote it itself, and any
 * other value, however old, is the right answer "not mine". */
static void set_owner(struct ids_mutex *self, uintptr_t owner) {
  atomic_store_explicit(&self->owner, owner, memory_order_relaxed);
}

void ids_mutex_lock(struct ids_mutex *self) {
  ids_assert(!ids_mutex_is_mine(self));
  MUST(pthread_mutex_lock(&self->mutex));
  set_owner(self, ids_thread_number());
}

void ids_mutex_unlock(struct ids_mutex *self) {
  ids_assert(ids_mutex_is_mine(self));
  set_owner(self, 0);
  MUST(pthread_mutex_unlock(&self->mutex));
}

bool ids_mutex_is_mine(const struct ids_mutex *self) {
  return atomic_load_explicit(&self->owner, memory_order_relaxed) == ids_thread_number();
}

int ids_cond_init(struct ids_cond *self, const char *site) {
  (void)site;
  pthread_condattr_t attributes;
  int status = pthread_condattr_init(&attributes);
  if (status != 0)
    return -status;
  MUST(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
  status = pthread_cond_init(&self->cond, &attributes);
  MUST(pthread_condattr_destroy(&attributes));
  return -status;
}

void ids_cond_deinit(struct ids_cond *self) {
  MUST(pthread_cond_destroy(&self->cond));
}

void ids_cond_wait(struct ids_cond *self, struct ids_mutex *mutex, uint64_t deadline_ns) {
  ids_assert(ids_mutex_is_mine(mutex));
  set_owner(mutex, 0);
  if (deadline_ns == IDS_NEVER) {
    MUST(pthread_cond_wait(&self->cond, &mutex->mutex));
  } else {
    const struct timespec deadline = { .tv_sec = (time_t)(deadline_ns / IDS_S),
                                       .tv_nsec = (long)(deadline_ns % IDS_S) };
    int status = pthread_cond_timedwait(&self->cond, &mutex->mutex, &deadline);
    ids_assert(status == 0 || status == ETIMEDOUT);
  }
  set_owner(mutex, ids_thread_number());
}

void ids_cond_signal(struct ids_cond *self) {
  MUST(pthread_cond_signal(&self->cond));
}

void ids_cond_broadcast(struct ids_cond *self) {
  MUST(pthread_cond_broadcast(&self->cond));
}

/* ------------------------------------------------------------------ futex */

/* The bitset form takes an absolute moment on the monotonic clock. */
void ids_futex_wait(uint32_t *word, uint32_t expected, uint64_t deadline_ns) {
  const struct timespec deadline = { .tv_sec = (time_t)(deadline_ns / IDS_S),
                                     .tv_nsec = (long)(deadline_ns % IDS_S) };
  int before = errno;
  long status = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected,
                        deadline_ns == IDS_NEVER ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
  ids_assert(status == 0 || errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR);
  errno = before;
}

void ids_futex_wake(uint32_t *word, unsigned threads_count) {
  int count = threads_count > INT_MAX ? INT_MAX : (int)threads_count;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* ---------------------------------------------------------------- threads */

/*
 * Carried into the new thread, which frees it.  The thread writes its own handle:
 * pthread_create() may do so only after the thread has begun to run.
 */
struct birth {
  struct ids_thread *handle;
  void (*main)(void *context);
  void *context;
  char name[16]; /* the kernel's limit, with the final zero */
};

static void *thread_main(void *argument) {
  struct birth birth = *(struct birth *)argument;
  free(argument);
  birth.handle->thread = pthread_self();
  (void)pthread_setname_np(pthread_self(), birth.name);
  birth.main(birth.context);
  return NULL;
}

static int start_with_attributes(pthread_attr_t *attributes, struct birth *birth,
                                 size_t stack_size) {
  /* The system's least, where that is more than what was asked for. */
  size_t least = (size_t)PTHREAD_STACK_MIN;
  int status = pthread_attr_setstacksize(attributes, stack_size < least ? least : stack_size);
  if (status != 0)
    return -status;
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  MUST(pthread_sigmask(SIG_SETMASK, &all, &before));
  status = pthread_create(&thread, attributes, thread_main, birth);
  MUST(pthread_sigmask(SIG_SETMASK, &before, NULL));
  return -status;
}

int ids_thread_start(struct ids_thread *self, const struct ids_thread_config *config,
                     const char *site) {
  (void)site;
  struct birth *birth = malloc(sizeof *birth);
  if (birth == NULL)
    return -ENOMEM;
  *birth = (struct birth){ .handle = self, .main = config->main, .context = config->context };
  strncpy(birth->name, config->name, sizeof birth->name - 1);

  pthread_attr_t attributes;
  int status = -pthread_attr_init(&attributes);
  if (status == 0) {
    status = start_with_attributes(&attributes, birth, config->stack_size);
    MUST(pthread_attr_destroy(&attributes));
  }
  if (status != 0)
    free(birth);
  return status;
}

void ids_thread_join(struct ids_thread *self) {
  MUST(pthread_join(self->thread, NULL));
}

void ids_thread_detach_self(void) {
  MUST(pthread_detach(pthread_self()));
}

THREAD_LOCAL void *tls_values[IDS_TLS_SLOTS];

void *ids_tls_get(enum ids_tls_slot slot) {
  return tls_values[slot];
}

void ids_tls_set(enum ids_tls_slot slot, void *value) {
  tls_values[slot] = value;
}

uint32_t ids_load_acquire(const uint32_t *word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void ids_store_release(uint32_t *word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

bool ids_store_if_equal(uint32_t *word, uint32_t expected, uint32_t value) {
  return __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE);
}

uint64_t ids_load_relaxed(const uint64_t *word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

void ids_store_relaxed(uint64_t *word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

bool ids_tls_add(enum ids_tls_slot slot, uint64_t difference) {
  uint64_t *word = tls_values[slot];
  if (word == NULL)
    return false;
  ids_store_relaxed(word, ids_load_relaxed(word) + difference);
  return true;
}

uint64_t ids_add(uint64_t *word, uint64_t difference) {
  return __atomic_add_fetch(word, difference, __ATOMIC_ACQ_REL);
}

void ids_point(const char *where) {
  (void)where;
}

void ids_relax(void) {
  sched_yield();
}

/* ------------------------------------------------------------------- fork */

/* Counted in the child, by its only thread. */
static uint32_t fork_generation;

/*
 * Who holds a fork off is counted under the lock, and leaves without it; who forks keeps the
 * lock, so that nobody else begins, and waits for the count to fall to 0.  A child then has a
 * lock that its only thread holds, and a count of 0.
 */
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t holders_count;

static void before_fork(void) {
  uint32_t count;
  MUST(pthread_mutex_lock(&fork_lock));
  while ((count = ids_load_acquire(&holders_count)) > 0)
    ids_futex_wait(&holders_count, count, IDS_NEVER);
}

static void after_fork(void) {
  MUST(pthread_mutex_unlock(&fork_lock));
}

static void after_fork_in_child(void) {
  fork_generation++;
  after_fork();
}

__attribute__((constructor)) static void watch_forks(void) {
  MUST(pthread_atfork(before_fork, after_fork, after_fork_in_child));
}

void ids_fork_hold_off(void) {
  MUST(pthread_mutex_lock(&fork_lock));
  __atomic_add_fetch(&holders_count, 1, __ATOMIC_ACQ_REL);
  MUST(pthread_mutex_unlock(&fork_lock));
}

void ids_fork_let(void) {
  if (__atomic_sub_fetch(&holders_count, 1, __ATOMIC_ACQ_REL) == 0)
    ids_futex_wake(&holders_count, 1);
}

uint32_t ids_fork_generation(void) {
  return fork_generation;
}
