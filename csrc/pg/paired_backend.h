/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What backends have in common that move only the data of collectives themselves (pg/mpi,
 * pg/ucc): a CPU backend of the same ranks carries the messages, shares memory and notices
 * dead ranks. */
#ifndef DISTLITE_PG_PAIRED_BACKEND_H
#define DISTLITE_PG_PAIRED_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>

#include "pg/backend.h"

/* Embedded first in such a backend. */
typedef struct dl_paired_backend {
    dl_backend base;
    dl_backend *cpu; /* owned; fixed after init */
    /* guarded by lock; the flag may be read without it */
    pthread_mutex_t lock;
    atomic_bool is_aborted;
    dl_error cause;
} dl_paired_backend;

/* Fails with the cause once the backend is aborted. */
dl_status dl_paired_admit(const dl_paired_backend *self);

/* Tells the other ranks why this one gives up the group that is being made, after they
 * have met; the calling thread's last error is the reason, and stays it. */
dl_status dl_paired_refuse(const dl_paired_backend *self);

/* A table in which every collective is `function`, which chooses who carries it out. */
#define DL_PAIRED_COLLECTIVES(function)                          \
    {[DL_ALL_REDUCE] = function, [DL_BROADCAST] = function,      \
     [DL_BARRIER] = function,    [DL_REDUCE] = function,         \
     [DL_ALL_GATHER] = function, [DL_GATHER] = function,         \
     [DL_SCATTER] = function,    [DL_REDUCE_SCATTER] = function, \
     [DL_ALL_TO_ALL] = function, [DL_SCAN] = function,           \
     [DL_EXSCAN] = function}

/* The entries that the CPU backend serves, or abort together with it. */
#define DL_PAIRED_ENTRIES                                                             \
    .post = dl_paired_post, .post_all = dl_paired_post_all, .watch = dl_paired_watch, \
    .lost = dl_paired_lost, .has_ended = dl_paired_has_ended,                         \
    .share = dl_paired_share, .window = dl_paired_window,                             \
    .verify_calls = dl_paired_verify_calls, .finish = dl_paired_finish,               \
    .abort = dl_paired_abort, .leave = dl_paired_leave

dl_status dl_paired_post(dl_backend *, const dl_call *, dl_deadline, dl_work **);
dl_status dl_paired_post_all(dl_backend *, const dl_call *, int count, dl_deadline,
                             dl_work **, int *posted);
dl_status dl_paired_watch(dl_backend *, int rank);
dl_status dl_paired_lost(dl_backend *, int rank);
bool dl_paired_has_ended(dl_backend *, int rank);
dl_status dl_paired_share(dl_backend *, size_t size, dl_region **);
dl_status dl_paired_window(dl_backend *, const dl_window_options *, dl_window_part **);
dl_status dl_paired_verify_calls(dl_backend *, dl_deadline);
dl_status dl_paired_finish(dl_backend *, dl_deadline);
void dl_paired_abort(dl_backend *, const dl_error *cause);
void dl_paired_leave(dl_backend *);

#endif
