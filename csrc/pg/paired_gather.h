/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An all-gather of a few bytes of each rank over the messages of a CPU backend, for
 * what a library of collectives has to know before it is up.  In each round a rank
 * sends all that it has to the rank 1, 2, 4, ... below it, so it gets as much from the
 * one above it (Bruck's algorithm):
 *
 *     rank 0 of 5 has   0   ->   0 1   ->   0 1 2 3   ->   0 1 2 3 4
 *
 * That takes each rank log2(size) messages both ways, and the store nothing.  The group
 * need not be made yet, and other collectives may be under way, as messages are not
 * ordered with them.  Knows nothing of the bytes' meaning. */
#ifndef DISTLITE_PG_PAIRED_GATHER_H
#define DISTLITE_PG_PAIRED_GATHER_H

#include "base/bytes.h"
#include "pg/backend.h"

typedef struct dl_paired_gather {
    /* set by the user */
    dl_backend *cpu;  /* borrowed */
    const char *what; /* that the ranks join, for errors; borrowed */
    int rank;
    int size;
    dl_deadline deadline;
    void *all; /* receives the bytes of all ranks, by rank; borrowed */
    /* the rest is set by dl_paired_gather_begin() */
    size_t bytes;      /* of each rank */
    uint8_t *blocks;   /* those of the ranks from this one on, each after its size */
    int count;         /* how many have come */
    dl_work *works[2]; /* of the round: what is sent and received; NULL: ended well */
} dl_paired_gather;

/* Begins with this rank's bytes, of which a copy is kept.  Does not block. */
dl_status dl_paired_gather_begin(dl_paired_gather *gather, dl_bytes own);

/* Waits until that time, or until all bytes have come, which sets `*is_done`.  May be
 * called again unless it fails: DL_TIMEOUT after the deadline of the gather, and soon
 * after it if another rank may know better who is late; DL_PEER_LOST; DL_MISMATCH if a
 * rank sends other numbers of bytes; DL_INTERRUPTED.  The text names a rank. */
dl_status dl_paired_gather_test(dl_paired_gather *gather, dl_deadline until,
                                bool *is_done);

/* Gives up what has not come, and frees.  Needed after a failure, too, also one to
 * begin.  Keeps the thread's last error. */
void dl_paired_gather_end(dl_paired_gather *gather);

#endif
