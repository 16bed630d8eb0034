/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The process of a rank, as error texts and log lines describe it. */
#ifndef DISTLITE_PG_CPU_PEER_H
#define DISTLITE_PG_CPU_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* How long a failure without a reason, such as the end of a connection, waits for the
 * reason, which may arrive by a way that is checked less often. */
#define DL_REASON_PATIENCE (100 * DL_MILLISECOND)

#define DL_HOST_NAME_SIZE 65 /* HOST_NAME_MAX and the terminating zero */

typedef struct dl_peer {
    int64_t pid;      /* as the peer itself sees it */
    const char *host; /* its name; borrowed; NULL: not known */
} dl_peer;

/* Finds the peers of a group, most of which are never asked for. */
typedef struct dl_peers {
    /* The peer's host is valid until the context changes.  NULL: no peer is known. */
    dl_peer (*find)(const void *context, int rank);
    const void *context;
    const int *ranks; /* by rank: what `find` calls it; NULL: the same */
} dl_peers;

static inline dl_peer
dl_peers_find(const dl_peers *peers, int rank)
{
    const int *ranks = peers->ranks;

    return peers->find == NULL
               ? (dl_peer){0}
               : peers->find(peers->context, ranks == NULL ? rank : ranks[rank]);
}

/* What ranks compare to find out whether all have the records of the same processes: a
 * rank that is started twice, or again, may be in one list with its first process and in
 * another with its second.  Ranks are in one of several parts of it in turn, of which each
 * has two sums, one of them weighted by ranks, which tell the rank that differs, if only
 * one of the part does. */
#define DL_DIGEST_PARTS 8
typedef struct dl_records_digest {
    uint64_t sums[DL_DIGEST_PARTS];
    uint64_t weighted[DL_DIGEST_PARTS];
} dl_records_digest;

/* Room for "rank 2 (pid 123 on host h)". */
#define DL_PEER_TEXT_SIZE 128

/* Fills in the calling process; `host` becomes the name of its host, which `peer` points
 * to. */
void dl_peer_own(dl_peer *peer, char host[DL_HOST_NAME_SIZE]);

/* Writes "rank 2 (pid 123 on host h)". */
void dl_peer_describe(const dl_peer *peer, int rank, char text[DL_PEER_TEXT_SIZE]);

void dl_peers_describe(const dl_peers *peers, int rank, char text[DL_PEER_TEXT_SIZE]);

/* Returns the peers of a list, by rank, which is borrowed. */
dl_peers dl_peers_of(const dl_peer *list);

/* Fails with the error with which `rank` has given up.  Puts "rank 2 (...) gave up: "
 * before its text, unless the text names the rank at fault itself.  Returns the status
 * of `cause`. */
dl_status dl_peer_fail_gave_up(const dl_peer *peer, int rank, const dl_error *cause);

#endif
