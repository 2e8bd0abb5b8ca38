/* SPDX-License-Identifier: MIT */
/*
 * token.c - see token.h.
 */
#include "token.h"

#include "pool.h"

uint64_t ids_token_cancel(idlesched_token *self) {
  struct ids_pools_walk walk = { .is_for_all = true };
  struct ids_pools_entry *entry = NULL;
  uint64_t cancelled_count = 0;
  /* [cancel] Pairs with the acquire in ids_token_is_cancelled(). */
  ids_store_release(&self->is_cancelled_, 1);

  ids_pools_lock();
  walk.round = ids_pools_begin_round_locked();
  ids_pools_unlock();
  while ((entry = ids_pools_next(&walk, entry)) != NULL)
    cancelled_count += ids_pool_cancel_token(entry->pool, self);
  return cancelled_count;
}
