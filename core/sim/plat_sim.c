/* SPDX-License-Identifier: MIT */
/*
 * plat_sim.c - plat.h on the simulated machine.
 *
 * A call that somebody else could notice ends the step first (sim_step()), then does its
 * work at once.  Who has to wait takes itself out of sim.runnable, is put in again by the
 * call that makes its next step possible, and finds all well when it is chosen.
 *
 * A waiter whose deadline has passed can run, and stays in the condition's set until it
 * does: a signal may still meet it, and is then not left for another.
 */
#include "plat.h"

#include <stdio.h>
#include <stdlib.h>

#include "inside.h"
#ifdef SIM_TSAN
#include <sanitizer/tsan_interface.h>
/* What instrumented code calls for an atomic; gcc has no header with them. */
uint32_t __tsan_atomic32_load(const volatile uint32_t *word, int order);
void __tsan_atomic32_store(volatile uint32_t *word, uint32_t value, int order);
int __tsan_atomic32_compare_exchange_strong(volatile uint32_t *word, uint32_t *expected,
                                            uint32_t value, int order, int order_if_not);
#define ACQUIRE(address) __tsan_acquire((void *)(uintptr_t)(address))
#define RELEASE(address) __tsan_release((void *)(uintptr_t)(address))
#else
#define ACQUIRE(address) ((void)(address))
#define RELEASE(address) ((void)(address))
#endif

/* ----------------------------------------------------- objects of this run */

/* A stamp is the number of the run, and one of these. */
enum { STAMP_MUTEX = 1, STAMP_COND = 2, STAMP_GONE = 3 };

static inline uint64_t stamp(unsigned kind) {
  return sim.run_number << 2 | kind;
}

static uint32_t add_object(const void *address, const char *site, enum sim_kind kind) {
  if (sim.objects_count == sim.objects_room) {
    sim.objects_room = sim.objects_room == 0 ? 256 : 2 * sim.objects_room;
    sim.objects = realloc(sim.objects, sim.objects_room * sizeof *sim.objects);
    if (sim.objects == NULL)
      abort();
  }
  sim.objects[sim.objects_count] = (struct sim_object){
    .address = address, .site = site, .kind = kind, .generation = sim.generation
  };
  return sim.objects_count++;
}

/* Where the program's variables of static storage lie; the linker knows. */
extern char __data_start[], _end[];

static bool is_static(const void *address) {
  return (uintptr_t)address >= (uintptr_t)__data_start && (uintptr_t)address < (uintptr_t)_end;
}

/* An object without this run's stamp: one of static storage begins anew with each run. */
static void adopt(const void *address, uint64_t found, const char *call) {
  if (!sim.is_running)
    sim_fail("%s: called", call);
  if (found == stamp(STAMP_GONE))
    sim_fail("%s: the object was deinitialised before", call);
  if (!is_static(address))
    sim_fail("%s: the object is not initialised", call);
}

static void adopt_mutex(struct ids_mutex *self, const char *call) {
  adopt(self, self->stamp, call);
  *self = (struct ids_mutex){ .stamp = stamp(STAMP_MUTEX),
                              .object = add_object(self, "a static mutex", SIM_STATIC_MUTEX) };
}

static void adopt_cond(struct ids_cond *self, const char *call) {
  adopt(self, self->stamp, call);
  *self = (struct ids_cond){ .stamp = stamp(STAMP_COND),
                             .object = add_object(self, "a static condition", SIM_STATIC_COND) };
}

static inline void check_mutex(struct ids_mutex *self, const char *call) {
  if (!IDS_LIKELY(self->stamp == stamp(STAMP_MUTEX)))
    adopt_mutex(self, call);
}

static inline void check_cond(struct ids_cond *self, const char *call) {
  if (!IDS_LIKELY(self->stamp == stamp(STAMP_COND)))
    adopt_cond(self, call);
}

