/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that the ranks of one group share on one host.  Each rank has lines on
 * which it announces the operation that it has reached (with the data itself if small,
 * or with an eager buffer beside the line), two slots for larger data, and a word that
 * counts its steps through an operation.
 *
 * An operation begins with an arrival: all ranks announce it, wait for each other and
 * compare fingerprints.  A rank that has seen all others arrive knows that they are done
 * with the operation before; so slots, which alternate by round, need no further
 * agreement.  An operation uses as many rounds as its size requires, the same number on
 * every rank, and leaves the slot of the next round free, which may therefore be filled
 * before the next arrival.
 *
 * Where data go one way only and fit into an eager buffer, a rank need not wait for
 * ranks that have nothing for it: it announces the operation and continues, or awaits a
 * few other ranks.  It compares the fingerprints later, when all ranks have reached the
 * operation, and before it is more than DL_BOARD_AHEAD operations ahead of any.  So a
 * mismatch may be reported one operation late, but never goes unnoticed among ranks
 * that continue. Lines are used cyclically: when all ranks have begun the operation
 * DL_BOARD_AHEAD before the next one, all have compared the previous use of its line.
 * Eager buffers are pieces of blocks, of which a rank uses the same two in turn as long
 * as the others keep up, so that they stay in the caches, and more only while it runs
 * ahead.  Where in its blocks a buffer lies, its rank notes on the line.
 *
 * A board knows sequence numbers and fingerprints, but not what operations do. */
#ifndef DISTLITE_PG_CPU_SHM_BOARD_H
#define DISTLITE_PG_CPU_SHM_BOARD_H

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
#define DL_BOARD_TURNS 256
#define DL_BOARD_AHEAD (DL_BOARD_TURNS / 2)

/* Payload bytes on a line. */
#define DL_BOARD_PAYLOAD (DL_LINE - sizeof(uint64_t) - sizeof(dl_fingerprint))

/* Blocks of eager buffers per rank: one for each turn that it is ahead, the one that it
 * fills, and one that others may still read though it has left it for an earlier one. */
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

/* Value of `end_teller` once the other hosts have been informed. */
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
    _Atomic uint32_t end_teller;
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
    dl_board_line *lines[DL_BOARD_TURNS]; /* per turn; then by rank */
    dl_words arrivals[DL_BOARD_TURNS];
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
    uint64_t turn;                      /* number of `op`, counted from 1 */
    uint64_t sequences[DL_BOARD_TURNS]; /* of the last turns */
    uint64_t begun_by_all; /* last turn that all ranks are known to have begun */
    uint64_t compared;     /* last turn compared with all ranks */
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

/* Returns the bytes of shared memory that a board needs. */
size_t dl_board_memory(int size, size_t chunk);

/* Prepares zeroed memory, once.  `cores_per_rank` is 0 if not every rank has a core of
 * its own. */
void dl_board_format(void *memory, int size, size_t chunk, int cores_per_rank);
int dl_board_cores_per_rank(const void *memory);

/* Returns how many bytes at the beginning of a board's memory dl_board_refuse()
 * needs. */
size_t dl_board_head(int size);

/* Marks a rank that cannot make its board as aborted, in formatted memory: ranks
 * that wait for it fail as if it had made the board and aborted it. */
void dl_board_refuse(void *memory, int rank, const char *reason);

/* Initialises a board over formatted memory, which outlives it.  DL_PROTOCOL: the
 * memory has another layout.  DL_NO_MEMORY leaves nothing to free. */
dl_status dl_board_init(dl_board *board, const dl_board_options *options, void *memory,
                        size_t memory_size);
void dl_board_fini(dl_board *board);

/* Gives the memory that first operations use its pages, in a group of few ranks. */
void dl_board_populate(const dl_board *board);

/* Returns true if the process of `rank` is known to have ended. */
bool dl_board_has_ended(const dl_board *board, int rank);

/* Starts `op`, which is borrowed until the next call, and returns where this rank's
 * payload goes. */
uint8_t *dl_board_begin(dl_board *board, const dl_op_context *op);

/* Announces the operation, and returns once all ranks have announced it with equal
 * fingerprints. */
dl_status dl_board_arrive(dl_board *board);

/* Announces the operation without waiting for other ranks to reach it. */
dl_status dl_board_announce(dl_board *board);

/* Announces the operation and waits for ranks `first` to `last` only, whose
 * fingerprints are compared at once. */
dl_status dl_board_await(dl_board *board, int first, int last);

/* Called between operations, before this rank leaves: compares the operations that have
 * not been compared yet with the ranks that reach them by the deadline.  Ranks that do
 * not, or that are gone, are not a failure.  DL_MISMATCH breaks the board. */
dl_status dl_board_verify_calls(dl_board *board, dl_deadline deadline);

/* Returns the payload of `rank`, once the arrival has waited for it. */
const uint8_t *dl_board_payload(const dl_board *board, int rank);

/* Returns where this rank writes eager data, `size` bytes of at most board->eager_size,
 * between begin and arrival: its payload if they fit it, else an eager buffer, whose
 * place the beginning of the payload tells.  Once in an operation. */
uint8_t *dl_board_take_eager(dl_board *board, size_t size);

/* Returns the `size` bytes of eager data of `rank`, once the arrival has waited for it.
 * Only their owner writes to them. */
uint8_t *dl_board_eager(const dl_board *board, int rank, size_t size);

/* Returns the slot of `rank` in round `round` of the operation, counted from 0. */
uint8_t *dl_board_slot(const dl_board *board, int rank, uint64_t round);

/* Steps are counted from 1 within an operation.  Every step that is waited for is
 * published, without gaps. */
void dl_board_publish_step(dl_board *board, uint64_t step);
dl_status dl_board_wait_steps(dl_board *board, uint64_t step);
dl_status dl_board_wait_step(dl_board *board, int rank, uint64_t step);

/* Ends the operation, which used this many rounds and steps.  Both numbers are the same
 * on every rank. */
void dl_board_end(dl_board *board, uint64_t rounds, uint64_t steps);

/* Breaks the board: reports the thread's last error in operation `op` to all ranks,
 * unless a failure has been reported before.  `op` need not have begun on this board.
 * The board cannot be used afterwards. */
void dl_board_break(dl_board *board, const dl_op_context *op);

/* Ends this process's sleep at the board, so that it checks again whether to continue.
 * May be called from any thread; takes no locks. */
void dl_board_wake(dl_board *board);

/* Fails this rank's waits with `cause`, and those of peers that still need this rank,
 * at their next check.  May be called from any thread. */
void dl_board_abort(dl_board *board, const dl_error *cause);

/* Notes for the peers that this rank has left in order.  May be called from any
 * thread. */
void dl_board_leave(dl_board *board);

/* The steps of operations in rounds.  In each round but the last a rank publishes two:
 * it has filled its slot for the next round; it has emptied the others' slots of this
 * round. Round 0 is filled before the arrival.  Every rank publishes all steps, even
 * those in which it moves nothing. */
static inline uint64_t
dl_board_step_filled(uint64_t round)
{
    return 2 * round - 1;
}

static inline uint64_t
dl_board_step_drained(uint64_t round)
{
    return 2 * round + 2;
}

#endif
