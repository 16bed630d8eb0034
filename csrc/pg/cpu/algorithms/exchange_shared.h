/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Blocks that lie in shared memory already are not copied into slots: their rank says so
 * on its line, which blocks in slots leave free, and where they are in its slot, which
 * they do not need.  The others take them from there as if it were the slot: piece after
 * piece while other ranks' blocks come through slots, or else in one go.  In the end each
 * such rank waits until all have read. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_SHARED_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_SHARED_H

#include "pg/cpu/algorithms/exchange.h"

/* Before the arrival, with the outgoing streams. */
void dl_exchange_offer(dl_exchange *self);

/* After it: counts the ranks that share; whether all do that have something to send. */
bool dl_exchange_is_in_place(dl_exchange *self);

/* The data of incoming streams. */
dl_status dl_exchange_locate(dl_exchange *self);

#endif