/* Memory that was not initialised may hold anything, also what once was an object. */
static void check_new(const void *address, uint64_t found, uint64_t expected, uint32_t object,
                      const char *call) {
  if (found == expected && object < sim.objects_count && sim.objects[object].address == address) {
    if (sim.objects[object].generation == sim.generation)
      sim_fail("%s: the object at site '%s' is initialised already", call,
               sim.objects[object].site);
    sim.objects[object].address = NULL;
  }
}

const char *sim_mutex_name(const struct ids_mutex *mutex) {
  return mutex->stamp == stamp(STAMP_MUTEX) ? sim.objects[mutex->object].site : "a new mutex";
}

const char *sim_cond_name(const struct ids_cond *cond) {
  if (cond == NULL)
    return "a condition that was signalled";
  return cond->stamp == stamp(STAMP_COND) ? sim.objects[cond->object].site : "a new condition";
}

bool sim_objects_are_balanced(char *text, size_t size) {
  unsigned count = 0;
  for (unsigned i = 0; i < sim.objects_count; i++) {
    const struct sim_object *object = &sim.objects[i];
    bool is_static_one = object->kind == SIM_STATIC_MUTEX || object->kind == SIM_STATIC_COND;
    if (object->address == NULL || is_static_one || object->generation != sim.generation)
      continue;
    if (count++ == 0)
      snprintf(text, size, "a %s was not deinitialised: '%s'",
               object->kind == SIM_MUTEX ? "mutex" : "condition", object->site);
  }
  return count == 0;
}

/* -------------------------------------------------------------- who can run */

static inline bool is_free(const struct ids_mutex *mutex) {
  return mutex->owner == 0;
}

/* Its next step is to take the mutex. */
static inline void want(unsigned slot, struct ids_mutex *mutex) {
  sim.threads[slot].wait = SIM_WAITS_LOCK;
  mutex->lockers |= SIM_BIT(slot);
  if (is_free(mutex))
    sim.runnable |= SIM_BIT(slot);
  else
    sim.runnable &= ~SIM_BIT(slot);
}

static inline void take(struct ids_mutex *mutex) {
  struct sim_thread *me = sim_me();
  mutex->lockers &= ~SIM_BIT(sim.current);
  mutex->owner = sim.current + 1;
  sim.runnable &= ~mutex->lockers;
  me->wait = SIM_RUNS;
  me->held_count++;
  ACQUIRE(mutex);
}

static inline void give(struct ids_mutex *mutex) {
  RELEASE(mutex);
  mutex->owner = 0;
  sim.runnable |= mutex->lockers & ~sim.frozen;
  sim_me()->held_count--;
  sim.spins_count = 0;
}

void sim_awake(unsigned slot) {
  struct sim_thread *thread = &sim.threads[slot];
  if (sim.timed & SIM_BIT(slot)) {
    sim.timed &= ~SIM_BIT(slot);
    sim.timers_are_listed = false;
  }
  if (thread->wait == SIM_WAITS_COND) {
    want(slot, thread->mutex);
  } else if (thread->wait != SIM_WAITS_LOCK) {
    thread->wait = SIM_RUNS;
    sim.runnable |= SIM_BIT(slot);
  }
}

/* The calling thread waits; its timer may be over already, and it may wake up for no
 * reason, which is as good as later, as the others may go on without it. */
static void begin_wait(enum sim_wait wait, uint64_t deadline_ns) {
  unsigned slot = sim.current;
  struct sim_thread *me = sim_me();
  me->wait = wait;
  me->is_in_wait = wait == SIM_WAITS_COND || wait == SIM_WAITS_FUTEX;
  me->deadline_ns = deadline_ns;
  sim.runnable &= ~SIM_BIT(slot);
  if (deadline_ns <= sim.now_ns) {
    sim_awake(slot);
    return;
  }
  if (deadline_ns != IDS_NEVER) {
    sim.timed |= SIM_BIT(slot);
    sim.timers_are_listed = false;
  }
  if (sim.spurious_left > 0 && me->is_in_wait && sim_decide_among(SIM_CHOICE_SPURIOUS, 2) == 1) {
    sim.spurious_left--;
    if (sim.is_traced)
      sim_print("will wake for no reason", NULL);
    sim_awake(slot);
  }
}

/* -------------------------------------------------------------------- clock */

