/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of ranks on several hosts, in two levels: first the ranks of a host meet at
 * their board, then the hosts' leaders exchange over TCP, then the host meets again:
 *
 *     host 0:  0 1 2 --board--> 0 <--links--> 3 <--board-- 3 4  :host 1
 *              0 1 2 <--board-- 0             3 --board--> 3 4
 *
 * so that nothing crosses between two hosts twice.  What each rank has for each other one
 * alone (gather, scatter, all_to_all) goes straight between these two.  A rank that is
 * alone on its host has no board and skips both meetings.
 *
 * In every operation each leader hears from every other: the calls are compared, and what
 * fails on one host fails on all.  Reductions go in the order of the ranks within a host,
 * then in the order of the hosts, whoever computes them: results have the same bits on
 * all ranks.  Types shorter than float32 travel as float32 where hosts have several
 * ranks, and are rounded once. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_HOSTS_H
#define DISTLITE_PG_CPU_ALGORITHMS_HOSTS_H

#include "base/buffer.h"
#include "pg/cpu/algorithms/exchange.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/health/news.h"
#include "pg/cpu/health/probes.h"
#include "pg/cpu/tcp/traffic.h"

/* Meetings of a board per operation. */
#define DL_HOSTS_MEETINGS 2

/* One rank's handle; used by the thread that is in an operation. */
typedef struct dl_hosts {
    /* fixed after init; borrowed */
    const dl_layout *layout;
    dl_board *board; /* of this host's ranks; NULL for one alone */
    dl_exchange *exchange;
    dl_traffic *traffic;
    dl_news *news;
    dl_probes *probes;
    const int *origin_ranks;      /* by rank, for the probes; NULL: the same */
    dl_process *const *processes; /* by rank; NULL: no ends are known */
    bool *is_end_known;           /* by place; used by dl_hosts_tell_ended() only */
    int *leaders;                 /* of the other hosts */
    dl_tensor *locals[2];         /* scratch: a tensor for each rank of this host */
    dl_buffer work;               /* scratch: this rank's data in a row */
    dl_buffer incoming;           /* the same: what comes from other hosts */
    dl_buffer flat;               /* the same: the other side of strided tensors */
    /* of the operation */
    dl_op_context meeting;
    int64_t look_after; /* when to look at other hosts again */
    uint64_t looked_in; /* meeting of the last look */
    uint64_t
        foretold; /* operation; the other hosts' leaders know whom this one awaits */
    bool is_told; /* another rank has given up, or was told by this one */
    /* any thread */
    atomic_bool is_woken; /* a process has ended, or another host has called */
} dl_hosts;

dl_status dl_hosts_init(dl_hosts *hosts);
void dl_hosts_fini(dl_hosts *hosts);

/* Of the traffic's waits, whether this host has failed meanwhile, or another; and of the
 * board's, whether another has.  `context` is a dl_hosts. */
dl_status dl_hosts_check(void *context);
dl_status dl_hosts_check_others(void *context);

/* The next of these looks at once, and not when its time has come.  From any thread; whoever
 * calls it wakes the waits as well. */
void dl_hosts_wake(dl_hosts *hosts);

/* A leader's deadline is near.  It waits for ranks of its own host: the leaders of the other
 * hosts are told once for which.  It waits for other hosts: its own host's ranks find on the
 * board for whom.  So whose deadline comes first need not wait for those who know. */
void dl_hosts_foretell_others(void *context, const dl_error *error);
void dl_hosts_foretell_own(void *context, const dl_error *error);

/* DL_OK, or what another host's leader said so that has not come to the operation since. */
dl_status dl_hosts_late(void *context);

/* For whoever looks for deadlocks: whom an operation waits for, beyond the ranks that the
 * board or the traffic see.  A leader that has not called it is waited for, and behind it
 * all ranks of its host without whom it will not go on.  The first is for the waits of the
 * board, the second for those of the traffic. */
void dl_hosts_add_unseen(void *context, dl_awaited *awaited);
void dl_hosts_add_remote(void *context, dl_awaited *awaited);

/* Of the traffic's end: all ranks of other hosts are told, if this one knows first. */
void dl_hosts_tell(void *context, const dl_error *message, uint64_t sequence,
                   dl_deadline deadline);

/* On the thread of the process table, when processes have ended: the ranks of other hosts
 * are told which ranks of this host have, and from which operation on they are missing,
 * once by whoever is first.  True: another rank is about to, look again later. */
bool dl_hosts_tell_ended(void *context);

/* The operations.  Tensors may have any strides but for all_reduce's, which is in a row
 * and multiplied already for PREMUL_SUM. */
dl_status dl_hosts_barrier(dl_hosts *hosts, const dl_op_context *op);
dl_status dl_hosts_broadcast(dl_hosts *hosts, const dl_op_context *op,
                             const dl_broadcast_args *args);
dl_status dl_hosts_all_gather(dl_hosts *hosts, const dl_op_context *op,
                              const dl_all_gather_args *args);
dl_status dl_hosts_all_reduce(dl_hosts *hosts, const dl_op_context *op,
                              const dl_all_reduce_args *args);
dl_status dl_hosts_reduce(dl_hosts *hosts, const dl_op_context *op,
                          const dl_reduce_args *args);
dl_status dl_hosts_reduce_scatter(dl_hosts *hosts, const dl_op_context *op,
                                  const dl_reduce_scatter_args *args);
dl_status dl_hosts_gather(dl_hosts *hosts, const dl_op_context *op,
                          const dl_gather_args *args);
dl_status dl_hosts_scatter(dl_hosts *hosts, const dl_op_context *op,
                           const dl_scatter_args *args);
dl_status dl_hosts_all_to_all(dl_hosts *hosts, const dl_op_context *op,
                              const dl_all_to_all_args *args);

/* What these are made of. */

/* Begins an operation: the context of the host's first meeting, and of its last. */
const dl_op_context *dl_hosts_first(dl_hosts *hosts, const dl_op_context *op);
const dl_op_context *dl_hosts_last(dl_hosts *hosts);

/* The meeting that `op` has come to; its first if it failed before any. */
const dl_op_context *dl_hosts_meeting_of(dl_hosts *hosts, const dl_op_context *op);

/* A meeting in which nothing is exchanged; nothing for one alone. */
dl_status dl_hosts_meet(dl_hosts *hosts, const dl_op_context *meeting);

/* Queues an empty message to and from each leader, on leaders. */
dl_status dl_hosts_greet(dl_hosts *hosts);

/* At least `size` bytes of scratch, whose contents are lost. */
dl_status dl_hosts_room(dl_buffer *buffer, size_t size, uint8_t **room);

static inline int
dl_hosts_local_count(const dl_hosts *hosts)
{
    return dl_layout_count(hosts->layout, hosts->layout->host);
}

#endif
