/* SPDX-License-Identifier: MIT */
/*
 * test_plat.c - the platform: one monotonic clock, deadlines that are moments of it, words
 * to sleep on, forks that are counted, and misuse of a lock that aborts.
 */
#include "plat.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "idlesched.h"

static struct ids_mutex lock = IDS_MUTEX_STATIC;

SPEC(the_clock_is_the_monotonic_one,
     "G6 the core's clock is the one that wall-clock changes skip") {
  for (unsigned i = 0; i < 1000; i++) {
    uint64_t before_ns = spec_now_ns(); /* CLOCK_MONOTONIC */
    uint64_t now_ns = ids_now_ns();
    CHECK_LE_U64(before_ns, now_ns);
    CHECK_LE_U64(now_ns, spec_now_ns());
  }
}

SPEC(ticks_are_of_the_same_clock, "G6 the cheap clock is the same one, some ms behind") {
  for (unsigned i = 0; i < 1000; i++) {
    uint64_t before_ns = ids_tick_ns();
    CHECK_LE_U64(before_ns, ids_now_ns());
    CHECK_LE_U64(before_ns, ids_tick_ns());
  }
  uint64_t now_ns = ids_now_ns();
  WAIT_UNTIL(ids_tick_ns() >= now_ns, 5000);
}

/* On another clock the deadline would lie decades away, or in the past: then these would
 * be thousands of waits. */
SPEC(waits_are_on_the_monotonic_clock, "G6 a wait ends at its moment of the monotonic clock") {
  struct ids_cond cond;
  REQUIRE_EQ_INT(ids_cond_init(&cond, "spec"), 0);
  ids_mutex_lock(&lock);
  uint64_t deadline_ns = ids_now_ns() + 50 * IDLESCHED_MS;
  unsigned waits_count = 0;
  for (; ids_now_ns() < deadline_ns; waits_count++)
    ids_cond_wait(&cond, &lock, deadline_ns);
  CHECK_LE_INT(waits_count, 5);
  CHECK(ids_mutex_is_mine(&lock));
  ids_mutex_unlock(&lock);
  ids_cond_deinit(&cond);
}

SPEC(a_wait_for_a_moment_that_has_passed, "G6 a wait for a moment that has passed comes back") {
  struct ids_cond cond;
  REQUIRE_EQ_INT(ids_cond_init(&cond, "spec"), 0);
  ids_mutex_lock(&lock);
  ids_cond_wait(&cond, &lock, 0);
  ids_cond_wait(&cond, &lock, ids_now_ns());
  ids_mutex_unlock(&lock);
  ids_cond_deinit(&cond);
}

/* ------------------------------------------------------------------ threads */

struct start {
  struct ids_thread handle;
  uint32_t is_over;
  bool detaches;
};

static void thread_main(void *context) {
  struct start *self = context;
  CHECK_EQ_PTR(ids_tls_get(IDS_TLS_WORKER), NULL);
  ids_tls_set(IDS_TLS_WORKER, self);
  CHECK_EQ_PTR(ids_tls_get(IDS_TLS_WORKER), self);
  CHECK(!ids_mutex_is_mine(&lock));
  ids_mutex_lock(&lock);
  CHECK(ids_mutex_is_mine(&lock));
  ids_mutex_unlock(&lock);
  if (self->detaches)
    ids_thread_detach_self();
  ids_store_release(&self->is_over, 1);
}

SPEC(threads_are_joined_or_detached,
     "plat: a thread is joined, or detaches itself; has its own TLS") {
  for (unsigned i = 0; i < 100; i++) {
    struct start start = { .detaches = i % 2 == 0 };
    REQUIRE_EQ_INT(ids_thread_start(&start.handle,
                                    &(struct ids_thread_config){ .main = thread_main,
                                                                 .context = &start,
                                                                 .name = "spec",
                                                                 .stack_size = 128 * 1024 },
                                    "spec"),
                   0);
    /* The thread writes its handle: who joins must have heard from it before. */
    WAIT_UNTIL(ids_load_acquire(&start.is_over) == 1, 10000);
    if (!start.detaches)
      ids_thread_join(&start.handle);
    CHECK_EQ_PTR(ids_tls_get(IDS_TLS_WORKER), NULL);
  }
}

