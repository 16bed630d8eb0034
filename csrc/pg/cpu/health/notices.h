/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Failure notices between ranks of different hosts outside of the links.  Each is
 * sent over a connection of its own, which carries one frame and is then closed.  A
 * link delivers a failure notice only to a connected rank, and only when that rank
 * reads the link; a rank that waits for its own host, or that has no links, is reached
 * by these.  The rank at which a failure occurs informs all ranks of other hosts: it
 * calls each of them, or, if they are many, some, of which each passes the notice on to a
 * part of the others. */
#ifndef DISTLITE_PG_CPU_HEALTH_NOTICES_H
#define DISTLITE_PG_CPU_HEALTH_NOTICES_H

#include <pthread.h>

#include "pg/cpu/health/process_table.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/tcp/link.h"

/* All pointers are borrowed, and outlive the dl_notices. */
typedef struct dl_notices_options {
    const char *group_name;
    const dl_layout *layout;
    dl_peers peers;
    dl_tcp_contacts tcp_contacts;
    dl_processes processes; /* set as ended by a notice */
    dl_listener *listener;
} dl_notices_options;

/* The notices that this rank has received.  Zeroed memory is valid: it never has one,
 * and dl_notices_fini() accepts it. */
typedef struct dl_notices {
    dl_notices_options options; /* fixed after init */
    uint32_t fork_generation;
    pthread_mutex_t lock;
    /* guarded by lock */
    bool *has_ended;   /* by rank: it gave up, or its process has ended */
    dl_list arriving;  /* connections that are being read */
    dl_list errands;   /* notices that this rank is to pass on */
    uint64_t sequence; /* first operation that fails with `error`; 0: none */
    dl_error error;
    uint64_t late_sequence; /* operation that `late_rank` is going to give up */
    int late_rank;          /* a leader of another host */
    dl_error late_error;    /* what it is going to give up with */
} dl_notices;

dl_status dl_notices_init(dl_notices *notices, const dl_notices_options *options);
void dl_notices_fini(dl_notices *notices);

/* Returns DL_OK, or the error that ended operation `sequence` or an earlier one on
 * another host.  Takes in pending notices first.  Does not block; may be called from
 * any thread. */
dl_status dl_notices_check(dl_notices *notices, uint64_t sequence);

/* Returns DL_OK, or the error with which the leader of another host is going to give up
 * operation `sequence` at its deadline; `*leader` is that rank.  For a rank whose own
 * deadline has come first.  Does not block; may be called from any thread. */
dl_status dl_notices_late(dl_notices *notices, uint64_t sequence, int *leader);

/* Takes in the notices that have arrived, without blocking.  May be called from any
 * thread. */
void dl_notices_poll(dl_notices *notices);

/* As dl_notices_poll(), and passes on what this rank was asked to.  Best effort, as
 * dl_notices_notify(). */
void dl_notices_pass_on(dl_notices *notices, dl_deadline deadline);

/* Returns DL_PEER_LOST if the process of `rank` is known to have ended, or if `rank` is
 * known to have given up the group.  Takes in no notice itself. */
dl_status dl_notices_watch(dl_notices *notices, int rank);

/* Informs all ranks of other hosts that this one takes no part in operation `sequence`
 * or any later one.  Best effort: returns once the notices are sent, or at the
 * deadline.  Keeps the thread's last error.  May be called from any thread. */
void dl_notices_notify(dl_notices *notices, const dl_error *message, uint64_t sequence,
                       dl_deadline deadline);

/* Sends the leaders of the other hosts the error with which this leader is going to
 * give up operation `sequence`.  Otherwise as dl_notices_notify(). */
void dl_notices_announce_timeout(dl_notices *notices, const dl_error *message,
                                 uint64_t sequence, dl_deadline deadline);

/* As dl_notices_notify(), about `rank` of this host, whose process has ended according
 * to this host's kernel. */
void dl_notices_notify_ended(dl_notices *notices, int rank, const dl_error *message,
                             uint64_t sequence, dl_deadline deadline);

#endif
