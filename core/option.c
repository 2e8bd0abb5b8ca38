/* SPDX-License-Identifier: MIT */
/*
 * option.c - see option.h.
 */
#include "option.h"

#include <string.h>

#include "fork.h"

/* ------------------------------------------------------------------- which there are */

/* A day: who wants more means never. */
#define DELAY_MOST_MS 86400000
/* As much as an arena. */
#define SIZE_MOST_KIB (1024 * 1024)

/*
 * One line for each option.  A delay is overridden by the rules of B6; never below 0, as the
 * allocator does not even note what is freed under such a delay, and no purge finds it later.
 * A multiple of 0 would be a delay of 0 by another name, without its rules.
 */
#define RULES(RULE)                                                                                \
  RULE(IDS_HEAP_PURGE_DELAY_MS, "purge_delay", 0, DELAY_MOST_MS, true)                             \
  RULE(IDS_HEAP_PURGE_MIN_SIZE_KIB, "purge_min_size", 0, SIZE_MOST_KIB, false)                     \
  RULE(IDS_HEAP_PURGE_MULT, "purge_mult", 1, 1000, false)

struct rule {
  const char *name;
  long least, most;
  bool is_delay;
};

#define AS_RULE(option, name, least, most, is_delay) [option] = { name, least, most, is_delay },
static const struct rule rules[] = { RULES(AS_RULE) };
_Static_assert(ids_countof(rules) == IDS_HEAP_OPTIONS, "each option of heap.h has its rule");

#define AS_WORD(option, name, least, most, is_delay) " " name
#define UNKNOWN "there is no such option; known are:" RULES(AS_WORD)
#define NO_OPTIONS "the allocator of this build has no options to override"

/* Options that no scope can have to itself, by their names in the allocator. */
#define HUGE_PAGES                                                                                 \
  "whether memory is in huge pages is decided when it is taken from the system; set it in the "    \
  "environment"
#define ARENAS                                                                                     \
  "arenas that exist stay as large as they are; set it in the environment, before the first "      \
  "allocation"
#define COMMIT                                                                                     \
  "memory that was committed by one rule cannot be given back by another; set it in the "          \
  "environment"
static const struct {
  const char *name, *reason;
} forbidden[] = {
  { "allow_thp", HUGE_PAGES },
  { "allow_large_os_pages", HUGE_PAGES },
  { "large_os_pages", HUGE_PAGES },
  { "reserve_huge_os_pages", HUGE_PAGES },
  { "reserve_huge_os_pages_at", HUGE_PAGES },
  { "reserve_os_memory", ARENAS },
  { "arena_reserve", ARENAS },
  { "arena_max_object_size", ARENAS },
  { "disallow_arena_alloc", ARENAS },
  { "disallow_os_alloc", ARENAS },
  { "eager_commit", COMMIT },
  { "arena_eager_commit", COMMIT },
  { "page_commit_on_demand", COMMIT },
  { "purge_decommits", COMMIT },
  { "reset_decommits", COMMIT },
  { "page_reclaim_on_free",
    "a thread's heap takes it over when it is made and keeps it; set it in the environment" },
  { "destroy_on_exit", "at the exit of the process threads may still use what it would destroy" },
};

/* IDS_HEAP_OPTIONS: there is none of that name. */
static enum ids_heap_option option_named(const char *name) {
  unsigned option = 0;
  while (option < IDS_HEAP_OPTIONS && strcmp(rules[option].name, name) != 0)
    option++;
  return option;
}

static const char *reason_of_forbidden(const char *name) {
  for (size_t i = 0; i < ids_countof(forbidden); i++)
    if (strcmp(forbidden[i].name, name) == 0)
      return forbidden[i].reason;
  return NULL;
}

const char *ids_option_reason(const char *name) {
  if (option_named(name) == IDS_HEAP_OPTIONS) {
    const char *reason = reason_of_forbidden(name);
    return reason != NULL ? reason : UNKNOWN;
  }
  return ids_heap_ops.has_options ? NULL : NO_OPTIONS;
}

/* ------------------------------------------------------------------------- the books */

/* Holders that have one place among the others, which is on the list while there are any. */
struct crowd {
  idlesched_override place;
  unsigned count;
};

enum state { NONE, WAITING, LEFT_ALONE, IN_FORCE };

