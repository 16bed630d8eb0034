/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The seam between a group and an engine for arrays on devices.  Unlike a dl_backend it
 * never waits for an operation: it puts it in order after the streams of its arrays and
 * gives a work, whose end comes by itself: on the device, where streams can be put in
 * order after it, or to the host, which waits for it.  One entry takes every operation,
 * and several at once, which then go out together. */
#ifndef DISTLITE_PG_DEVICE_BACKEND_H
#define DISTLITE_PG_DEVICE_BACKEND_H

#include "pg/arguments.h"
#include "pg/device_options.h"
#include "pg/fingerprint.h"
#include "pg/work.h"
#include "store/store.h"

typedef struct dl_device_backend dl_device_backend;

typedef struct dl_device_item {
    dl_op_type op;
    const void *args; /* the struct of `op`; all its arrays are on one device */
    dl_fingerprint fingerprint;
    /* Of a collective: which one it is of the group's on devices, from 1, the same on all
     * ranks.  0: a message. */
    uint64_t sequence;
    char *call_site;   /* of one in a batch, if anybody wants to know; else NULL */
    dl_record *record; /* device_record.c's */
} dl_device_item;

typedef struct dl_device_call {
    const dl_device_item *items;
    size_t count;         /* at least 1 */
    bool is_batch;        /* began by the caller as such, even of one item */
    dl_deadline deadline; /* of the operation itself, too */
} dl_device_call;

/* How a group's ranks part: into those of each color, or into all but the excluded. */
typedef struct dl_device_parting {
    bool is_shrinking;
    int color; /* negative: this rank is in no part */
    int key;
    const int *excluded; /* ranks of the parent */
    int excluded_count;
    int flags; /* 1: what the parent does is aborted */
} dl_device_parting;

typedef struct dl_device_ops {
    const char *name; /* "nccl" */
    dl_status (*enqueue)(dl_device_backend *, const dl_device_call *, dl_work **);
    /* Gives `child`, unless NULL, what it needs to do without meeting; does nothing where
     * the parent itself has not met yet. */
    dl_status (*part)(dl_device_backend *, const dl_device_parting *, dl_deadline,
                      dl_device_backend *child);
    /* Meets now rather than with the first operation. */
    dl_status (*connect)(dl_device_backend *, int device, dl_deadline);
    /* The device that all ranks have met on; -1: they have not.  NULL: it takes no part
     * in barriers. */
    int (*device)(const dl_device_backend *);
    /* As a dl_backend's. */
    void (*abort)(dl_device_backend *, const dl_error *cause);
    void (*leave)(dl_device_backend *);
    void (*free)(dl_device_backend *);
} dl_device_ops;

/* Embedded first in every device backend. */
struct dl_device_backend {
    const dl_device_ops *ops;
};

/* What a constructor is given; borrowed for its call, but for the store. */
typedef struct dl_device_backend_options {
    dl_store *store; /* already prefixed for this group */
    int rank;
    int size;
    const char *group_name;
    const dl_device_options *options;
    /* As a dl_backend's, of the group's other side.  With none of the locks that abort()
     * and leave() need. */
    dl_status (*watch)(void *context, int rank);
    dl_status (*lost)(void *context, int rank);
    void *context; /* lives as long as the backend */
} dl_device_backend_options;

/* Meets nobody: that comes with the first operation. */
typedef dl_status (*dl_device_backend_new_fn)(const dl_device_backend_options *options,
                                              dl_device_backend **backend);

#endif
