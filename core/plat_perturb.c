/* SPDX-License-Identifier: MIT */
/*
 * plat_perturb.c - the POSIX platform with delays that are drawn: for specs, in place
 * of plat_posix.c.
 *
 * On an idle machine threads meet in the same few ways over and over.  Here each of them
 * now and then stands still where the order matters: before it takes a lock and after it
 * gave one up, between its decision to sleep and its sleep, on either side of a signal,
 * between reading a word and using what was read.  A thread has a temper, drawn once, so
 * that some are slow all the time and others hardly ever, which a delay in one of N calls
 * would not give.
 *
 * IDLESCHED_PERTURB_SEED=N draws the same delays again for the n-th thread that comes
 * here.  Without it every process draws a seed of its own.  The seed is printed to
 * stderr at a process's first delay, and so stands in what a failed spec shows.  It makes
 * a failure likely to come back, not certain: the system still chooses who runs.
 */
#include "plat.h"

/*
 * The platform is compiled here a second time, with some of its functions under another
 * name: perturbed ones call those.  What the platform itself calls of them stays calm.
 */
#define CALM(name) static __typeof__(ids_##name) calm_##name
CALM(mutex_lock);
CALM(mutex_unlock);
CALM(cond_wait);
CALM(cond_signal);
CALM(cond_broadcast);
CALM(futex_wait);
CALM(futex_wake);
CALM(thread_start);
CALM(load_acquire);
CALM(store_release);
CALM(store_if_equal);
CALM(point);

#define ids_mutex_lock calm_mutex_lock
#define ids_mutex_unlock calm_mutex_unlock
#define ids_cond_wait calm_cond_wait
#define ids_cond_signal calm_cond_signal
#define ids_cond_broadcast calm_cond_broadcast
#define ids_futex_wait calm_futex_wait
#define ids_futex_wake calm_futex_wake
#define ids_thread_start calm_thread_start
#define ids_load_acquire calm_load_acquire
#define ids_store_release calm_store_release
#define ids_store_if_equal calm_store_if_equal
#define ids_point calm_point
#include "plat_posix.c"
#undef ids_mutex_lock
#undef ids_mutex_unlock
#undef ids_cond_wait
#undef ids_cond_signal
#undef ids_cond_broadcast
#undef ids_futex_wait
#undef ids_futex_wake
#undef ids_thread_start
#undef ids_load_acquire
#undef ids_store_release
#undef ids_store_if_equal
#undef ids_point

/* ------------------------------------------------------------------ drawing */

/* One of so many calls is delayed by a sleep; four times as many by a yield. */
static const unsigned tempers[] = { 32, 128, 512, 4096 };
enum { SLEEP_MAX_US = 300 };

static _Atomic uint64_t seed;
static _Atomic unsigned threads_count;

/* Of the calling thread; sleep_one_in is 0 until it has drawn its temper. */
THREAD_LOCAL struct {
  uint64_t random;
  unsigned sleep_one_in;
} mood;

/* Steps of a Weyl sequence, mixed: neighbouring seeds give unlike numbers. */
static uint64_t draw(void) {
  uint64_t mixed = mood.random += UINT64_C(0x9e3779b97f4a7c15);
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
  return mixed ^ (mixed >> 31);
}

/* The seed of the environment, or one that differs from process to process; never 0. */
static uint64_t new_seed(void) {
  const char *text = getenv("IDLESCHED_PERTURB_SEED");
  if (text == NULL || *text == '\0')
    return ((ids_now_ns() ^ ((uint64_t)getpid() << 20)) & 0xffffffff) | 1;
  char *end;
  uint64_t value = strtoull(text, &end, 10);
  if (*end != '\0' || *text < '0' || *text > '9' || value == 0) {
    fprintf(stderr, "idlesched: IDLESCHED_PERTURB_SEED is '%s'; expected a number above 0\n", text);
    exit(2);
  }
  return value;
}

/* Whichever thread is the first chooses the seed for all. */
static uint64_t seed_of_process(void) {
  uint64_t value = atomic_load_explicit(&seed, memory_order_relaxed);
  if (value != 0)
    return value;
  uint64_t mine = new_seed();
  if (!atomic_compare_exchange_strong_explicit(&seed, &value, mine, memory_order_relaxed,
                                               memory_order_relaxed))
    return value;
  fprintf(stderr, "perturbed by IDLESCHED_PERTURB_SEED=%llu\n", (unsigned long long)mine);
  return mine;
}

static void draw_temper(void) {
  unsigned number = atomic_fetch_add_explicit(&threads_count, 1, memory_order_relaxed);
  mood.random = seed_of_process() * UINT64_C(0xd1342543de82ef95) + number;
  mood.sleep_one_in = tempers[draw() % ids_countof(tempers)];
}

static void delay(void) {
  int before = errno;
  if (mood.sleep_one_in == 0)
    draw_temper();
  uint64_t drawn = draw();
  uint64_t chance = (drawn >> 32) % mood.sleep_one_in;
  if (chance == 0)
    ids_sleep_until(ids_now_ns() + (uint32_t)drawn % SLEEP_MAX_US * IDS_US);
  else if (chance <= 4)
    sched_yield();
  errno = before;
}

/* ------------------------------------------------------- what the core calls */

void ids_mutex_lock(struct ids_mutex *self) {
  delay();
  calm_mutex_lock(self);
}

void ids_mutex_unlock(struct ids_mutex *self) {
  calm_mutex_unlock(self);
  delay();
}

/* Delayed with the lock held on both sides: signals and deadlines fall into both. */
void ids_cond_wait(struct ids_cond *self, struct ids_mutex *mutex, uint64_t deadline_ns) {
  delay();
  calm_cond_wait(self, mutex, deadline_ns);
  delay();
}

void ids_cond_signal(struct ids_cond *self) {
  delay();
  calm_cond_signal(self);
  delay();
}

void ids_cond_broadcast(struct ids_cond *self) {
  delay();
  calm_cond_broadcast(self);
  delay();
}

void ids_futex_wait(uint32_t *word, uint32_t expected, uint64_t deadline_ns) {
  delay();
  calm_futex_wait(word, expected, deadline_ns);
  delay();
}

void ids_futex_wake(uint32_t *word, unsigned count) {
  delay();
  calm_futex_wake(word, count);
  delay();
}

/* The new thread is delayed by the first of these calls that it makes. */
int ids_thread_start(struct ids_thread *self, const struct ids_thread_config *config,
                     const char *site) {
  delay();
  int status = calm_thread_start(self, config, site);
  delay();
  return status;
}

uint32_t ids_load_acquire(const uint32_t *word) {
  delay();
  uint32_t value = calm_load_acquire(word);
  delay();
  return value;
}

void ids_store_release(uint32_t *word, uint32_t value) {
  delay();
  calm_store_release(word, value);
  delay();
}

bool ids_store_if_equal(uint32_t *word, uint32_t expected, uint32_t value) {
  delay();
  bool is_stored = calm_store_if_equal(word, expected, value);
  delay();
  return is_stored;
}

void ids_point(const char *where) {
  delay();
  calm_point(where);
}