uint64_t ids_now_ns(void) {
  return sim.now_ns;
}

uint64_t ids_tick_ns(void) {
  return sim.now_ns;
}

void ids_sleep_until(uint64_t moment_ns) {
  sim_must_be_active("ids_sleep_until");
  sim_check_owner("sleeps");
  begin_wait(SIM_WAITS_SLEEP, moment_ns);
  sim_step();
  sim_do("has slept", NULL);
}

void sim_sleep_ns(uint64_t duration_ns) {
  ids_sleep_until(ids_after_ns(sim.now_ns, duration_ns));
}

/* ----------------------------------------------------- mutex and condition */

int ids_mutex_init(struct ids_mutex *self, const char *site) {
  sim_must_be_active("ids_mutex_init");
  check_new(self, self->stamp, stamp(STAMP_MUTEX), self->object, "ids_mutex_init");
  sim_do("mutex init", site);
  if (sim_is_refused(site))
    return -ENOMEM;
  *self = (struct ids_mutex){ .stamp = stamp(STAMP_MUTEX),
                              .object = add_object(self, site, SIM_MUTEX) };
  return 0;
}

void ids_mutex_deinit(struct ids_mutex *self) {
  sim_must_be_active("ids_mutex_deinit");
  check_mutex(self, "ids_mutex_deinit");
  sim_do("mutex deinit", sim_mutex_name(self));
  if (!is_free(self))
    sim_fail("ids_mutex_deinit: %s is locked by %s", sim_mutex_name(self),
             sim_thread_name(self->owner - 1));
  if ((self->lockers & ~sim.frozen) != 0)
    sim_fail("ids_mutex_deinit: %s is waited for by %s", sim_mutex_name(self),
             sim_thread_name((unsigned)__builtin_ctzll(self->lockers & ~sim.frozen)));
  sim.objects[self->object].address = NULL;
  self->stamp = stamp(STAMP_GONE);
}

void ids_mutex_lock(struct ids_mutex *self) {
  sim_must_be_active("ids_mutex_lock");
  check_mutex(self, "ids_mutex_lock");
  if (!IDS_LIKELY(self->owner != sim.current + 1))
    sim_fail("ids_mutex_lock: the caller has %s already", sim_mutex_name(self));
  sim_me()->mutex = self;
  want(sim.current, self);
  sim_step();
  take(self);
  sim_do("lock", sim_mutex_name(self));
}

void ids_mutex_unlock(struct ids_mutex *self) {
  sim_must_be_active("ids_mutex_unlock");
  check_mutex(self, "ids_mutex_unlock");
  sim_do("unlock", sim_mutex_name(self));
  if (!IDS_LIKELY(self->owner == sim.current + 1))
    sim_fail("ids_mutex_unlock: %s is locked by %s, expected the caller", sim_mutex_name(self),
             is_free(self) ? "nobody" : sim_thread_name(self->owner - 1));
  give(self);
}

bool ids_mutex_is_mine(const struct ids_mutex *self) {
  return self->stamp == stamp(STAMP_MUTEX) && self->owner == sim.current + 1;
}

bool sim_is_locked(const struct ids_mutex *mutex) {
  return mutex->stamp == stamp(STAMP_MUTEX) && !is_free(mutex);
}

int ids_cond_init(struct ids_cond *self, const char *site) {
  sim_must_be_active("ids_cond_init");
  check_new(self, self->stamp, stamp(STAMP_COND), self->object, "ids_cond_init");
  sim_do("cond init", site);
  if (sim_is_refused(site))
    return -ENOMEM;
  *self = (struct ids_cond){ .stamp = stamp(STAMP_COND),
                             .object = add_object(self, site, SIM_COND) };
  return 0;
}

void ids_cond_deinit(struct ids_cond *self) {
  sim_must_be_active("ids_cond_deinit");
  check_cond(self, "ids_cond_deinit");
  sim_do("cond deinit", sim_cond_name(self));
  uint64_t waiters = self->waiters & ~sim.frozen;
  if (waiters != 0)
    sim_fail("ids_cond_deinit: %s waits on %s", sim_thread_name((unsigned)__builtin_ctzll(waiters)),
             sim_cond_name(self));
  sim.objects[self->object].address = NULL;
  self->stamp = stamp(STAMP_GONE);
}

