/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The shared memory of one group's ranks on one host: for each rank lines on which it
 * announces the operation it has come to (with the data itself when that is small, or
 * with a pocket beside the line), two slots for larger data, and a word that counts its
 * steps through an operation.
 *
 * An operation begins with an arrival: all ranks announce it, wait for each other and
 * compare fingerprints.  Whoever has seen all arrive knows that everybody is done with
 * the operation before, so slots, which alternate by round, need no further agreement.
 * An operation uses as many rounds as its size asks for, the same number on every rank,
 * and leaves the slot of the next round free, which may therefore be filled before the
 * next arrival.
 *
 * Where data go one way only, and fit a pocket, a rank need not wait for those who have
 * nothing for it: it announces and goes on, or awaits one other.  It compares the
 * fingerprints later, when it has seen that all have come so far, and before it gets
 * further ahead than DL_BOARD_AHEAD operations; so a mismatch may be told one operation
 * late, and never goes unnoticed among ranks that go on.  Lines and pockets are used in
 * turn: when all have begun the operation DL_BOARD_AHEAD before the next one, all have
 * compared what its line was used for before.
 * Knows sequence numbers and fingerprints, not what operations do. */
#ifndef DISTLITE_PG_CPU_SHM_BOARD_H
#define DISTLITE_PG_CPU_SHM_BOARD_H

#include <pthread.h>

#include "pg/backend.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/shm/board_layout.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/shm/parting.h"
#include "pg/wait_graph.h"

/* What a rank tells its board of the group. */
typedef struct dl_board_options {
    int rank;
    int size;
    const char *group_name;        /* these three are borrowed */
    const dl_peer *peers;          /* by rank */
    dl_process *const *processes;  /* by rank; borrowed; NULL: none ends */
    struct dl_shared_views *views; /* NULL: no arrays in shared memory; borrowed */
    const int *names;              /* by rank, for texts; NULL: the same; borrowed */
    int meetings;                  /* sequence numbers per operation; 0: one */
    /* Of sleeping waits: whether what the board cannot see ends the operation; or NULL. */
    dl_status (*elsewhere)(void *context);
    /* Of sleeping waits whose deadline is near: what they are going to fail with; or NULL. */
    void (*foretell)(void *context, const dl_error *error);
    /* Adds whom the operation waits for beside those that the board sees; or NULL. */
    void (*add_awaited)(void *context, dl_awaited *awaited);
    void *context;
    /* Whether `rank`, which has not made its board, will not any more, and why; or NULL. */
    bool (*renounced)(void *membership, int rank, char reason[DL_BOARD_REASON_SIZE]);
    void *membership;
} dl_board_options;

/* One rank's handle. */
typedef struct dl_board {
    /* fixed after init */
    dl_board_options options;
    dl_board_header *header;
    dl_board_line *lines[DL_BOARD_TURNS]; /* then by rank */
    dl_words arrivals[DL_BOARD_TURNS];
    uint8_t *pockets;
    dl_board_member *members;
    dl_words steps;
    uint8_t *slots;
    size_t chunk;
    dl_waiter waiter;
    /* the thread that is in an operation only */
    const dl_op_context *op;
    uint64_t turn;                      /* of `op`, counted from 1 */
    uint64_t sequences[DL_BOARD_TURNS]; /* of the last turns */
    uint64_t begun_by_all;              /* turn, as far as this rank knows */
    uint64_t compared;                  /* turn, with all ranks */
    uint64_t round;                     /* rounds used by the operations before */
    uint64_t last_step;                 /* steps used by them */
    dl_parting parting;
    /* any thread */
    atomic_bool is_aborted;
    _Atomic(dl_word *) sleeps_on; /* the word that this rank sleeps on; NULL: none */
    pthread_mutex_t lock;
    dl_error abort_cause; /* guarded by lock */
} dl_board;

size_t dl_board_memory(int size, size_t chunk);

/* Prepares zeroed memory, once.  `may_spin`: every rank has a core to itself. */
void dl_board_format(void *memory, int size, size_t chunk, bool may_spin);
bool dl_board_may_spin(const void *memory);

/* Bytes at the beginning of a board's memory that dl_board_refuse() needs. */
size_t dl_board_head(int size);

/* In formatted memory, for a rank that cannot make its board: those that wait for it are
 * told as if it had made one and aborted it. */
void dl_board_refuse(void *memory, int size, int rank, const char *reason);

/* Over formatted memory, which outlives it.  DL_PROTOCOL: it is of another size. */
dl_status dl_board_init(dl_board *board, const dl_board_options *options, void *memory,
                        size_t memory_size);
void dl_board_fini(dl_board *board);

/* For ranks that will not make their boards any more: as if they had, and had aborted
 * them.  From any thread. */
void dl_board_look_for_absent(const dl_board *board);

/* Whether its process has ended, as far as this one knows. */
bool dl_board_has_ended(const dl_board *board, int rank);

/* Starts `op`, which is borrowed until the next call, and returns where this rank puts
 * its payload. */
uint8_t *dl_board_begin(dl_board *board, const dl_op_context *op);

/* Announces the operation; returns once all ranks have, with equal fingerprints. */
dl_status dl_board_arrive(dl_board *board);

/* The same without waiting for anybody: what this rank wrote is for others to take. */
dl_status dl_board_announce(dl_board *board);

/* The same, but waits for `rank` only, whose fingerprint is compared at once. */
dl_status dl_board_await(dl_board *board, int rank);

/* Between operations, before this rank leaves: compares what it called and has not compared
 * yet, with ranks that come to it by the deadline.  Others, and ranks that are gone, are no
 * failure.  DL_MISMATCH breaks the board. */
dl_status dl_board_settle(dl_board *board, dl_deadline deadline);

/* After the arrival, of those who were waited for. */
const uint8_t *dl_board_payload(const dl_board *board, int rank);

/* DL_BOARD_POCKET bytes, written by `rank` between begin and arrival as a payload is. */
uint8_t *dl_board_pocket(const dl_board *board, int rank);

/* Slot of `rank` in the operation's round `round`, counted from 0. */
uint8_t *dl_board_slot(const dl_board *board, int rank, uint64_t round);

/* Steps are counted from 1 within an operation, without gaps between what is published
 * and what is waited for. */
void dl_board_publish_step(dl_board *board, uint64_t step);
dl_status dl_board_wait_steps(dl_board *board, uint64_t step);
dl_status dl_board_wait_step(dl_board *board, int rank, uint64_t step);

/* Ends the operation, which used that much, on every rank the same. */
void dl_board_end(dl_board *board, uint64_t rounds, uint64_t steps);

/* Tells all ranks of the thread's last error in operation `op`, unless they know of one
 * already; it need not have begun here.  The board is of no use afterwards. */
void dl_board_break(dl_board *board, const dl_op_context *op);

/* Ends this process's sleep at the board, so that it looks again whether to go on; from
 * any thread, without locks. */
void dl_board_wake(dl_board *board);

/* Frees this rank's waiters and tells the peers that need it; from any thread. */
void dl_board_abort(dl_board *board, const dl_error *cause);

/* Tells peers that this rank is gone for good, in order; from any thread. */
void dl_board_leave(dl_board *board);

#endif
