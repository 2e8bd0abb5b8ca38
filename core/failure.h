/* SPDX-License-Identifier: MIT */
/*
 * failure.h - what happens when an assertion does not hold.
 *
 * The host's handler is told first.  It may throw, jump or exit; when it returns, or
 * when there is none, the platform prints the same as one line and ends the process.
 */
#ifndef IDS_FAILURE_H
#define IDS_FAILURE_H

#include "base.h"
#include "idlesched.h"

/* Set the handler, or NULL for none.  Returns the one before. */
idlesched_failure_handler *ids_failure_set_handler(idlesched_failure_handler *handler);

/* Print the line and end the process, or, on a simulated platform, the run.  Defined by
 * the platform. */
IDS_NORETURN void ids_die(const char *message);

#endif
