/* SPDX-License-Identifier: MIT */
/*
 * eager_purge.h - purge at once while a guard is held.
 *
 * The purge delay is one number for the whole process, so all guards share it:
 * the first to enter saves the old value and sets 0, the last to leave puts it
 * back.  They may leave in any order, on any thread.
 *
 * A delay of 0 or below is left alone, at both ends: 0 purges eagerly already,
 * and below 0 somebody has switched purging off and means it.
 *
 * While the delay is 0 mimalloc looks past what it scheduled earlier, so
 * entering purges once first.
 */
#ifndef IDS_EAGER_PURGE_H
#define IDS_EAGER_PURGE_H

#include "base.h"

void ids_eager_purge_enter(void);
void ids_eager_purge_leave(void);
/* Guards that are held now. */
unsigned ids_eager_purge_holders(void);

#endif