/* All L: only under the registry's lock. */
struct override {
  enum state state;
  unsigned holders_count;
  idlesched_override *newest; /* and by previous_ the older ones */
  struct crowd nameless;
  struct crowd inherited; /* of the parent process */
  long asked;             /* the newest one's value, in force or not; 0 without a holder */
  long saved;             /* 0 unless IN_FORCE */
};

static struct {
  struct ids_fork_mark fork;
  struct ids_mutex lock;
  struct override overrides[IDS_HEAP_OPTIONS]; /* L */
  unsigned lifts_count;                        /* L */
  bool has_put_aside;                          /* L  one of these lifts found an override */
  bool has_defaults;                           /* L  they were set */
} registry = { .lock = IDS_MUTEX_STATIC };

static void check_locked(const struct override *self) {
  ids_assert(ids_mutex_is_mine(&registry.lock));
  ids_assert((self->state == NONE) == (self->newest == NULL));
  ids_assert((self->state == NONE) == (self->holders_count == 0));
  ids_assert(self->state != NONE || self->asked == 0);
  ids_assert(self->state == IN_FORCE || self->saved == 0);
  ids_assert(self->state != IN_FORCE || registry.lifts_count == 0);
}

static struct crowd *crowd_of(struct override *self, const idlesched_override *holder) {
  if (holder == &self->nameless.place)
    return &self->nameless;
  return holder == &self->inherited.place ? &self->inherited : NULL;
}

static void link_locked(struct override *self, idlesched_override *holder) {
  holder->next_ = NULL;
  holder->previous_ = self->newest;
  if (self->newest != NULL)
    self->newest->next_ = holder;
  self->newest = holder;
}

static void unlink_locked(struct override *self, idlesched_override *holder) {
  if (holder->next_ != NULL)
    holder->next_->previous_ = holder->previous_;
  else
    self->newest = holder->previous_;
  if (holder->previous_ != NULL)
    holder->previous_->next_ = holder->next_;
}

/* ------------------------------------------------------------------------ the option */

/* Whether a first holder would find nothing to override; for all but delays the allocator
 * says so when it is asked to write. */
static bool is_left_alone(enum ids_heap_option option) {
  if (!ids_heap_ops.has_options)
    return true;
  return rules[option].is_delay && ids_heap_ops.option_get(option) <= 0;
}

/* False: the user has set it, and it is as it was. */
static bool write_locked(enum ids_heap_option option, long value) {
  if (!rules[option].is_delay)
    return ids_heap_ops.option_set_default(option, value);
  ids_heap_ops.option_set(option, value);
  return true;
}

/* `value` is about to be asked for.  What is due is purged before a delay becomes 0. */
static void purge_before_locked(enum ids_heap_option option, long value) {
  if (value != 0 || !rules[option].is_delay)
    return;
  if (registry.lifts_count > 0 || registry.overrides[option].state == LEFT_ALONE)
    return;
  if (!is_left_alone(option)) /* else it is 0 already, or stays below */
    ids_heap_purge_and_wait();
}

static void begin_locked(enum ids_heap_option option) {
  struct override *self = &registry.overrides[option];
  self->state = LEFT_ALONE;
  if (is_left_alone(option))
    return;
  long current = ids_heap_ops.option_get(option);
  if (write_locked(option, self->asked)) {
    self->state = IN_FORCE;
    self->saved = current;
  }
}

/* Nothing is in force any more; a refusal means that the user has set it meanwhile. */
static void put_back_locked(enum ids_heap_option option) {
  struct override *self = &registry.overrides[option];
  (void)write_locked(option, self->saved);
  self->state = WAITING;
  self->saved = 0;
}

/* The newest holder may be another one than before. */
static void ask_locked(enum ids_heap_option option) {
  struct override *self = &registry.overrides[option];
  bool is_another = self->asked != self->newest->value_;
  self->asked = (long)self->newest->value_;
  if (self->state == NONE)
    self->state = WAITING;
  if (self->state == WAITING && registry.lifts_count == 0) {
    begin_locked(option);
  } else if (self->state == IN_FORCE && is_another && !write_locked(option, self->asked)) {
    self->state = LEFT_ALONE; /* the user has set it meanwhile */
    self->saved = 0;
  }
}

