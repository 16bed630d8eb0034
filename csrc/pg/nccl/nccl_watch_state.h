/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the parts of the watch share: nccl_watch.c, the calls of the backend; nccl_poll.c,
 * the thread, which polls works and communicators; nccl_lost.c, which asks for lost
 * ranks; nccl_teardown.c, the end of a group.  Functions named _locked are called with
 * the lock of dl_nccl_all. */
#ifndef DISTLITE_PG_NCCL_NCCL_WATCH_STATE_H
#define DISTLITE_PG_NCCL_NCCL_WATCH_STATE_H

#include "pg/nccl/nccl_watch.h"

/* How long an orderly end waits for the works, and any teardown for NCCL. */
#define DL_NCCL_GRACE (5 * DL_SECOND)

/* The watches of all groups of the process, with one thread and one lock.  The thread
 * ends with the last group.  Lock order: a thread with a communicator's turn may take
 * the lock, and not the other way round.  Neither CUDA nor NCCL is called with the
 * lock. */
typedef struct dl_nccl_watches {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    dl_list groups;
    bool is_running;
    bool is_asleep; /* the thread sleeps for longer than a millisecond */
    bool is_woken;  /* since it last began to wait */
} dl_nccl_watches;

extern dl_nccl_watches dl_nccl_all;

/* The thread: polls at intervals that grow while nothing happens. */
void *dl_nccl_watch_run(void *unused);

/* Sets the group's cause, unless it has one: later failures follow from the first. */
void dl_nccl_fail_locked(dl_nccl_watch *watch, const dl_error *cause);

/* Fails all works with the group's cause, which is fixed by now.  Drops the lock
 * meanwhile. */
void dl_nccl_fail_works_locked(dl_nccl_watch *watch);

/* Finishes the works, with `cause` unless it is NULL.  Called without the lock. */
void dl_nccl_finish_works(dl_list *works, const dl_error *cause);

/* Asks for all groups that wait for ranks, and have not for a while, whether these are
 * lost; fails the groups for which they are.  Drops the lock meanwhile. */
void dl_nccl_check_lost_locked(void);

/* Starts the teardown of a group that has a cause or no works left.  May drop the
 * lock. */
void dl_nccl_begin_teardown_locked(dl_nccl_watch *watch);

#endif
