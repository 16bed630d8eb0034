/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the ranks of one host come to share memory.  Rank 0 leads:
 *
 *     leader                                member
 *     has connected to every member's       waits at its socket
 *     socket (pg/cpu/reach.h)
 *     invite: the group, your token    ->   whoever knows the token is the leader
 *                                      <-   answer: my lifeline and pidfd, my cores
 *     makes and formats the memory
 *     welcome: memory, all lifelines   ->   maps it, done
 *
 *                                       <-   report: done, or why not
 *     report: all are done             ->
 *
 * or, when the leader fails at any point, a report with the cause.  So nobody goes on
 * before all have joined, and a rank that cannot join says why.  One that fails before it
 * has a connection leaves the cause in the store (pg/cpu/join_fault.h). */
#ifndef DISTLITE_PG_CPU_SHM_JOIN_H
#define DISTLITE_PG_CPU_SHM_JOIN_H

#include "pg/cpu/cores.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/shm/arena.h"

/* What a rank has afterwards.  Zeroed memory is valid. */
typedef struct dl_membership {
    dl_arena arena;
} dl_membership;

/* What both sides work on. */
typedef struct dl_join {
    const dl_endpoint *endpoint; /* of this host's ranks */
    const dl_backend_options *options;
    dl_deadline deadline;
    /* On the leader, once all of them have read all records; NULL: clears those. */
    dl_status (*settle)(void *context);
    void *context;
} dl_join;

/* DL_PEER_LOST: a rank has ended meanwhile. */
dl_status dl_join_run(const dl_join *join, dl_membership *membership);

void dl_membership_fini(dl_membership *membership);

/* In a forked child: frees memory, leaves descriptors and mappings alone. */
void dl_membership_forget(dl_membership *membership);

/* The two sides. */
dl_status dl_join_lead(const dl_join *join, dl_membership *membership);
dl_status dl_join_follow(const dl_join *join, dl_membership *membership);

/* DL_PEER_LOST: the connection to `rank` has ended; or what a rank has left in the
 * store. */
dl_status dl_join_fail_ended(const dl_join *join, int rank);

#endif