/* ------------------------------------------------------------------- futex */

SPEC(a_word_that_has_changed_is_not_slept_on,
     "plat: a futex wait comes back at once when the word is not the expected one") {
  uint32_t word = 5;
  errno = EDOM;
  ids_futex_wait(&word, 4, IDS_NEVER);
  ids_futex_wait(&word, 6, ids_now_ns() + 1000 * IDS_S);
  CHECK_EQ_INT(errno, EDOM);
  CHECK_EQ_INT(word, 5);
}

SPEC(a_futex_wait_ends_at_its_moment,
     "G6 a futex wait ends at its moment, and for one that has passed at once") {
  uint32_t word = 5;
  uint64_t deadline_ns = ids_now_ns() + 50 * IDS_MS;
  unsigned waits_count = 0;
  errno = EDOM;
  ids_futex_wait(&word, 5, 0);
  ids_futex_wait(&word, 5, ids_now_ns());
  for (; ids_now_ns() < deadline_ns; waits_count++)
    ids_futex_wait(&word, 5, deadline_ns);
  CHECK_LE_INT(waits_count, 5);
  CHECK_EQ_INT(errno, EDOM);
}

/* Threads that sleep on one word until it is theirs to go on. */
struct sleepers {
  uint32_t word;
  uint64_t deadline_ns;
  uint32_t awake_count;
  uint32_t begun_count;
  uint32_t system_ids[4]; /* the kernel's, of those that have begun */
};

static uint32_t add_one(uint32_t *word) {
  uint32_t before;
  do
    before = ids_load_acquire(word);
  while (!ids_store_if_equal(word, before, before + 1));
  return before;
}

static void sleep_on_word(void *context) {
  struct sleepers *self = context;
  ids_store_release(&self->system_ids[add_one(&self->begun_count)], (uint32_t)gettid());
  while (ids_load_acquire(&self->word) == 0 && ids_now_ns() < self->deadline_ns)
    ids_futex_wait(&self->word, 0, self->deadline_ns);
  add_one(&self->awake_count);
}

static void start_thread(struct ids_thread *thread, void (*main)(void *context), void *context) {
  const struct ids_thread_config config = {
    .main = main, .context = context, .name = "spec", .stack_size = 128 * 1024
  };
  REQUIRE_EQ_INT(ids_thread_start(thread, &config, "spec"), 0);
}

/* Asked of the kernel; the threads here sleep nowhere but on the word.  The state is the
 * letter after the name, which is in parentheses and has none in it. */
static bool is_asleep(pid_t system_id) {
  char path[64], state = '?';
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)system_id);
  FILE *file = fopen(path, "r");
  REQUIRE(file != NULL);
  REQUIRE_EQ_INT(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
  fclose(file);
  return state == 'S';
}

static unsigned asleep_count(struct sleepers *self, unsigned threads_count) {
  unsigned count = 0;
  for (unsigned i = 0; i < threads_count; i++) {
    pid_t system_id = (pid_t)ids_load_acquire(&self->system_ids[i]);
    count += system_id != 0 && is_asleep(system_id);
  }
  return count;
}

/* All are asleep when the word changes, so that only wakes can end their sleep. */
static void wake_some(uint64_t deadline_ns, unsigned threads_count, unsigned wakes_at_once) {
  struct ids_thread threads[4];
  struct sleepers sleepers = { .deadline_ns = deadline_ns };
  for (unsigned i = 0; i < threads_count; i++)
    start_thread(&threads[i], sleep_on_word, &sleepers);
  WAIT_UNTIL(asleep_count(&sleepers, threads_count) == threads_count, 10000);
  ids_store_release(&sleepers.word, 1);
  for (unsigned awake = 0; awake < threads_count;) {
    ids_futex_wake(&sleepers.word, wakes_at_once);
    awake = wakes_at_once < threads_count - awake ? awake + wakes_at_once : threads_count;
    WAIT_UNTIL(ids_load_acquire(&sleepers.awake_count) >= awake, 10000);
    CHECK_EQ_INT(ids_load_acquire(&sleepers.awake_count), awake);
  }
  for (unsigned i = 0; i < threads_count; i++)
    ids_thread_join(&threads[i]);
}

