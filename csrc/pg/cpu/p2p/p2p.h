/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between ranks: an engine per rank and group, apart from the group's
 * collectives and their order.  Between each two ranks there is a channel, of two rings
 * or one TCP connection:
 *
 *     sender                                     receiver
 *     MESSAGE: tag, size, small contents    ->   matched with a posted receive, or kept
 *                                           <-   ACCEPT, or REFUSE: it does not fit
 *     DATA, DATA, ... of a large one        ->   straight into the array
 *
 * A send is done when it was accepted and its contents are out of the caller's memory:
 * so a sender learns of it when its message is refused, or its receiver gone.  Either
 * side may give up on the way (CANCEL, STOP).  A message that failed breaks nothing else.
 *
 * Whoever waits drives the engine, for everybody; a thread of its own does while nobody
 * waits and operations are pending, or frames of ended ones have not gone. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_H
#define DISTLITE_PG_CPU_P2P_P2P_H

#include "pg/arguments.h"
#include "pg/cpu/health/news.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/shm/board.h"
#include "pg/cpu/tcp/listener.h"
#include "pg/work.h"

typedef struct dl_p2p dl_p2p;

/* Shared bytes that the ranks' engines need; zeroed, they are ready. */
size_t dl_p2p_memory(int size);

/* Who there is; all borrowed. */
typedef struct dl_p2p_options {
    const char *group_name;
    const dl_peer *peers; /* by rank */
    const dl_layout *layout;
    const dl_board *board; /* of this host's ranks: their lifelines and farewells */
    const dl_way *ways;    /* by rank; these three for other hosts */
    dl_listener *listener;
    uint64_t family; /* the group's (pg/cpu/family.h) */
    dl_news *news;   /* what they tell apart from links; NULL: nothing */
} dl_p2p_options;

/* `memory` is of dl_p2p_memory() for the ranks of this host. */
dl_status dl_p2p_new(const dl_p2p_options *options, void *memory, dl_p2p **engine);

/* When what was sent has gone, tells ranks of other hosts that this one leaves the group
 * in order.  Does not wait for a peer that takes nothing for a second. */
void dl_p2p_leave(dl_p2p *engine);

/* Sends or receives; does not wait.  The elements must stay where they are until the
 * work is done. */
dl_status dl_p2p_post(dl_p2p *engine, dl_op_type op, const dl_message_args *args,
                      dl_deadline deadline, dl_work **work);

/* From any thread: pending and later operations fail with `cause`. */
void dl_p2p_abort(dl_p2p *engine, const dl_error *cause);

/* Wakes this rank's own sleepers; from any thread, takes no locks. */
void dl_p2p_ring(dl_p2p *engine);

/* Ends what is pending as dl_p2p_abort() said; afterwards nobody touches the memory or
 * the board.  In a forked child it frees only.  NULL does nothing. */
void dl_p2p_close(dl_p2p *engine);

#endif
