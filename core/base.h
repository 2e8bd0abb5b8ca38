/* SPDX-License-Identifier: MIT */
/*
 * base.h - the few words every file may use.
 */
#ifndef IDS_BASE_H
#define IDS_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A moment that never comes, and a duration that never ends. */
#define IDS_NEVER UINT64_MAX
#define IDS_US UINT64_C(1000)
#define IDS_MS (1000 * IDS_US)
#define IDS_S (1000 * IDS_MS)

#define ids_container_of(pointer, type, member)                                                    \
  ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#define ids_countof(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__GNUC__)
#define IDS_NORETURN __attribute__((noreturn))
#define IDS_LIKELY(condition) __builtin_expect(!!(condition), 1)
#else
#define IDS_NORETURN
#define IDS_LIKELY(condition) (condition)
#endif

/*
 * Assertions stay on in every build: what they state is what makes the library
 * safe to embed, and each costs a compare of values that are at hand anyway.
 * ids_assert_equal() is for counts: its message carries both numbers.
 */
#define ids_assert(condition)                                                                      \
  (IDS_LIKELY(condition) ? (void)0 : ids_fatal(#condition, __FILE__, __LINE__))
#define ids_assert_equal(left, right) ids_assert_rule(#left " == " #right, left, right)
/* The same for a rule that has a text of its own. */
#define ids_assert_rule(text, left, right)                                                         \
  (IDS_LIKELY((uint64_t)(left) == (uint64_t)(right))                                               \
     ? (void)0                                                                                     \
     : ids_fatal_numbers(text, (uint64_t)(left), (uint64_t)(right), __FILE__, __LINE__))

/* Say what is broken, to the host's handler first (failure.h), and end the process. */
IDS_NORETURN void ids_fatal(const char *expression, const char *file, int line);
IDS_NORETURN void ids_fatal_numbers(const char *expression, uint64_t left, uint64_t right,
                                    const char *file, int line);

/* moment + duration, where both may be IDS_NEVER and nothing wraps around. */
static inline uint64_t ids_after_ns(uint64_t moment_ns, uint64_t duration_ns) {
  return duration_ns > IDS_NEVER - moment_ns ? IDS_NEVER : moment_ns + duration_ns;
}

static inline uint64_t ids_smaller(uint64_t left, uint64_t right) {
  return left < right ? left : right;
}

/* What is left of a value, and never below 0. */
static inline uint64_t ids_less(uint64_t value, uint64_t part) {
  return value > part ? value - part : 0;
}

static inline uint64_t ids_earlier_ns(uint64_t left_ns, uint64_t right_ns) {
  return ids_smaller(left_ns, right_ns);
}

static inline uint64_t ids_later_ns(uint64_t left_ns, uint64_t right_ns) {
  return left_ns < right_ns ? right_ns : left_ns;
}

#endif
