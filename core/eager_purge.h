/* SPDX-License-Identifier: MIT */
/*
 * eager_purge.h - purge at once while a guard is held.
 *
 * A guard without a name or a struct: an override of the purge delay by 0, with the rules of
 * option.h.  It purges once before it sets the delay, it shares it with all other guards, and
 * the last one of them puts the old value back.
 */
#ifndef IDS_EAGER_PURGE_H
#define IDS_EAGER_PURGE_H

#include "base.h"

void ids_eager_purge_enter(void);
void ids_eager_purge_leave(void);
/* Overrides of the purge delay that are held now, by whomever. */
unsigned ids_eager_purge_holders(void);

#endif
