/* SPDX-License-Identifier: BSD-3-Clause
 *
 * When an operation cannot be finished, and whose fault it is: the check that a board's
 * sleeping waits make between slices, and the words for each way to fail. */
#ifndef DISTLITE_PG_CPU_SHM_VERDICT_H
#define DISTLITE_PG_CPU_SHM_VERDICT_H

#include "pg/cpu/shm/board.h"

/* `context` is the board.  In this order: aborted here, broken by a peer, a peer that is
 * needed and gone, what the board cannot see, interrupted, out of time. */
dl_status dl_verdict_check(void *context, const dl_wanted *wanted);

/* What rank 0 is going to fail `operation` with, outside the board: the others raise that at
 * their deadlines if they wait for rank 0 then. */
void dl_verdict_set_outlook(dl_board *board, uint64_t operation, const char *text);

/* DL_MISMATCH: in `turn` this rank's call and that of `other` differ. */
dl_status dl_verdict_mismatch(const dl_board *board, uint64_t turn, int other);

/* DL_OK, or what the peer said that broke the board in this operation or before. */
dl_status dl_verdict_broken(const dl_board *board);

/* DL_OK, or DL_PEER_LOST: nothing more is to be expected of `rank`.  From any thread,
 * also while no operation runs. */
dl_status dl_verdict_watch(const dl_board *board, int rank);

/* Sequence number of the last operation that `rank` has come to; 0: none yet. */
uint64_t dl_verdict_last_seen(const dl_board *board, int rank);

/* In words, why nothing more is to be expected of a rank whose process has ended:
 * "rank 1 (pid 7 on host h) exited or was killed (last seen in #4)".  Returns the operation
 * in which it was seen last; 0: none. */
uint64_t dl_verdict_describe_ended(const dl_board *board, int rank, dl_error *message);

/* Whether it was another rank that broke the board. */
bool dl_verdict_is_told(const dl_board *board);

/* For texts: a rank's name, and the operation that a sequence number belongs to. */
int dl_verdict_name(const dl_board *board, int rank);
uint64_t dl_verdict_operation(const dl_board *board, uint64_t sequence);

#endif
