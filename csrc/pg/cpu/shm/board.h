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

#include "pg/cpu/shm/lines.h"

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

/* Returns where the data of `rank` are in round `round` of the operation, counted from 0:
 * in the slot of the round, or in one part of it.  `size` is what a round of that rank
 * takes at most, and the same for all who ask: it tells the parts. */
uint8_t *dl_board_slot(const dl_board *board, int rank, uint64_t round, size_t size);

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