/* Make the option what its holders and the lifts say, after one of them has changed. */
static void settle_locked(enum ids_heap_option option) {
  struct override *self = &registry.overrides[option];
  if (self->state == IN_FORCE && (self->newest == NULL || registry.lifts_count > 0))
    put_back_locked(option);
  if (self->newest != NULL) {
    ask_locked(option);
  } else {
    self->state = NONE;
    self->asked = 0;
  }
  check_locked(self);
}

/* All that are in this state; whether there was one. */
static bool settle_all_locked(enum state from) {
  bool is_any = false;
  for (unsigned option = 0; option < IDS_HEAP_OPTIONS; option++) {
    const struct override *self = &registry.overrides[option];
    if (self->state != from)
      continue;
    purge_before_locked(option, self->asked);
    ids_fork_hold_off();
    settle_locked(option);
    ids_fork_let();
    is_any = true;
  }
  return is_any;
}

/* ---------------------------------------------------------------------------- a fork */

static void inherit_locked(struct override *self) {
  if (self->newest == NULL)
    return;
  self->inherited = (struct crowd){
    .place = { .holder_ = "the parent process", .value_ = self->asked, .since_ns_ = ids_now_ns() },
    .count = self->holders_count,
  };
  self->nameless.count = 0;
  self->newest = &self->inherited.place;
}

static void put_in_order(void) {
  registry.lock = (struct ids_mutex)IDS_MUTEX_STATIC;
  ids_mutex_lock(&registry.lock);
  ids_fork_hold_off();
  for (unsigned option = 0; option < IDS_HEAP_OPTIONS; option++)
    inherit_locked(&registry.overrides[option]);
  registry.lifts_count = 0; /* who lifted is not in this process */
  registry.has_put_aside = false;
  ids_fork_let();
  (void)settle_all_locked(WAITING);
  ids_mutex_unlock(&registry.lock);
}

static void lock(void) {
  if (ids_fork_is_first(&registry.fork)) {
    put_in_order();
    ids_fork_done(&registry.fork);
  }
  ids_mutex_lock(&registry.lock);
}

/* --------------------------------------------------------------------- enter and leave */

static void leave_locked(enum ids_heap_option option, idlesched_override *holder) {
  struct override *self = &registry.overrides[option];
  struct crowd *crowd = crowd_of(self, holder);
  bool is_last = crowd == NULL || crowd->count == 1;
  if (is_last && holder == self->newest && holder->previous_ != NULL)
    purge_before_locked(option, (long)holder->previous_->value_);
  ids_fork_hold_off();
  if (crowd != NULL)
    crowd->count--;
  if (is_last)
    unlink_locked(self, holder);
  self->holders_count--;
  settle_locked(option);
  ids_fork_let();
}

/* What a struct says is not to be trusted before it was found: it may never have entered. */
static enum ids_heap_option option_held_locked(const idlesched_override *self) {
  for (unsigned option = 0; option < IDS_HEAP_OPTIONS; option++) {
    const idlesched_override *holder = registry.overrides[option].newest;
    while (holder != NULL && holder != self)
      holder = holder->previous_;
    if (holder != NULL)
      return option;
  }
  return IDS_HEAP_OPTIONS;
}

int ids_override_enter(idlesched_override *self, const char *name, int64_t value,
                       const char *holder) {
  enum ids_heap_option option = option_named(name);
  if (option == IDS_HEAP_OPTIONS)
    return reason_of_forbidden(name) != NULL ? -EPERM : -EINVAL;
  if (!ids_heap_ops.has_options)
    return -ENOTSUP;
  if (value < rules[option].least || value > rules[option].most)
    return -EINVAL;
  ids_options_set_defaults();
  lock();
  ids_assert(option_held_locked(self) == IDS_HEAP_OPTIONS); /* a place on one list only */
  purge_before_locked(option, (long)value);
  ids_fork_hold_off();
  *self = (idlesched_override){ .holder_ = holder,
                                .since_ns_ = ids_now_ns(),
                                .value_ = value,
                                .option_ = option,
                                .generation_ = ids_fork_generation() };
  link_locked(&registry.overrides[option], self);
  registry.overrides[option].holders_count++;
  settle_locked(option);
  ids_fork_let();
  ids_mutex_unlock(&registry.lock);
  return 0;
}

