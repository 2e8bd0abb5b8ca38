/* SPDX-License-Identifier: MIT */
/*
 * option.h - counted overrides of allocator options: one registry for the process.
 *
 * An option is one number for the process; several holders may want it changed at the same
 * time.  In force is the value of the one that entered last of those that are held.  The
 * first saves what was there, the last puts it back, in whatever order they leave.
 *
 *   NONE        no holder.  Nothing is saved, nothing is left of earlier holders.
 *   WAITING     holders, but overrides are lifted: what is to be done is decided when the
 *               last lift ends.
 *   LEFT_ALONE  holders, of an option that the user has a say in: nothing was written, and
 *               nothing will be until all of them have left.
 *   IN_FORCE    the option has the newest holder's value, and `saved` what is put back.
 *
 * Two kinds of options.  The delay of purges (B6) is overridden also where the user set it,
 * unless that is 0 or below: 0 purges at once already, and below 0 somebody has switched
 * purging off and means it.  As the allocator refuses "set default" from then on, it is put
 * back by a plain write, also over what somebody has written meanwhile.  All others (B10) go
 * through "set default" both ways, which yields to the user by itself.
 *
 * While the delay is 0 mimalloc looks past what it scheduled earlier.  So whatever makes it 0
 * (an enter, a leave that brings an older holder's value back, the end of a lift) purges
 * first, under the registry's lock: nobody comes between that purge and the write.  Lock
 * order: registry, then purges.
 *
 * Lifting.  Under an override of the delay a purge would return early, and leave what it was
 * made for.  Whoever purges lifts the overrides for that time, and calls
 * ids_heap_purge_and_wait() meanwhile: a purge that is only promised may come too late.
 * Lifts count.  Holders that come or go meanwhile change the books only.
 *
 * The race of readers (B13).  Writers take turns here.  The allocator's own threads read the
 * option without a lock, by a plain load of an aligned word, as the allocator has it no other
 * way.  They see the old or the new value, and both are right: an override says from when on
 * free ranges are treated otherwise, not which range is the first.
 *
 * Fork.  A child has its parent's overrides, value and holders, as one: the list and the
 * option are changed where no fork comes between.  But the holders' structs may lie on stacks
 * of threads that are not there any more, so the child's first look at the registry turns
 * them into a number and the value that was in force.  Those that the forking thread holds
 * leave from that number.  What was lifted at the fork is in force again from that look on.
 */
#ifndef IDS_OPTION_H
#define IDS_OPTION_H

#include "heap.h"
#include "idlesched.h"

/* See idlesched_override_enter() and so on. */
int ids_override_enter(idlesched_override *self, const char *name, int64_t value,
                       const char *holder);
void ids_override_leave(idlesched_override *self);
const char *ids_option_reason(const char *name);
int ids_option_read(unsigned number, idlesched_option_info *out);

/* Once in a process, and before the first override by name: see
 * idlesched_process_defaults().  Later calls would write over an override. */
void ids_options_set_defaults(void);

/*
 * Nameless holders have no struct.  All of an option are one place in the order: the latest
 * to enter moves it to the end and gives it its value, and it is gone when as many have left.
 */
void ids_option_hold(enum ids_heap_option option, long value);
void ids_option_drop(enum ids_heap_option option);
/* Holders of all kinds. */
unsigned ids_option_holders(enum ids_heap_option option);

/*
 * Put aside all overrides for the time of one purge.  Each lift has its unlift, whatever it
 * returned.  True if an override was put aside, by this one or by another thread's that has
 * not ended.
 */
bool ids_options_lift(void);
/* May purge, when the delay becomes 0 again: what came in while it was not must not wait
 * for the end of the override. */
void ids_options_unlift(void);

#endif
