/* SPDX-License-Identifier: MIT */
/*
 * pressure.h - a thread that releases every pool when the kernel says that memory is short.
 *
 * The process has one at most.  It sleeps on a pressure file (struct ids_psi) until the
 * kernel tells, or, where the kernel takes no trigger, looks at the file once a window.
 *
 * Hysteresis
 *
 *   After an event it rests for a window, so that there is one event in a window at most,
 *   whatever the source.  The pressure lasts as long as events are not more than two
 *   windows apart: then a whole one was free of it.  An event that begins a pressure
 *   releases at once; one of a pressure that lasts does if cooldown_ns have passed since the
 *   last release ended.  (What is told while a release runs is told at its end, and belongs
 *   to the pressure that it was for.)
 */
#ifndef IDS_PRESSURE_H
#define IDS_PRESSURE_H

#include "idlesched.h"

/* As idlesched_pressure_start(); the times have been checked, and none is 0. */
int ids_pressure_start(const idlesched_pressure_config *config);
void ids_pressure_stop(void);
void ids_pressure_stats_read(idlesched_pressure_stats *out);

#endif