SPEC(a_wake_ends_a_wait, "plat: a futex wake ends a wait, with a deadline or without one") {
  for (unsigned i = 0; i < 50; i++) {
    wake_some(IDS_NEVER, 1, 1);
    wake_some(ids_now_ns() + 1000 * IDS_S, 1, 1);
  }
}

SPEC(a_wake_wakes_as_many_as_it_is_told,
     "plat: four sleepers are woken one by one, two by two, or all at once, and no others") {
  for (unsigned i = 0; i < 20; i++) {
    wake_some(IDS_NEVER, 4, 1);
    wake_some(IDS_NEVER, 4, 2);
    wake_some(IDS_NEVER, 4, UINT_MAX);
  }
}

/* A change between the look at the word and the sleep must not be slept through. */
SPEC(a_wake_that_races_the_sleep, "plat: a word that changes just before the sleep ends it") {
  for (unsigned i = 0; i < 500; i++) {
    struct ids_thread thread;
    struct sleepers sleepers = { .deadline_ns = IDS_NEVER };
    start_thread(&thread, sleep_on_word, &sleepers);
    for (unsigned pause = 0; pause < i % 50; pause++)
      ids_relax();
    ids_store_release(&sleepers.word, 1);
    ids_futex_wake(&sleepers.word, 1);
    WAIT_UNTIL(ids_load_acquire(&sleepers.awake_count) == 1, 10000);
    ids_thread_join(&thread);
  }
}

SPEC(a_wake_without_sleepers, "plat: a futex wake that nobody sleeps for does nothing") {
  uint32_t word = 0;
  ids_futex_wake(&word, 1);
  ids_futex_wake(&word, 0);
  ids_futex_wake(&word, UINT_MAX);
  CHECK_EQ_INT(word, 0);
}

static void set_word(void *word) {
  ids_store_release(word, 1);
}

SPEC(a_spin_loop_lets_others_run, "plat: the body of a spin loop lets the others run") {
  uint32_t word = 0;
  struct ids_thread thread;
  uint64_t deadline_ns = ids_now_ns() + 10 * IDS_S;
  start_thread(&thread, set_word, &word);
  while (ids_load_acquire(&word) == 0 && ids_now_ns() < deadline_ns)
    ids_relax();
  CHECK_EQ_INT(ids_load_acquire(&word), 1);
  ids_thread_join(&thread);
}

/* ------------------------------------------------------------------- forks */

/* What it is in a child, or in the child of one. */
static uint32_t generation_after(unsigned forks_count) {
  if (forks_count == 0)
    return ids_fork_generation();
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0)
    _exit((int)generation_after(forks_count - 1));
  int status;
  REQUIRE_EQ_INT(waitpid(child, &status, 0), child);
  REQUIRE(WIFEXITED(status));
  return (uint32_t)WEXITSTATUS(status);
}

/* The case may be in a child itself, of the harness. */
SPEC(forks_are_counted, "G5 a child counts one fork more than its parent, the parent none") {
  uint32_t before = ids_fork_generation();
  CHECK_LE_INT(before, 1);
  CHECK_EQ_INT(generation_after(1), before + 1);
  CHECK_EQ_INT(generation_after(1), before + 1);
  CHECK_EQ_INT(generation_after(3), before + 3);
  CHECK_EQ_INT(ids_fork_generation(), before);
}

/* ------------------------------------------------------------------ misuse */

SPEC(locking_twice_aborts, "plat: locking a mutex twice is an assertion",
     .aborts_with = "!ids_mutex_is_mine(self)") {
  ids_mutex_lock(&lock);
  ids_mutex_lock(&lock);
}

SPEC(unlocking_what_is_not_mine_aborts, "plat: unlocking a mutex that is not mine is an assertion",
     .aborts_with = "ids_mutex_is_mine(self)") {
  ids_mutex_unlock(&lock);
}

SPEC(waiting_without_the_lock_aborts, "plat: waiting without the lock is an assertion",
     .aborts_with = "ids_mutex_is_mine(mutex)") {
  struct ids_cond cond;
  REQUIRE_EQ_INT(ids_cond_init(&cond, "spec"), 0);
  ids_cond_wait(&cond, &lock, IDS_NEVER);
}