void ids_cond_wait(struct ids_cond *self, struct ids_mutex *mutex, uint64_t deadline_ns) {
  sim_must_be_active("ids_cond_wait");
  check_mutex(mutex, "ids_cond_wait");
  check_cond(self, "ids_cond_wait");
  unsigned slot = sim.current;
  struct sim_thread *me = sim_me();
  /* A signal without the mutex may come between the caller's look and this. */
  if (!sim.plan->signals_are_locked)
    sim_step();
  sim_do("wait", sim_cond_name(self));
  if (!IDS_LIKELY(mutex->owner == slot + 1))
    sim_fail("ids_cond_wait: %s is not locked by the caller", sim_mutex_name(mutex));
  if (!IDS_LIKELY(self->mutex == mutex || (self->waiters & ~sim.frozen) == 0))
    sim_fail("ids_cond_wait: %s is waited on with two mutexes, %s and %s", sim_cond_name(self),
             sim_mutex_name(self->mutex), sim_mutex_name(mutex));
  self->mutex = mutex;
  self->waiters |= SIM_BIT(slot);
  me->cond = self;
  me->mutex = mutex;
  give(mutex);
  begin_wait(SIM_WAITS_COND, deadline_ns);
  sim_step();
  me->is_in_wait = false;
  /* Whoever signalled it took it out, and the condition may be gone. */
  if (me->cond != NULL)
    self->waiters &= ~SIM_BIT(slot);
  take(mutex);
  sim_do(me->cond == NULL ? "wakes up, signalled, and locks" : "wakes up, and locks",
         sim_mutex_name(mutex));
  me->cond = NULL;
}

static void wake_waiter(struct ids_cond *self, unsigned slot) {
  self->waiters &= ~SIM_BIT(slot);
  sim.threads[slot].cond = NULL;
  sim_awake(slot);
}

/* Against waiters that come and go: with their mutex locked nobody comes, and who goes needs
 * the mutex. */
static inline void step_before_signal(struct ids_cond *self) {
  if (self->mutex != NULL ? ids_mutex_is_mine(self->mutex)
                          : sim.plan->signals_are_locked && sim_me()->held_count > 0)
    return;
  if (sim.plan->signals_are_locked)
    sim_fail("%s is signalled without the mutex of its waiters; expected that, as the plan says "
             "signals_are_locked",
             sim_cond_name(self));
  sim_step();
}

/* One of them, if there are several by choice. */
static unsigned choose_waiter(uint64_t waiters) {
  unsigned n = sim_decide_among(SIM_CHOICE_WAITER, sim_count_bits(waiters));
  for (; n > 0; n--)
    waiters &= waiters - 1;
  return (unsigned)__builtin_ctzll(waiters);
}

void ids_cond_signal(struct ids_cond *self) {
  sim_must_be_active("ids_cond_signal");
  check_cond(self, "ids_cond_signal");
  step_before_signal(self);
  sim.spins_count = 0;
  sim_do("signal", sim_cond_name(self));
  uint64_t waiters = self->waiters & ~sim.frozen;
  if (waiters != 0)
    wake_waiter(self, choose_waiter(waiters));
}

void ids_cond_broadcast(struct ids_cond *self) {
  sim_must_be_active("ids_cond_broadcast");
  check_cond(self, "ids_cond_broadcast");
  step_before_signal(self);
  sim.spins_count = 0;
  sim_do("broadcast", sim_cond_name(self));
  for (uint64_t left = self->waiters & ~sim.frozen; left != 0; left &= left - 1)
    wake_waiter(self, (unsigned)__builtin_ctzll(left));
}

/* -------------------------------------------------------------------- futex */

