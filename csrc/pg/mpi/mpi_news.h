/* SPDX-License-Identifier: BSD-3-Clause
 *
 * News are messages beside the operations, by which ranks detect that they called
 * different operations although no rank compares the calls of all.  A rank that waits
 * for long sends the calls that it remembers to the rank that it waits for; a rank that
 * finds a difference reports it to all others.  Ranks receive news while they wait, and
 * otherwise once in 64 operations.
 *
 * No difference is missed: where ranks wait for each other in a cycle, the one that is
 * furthest behind gets the calls of the one that waits for it, or finds the difference
 * first and reports it to the others. */
#ifndef DISTLITE_PG_MPI_MPI_NEWS_H
#define DISTLITE_PG_MPI_MPI_NEWS_H

#include "pg/mpi/mpi_meeting.h"

/* An operation that a rank called, with its sequence number. */
typedef struct dl_mpi_call {
    int rank;
    uint64_t sequence;
    const dl_fingerprint *called;
} dl_mpi_call;

/* Fails with DL_MISMATCH and a text that names both ranks; a rank that receives the
 * report fails with the same text.  If more than two ranks differ, it may receive the
 * report of another pair first. */
dl_status dl_mpi_differ(const dl_mpi_meeting *meeting, const dl_mpi_call calls[2]);

/* Handles a card of `rank` that does not belong to the operation: fails like
 * dl_mpi_differ(), and sends the error to all other ranks.  `low_sequence` is the low
 * half of the sequence number. */
dl_status dl_mpi_news_refuse(dl_mpi_meeting *meeting, int rank, uint32_t low_sequence,
                             const dl_fingerprint *called);

/* Sends all other ranks the reason why this one has given up, so that those that wait
 * or come later fail as well.  Only the first call does so, and none after another
 * rank's news of that kind.  From any thread; takes 100 ms at most. */
void dl_mpi_news_send_failure(dl_mpi_comm *comm, const dl_error *cause);

/* Receives pending news.  Fails with DL_MISMATCH if calls differ, and with DL_PEER_LOST
 * if a rank gave up. */
dl_status dl_mpi_news_receive(dl_mpi_meeting *meeting);

/* Called in each nap of a wait for `rank`: receives news, and in naps number 20, 40,
 * 80, ... sends the calls of this rank to `rank`. */
dl_status dl_mpi_news_exchange(dl_mpi_meeting *meeting, int rank, int nap);

/* Receives and drops pending news, which no later call will receive. */
void dl_mpi_news_end(dl_mpi_meeting *meeting);

#endif