SPEC(an_assertion_says_what_and_where, "plat: a failed assertion says what, where and both numbers",
     .aborts_with = "idlesched: assertion failed: 2 + 2 == 5: 4 against 5 (") {
  ids_assert_equal(2 + 2, 5);
}

/* ----------------------------------------------------------------- mappings */

struct search {
  const char *begin;
  unsigned found_count, mappings_count;
  uintptr_t last_end;
  struct ids_mapping found;
};

static void look_at_mapping(void *context, const struct ids_mapping *mapping) {
  struct search *self = context;
  self->mappings_count++;
  CHECK_LT_U64(mapping->begin, mapping->end);
  CHECK_GE_U64(mapping->begin, self->last_end);
  self->last_end = mapping->end;
  if (mapping->begin == (uintptr_t)self->begin) {
    self->found = *mapping;
    self->found_count++;
  }
}

static struct ids_mapping mapping_at(const char *begin) {
  struct search search = { .begin = begin };
  int status = ids_mappings_read(look_at_mapping, &search);
  if (status == -ENOTSUP)
    SKIP("this system lists no mappings");
  REQUIRE_EQ_INT(status, 0);
  CHECK_GE_INT(search.mappings_count, 5);
  REQUIRE_EQ_INT(search.found_count, 1);
  return search.found;
}

SPEC(mappings_are_told,
     "B30 a mapping is told with its addresses, its kind, and what is in memory") {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *all = mmap(NULL, 6 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(all != MAP_FAILED);
  char *middle = all + page;
  REQUIRE_EQ_INT(mprotect(middle, 4 * page, PROT_READ | PROT_WRITE), 0);
  memset(middle, 1, 3 * page);
  struct ids_mapping mapping = mapping_at(middle);
  CHECK_EQ_U64(mapping.end - mapping.begin, 4 * page);
  CHECK_EQ_U64(mapping.resident_bytes, 3 * page);
  CHECK(mapping.is_anonymous);
}

/* A name of line ends: each takes four letters in the kernel's list, which makes its line
 * longer than what is read at a time. */
SPEC(a_mapping_with_a_long_name,
     "B30 a mapping whose file has a very long name is no anonymous one") {
  enum { FOLDERS = 14 };
  char name[241], root[] = "/tmp/idlesched-plat-XXXXXX";
  memset(name, '\n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  REQUIRE(mkdtemp(root) != NULL);
  REQUIRE_EQ_INT(chdir(root), 0);
  for (unsigned i = 0; i < FOLDERS; i++) {
    REQUIRE_EQ_INT(mkdir(name, 0700), 0);
    REQUIRE_EQ_INT(chdir(name), 0);
  }
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int file = open("file", O_RDWR | O_CREAT, 0600);
  REQUIRE(file >= 0);
  REQUIRE_EQ_INT(ftruncate(file, (off_t)(2 * page)), 0);
  char *mapped = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  REQUIRE(mapped != MAP_FAILED);
  memset(mapped, 1, page);
  struct ids_mapping mapping = mapping_at(mapped);
  CHECK(!mapping.is_anonymous);
  CHECK_EQ_U64(mapping.resident_bytes, page);

  close(file);
  unlink("file");
  for (unsigned i = 0; i < FOLDERS; i++)
    if (chdir("..") != 0 || rmdir(name) != 0)
      break;
  REQUIRE_EQ_INT(rmdir(root), 0);
}

SPEC(residency_counts_huge_pages, "B30 what the kernel says of the process adds up") {
  struct ids_residency residency;
  int status = ids_residency_read(&residency);
  if (status == -ENOTSUP)
    SKIP("this system does not tell how much memory a process has");
  REQUIRE_EQ_INT(status, 0);
  CHECK_LE_U64(residency.anonymous_bytes, residency.resident_bytes);
  CHECK_LE_U64(residency.huge_bytes, residency.anonymous_bytes);
  CHECK_GE_U64(residency.threads_count, 1); /* a sanitizer has one of its own */
}
