/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks of one host come to share memory.  Rank 0 is the leader:
 *
 *     leader                                member
 *     has connected to every member's       waits at its socket
 *     socket (pg/cpu/invite.h)
 *     invite: the group, your token    ->   only the leader knows the token
 *                                      <-   answer: my lifeline and pidfd, my cores,
 *                                           the digest of my records
 *     meets the leaders of other hosts
 *     creates and formats the memory
 *     welcome: memory, all lifelines   ->   maps it; deletes its record in the store,
 *                                           which all have read
 *                                      <-   report: done, or why not
 *     meets the other leaders again
 *     report: all are done             ->
 *
 * If the leader fails at any point, it sends a report with the cause instead.  So no
 * rank continues before all have joined, and a rank that cannot join reports the
 * reason.  A rank that fails before it has a connection leaves the cause in the store
 * (pg/cpu/join_fault.h). */
#ifndef DISTLITE_PG_CPU_SHM_JOIN_H
#define DISTLITE_PG_CPU_SHM_JOIN_H

#include "pg/cpu/endpoint.h"
#include "pg/cpu/shm/arena.h"

/* What a rank has after the join.  Zeroed memory is valid. */
typedef struct dl_membership {
    dl_arena arena;
} dl_membership;

/* The arguments of both sides; all borrowed. */
typedef struct dl_join {
    dl_endpoint *endpoint; /* of this host's ranks; the time of its note changes */
    const dl_backend_options *options;
    dl_deadline deadline;
    /* Called on the leader twice, when all members have read all records, and when they
     * have joined and deleted theirs: waits until other hosts have come as far.  NULL:
     * there are none. */
    dl_status (*meet_hosts)(void *context, bool is_first);
    void *context;
    const dl_endpoint *all; /* of all hosts' ranks; NULL: the same as `endpoint` */
} dl_join;

/* Joins this rank.  DL_PEER_LOST: a rank has ended meanwhile. */
dl_status dl_join_run(const dl_join *join, dl_membership *membership);

void dl_membership_fini(dl_membership *membership);

/* Frees memory in a forked child; leaves descriptors and mappings alone. */
void dl_membership_forget(dl_membership *membership);

#endif
