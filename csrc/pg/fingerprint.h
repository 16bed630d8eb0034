/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The description of a call in 16 bytes, which ranks compare: an operation whose
 * fingerprints differ fails on every rank, naming both sides, before any data of a rank
 * that differs is used.  A rank that needs none of it may fail in a later operation. */
#ifndef DISTLITE_PG_FINGERPRINT_H
#define DISTLITE_PG_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/reduce.h"
#include "tensor/tensor.h"

/* The numbers are torch's (Work._get_op_type); operations without one there are
 * numbered from 32. */
typedef enum dl_op_type {
    DL_BROADCAST = 0,
    DL_ALL_REDUCE = 1,
    DL_ALL_REDUCE_COALESCED = 2, /* several arrays at once, like two others below */
    DL_REDUCE = 3,
    DL_ALL_GATHER = 4,
    DL_ALL_GATHER_COALESCED = 6,
    DL_GATHER = 7,
    DL_SCATTER = 8,
    DL_REDUCE_SCATTER = 9,
    DL_ALL_TO_ALL = 11,
    DL_SEND = 12, /* these three are compared message by message */
    DL_RECV = 13,
    DL_RECV_ANY = 14,
    DL_BARRIER = 15,
    DL_ALL_GATHER_V = 32, /* blocks that differ in size */
    DL_GATHER_V = 33,
    DL_SCATTER_V = 34,
    DL_REDUCE_SCATTER_V = 35,
    DL_BROADCAST_OBJECTS = 36, /* these four move blocks of objects */
    DL_ALL_GATHER_OBJECTS = 37,
    DL_GATHER_OBJECTS = 38,
    DL_SCATTER_OBJECTS = 39,
    DL_REDUCE_SCATTER_COALESCED = 40,
    DL_SCAN = 41,
    DL_EXSCAN = 42,
    DL_WINDOW = 43, /* making one (pg/window.h) */
    DL_OP_TYPE_COUNT = 44,
} dl_op_type;

static inline bool
dl_op_type_is_message(uint8_t op)
{
    return op == DL_SEND || op == DL_RECV || op == DL_RECV_ANY;
}

typedef struct dl_fingerprint {
    uint32_t count_low; /* these two: elements; of one block if all blocks are equal */
    uint16_t count_high;
    uint8_t op; /* dl_op_type */
    uint8_t dtype;
    uint32_t root;   /* or the hash of the sizes of blocks or pieces */
    uint32_t detail; /* DL_OPAQUE: its code; numbers: the reduction */
} dl_fingerprint;

/* 48 bits are more than the elements of any array in an address space. */
static inline uint64_t
dl_fingerprint_count(const dl_fingerprint *self)
{
    return (uint64_t)self->count_high << 32 | self->count_low;
}

static inline void
dl_fingerprint_set_count(dl_fingerprint *self, uint64_t count)
{
    self->count_low = (uint32_t)count;
    self->count_high = (uint16_t)(count >> 32);
}

/* Returns whether the operation reduces with a dl_reducer, whose name is then part of the
 * code in `detail` (tensor/reducer.h). */
bool dl_fingerprint_has_reducer(const dl_fingerprint *self);

/* Returns the reduction, DL_FUNCTION for all that have a reducer; 0, which is DL_SUM,
 * also if the operation does not reduce. */
static inline uint8_t
dl_fingerprint_reduce_op(const dl_fingerprint *self)
{
    if (self->dtype != DL_OPAQUE) {
        return (uint8_t)self->detail;
    }
    return dl_fingerprint_has_reducer(self) ? DL_FUNCTION : 0;
}

static inline bool
dl_fingerprint_equal(const dl_fingerprint *left, const dl_fingerprint *right)
{
    return left->count_low == right->count_low && left->count_high == right->count_high
           && left->op == right->op && left->dtype == right->dtype
           && left->root == right->root && left->detail == right->detail;
}

/* Returns the name of an operation, such as "all_reduce"; `op` may come from another
 * rank and be any number. */
const char *dl_op_type_name(uint8_t op);

/* Whether the operation reduces, and whether it has a root that ranks compare. */
bool dl_op_type_reduces(uint8_t op);
bool dl_op_type_has_root(uint8_t op);

/* The most room that a description needs. */
#define DL_FINGERPRINT_TEXT_SIZE 320

/* Returns a hash of the sizes of these blocks and of their pieces; never 0. */
uint32_t dl_fingerprint_of_blocks(const dl_tensor *blocks, int count);

/* Writes a description such as "all_reduce(1000 x float32, SUM)" or "broadcast(3 x
 * int64, from rank 0)". */
void dl_fingerprint_describe(const dl_fingerprint *fingerprint, char *text,
                             size_t size);

/* Fails with DL_MISMATCH: "rank 1 has 3 x float32 for rank 0, which expects 4 x
 * float32".  `sent` and `expected` are bytes. */
dl_status dl_fingerprint_fail_size(const dl_fingerprint *fingerprint, int source,
                                   uint64_t sent, int destination, uint64_t expected);

#endif
