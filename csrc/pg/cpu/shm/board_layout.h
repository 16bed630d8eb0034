/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What lies in a board's shared memory. */
#ifndef DISTLITE_PG_CPU_SHM_BOARD_LAYOUT_H
#define DISTLITE_PG_CPU_SHM_BOARD_LAYOUT_H

#include "pg/fingerprint.h"
#include "pg/cpu/shm/parting.h"
#include "pg/cpu/shm/wait.h"

/* Lines of each rank, used in turn: twice as many as a rank may be ahead of others, so
 * that those have the same again to look back at what the rank called.  So many, because
 * where ranks share a core, each has it for a time slice, and should not have to stop. */
#define DL_BOARD_TURNS 256
#define DL_BOARD_AHEAD (DL_BOARD_TURNS / 2)

/* Bytes that ride on a line. */
#define DL_BOARD_PAYLOAD (DL_LINE - sizeof(uint64_t) - sizeof(dl_fingerprint))

/* Bytes that go with a line in a pocket. */
#define DL_BOARD_POCKET ((size_t)4096)

/* Bytes of a slot.  Where ranks share cores, halves cost more in meetings than they gain
 * in locality; where each has its own, operations use less of it at a time. */
#define DL_BOARD_CHUNK ((size_t)1 << 20)

#define DL_BOARD_REASON_SIZE 240

#define DL_BOARD_OUTLOOK_WORDS 128

typedef struct dl_board_line {
    _Alignas(DL_LINE) dl_word sequence;
    dl_fingerprint fingerprint;
    uint8_t payload[DL_BOARD_PAYLOAD];
} dl_board_line;

#define DL_END_TOLD UINT32_MAX

typedef enum dl_farewell {
    DL_STAYING = 0,
    DL_LEFT = 1,
    DL_ABORTED = 2,
} dl_farewell;

/* Whether a rank has made its board. */
typedef enum dl_presence {
    DL_ABSENT = 0,
    DL_PRESENT = 1,
    DL_REPLACED = 2, /* another rank says that it will not */
} dl_presence;

/* Written by its rank. */
typedef struct dl_board_member {
    _Alignas(DL_LINE) dl_word step;
    _Atomic uint32_t farewell; /* dl_farewell; the reason is written before it */
    /* Written by others: who tells other hosts that it has ended, its rank and one, or
     * DL_END_TOLD. */
    _Atomic uint32_t end_teller;
    _Atomic uint32_t presence; /* dl_presence */
    dl_berth berth;
    char reason[DL_BOARD_REASON_SIZE];
} dl_board_member;

typedef struct dl_board_header {
    uint64_t magic;
    uint32_t size;
    uint32_t may_spin;
    uint64_t chunk;
    dl_bell bell;
    /* The first failure of any rank, for all that are in the same operation or come to a
     * later one; those still in an earlier one can finish it. */
    _Alignas(DL_LINE) _Atomic uint32_t is_broken; /* set after what follows */
    _Atomic uint32_t breaker; /* its rank and one; claims the rest */
    uint64_t broken_at;       /* sequence number */
    uint32_t status;
    char text[DL_ERROR_TEXT_SIZE];
    /* What rank 0 waits for in what the board cannot see, as its deadline comes near: a
     * row (pg/recording.h) of a version, an operation's number, and text. */
    _Alignas(DL_LINE) _Atomic uint64_t outlook[DL_BOARD_OUTLOOK_WORDS];
} dl_board_header;

#endif
