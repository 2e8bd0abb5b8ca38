/* SPDX-License-Identifier: MIT */
/*
 * status.h - what the library's negative errno values mean, in its own words.
 */
#ifndef IDS_STATUS_H
#define IDS_STATUS_H

/* Never NULL. */
const char *ids_status_text(int status);

#endif
