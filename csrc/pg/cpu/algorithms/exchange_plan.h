/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The plan of an exchange: where the blocks are, and in how many rounds they are moved.
 * Every rank computes the same plan from the sizes that it knows. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_PLAN_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_PLAN_H

#include "pg/cpu/algorithms/transfer.h"

/* Called before the arrival, after this rank's sizes were written: sets the place of the
 * blocks, the rounds if they are known by now, and the streams that this rank fills. */
void dl_exchange_plan_begin(dl_exchange *exchange);

/* Called after that: returns the bytes that a round takes in this rank's slot at most. */
size_t dl_exchange_plan_room(const dl_exchange *exchange);

/* The others are called after the arrival.  Returns the rounds of the whole operation
 * through slots. */
uint64_t dl_exchange_plan_rounds(const dl_exchange *exchange);

/* Sets the streams that this rank empties. */
void dl_exchange_plan_incoming(dl_exchange *exchange);

/* Returns the bytes of a block of `size` that are moved in each of `rounds`, rounded up
 * to the alignment of the place.  A single round moves the whole block. */
size_t dl_exchange_plan_piece(const dl_exchange *exchange, size_t size,
                              uint64_t rounds);

#endif
