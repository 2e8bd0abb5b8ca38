/* SPDX-License-Identifier: MIT */
/*
 * alarm.h - alarms by their moment, the earliest first; of equal moments, first in, first out.
 *
 * A pairing heap whose nodes live in what the alarms are for, so nothing is allocated and
 * nothing can be refused.  To put one in and to look at the first takes constant time, to
 * take out any of them O(log n), amortised.
 */
#ifndef IDS_ALARM_H
#define IDS_ALARM_H

#include "base.h"
#include "idlesched.h"

/* An all-zero one is empty.  It holds no pointer to itself, so it may be moved. */
struct ids_alarms {
  idlesched_alarm *first;  /* NULL when there is none */
  uint64_t inserted_count; /* so far: numbers them, for those of equal moments */
};

/* The moment of the first one; IDS_NEVER when there is none. */
uint64_t ids_alarms_at_ns(const struct ids_alarms *self);
/* It is in no heap.  It may be for IDS_NEVER. */
void ids_alarms_insert(struct ids_alarms *self, idlesched_alarm *alarm, uint64_t at_ns);
/* It is in this one. */
void ids_alarms_remove(struct ids_alarms *self, idlesched_alarm *alarm);
/* The one after it in some order of all that are in the heap, which begins with the first one; NULL
 * after the last.  Meanwhile none is put in or taken out. */
idlesched_alarm *ids_alarm_next(const idlesched_alarm *alarm);

#endif
