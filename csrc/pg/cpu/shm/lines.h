/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory of a board, and a board as one rank sees it, for the files that carry out
 * its operations (board.h) and judge its failures (failure_check.h). */
#ifndef DISTLITE_PG_CPU_SHM_LINES_H
#define DISTLITE_PG_CPU_SHM_LINES_H

#include <pthread.h>

#include "pg/backend.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/shm/core_sharing.h"
#include "pg/cpu/shm/slot_writer.h"
#include "pg/cpu/shm/wait.h"
#include "pg/fingerprint.h"
#include "pg/record/wait_graph.h"

/* The layout of the shared memory, which all ranks of a host map. */

/* Lines per rank, which are used cyclically: twice as many as a rank may be ahead of
 * others, so that these have as many operations again to read what the rank called.
 * The number is this large because ranks that share a core run for a time slice each,
 * and should not have to stop within it. */
#define DL_BOARD_LINES 256
#define DL_BOARD_AHEAD (DL_BOARD_LINES / 2)

/* Payload bytes on a line. */
#define DL_BOARD_PAYLOAD (DL_LINE - sizeof(uint64_t) - sizeof(dl_fingerprint))

/* Blocks of eager buffers per rank: one for each operation that it is ahead, the one
 * that it fills, and one that others may still read though it has left it for an
 * earlier one. */
#define DL_BOARD_EAGER_BLOCKS (DL_BOARD_AHEAD + 2)

/* Bytes of a slot.  Where ranks share cores, half the size costs more in arrivals than
 * it gains in locality; where each rank has its own core, operations use only part of
 * it. */
#define DL_BOARD_CHUNK ((size_t)1 << 20)

#define DL_BOARD_REASON_SIZE 240

#define DL_BOARD_PENDING_TIMEOUT_WORDS 128

typedef struct dl_board_line {
    _Alignas(DL_LINE) dl_word sequence;
    dl_fingerprint fingerprint;
    uint8_t payload[DL_BOARD_PAYLOAD];
} dl_board_line;

/* Value of `end_notifier` once the other hosts have been informed. */
#define DL_END_TOLD UINT32_MAX

typedef enum dl_member_state {
    DL_STAYING = 0,
    DL_LEFT = 1,
    DL_ABORTED = 2,
} dl_member_state;

/* One per rank, which writes it unless stated otherwise. */
typedef struct dl_board_member {
    _Alignas(DL_LINE) dl_word step;
    _Atomic uint32_t state; /* dl_member_state; `reason` is written before it */
    /* Written by other ranks: the one that informs other hosts of this rank's end, as
     * its rank plus one, or DL_END_TOLD. */
    _Atomic uint32_t end_notifier;
    dl_core_mark core_mark;
    char reason[DL_BOARD_REASON_SIZE];
} dl_board_member;

typedef struct dl_board_header {
    uint64_t magic;
    uint32_t size;
    uint32_t cores_per_rank;
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
     * a row (pg/record/recording.h) of a version, an operation's number, and text. */
    _Alignas(DL_LINE) _Atomic uint64_t pending_timeout[DL_BOARD_PENDING_TIMEOUT_WORDS];
} dl_board_header;

/* The group as its board needs to know it. */
typedef struct dl_board_options {
    int rank;
    int size;
    const char *group_name;        /* this and the next two are borrowed */
    const dl_peer *peers;          /* by rank */
    dl_process *const *processes;  /* by rank; borrowed; NULL: not watched */
    struct dl_shared_views *views; /* borrowed; NULL: no arrays in shared memory */
    const int *names; /* by rank, for texts; borrowed; NULL: the rank itself */
    int phases;       /* sequence numbers per operation; 0 means 1 */
    /* Called between slices of sleep, or NULL: fails if the operation has failed in a
     * way that the board cannot see. */
    dl_status (*elsewhere)(void *context);
    /* Called between slices of sleep when the deadline is near, or NULL: `error` is
     * what the wait is going to fail with. */
    void (*announce_timeout)(void *context, const dl_error *error);
    /* Adds the ranks that the operation waits for outside of the board; or NULL. */
    void (*add_awaited)(void *context, dl_awaited *awaited);
    void *context;
} dl_board_options;

/* The board as one rank sees it. */
typedef struct dl_board {
    /* fixed after init */
    dl_board_options options;
    dl_board_header *header;
    dl_board_line *lines[DL_BOARD_LINES]; /* per operation; then by rank */
    dl_words arrivals[DL_BOARD_LINES];
    uint8_t *eager_blocks;
    size_t eager_size; /* bytes of a block, and of a buffer at most */
    dl_board_member *members;
    dl_words steps;
    uint8_t *slots;
    size_t chunk;
    dl_waiter waiter;
    size_t eager_step; /* from the first block of a rank to that of the next */
    /* only for the thread that is in an operation */
    const dl_op_context *op;
    uint64_t begun;                     /* number of `op`, counted from 1 */
    uint64_t sequences[DL_BOARD_LINES]; /* of the last operations */
    uint64_t begun_by_all; /* last operation that all ranks are known to have begun */
    uint64_t compared;     /* last operation compared with all ranks */
    uint64_t round;        /* rounds used by earlier operations */
    uint64_t last_step;    /* steps used by earlier operations */
    dl_core_sharing sharing;
    dl_slot_writer writer; /* for what this rank writes to all others */
    /* of this rank's eager blocks: the one that is being filled, the bytes of it that
     * are, and the one that was left before it for an earlier one */
    size_t eager_block;
    size_t eager_filled;
    size_t eager_left;
    uint8_t **sources; /* one pointer per rank, for the operation's use */
    /* for any thread */
    atomic_bool is_aborted;
    _Atomic(dl_word *) sleeps_on; /* word that this rank sleeps on, or NULL */
    pthread_mutex_t lock;
    dl_error abort_cause; /* guarded by lock */
} dl_board;

/* Returns true if the process of `rank` is known to have ended. */
static inline bool
dl_board_has_ended(const dl_board *board, int rank)
{
    return board->options.processes != NULL
           && dl_process_has_ended(board->options.processes[rank]);
}

#endif
