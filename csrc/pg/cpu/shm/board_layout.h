/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The layout of a board's shared memory, which all ranks of a host map. */
#ifndef DISTLITE_PG_CPU_SHM_BOARD_LAYOUT_H
#define DISTLITE_PG_CPU_SHM_BOARD_LAYOUT_H

#include "pg/fingerprint.h"
#include "pg/cpu/shm/core_sharing.h"
#include "pg/cpu/shm/wait.h"

/* Lines per rank, which are used cyclically: twice as many as a rank may be ahead of
 * others, so that these have as many operations again to look back at what the rank
 * called.  The number is this large because ranks that share a core run for a time
 * slice each, and should not have to stop within it. */
#define DL_BOARD_TURNS 256
#define DL_BOARD_AHEAD (DL_BOARD_TURNS / 2)

/* Payload bytes on a line. */
#define DL_BOARD_PAYLOAD (DL_LINE - sizeof(uint64_t) - sizeof(dl_fingerprint))

/* Bytes of the pocket that belongs to a line. */
#define DL_BOARD_POCKET ((size_t)4096)

/* Bytes of a slot.  Where ranks share cores, half the size costs more in meetings than
 * it gains in locality; where each rank has its own core, operations use only part of
 * it. */
#define DL_BOARD_CHUNK ((size_t)1 << 20)

#define DL_BOARD_REASON_SIZE 240

#define DL_BOARD_OUTLOOK_WORDS 128

typedef struct dl_board_line {
    _Alignas(DL_LINE) dl_word sequence;
    dl_fingerprint fingerprint;
    uint8_t payload[DL_BOARD_PAYLOAD];
} dl_board_line;

/* Value of `end_teller` once the other hosts have been told. */
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
    DL_REPLACED = 2, /* another rank has noted that it never will */
} dl_presence;

/* One per rank, which writes it unless stated otherwise. */
typedef struct dl_board_member {
    _Alignas(DL_LINE) dl_word step;
    _Atomic uint32_t farewell; /* dl_farewell; `reason` is written before it */
    /* Written by other ranks: the one that tells other hosts of this rank's end, as its
     * rank plus one, or DL_END_TOLD. */
    _Atomic uint32_t end_teller;
    /* dl_presence; a rank that sets DL_REPLACED also writes the farewell */
    _Atomic uint32_t presence;
    dl_core_mark core_mark;
    char reason[DL_BOARD_REASON_SIZE];
} dl_board_member;

typedef struct dl_board_header {
    uint64_t magic;
    uint32_t size;
    uint32_t may_spin;
    uint64_t chunk;
    dl_bell bell;
    /* The first failure of any rank.  It concerns all ranks that are in the same
     * operation or come to a later one; those still in an earlier one can finish it. */
    _Alignas(DL_LINE) _Atomic uint32_t is_broken; /* set after the fields below */
    _Atomic uint32_t breaker; /* its rank plus one; claims the other fields */
    uint64_t broken_at;       /* sequence number of the operation */
    uint32_t status;
    char text[DL_ERROR_TEXT_SIZE];
    /* What rank 0 waits for outside of the board, published as its deadline comes near:
     * a row (pg/recording.h) of a version, an operation's number, and text. */
    _Alignas(DL_LINE) _Atomic uint64_t outlook[DL_BOARD_OUTLOOK_WORDS];
} dl_board_header;

#endif
