/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The thresholds by which the collectives choose an algorithm, and the sizes of its
 * rounds, on one host.  Unless said otherwise they are bytes.  An arrival takes a
 * fraction of a microsecond where each rank has a core, and a scheduling round where
 * ranks share cores, so most of them differ between the two. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_LIMITS_H
#define DISTLITE_PG_CPU_ALGORITHMS_LIMITS_H

#include <stddef.h>

/* The bytes of all ranks together that are copied in a microsecond or two.  Waits at a
 * board that last longer call dl_blocking_begin(), as `brief` of a backend demands. */
#define DL_BRIEF_OF_ALL_RANKS ((size_t)16 << 10)

/* Bytes that are reduced and distributed at a time, so that they stay in the
 * first-level cache. */
#define DL_REDUCE_PIECE ((size_t)8192)

/* The largest array of an all_reduce with one arrival, after which each rank reduces
 * everything, in place of three, between which each reduces its share: the work grows
 * with the number of ranks, by which the first is divided; the cost of an arrival does
 * not. */
#define DL_ALL_REDUCE_SLOT_LIMIT_OF_ALL_RANKS ((size_t)4 << 10)
#define DL_ALL_REDUCE_SLOT_LIMIT_WHEN_SHARING ((size_t)16 << 10)

/* The largest array that two ranks, each with a core, both reduce in a pipeline.  With
 * shares, all_reduces of 8 to 64 KiB take up to twice as long.  Larger arrays have to be
 * fetched from memory, of which each would then fetch twice as much. */
#define DL_ALL_REDUCE_PIPELINE_LIMIT ((size_t)512 << 10)

/* The largest array of a scan in which each rank reduces those of all ranks before it:
 * the last rank's work grows with their number, by which the first is divided, and
 * shares of it cost two more arrivals.  Two ranks, each with a core, do so with any
 * size, which takes half the time that shares do. */
#define DL_SCAN_DIRECT_LIMIT_OF_ALL_RANKS ((size_t)4 << 10)
#define DL_SCAN_DIRECT_LIMIT_WHEN_SHARING ((size_t)16 << 10)

/* The largest array of a scan that goes as eager data where ranks share cores: the
 * first ranks then go on without the later ones, which takes half the time at 1 KiB, and
 * as long as through slots at 8 KiB.  No eager buffer is smaller. */
#define DL_SCAN_EAGER_LIMIT_WHEN_SHARING ((size_t)4 << 10)

/* The rounds into which a pipeline divides an array, so that writing and reading
 * overlap, and the bytes of a round: fewer are not worth its steps, and more leave the
 * second-level cache. */
#define DL_PIPELINE_ROUNDS 2
#define DL_PIPELINE_ROUND_LEAST ((size_t)32 << 10)
#define DL_PIPELINE_ROUND_MOST ((size_t)256 << 10)

/* The least that a rank offers in place, from shared memory, where each rank has a
 * core: copying less takes less time than the additional arrival at the end.  Where
 * ranks share cores, it is a whole slot. */
#define DL_EXCHANGE_IN_PLACE_LEAST ((size_t)8 << 10)

#endif
