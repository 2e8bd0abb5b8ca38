/* SPDX-License-Identifier: MIT */
/*
 * memory.h - what the process has in memory, and in which allocator.
 *
 * Three sources, as none knows all: the kernel says which pages are in memory and to which
 * mapping they belong; counters of ours say how many bytes of blocks are in use, since what
 * the allocator says of that is late by whatever was not collected yet; and the C library
 * says what its own heap holds.
 */
#ifndef IDS_MEMORY_H
#define IDS_MEMORY_H

#include "idlesched.h"

/* As idlesched_memory_read(). */
int ids_memory_read(idlesched_memory *out);

/* The same, but for what a release could give back, which is 0. */
int ids_memory_measure(idlesched_memory *out);

#endif