void ids_override_leave(idlesched_override *self) {
  lock();
  enum ids_heap_option option = option_held_locked(self);
  if (option < IDS_HEAP_OPTIONS) {
    leave_locked(option, self);
  } else {
    /* Then the parent process held it: */
    ids_assert(self->generation_ != ids_fork_generation());
    ids_assert(self->option_ < IDS_HEAP_OPTIONS);
    struct crowd *inherited = &registry.overrides[self->option_].inherited;
    ids_assert(inherited->count > 0);
    leave_locked(self->option_, &inherited->place);
  }
  *self = (idlesched_override){ .option_ = IDS_HEAP_OPTIONS };
  ids_mutex_unlock(&registry.lock);
}

void ids_option_hold(enum ids_heap_option option, long value) {
  struct override *self = &registry.overrides[option];
  lock();
  purge_before_locked(option, value);
  ids_fork_hold_off();
  if (self->nameless.count++ == 0)
    self->nameless.place = (idlesched_override){ .since_ns_ = ids_now_ns() };
  else
    unlink_locked(self, &self->nameless.place);
  self->nameless.place.value_ = value;
  link_locked(self, &self->nameless.place);
  self->holders_count++;
  settle_locked(option);
  ids_fork_let();
  ids_mutex_unlock(&registry.lock);
}

void ids_option_drop(enum ids_heap_option option) {
  struct override *self = &registry.overrides[option];
  lock();
  struct crowd *crowd = self->nameless.count > 0 ? &self->nameless : &self->inherited;
  ids_assert(crowd->count > 0);
  leave_locked(option, &crowd->place);
  ids_mutex_unlock(&registry.lock);
}

/* ---------------------------------------------------------------------------- lifting */

bool ids_options_lift(void) {
  lock();
  registry.lifts_count++;
  if (settle_all_locked(IN_FORCE))
    registry.has_put_aside = true;
  bool has_put_aside = registry.has_put_aside;
  ids_mutex_unlock(&registry.lock);
  return has_put_aside;
}

void ids_options_unlift(void) {
  lock();
  ids_assert(registry.lifts_count > 0);
  if (--registry.lifts_count == 0) {
    registry.has_put_aside = false;
    (void)settle_all_locked(WAITING);
  }
  ids_mutex_unlock(&registry.lock);
}

/* -------------------------------------------------------------------------- the rest */

void ids_options_set_defaults(void) {
  lock();
  if (!registry.has_defaults)
    ids_heap_ops.set_defaults();
  registry.has_defaults = true;
  ids_mutex_unlock(&registry.lock);
}

unsigned ids_option_holders(enum ids_heap_option option) {
  lock();
  unsigned count = registry.overrides[option].holders_count;
  ids_mutex_unlock(&registry.lock);
  return count;
}

static void read_holders_locked(struct override *self, idlesched_option_info *out) {
  unsigned row = 0;
  out->holders_count = self->holders_count;
  for (idlesched_override *holder = self->newest; holder != NULL; holder = holder->previous_) {
    const struct crowd *crowd = crowd_of(self, holder);
    unsigned rows_count = crowd == NULL ? 1 : crowd->count;
    for (; rows_count > 0 && row < IDLESCHED_HOLDERS_MAX; rows_count--, row++) {
      out->holders[row].since_ns = holder->since_ns_;
      out->holders[row].value = holder->value_;
      if (holder->holder_ != NULL)
        strncpy(out->holders[row].name, holder->holder_, sizeof out->holders[row].name - 1);
    }
  }
}

int ids_option_read(unsigned number, idlesched_option_info *out) {
  *out = (idlesched_option_info){ 0 };
  if (!ids_heap_ops.has_options)
    return -ENOTSUP;
  if (number >= IDS_HEAP_OPTIONS)
    return -ENOENT;
  struct override *self = &registry.overrides[number];
  lock();
  out->name = rules[number].name;
  out->least = rules[number].least;
  out->most = rules[number].most;
  out->value = ids_heap_ops.option_get(number);
  out->is_overridden = self->state == IN_FORCE;
  out->put_back = out->is_overridden ? self->saved : out->value;
  read_holders_locked(self, out);
  ids_mutex_unlock(&registry.lock);
  return 0;
}
