/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which blocks of an exchange lie where, and in how many rounds they go: the same answers
 * on every rank, from what each knows of the sizes. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_PLAN_H
#define DISTLITE_PG_CPU_ALGORITHMS_EXCHANGE_PLAN_H

#include "pg/cpu/algorithms/exchange.h"

/* Chooses line, pocket or slot: what everybody's blocks fit. */
void dl_plan_place(dl_exchange *self);

/* Bytes of a block of `size` in each of `rounds`, rounded up for the place. */
size_t dl_plan_piece(const dl_exchange *self, size_t size, uint64_t rounds);

/* Bytes of a slot before its blocks, where sizes come first. */
size_t dl_plan_header(const dl_exchange *self);

/* Of the whole operation, in slots. */
uint64_t dl_plan_rounds(const dl_exchange *self);

/* The streams this rank fills, and those it empties. */
void dl_plan_outgoing(dl_exchange *self);
void dl_plan_incoming(dl_exchange *self);

#endif
