/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks that are in shared memory already are not copied into slots.  Their rank says
 * so on its line, which is unused while blocks go through slots, and writes their
 * places into its slot, where no blocks are.  The other ranks read them there as if it
 * were the slot: piece by piece while blocks of other ranks go through slots, else at
 * once.  At the end each such rank waits until all have read. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_SHARED_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_SHARED_H

#include "pg/cpu/algorithms/exchange.h"

/* Called before the arrival, when the outgoing streams are known: offers this rank's
 * blocks in place, if all of them are in shared memory and it is worth while. */
void dl_exchange_offer(dl_exchange *self);

/* Called after the arrival: counts the ranks that offer their blocks in place.  Returns
 * whether all ranks that send anything do. */
bool dl_exchange_is_in_place(dl_exchange *self);

/* Sets `data` of the incoming streams whose ranks offer their blocks in place; maps the
 * memory when it is first used. */
dl_status dl_exchange_locate(dl_exchange *self);

#endif
