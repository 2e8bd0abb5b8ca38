/* SPDX-License-Identifier: MIT */
/*
 * test_alarm.c - alarms come out in the order of their moments, and of equal ones in the
 * order in which they went in, whatever else was taken out.
 *
 * Method: beside the heap a list that is kept in order the slow way; both are asked the same,
 * at random, with few moments so that many are equal.
 */
#include <string.h>

#include "alarm.h"
#include "harness.h"

enum { MOST = 300 };

struct entry {
  idlesched_alarm alarm;
  uint64_t at_ns;
  bool is_in;
};

static struct {
  struct ids_alarms alarms;
  struct entry entries[MOST];
  struct entry *order[MOST]; /* those that are in, the first one first */
  unsigned count;
} both;

static void insert(struct entry *entry, uint64_t at_ns) {
  unsigned place = both.count;
  while (place > 0 && both.order[place - 1]->at_ns > at_ns)
    place--;
  memmove(&both.order[place + 1], &both.order[place], (both.count - place) * sizeof *both.order);
  both.order[place] = entry;
  both.count++;
  entry->at_ns = at_ns;
  entry->is_in = true;
  ids_alarms_insert(&both.alarms, &entry->alarm, at_ns);
}

static void take_out(struct entry *entry) {
  unsigned place = 0;
  while (both.order[place] != entry)
    place++;
  both.count--;
  memmove(&both.order[place], &both.order[place + 1], (both.count - place) * sizeof *both.order);
  entry->is_in = false;
  ids_alarms_remove(&both.alarms, &entry->alarm);
}

static void check_first(void) {
  if (both.count == 0) {
    REQUIRE_EQ_PTR(both.alarms.first, NULL);
    REQUIRE_EQ_U64(ids_alarms_at_ns(&both.alarms), IDS_NEVER);
  } else {
    REQUIRE_EQ_PTR(both.alarms.first, &both.order[0]->alarm);
    REQUIRE_EQ_U64(ids_alarms_at_ns(&both.alarms), both.order[0]->at_ns);
  }
}

static void empty(void) {
  while (both.count > 0) {
    take_out(both.order[0]);
    check_first();
  }
}

SPEC(nothing_rings_when_there_is_no_alarm, "G6 alarm: all zero is empty: the moment is never") {
  check_first();
  insert(&both.entries[0], 7);
  check_first();
  empty();
}

SPEC(equal_moments_are_first_in_first_out, "G6 alarm: equal moments: first in, first out") {
  for (unsigned i = 0; i < MOST; i++)
    insert(&both.entries[i], IDS_NEVER - i % 3);
  for (unsigned i = 0; i < MOST; i += 7)
    take_out(&both.entries[i]);
  check_first();
  empty();
}

SPEC(one_that_comes_back_is_the_last_of_its_moment, "G6 alarm: one that was taken out and put in "
                                                    "again is behind those of its moment") {
  for (unsigned i = 0; i < 5; i++)
    insert(&both.entries[i], 1);
  take_out(&both.entries[0]);
  insert(&both.entries[0], 1);
  CHECK_EQ_PTR(both.alarms.first, &both.entries[1].alarm);
  empty();
}

/* In runs that mostly insert and runs that mostly take out, the first or any. */
SPEC(any_mixture_keeps_the_order, "G6 alarm: any mixture gives the order that a sorted list has") {
  uint64_t random = 1;
  unsigned taken_count = 0;
  for (unsigned step = 0; step < 200000; step++) {
    random = random * UINT64_C(6364136223846793005) + 1;
    unsigned number = (unsigned)(random >> 33);
    struct entry *entry = &both.entries[number % MOST];
    bool grows = step / 1000 % 2 == 0;
    if (!entry->is_in && (grows || number / MOST % 8 == 0)) {
      insert(entry, number / MOST / 8 % (step / 1000 % 3 == 0 ? 4 : 1000));
    } else if (entry->is_in && (!grows || number / MOST % 8 == 0)) {
      take_out(number / MOST / 8 % 2 == 0 ? entry : both.order[0]);
      taken_count++;
    }
    check_first();
  }
  CHECK_GE_INT(taken_count, 20000);
  empty();
}

SPEC(all_are_walked, "G4 alarm: a walk meets each alarm once, the first one first") {
  uint64_t random = 7;
  for (unsigned size = 0; size < MOST; size++) {
    random = random * UINT64_C(6364136223846793005) + 1;
    insert(&both.entries[size], random >> 58);
    if (size % 5 == 4) {
      take_out(both.order[0]);
      take_out(both.order[(random >> 40) % both.count]);
    }
    unsigned met_count = 0;
    uint64_t moments_ns = 0, expected_ns = 0;
    for (const idlesched_alarm *alarm = both.alarms.first; alarm != NULL;
         alarm = ids_alarm_next(alarm)) {
      met_count++;
      moments_ns += alarm->at_ns_ * (alarm->number_ + 1);
    }
    for (unsigned i = 0; i < both.count; i++)
      expected_ns += both.order[i]->at_ns * (both.order[i]->alarm.number_ + 1);
    REQUIRE_EQ_INT(met_count, both.count);
    REQUIRE_EQ_U64(moments_ns, expected_ns);
  }
  empty();
}

SPEC(what_is_in_no_heap_is_not_taken_out,
     "G6 alarm: to take one out of an empty heap is an "
     "assertion",
     .aborts_with = "self->first != NULL") {
  ids_alarms_remove(&both.alarms, &both.entries[0].alarm);
}
