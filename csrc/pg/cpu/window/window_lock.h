/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two locks in memory that the ranks of a host share, whose holders are known by rank:
 * a rank that waits for a holder that has ended fails and names it, instead of waiting
 * for ever.  Neither makes a system call while no rank has to wait.
 *
 * A latch is held for the few steps of an update.  A queue is the lock that programs
 * take: shared or exclusive, for as long as they like, and granted in the order of the
 * requests.  A rank that has ended while it waited is skipped.  If a rank ended while
 * it held the lock, requests that conflict with it fail, since the memory may be half
 * written. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_LOCK_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/status.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/shm/wait.h"

/* The end of a group, for its windows: a window may outlive its group, and its accesses
 * are not operations of the group.  Zeroed memory is a group that has not ended. */
typedef struct dl_window_ends {
    atomic_bool is_over;
    dl_error cause; /* fixed once it is over */
} dl_window_ends;

/* Fails with the cause if the group has ended. */
dl_status dl_window_ends_check(const dl_window_ends *ends);

/* The ranks of a window, for its waits.  All fields are fixed. */
typedef struct dl_window_ranks {
    int rank;
    int size;
    const char *group_name;
    dl_peers peers;
    dl_process *const *processes; /* by rank */
    const dl_window_ends *ends;
    bool may_spin; /* every rank has a core of its own */
} dl_window_ranks;

/* Fails with DL_PEER_LOST if the process of `owner` has ended. */
dl_status dl_window_ranks_check(const dl_window_ranks *ranks, int owner);

/* Fails with DL_CLOSED: `owner` has closed the window. */
dl_status dl_window_ranks_fail_closed(const dl_window_ranks *ranks, int owner);

/* Zeroed memory is free. */
typedef struct dl_latch {
    _Alignas(DL_LINE) _Atomic uint32_t word; /* 0, or the holder */
} dl_latch;

/* `owner` is the rank whose memory the latch guards, for texts. */
dl_status dl_latch_take(dl_latch *latch, const dl_window_ranks *ranks, int owner,
                        dl_deadline deadline);
void dl_latch_release(dl_latch *latch);

/* One rank's place in a queue; guarded by the queue's latch. */
typedef struct dl_lock_queue_entry {
    uint64_t ticket;
    uint32_t mode; /* 0: neither waits nor holds */
    uint32_t holds;
    int64_t lost_since; /* set for a rank on another host whose connection has ended */
} dl_lock_queue_entry;

/* Zeroed memory is free. */
typedef struct dl_lock_queue {
    dl_latch latch;
    _Alignas(DL_LINE) _Atomic uint32_t changes; /* grows when a rank leaves the queue */
    _Atomic uint32_t sleepers;
    uint32_t used; /* entries with a mode; this and the next are guarded by the latch */
    uint64_t tickets;
    dl_lock_queue_entry entries[]; /* by rank */
} dl_lock_queue;

#define DL_QUEUE_SHARED 1u
#define DL_QUEUE_EXCLUSIVE 2u

/* A request for the lock. */
typedef struct dl_lock_request {
    int asker; /* this rank, unless the request is for a rank on another host */
    bool is_shared;
    dl_deadline deadline;
    /* Called between the sleeps, without locks, and ends the wait if it fails; may be
     * NULL. */
    dl_status (*check)(void *context);
    void *context;
} dl_lock_request;

/* Waits until the lock is granted.  DL_INVALID: the asker holds the lock or waits for it
 * already.  DL_TIMEOUT: the text names a rank that has the lock, or is before the asker.
 * After a failure the asker is not in the queue, unless it was before. */
dl_status dl_lock_queue_take(dl_lock_queue *queue, const dl_window_ranks *ranks,
                             int owner, const dl_lock_request *request);

/* Stores whether the connection of `asker`, a rank on another host, has ended.  If the
 * rank does not reconnect within a second, it counts as ended. */
void dl_lock_queue_set_lost(dl_lock_queue *queue, const dl_window_ranks *ranks,
                            int owner, int asker, bool is_lost);

/* Releases the lock, or leaves the queue, if `asker` is in it. */
dl_status dl_lock_queue_leave(dl_lock_queue *queue, const dl_window_ranks *ranks,
                              int owner, int asker, dl_deadline deadline);

#endif
