/* SPDX-License-Identifier: MIT */
/*
 * eager_purge.c - see eager_purge.h.
 */
#include "eager_purge.h"

#include "option.h"

void ids_eager_purge_enter(void) {
  ids_option_hold(IDS_HEAP_PURGE_DELAY_MS, 0);
}

void ids_eager_purge_leave(void) {
  ids_option_drop(IDS_HEAP_PURGE_DELAY_MS);
}

unsigned ids_eager_purge_holders(void) {
  return ids_option_holders(IDS_HEAP_PURGE_DELAY_MS);
}
