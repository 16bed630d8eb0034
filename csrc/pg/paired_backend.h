/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What backends have in common that move only the data of collectives themselves
 * (pg/mpi, pg/ucc), and leave the rest to a CPU backend of the same ranks
 * (dl_backend_of_messages()). */
#ifndef DISTLITE_PG_PAIRED_BACKEND_H
#define DISTLITE_PG_PAIRED_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>

#include "pg/backend.h"

/* Embedded first in such a backend. */
typedef struct dl_paired_backend {
    dl_backend base; /* whose `cpu` is set */
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

/* The entry of both: aborts the CPU backend as well. */
void dl_paired_abort(dl_backend *backend, const dl_error *cause);

#endif