void ids_futex_wait(uint32_t *word, uint32_t expected, uint64_t deadline_ns) {
  sim_must_be_active("ids_futex_wait");
  sim_step();
  sim_do("futex wait", NULL);
  if (*word != expected)
    return;
  unsigned slot = sim.current;
  sim_me()->word = word;
  sim.futex_waiters |= SIM_BIT(slot);
  begin_wait(SIM_WAITS_FUTEX, deadline_ns);
  sim_step();
  sim_me()->is_in_wait = false;
  bool is_woken = !(sim.futex_waiters & SIM_BIT(slot));
  sim.futex_waiters &= ~SIM_BIT(slot);
  sim_do(is_woken ? "wakes up, woken" : "wakes up", "futex");
}

void ids_futex_wake(uint32_t *word, unsigned threads_count) {
  sim_must_be_active("ids_futex_wake");
  sim_step();
  sim.spins_count = 0;
  sim_do("futex wake", NULL);
  uint64_t waiters = 0;
  for (uint64_t left = sim.futex_waiters; left != 0; left &= left - 1) {
    unsigned slot = (unsigned)__builtin_ctzll(left);
    if (sim.threads[slot].word == word)
      waiters |= SIM_BIT(slot);
  }
  unsigned left_count = sim_count_bits(waiters);
  for (; waiters != 0 && threads_count > 0; threads_count--) {
    /* Which ones is a choice only when some stay asleep. */
    unsigned slot = threads_count < left_count-- ? choose_waiter(waiters)
                                                 : (unsigned)__builtin_ctzll(waiters);
    waiters &= ~SIM_BIT(slot);
    sim.futex_waiters &= ~SIM_BIT(slot);
    sim_awake(slot);
  }
}

/* ------------------------------------------------------------------ threads */

int ids_thread_start(struct ids_thread *self, const struct ids_thread_config *config,
                     const char *site) {
  sim_must_be_active("ids_thread_start");
  sim_check_owner("starts a thread");
  sim_do("start", config->name);
  if (sim_is_refused(site))
    return -EAGAIN;
  unsigned slot;
  int status = sim_thread_create(config->main, config->context, config->name, &slot);
  if (status != 0)
    return status;
  sim.spins_count = 0;
  *self =
    (struct ids_thread){ .run = sim.run_number, .slot = slot, .number = sim.threads[slot].number };
  return 0;
}

void ids_thread_join(struct ids_thread *self) {
  sim_must_be_active("ids_thread_join");
  if (self->run != sim.run_number || self->slot >= SIM_THREADS_MAX)
    sim_fail("ids_thread_join: no thread of this run");
  struct sim_thread *thread = &sim.threads[self->slot];
  struct sim_thread *me = sim_me();
  uint64_t bit = SIM_BIT(self->slot);
  if (self->slot == sim.current)
    sim_fail("ids_thread_join: a thread joins itself");
  if (thread->number != self->number || !((sim.alive | sim.ended | sim.frozen) & bit))
    sim_fail("ids_thread_join: the thread was joined or detached before");
  if (thread->is_detached || thread->joiner != 0)
    sim_fail("ids_thread_join: %s is %s", sim_thread_name(self->slot),
             thread->is_detached ? "detached" : "joined by another thread");
  me->joined_slot = self->slot;
  if (!(sim.ended & bit)) {
    thread->joiner = sim.current + 1;
    begin_wait(SIM_WAITS_JOIN, IDS_NEVER);
    sim_step();
  }
  sim_do("join", thread->name);
  ACQUIRE(&thread->name);
  sim.ended &= ~bit;
}

void ids_thread_detach_self(void) {
  sim_must_be_active("ids_thread_detach_self");
  struct sim_thread *me = sim_me();
  if (me->is_detached || me->joiner != 0)
    sim_fail("ids_thread_detach_self: the thread is %s",
             me->is_detached ? "detached already, or nobody's to join" : "being joined");
  sim_do("detach", NULL);
  me->is_detached = true;
}

unsigned ids_cpus_count(void) {
  unsigned count = sim.plan == NULL ? 0 : sim.plan->cpus_count;
  return count == 0 ? 2 : count;
}

uintptr_t ids_thread_number(void) {
  return (uintptr_t)sim_me()->number + 1;
}

