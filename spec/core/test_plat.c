/* SPDX-License-Identifier: MIT */
/*
 * test_plat.c - the platform: one monotonic clock, deadlines that are moments of it, and
 * misuse of a lock that aborts.
 */
#include "plat.h"

#include <string.h>

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
