/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What ranks tell each other beside their operations, so that different calls come out
 * although nobody looks at all of them: who waits for long tells what it called lately to
 * the rank that it waits for; who finds a difference tells everyone.  It is listened to
 * while waiting, and now and then otherwise.
 *
 * Nobody misses a difference: where ranks wait for each other in a circle, the one that is
 * furthest behind hears of it from the one that waits for it, or is the one to tell. */
#ifndef DISTLITE_PG_MPI_MPI_NEWS_H
#define DISTLITE_PG_MPI_MPI_NEWS_H

#include "pg/mpi/mpi_cards.h"

/* That a rank called it as the operation with that number. */
typedef struct dl_mpi_call {
    int rank;
    uint64_t sequence;
    const dl_fingerprint *called;
} dl_mpi_call;

/* DL_MISMATCH, in words that name both ranks, and that a rank which hears of it repeats.
 * Where more than two differ, it may hear of another pair first. */
dl_status dl_mpi_differ(const dl_mpi_meeting *meeting, const dl_mpi_call calls[2]);

/* A card that does not belong to the operation: differs, and tells everyone. */
dl_status dl_mpi_news_refuse(dl_mpi_meeting *meeting, int rank,
                             const dl_mpi_card *theirs);

/* Tells all other ranks that this one has given up, and why, so that whoever comes later,
 * or waits, raises as well.  Only the first call does so, and none after another rank's
 * news of that kind.  From any thread; takes 100 ms at most. */
void dl_mpi_news_give_up(dl_mpi_comm *comm, const dl_error *cause);

/* Listens: DL_MISMATCH, or DL_PEER_LOST if a rank gave up. */
dl_status dl_mpi_news_hear(dl_mpi_meeting *meeting);

/* In the given nap of a wait for `rank`: listens, and tells at times. */
dl_status dl_mpi_news_exchange(dl_mpi_meeting *meeting, int rank, int nap);

/* Takes in what nobody will listen to any more. */
void dl_mpi_news_end(dl_mpi_meeting *meeting);

#endif
