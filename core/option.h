/* SPDX-License-Identifier: MIT */
/*
 * option.h - counted overrides of allocator options.
 *
 * An option is one number for the process; several holders may want it changed
 * at the same time.  The first saves the old value, the last puts it back, and
 * while there is no holder there is no saved value either: the state is "none"
 * or "holders and what to put back", nothing else.
 *
 * Writers are serialised here.  The allocator's threads read the option without
 * a lock, and its own store is a plain one: they see the old or the new value,
 * both of which are right, as an override says from when on, not which page.
 */
#ifndef IDS_OPTION_H
#define IDS_OPTION_H

#include "heap.h"

/*
 * Hold an override.  May decline by its own rule for the option's value (the
 * delay of purges: 0 or below stays): then nothing is written, now or at the
 * end, but the holder is counted all the same.  True when this call has changed
 * the option.
 */
bool ids_option_hold(enum ids_heap_option option, long value);
/* Hold it only if that changes nothing: others hold it, or the rule declines.  False: it
 * is not held, and a hold would write, unless somebody else is faster. */
bool ids_option_join(enum ids_heap_option option);
/* End one hold. */
void ids_option_drop(enum ids_heap_option option);
unsigned ids_option_holders(enum ids_heap_option option);

/*
 * Put aside all overrides for a purge; whether there was one in force.  Calls nest: the
 * first lifts, the last puts back.
 *
 * While they are lifted the options have the values that the last holders would put back.
 * A hold that begins meanwhile counts, and its value is in force from the last unlift on;
 * the last drop meanwhile leaves the option as it is.
 */
bool ids_options_lift(void);
void ids_options_unlift(void);

#endif
