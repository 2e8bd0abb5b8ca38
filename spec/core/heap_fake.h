/* SPDX-License-Identifier: MIT */
/*
 * heap_fake.h - an allocator that only keeps books, in the place of the build's own.
 *
 * So what the core asks of an allocator, how often and in which order, can be checked
 * to the call, under every sanitizer and in every build.  It has the options of a real
 * one, with its defaults.
 *
 * The diary has one letter for each call: c collect, a abandon (a heap given up for its owner), p
 * purge, t trim of the C library's heap, g option read, s option written, d "set default"; a
 * case adds letters of its own for what happened between.
 */
#ifndef IDLESCHED_SPEC_HEAP_FAKE_H
#define IDLESCHED_SPEC_HEAP_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "heap.h"

#define HEAP_FAKE_DELAY_DEFAULT_MS 1000
#define HEAP_FAKE_MIN_SIZE_DEFAULT_KIB 0
#define HEAP_FAKE_MULT_DEFAULT 4
/* By the process defaults. */
#define HEAP_FAKE_MIN_SIZE_OURS_KIB 64

unsigned heap_fake_collects_count(void);
unsigned heap_fake_abandons_count(void);
unsigned heap_fake_purges_count(void);
/* Most purges that were ever under way at the same time. */
unsigned heap_fake_purges_at_once_max(void);

/* Free something: a number, by which to ask whether a purge that began afterwards has
 * ended. */
unsigned heap_fake_free(void);
bool heap_fake_is_purged(unsigned number);

/* An option: what a reader of the allocator sees, and what the user sets, once in code or
 * environment.  The delay has shorter names. */
long heap_fake_option(enum ids_heap_option option);
void heap_fake_user_sets(enum ids_heap_option option, long value);
long heap_fake_delay_ms(void);
void heap_fake_set_delay_ms(long delay_ms);
unsigned heap_fake_writes_count(void);
/* Whether the allocator has options at all; it has, unless a case says otherwise. */
void heap_fake_set_has_options(bool has_options);

/* The C library's heap: what it says it has, which is nothing unless a case says otherwise;
 * or that it says nothing, or that there is none. */
void heap_fake_set_c_heap(uint64_t held_bytes, uint64_t live_bytes, uint64_t free_bytes);
void heap_fake_set_no_c_heap(void);
unsigned heap_fake_trims_count(void);
/* This allocator is the C library's: a purge trims it. */
void heap_fake_be_the_c_heap(void);

/* It asks for no huge pages until it is told to; now the user does not want it to. */
void heap_fake_user_forbids_huge_pages(void);

/* Where the allocator says that its mappings are. */
#define HEAP_FAKE_BEGIN 0x100000
#define HEAP_FAKE_END 0x200000

/* The letters since the last call of heap_fake_diary_clear(), at most 1023. */
const char *heap_fake_diary(void);
void heap_fake_diary_clear(void);
void heap_fake_diary_add(char letter);

#endif
