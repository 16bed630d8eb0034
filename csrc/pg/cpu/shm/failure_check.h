/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Decides when an operation cannot be finished, and which rank is the cause: the check
 * that a board's sleeping waits make between slices, and the error text for each way to
 * fail. */
#ifndef DISTLITE_PG_CPU_SHM_FAILURE_CHECK_H
#define DISTLITE_PG_CPU_SHM_FAILURE_CHECK_H

#include "pg/cpu/shm/lines.h"

/* The check of dl_waiter; `context` is the board.  Looks, in this order, for: an abort
 * of this rank, a board broken by a peer, failures that the board cannot see, a peer
 * that is needed and gone, an interrupt, the deadline. */
dl_status dl_failure_check_run(void *context, const dl_wanted *wanted);

/* Publishes the error with which rank 0 is going to fail `operation` because of ranks
 * outside of the board.  The other ranks fail with the same text if they wait for rank
 * 0 at their deadlines. */
void dl_failure_check_set_pending_timeout(dl_board *board, uint64_t operation,
                                          const char *text);

/* Fails with DL_MISMATCH: in operation `at`, the calls of this rank and `other`
 * differ. */
dl_status dl_failure_check_mismatch(const dl_board *board, uint64_t at, int other);

/* As dl_failure_check_mismatch(), or DL_PEER_LOST if another rank ended before it
 * reached the operation: ranks that have been told of that go on with other calls than
 * the rest. */
dl_status dl_failure_check_unequal(const dl_board *board, uint64_t at, int other);

/* Returns DL_OK, or fails with the error of the peer that broke the board in this
 * operation or an earlier one. */
dl_status dl_failure_check_broken(const dl_board *board);

/* Returns DL_OK, or DL_PEER_LOST if `rank` has ended, left or given up.  May be called
 * from any thread, even while no operation runs. */
dl_status dl_failure_check_watch(const dl_board *board, int rank);

/* Returns the sequence number of the last operation that `rank` has reached; 0: none
 * yet. */
uint64_t dl_failure_check_last_seen(const dl_board *board, int rank);

/* Describes a rank whose process has ended: "rank 1 (pid 7 on host h) exited or was
 * killed (last seen in #4)".  Returns the operation in which it was last seen; 0:
 * none. */
uint64_t dl_failure_check_describe_ended(const dl_board *board, int rank,
                                         dl_error *message);

/* Returns `error`, because of which this rank breaks the board in `op`, with a text
 * that is true on other ranks. */
dl_error dl_failure_check_message(const dl_board *board, const dl_op_context *op,
                                  const dl_error *error);

/* Returns true if another rank has broken the board. */
bool dl_failure_check_is_notified(const dl_board *board);

/* For texts: the rank's name, and the operation that a sequence number belongs to. */
int dl_failure_check_name(const dl_board *board, int rank);
uint64_t dl_failure_check_operation(const dl_board *board, uint64_t sequence);

#endif