/* The simulated allocator is in the middle of nothing that a child would need. */
void ids_fork_hold_off(void) {
  sim.holds_count++;
}

void ids_fork_let(void) {
  sim.holds_count--;
}

uint32_t ids_fork_generation(void) {
  return sim.generation;
}

void *ids_tls_get(enum ids_tls_slot slot) {
  return sim_me()->tls[slot];
}

void ids_tls_set(enum ids_tls_slot slot, void *value) {
  sim_me()->tls[slot] = value;
}

/* ------------------------------------------------------------------ atomics */

uint32_t ids_load_acquire(const uint32_t *word) {
  sim_step();
#ifdef SIM_TSAN
  uint32_t value = __tsan_atomic32_load(word, __ATOMIC_ACQUIRE);
#else
  uint32_t value = *word;
#endif
  if (!sim.is_passive)
    sim_do("load", NULL);
  return value;
}

void ids_store_release(uint32_t *word, uint32_t value) {
  sim_step();
  sim.spins_count = 0;
#ifdef SIM_TSAN
  __tsan_atomic32_store(word, value, __ATOMIC_RELEASE);
#else
  *word = value;
#endif
  if (!sim.is_passive)
    sim_do("store", NULL);
}

bool ids_store_if_equal(uint32_t *word, uint32_t expected, uint32_t value) {
  sim_step();
#ifdef SIM_TSAN
  uint32_t found = expected;
  bool is_stored = __tsan_atomic32_compare_exchange_strong(word, &found, value, __ATOMIC_ACQ_REL,
                                                           __ATOMIC_ACQUIRE) != 0;
#else
  bool is_stored = *word == expected;
  if (is_stored)
    *word = value;
#endif
  if (is_stored)
    sim.spins_count = 0;
  if (!sim.is_passive)
    sim_do(is_stored ? "store if equal: stored" : "store if equal: not", NULL);
  return is_stored;
}

/* Counts: no step, and nobody looks at their order. */
uint64_t ids_load_relaxed(const uint64_t *word) {
  return *word;
}

void ids_store_relaxed(uint64_t *word, uint64_t value) {
  *word = value;
}

bool ids_tls_add(enum ids_tls_slot slot, uint64_t difference) {
  uint64_t *word = ids_tls_get(slot);
  if (word == NULL)
    return false;
  *word += difference;
  return true;
}

uint64_t ids_add(uint64_t *word, uint64_t difference) {
  return *word += difference;
}

void ids_point(const char *where) {
  sim_step();
  if (sim.is_passive)
    return;
  sim_do("point", where);
  sim_check_owner("passes a point");
}

/* Everybody else who can move goes first, once. */
void ids_relax(void) {
  sim_must_be_active("ids_relax");
  uint64_t bit = SIM_BIT(sim.current);
  sim_me()->awaits = sim.runnable & ~sim.relaxed & ~bit;
  sim.relaxed |= bit;
  sim_step();
  sim.relaxed &= ~bit;
  sim_do("relax", NULL);
}

/* ------------------------------------------------------------ system facts */

/* The same at any time: what the kernel would say is nobody's business here. */
int ids_residency_read(struct ids_residency *out) {
  *out = (struct ids_residency){ .resident_bytes = UINT64_C(64) << 20,
                                 .anonymous_bytes = UINT64_C(32) << 20,
                                 .threads_count = sim_count_bits(sim.alive) };
  return 0;
}

int ids_mappings_read(void (*tell)(void *context, const struct ids_mapping *mapping),
                      void *context) {
  (void)tell;
  (void)context;
  return 0; /* blocks of the simulated allocator lie nowhere */
}

/* Nor has it pages of any kind. */
bool ids_huge_pages_are_usual(void) {
  return false;
}

bool ids_huge_pages_can_split(void) {
  return false;
}

int ids_huge_pages_split(bool (*is_ours)(uintptr_t begin, uintptr_t end), bool keeps) {
  (void)is_ours;
  (void)keeps;
  return 0;
}

void ids_huge_pages_allow(bool (*is_ours)(uintptr_t begin, uintptr_t end)) {
  (void)is_ours;
}
