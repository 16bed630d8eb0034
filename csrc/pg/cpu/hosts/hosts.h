/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Collectives of ranks on several hosts, in two levels: first the ranks of each host
 * meet at their board, then the hosts' leaders exchange data over TCP, then each host
 * meets again:
 *
 *     host 0:  0 1 2 --board--> 0 <--links--> 3 <--board-- 3 4  :host 1
 *              0 1 2 <--board-- 0             3 --board--> 3 4
 *
 * so that no data crosses twice between two hosts.  In gather, scatter and all_to_all,
 * where each rank has different data for each other one, blocks for other hosts go
 * directly from rank to rank.  A rank that is alone on its host has no board and skips
 * both phases.
 *
 * Each leader hears from every other one, directly or through others: the calls are
 * compared, and a failure on one host ends the operation on all.  In operations with a
 * root, and in small scans of one rank per host, that is so only in the first of
 * DL_ROUTE_HISTORY operations.  In the others data goes one way: a leader hears from those
 * that have data for it, compares the calls with them, and goes on without the others, of
 * whose failures it learns in a later operation.
 *
 * Each element of a reduction is computed in one order, whichever rank does so, and
 * results have the same bits on all ranks: the ranks of a host in their order, then the
 * hosts, in their order, by groups, or in that of halving.c.  Types shorter than
 * float32 are sent as float32 where partial results are, and rounded once. */
#ifndef DISTLITE_PG_CPU_HOSTS_HOSTS_H
#define DISTLITE_PG_CPU_HOSTS_HOSTS_H

#include "base/buffer.h"
#include "pg/cpu/algorithms/exchange.h"
#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/health/notices.h"
#include "pg/cpu/health/probes.h"
#include "pg/cpu/tcp/traffic.h"

/* Meetings at a board per operation, and so sequence numbers of the board. */
#define DL_HOSTS_PHASES 2

/* One rank's handle; used by the thread that is in an operation. */
typedef struct dl_hosts {
    /* fixed after init; borrowed */
    const dl_layout *layout;
    dl_board *board; /* of this host's ranks; NULL if there is only one */
    dl_exchange *exchange;
    dl_traffic *traffic;
    dl_notices *notices;
    dl_probes *probes;
    const int *origin_ranks; /* by rank, for the probes; NULL: the same ranks */
    bool *is_end_known;      /* by local rank; used by dl_hosts_notify_ended() only */
    int group;               /* hosts in a group; 1: there are no groups */
    uint8_t block_class;     /* of the last all_to_all (slots.c); 0: not known */
    uint64_t *come;          /* by host: last operation that it has come to */
    size_t *starts;          /* scratch: of the blocks in a row */
    size_t *ends;            /* scratch: of blocks in the order of the hosts */
    uint8_t **blocks;        /* scratch: by host */
    size_t *no_blocks;       /* the same, for empty ones */
    dl_tensor *locals[2];    /* scratch: one tensor per rank of this host */
    dl_buffer work;          /* scratch: this rank's data, contiguous */
    dl_buffer incoming;      /* scratch: data from other hosts */
    dl_buffer halves;        /* scratch: what passes through this leader */
    dl_buffer flat;          /* scratch: contiguous copies of strided tensors */
    /* of the current operation */
    dl_op_context phase;
    bool is_below;      /* waits for a leader that may wait for another one itself */
    int first_source;   /* distance of the host whose leader sends first; 0: all do */
    int step;           /* from one host to the next in the ring */
    int64_t look_after; /* time of the next look at other hosts */
    uint64_t looked_in; /* phase of the last look */
    int64_t lost_since; /* when a probe found that a rank has ended; 0: none did */
    /* operation whose timeout error the leaders of other hosts were told */
    uint64_t announced;
    bool is_told; /* another rank gave up first, or this one has told the others */
    /* used by any thread */
    atomic_bool is_woken; /* a process has ended, or another host has called */
} dl_hosts;

/* The caller has set the borrowed members; the others are zero. */
dl_status dl_hosts_init(dl_hosts *hosts);
void dl_hosts_fini(dl_hosts *hosts);

/* The checks that waits make between slices; `context` is a dl_hosts.  dl_hosts_check()
 * is for the traffic's waits: it returns DL_OK, or how this host's board or another
 * host has failed.  dl_hosts_check_others() is for the board's waits: it returns DL_OK,
 * or how another host has failed. */
dl_status dl_hosts_check(void *context);
dl_status dl_hosts_check_others(void *context);

/* Makes the next of these checks look at other hosts at once, before the interval is
 * over.  May be called from any thread; the caller wakes the waits itself. */
void dl_hosts_wake(dl_hosts *hosts);

/* Called when a leader's deadline is near, with the error that it is going to fail
 * with, so that a rank whose deadline comes first can name the ranks that are late.
 * dl_hosts_announce_others_timeout() is for a leader that waits for ranks of its own
 * host: it tells the leaders of the other hosts, once per operation.
 * dl_hosts_announce_own_timeout() is for a leader that waits for other hosts: it
 * publishes the error on the board for the ranks of its host. */
void dl_hosts_announce_others_timeout(void *context, const dl_error *error);
void dl_hosts_announce_own_timeout(void *context, const dl_error *error);

/* Returns DL_OK, or the error that another host's leader has announced for this
 * operation, unless that leader has come to the operation since. */
dl_status dl_hosts_late(void *context);

/* For the deadlock detector: adds the ranks that an operation waits for beyond those
 * that the board or the traffic see.  It waits for each leader that has sent nothing
 * yet in the operation, and for the ranks of that host without which the leader does
 * not continue.  dl_hosts_add_unseen() is for the board's waits, dl_hosts_add_remote()
 * for the traffic's. */
void dl_hosts_add_unseen(void *context, dl_awaited *awaited);
void dl_hosts_add_remote(void *context, dl_awaited *awaited);

/* Called when the traffic sends its notices: sends the failure to all ranks of other
 * hosts, unless this rank leaves in order or has received the failure from another
 * one. */
void dl_hosts_notify(void *context, const dl_error *message, uint64_t sequence,
                     dl_deadline deadline);

/* Called on a thread of the process table when processes have ended: tells the ranks of
 * other hosts which ranks of this host have ended, and from which operation on they are
 * missing.  One rank of the host tells each end.  Returns true if another rank is about
 * to, so that the caller looks again later. */
bool dl_hosts_notify_ended(void *context);

/* The operations.  Tensors may have any strides, except those of all_reduce and scan,
 * which are contiguous, and multiplied already for PREMUL_SUM. */
dl_status dl_hosts_barrier(dl_hosts *hosts, const dl_op_context *op);

typedef dl_status dl_hosts_fn(dl_hosts *hosts, const dl_op_context *op,
                              const dl_call *call);

dl_hosts_fn dl_hosts_broadcast, dl_hosts_all_gather, dl_hosts_all_reduce;
dl_hosts_fn dl_hosts_reduce, dl_hosts_scan, dl_hosts_reduce_scatter;
dl_hosts_fn dl_hosts_gather, dl_hosts_scatter, dl_hosts_all_to_all;

/* Returns the context of the phase that `op` has come to; its first if it failed
 * before any. */
const dl_op_context *dl_hosts_phase_of(dl_hosts *hosts, const dl_op_context *op);

/* Returns whether this leader has heard from the host whose message comes first, and so
 * waits for leaders of which others know why they are late.  `context` is a dl_hosts. */
bool dl_hosts_others_know(void *context);

static inline int
dl_hosts_local_count(const dl_hosts *hosts)
{
    return dl_layout_count(hosts->layout, hosts->layout->host);
}

#endif
