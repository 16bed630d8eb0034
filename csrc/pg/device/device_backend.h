/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The interface between a group and an engine for arrays on devices.  Unlike a
 * dl_backend, it never waits for an operation: it orders the operation after the
 * streams of its arrays and returns a work that ends by itself.  The work ends on
 * the device, where streams can be ordered after it, or on the host, which waits
 * for it.  One entry takes operations of every kind, and several at once, which
 * are issued together. */
#ifndef DISTLITE_PG_DEVICE_DEVICE_BACKEND_H
#define DISTLITE_PG_DEVICE_DEVICE_BACKEND_H

#include <limits.h>
#include <stdbool.h>

#include "pg/call.h"
#include "pg/fingerprint.h"
#include "pg/work.h"
#include "store/store.h"

typedef struct dl_device_backend dl_device_backend;

/* The contents of ProcessGroupNCCL.Options, which the group keeps until its backend for
 * devices is made.  Numbers that are not given are DL_OPTION_UNSET. */
#define DL_OPTION_UNSET INT_MIN

typedef struct dl_device_options {
    bool is_given; /* if false, the struct is zeroed and all is unset */
    bool is_high_priority_stream;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    int split_share;
    int traffic_class;
    int collnet_enable;
    int cta_policy;
    int shrink_share;
    int nvls_ctas;
    char net_name[64]; /* unset if empty, like comm_name */
    char comm_name[64];
} dl_device_options;

typedef struct dl_device_item {
    const dl_call *call; /* all its arrays are on one device */
    dl_fingerprint fingerprint;
    /* For a collective, its number among the group's collectives on devices, from 1 and
     * the same on all ranks.  0 for a message. */
    uint64_t sequence;
    char *call_site;   /* for an item of a batch if ranks compare calls; else NULL */
    dl_record *record; /* owned by device.c */
} dl_device_item;

typedef struct dl_device_call {
    const dl_device_item *items;
    size_t count;         /* at least 1 */
    bool is_batch;        /* opened by the caller as a batch, even of one item */
    dl_deadline deadline; /* also the deadline of the operation itself */
} dl_device_call;

/* How a group's ranks are split: into the ranks of each color, or into all ranks but
 * the excluded ones. */
typedef struct dl_device_split_args {
    bool is_shrinking;
    int color; /* negative if this rank is in no part */
    int key;
    const int *excluded; /* ranks of the parent */
    int excluded_count;
    int flags; /* 1: the parent's operations are aborted */
} dl_device_split_args;

typedef struct dl_device_ops {
    const char *name; /* "nccl" */
    dl_status (*enqueue)(dl_device_backend *, const dl_device_call *, dl_work **);
    /* Gives `child`, unless NULL, what it needs so that its ranks do not have to meet.
     * Does nothing if the parent's ranks have not met yet. */
    dl_status (*split)(dl_device_backend *, const dl_device_split_args *, dl_deadline,
                       dl_device_backend *child);
    /* Meets now rather than with the first operation. */
    dl_status (*connect)(dl_device_backend *, int device, dl_deadline);
    /* Returns the device on which all ranks have met, or -1 if they have not.  NULL if
     * the backend takes no part in barriers. */
    int (*device)(const dl_device_backend *);
    /* as in dl_backend_ops */
    void (*abort)(dl_device_backend *, const dl_error *cause);
    void (*leave)(dl_device_backend *);
    void (*free)(dl_device_backend *);
} dl_device_ops;

/* Embedded first in every device backend. */
struct dl_device_backend {
    const dl_device_ops *ops;
};

/* The options of a constructor; borrowed for the call, except the store. */
typedef struct dl_device_backend_options {
    dl_store *store; /* already prefixed for this group */
    int rank;
    int size;
    const char *group_name;
    const dl_device_options *options;
    /* As in dl_backend_ops, for the group's CPU side.  Must not be called with locks
     * held that abort() and leave() need. */
    dl_status (*watch)(void *context, int rank);
    dl_status (*lost)(void *context, int rank);
    void *context; /* lives as long as the backend */
} dl_device_backend_options;

/* Makes a backend.  The ranks do not meet before the first operation. */
typedef dl_status (*dl_device_backend_new_fn)(const dl_device_backend_options *options,
                                              dl_device_backend **backend);

#endif
