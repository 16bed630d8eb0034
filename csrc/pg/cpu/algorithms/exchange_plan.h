/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The plan of an exchange: where its blocks are, and in how many rounds they are moved.
 * Every rank computes the same answers from what it knows of the sizes. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_PLAN_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_PLAN_H

#include "pg/cpu/algorithms/exchange.h"

/* Sets `place`: on lines if the blocks of each rank fit one, else in pockets if they
 * fit one, else in slots. */
void dl_plan_place(dl_exchange *self);

/* Returns the bytes of a block of `size` that are moved in each of `rounds`, rounded up
 * to the alignment of the place. */
size_t dl_plan_piece(const dl_exchange *self, size_t size, uint64_t rounds);

/* Returns the bytes of a slot that precede its blocks where sizes come first. */
size_t dl_plan_header(const dl_exchange *self);

/* Returns the rounds of the whole operation through slots. */
uint64_t dl_plan_rounds(const dl_exchange *self);

/* Set the streams that this rank fills, and those that it empties. */
void dl_plan_outgoing(dl_exchange *self);
void dl_plan_incoming(dl_exchange *self);

#endif
