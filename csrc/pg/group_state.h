/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a group is made of: for group.c, which makes and ends it, and collectives.c,
 * which runs its operations. */
#ifndef DISTLITE_PG_GROUP_STATE_H
#define DISTLITE_PG_GROUP_STATE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "pg/backend.h"
#include "pg/group.h"
#include "pg/lane.h"
#include "pg/recorder.h"

struct dl_group {
    atomic_uint references;
    _Atomic int64_t timeout;
    _Atomic uint64_t sequence;
    _Atomic uint64_t monitored; /* barriers so far */
    /* fixed after init */
    char *name;
    char *backend_name;
    int rank;
    int size;
    dl_store *store;
    uint32_t fork_generation;
    pid_t creator;
    dl_seat seat;
    dl_list deadlock_node;         /* guarded by own_waits.c */
    int32_t *global_ranks;         /* fixed before that knows it; NULL: the same */
    size_t brief;                  /* of the backend */
    bool is_on_device;             /* the device side of another: it has such arrays */
    struct dl_device_side *device; /* serves arrays on devices; NULL: nobody does */
    /* Its turn is held by whoever carries out an operation, or frees the backend. */
    dl_lane lane;
    /* changed with lock held */
    pthread_mutex_t lock;
    dl_backend *backend; /* and with the turn; either suffices to use it */
    atomic_bool is_broken;
    atomic_bool is_closed;
    dl_error cause;    /* of all later calls; fixed once is_broken */
    bool is_renounced; /* guarded by lock: it was aborted by its owner, or closed */
};

/* DL_CLOSED, or the first cause, or DL_OK. */
dl_status dl_group_admit(dl_group *group);

/* DL_PEER_LOST: the rank is gone, as far as the CPU's side can tell. */
dl_status dl_group_watch(dl_group *group, int rank);

/* The same of what is known without asking, and of any rank for -1: see dl_backend_ops. */
dl_status dl_group_lost(dl_group *group, int rank);

/* A reference, unless its last one is gone: then NULL. */
dl_group *dl_group_ref_if_alive(dl_group *group);

/* As dl_group_abort(), with the whole cause. */
void dl_group_fail(dl_group *group, const dl_error *cause);

/* Remembers why the group is of no more use, unless it is broken already. */
void dl_group_set_cause(dl_group *group, const dl_error *cause);

/* Passes the turn on; the last one out of a closed group frees the backend. */
void dl_group_pass_turn(dl_group *group);
void dl_group_free_backend_if_closed(dl_group *group);

#endif
