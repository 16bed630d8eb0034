/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Point-to-point messages between the ranks of a group.  Each rank has one engine per
 * group, which is independent of the group's collectives and of their order.  Two ranks
 * are connected by a channel, which is two rings in shared memory or one TCP
 * connection:
 *
 *     sender                                     receiver
 *     RTS: tag, size, small payload         ->   matched with a posted receive, or kept
 *                                           <-   CTS, or REFUSE if it does not fit
 *     DATA, DATA, ... of a large payload    ->   copied straight into the array
 *
 * Such a send completes when the receiver has accepted the message and the payload has
 * left the caller's memory.  The sender therefore learns whether its message was
 * refused or its receiver has ended.  Between ranks of one host RTS has the
 * beginning of a large payload, and a message that fits into a window begins with EAGER
 * instead, whose DATA follow at once: its send completes when the bytes are in the
 * ring, and only the receive fails if the message does not fit.  A receiver that keeps
 * many messages without a receive gets RTSs.
 *
 * Either side may cancel a message in flight (CANCEL, STOP).  A message that fails does
 * not affect any other.
 *
 * A thread that waits for a message drives the engine for all messages.  A thread of
 * the engine's own drives it while operations are pending that no thread waits for, or
 * frames of completed operations have not been sent yet. */
#ifndef DISTLITE_PG_CPU_P2P_P2P_H
#define DISTLITE_PG_CPU_P2P_P2P_H

#include "pg/call.h"
#include "pg/cpu/health/notices.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/shm/board.h"
#include "pg/cpu/tcp/listener.h"
#include "pg/work.h"

typedef struct dl_p2p dl_p2p;

/* Returns the size of the shared memory that the engines of `size` ranks need; fewer
 * ranks may need more, for larger rings.  The memory is ready for use when it is
 * zeroed. */
size_t dl_p2p_memory(int size);

/* The members of the group and how to reach them; the engine borrows all of it. */
typedef struct dl_p2p_options {
    const char *group_name;
    dl_peers peers;
    const dl_layout *layout;
    dl_board *board; /* of this host's ranks: whether they have ended or left */
    dl_tcp_contacts
        tcp_contacts; /* by rank; this and the next two are for other hosts */
    dl_listener *listener;
    dl_notices *notices; /* failures reported outside of the links, or NULL */
} dl_p2p_options;

/* Creates the engine over `memory`, which has dl_p2p_memory() bytes for the ranks of
 * this host and outlives dl_p2p_close(). */
dl_status dl_p2p_new(const dl_p2p_options *options, void *memory, dl_p2p **engine);

/* Gives the memory that first messages use its pages, in a group of few ranks. */
void dl_p2p_populate(dl_p2p *engine);

/* Waits until all frames are sent, until the deadline, or until the peers have accepted
 * nothing for a second.  Returns DL_INTERRUPTED or DL_OK. */
dl_status dl_p2p_finish(dl_p2p *engine, dl_deadline deadline);

/* Tells the ranks of other hosts that this rank leaves the group in order.  Waits for a
 * second at most until frames are sent which dl_p2p_finish() has left. */
void dl_p2p_leave(dl_p2p *engine);

/* As `post` and `post_all` of dl_backend_ops: start sends and receives, and do not
 * block. */
dl_status dl_p2p_post(dl_p2p *engine, const dl_call *call, dl_deadline deadline,
                      dl_work **work);
dl_status dl_p2p_post_all(dl_p2p *engine, const dl_call *calls, int count,
                          dl_deadline deadline, dl_work **works, int *posted);

/* Fails pending and later operations with `cause`.  May be called from any thread. */
void dl_p2p_abort(dl_p2p *engine, const dl_error *cause);

/* Wakes the threads of this process that sleep in the engine.  May be called from any
 * thread; takes no locks. */
void dl_p2p_wake(dl_p2p *engine);

/* Fails the pending operations with the cause given to dl_p2p_abort(), or with
 * DL_CLOSED, and waits until no thread uses the shared memory or the board any more.
 * In a forked child it only frees memory.  Does nothing for NULL. */
void dl_p2p_close(dl_p2p *engine);

#endif
