/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The arguments of a group's backend for devices: its options, and how a group follows
 * from another one. */
#ifndef DISTLITE_PG_DEVICE_DEVICE_OPTIONS_H
#define DISTLITE_PG_DEVICE_DEVICE_OPTIONS_H

#include <limits.h>
#include <stdbool.h>

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

typedef enum dl_device_way {
    DL_DEVICE_MEET,   /* without a parent */
    DL_DEVICE_SPLIT,  /* into the ranks of each color */
    DL_DEVICE_SHRINK, /* into all ranks but the excluded ones */
    DL_DEVICE_GROW,   /* the parent's ranks keep their numbers, new ones follow */
} dl_device_way;

/* How a group follows from its parent. */
typedef struct dl_device_split_args {
    dl_device_way way;
    int color; /* negative if this rank is in no part */
    int key;
    const int *excluded; /* ranks of the parent */
    int excluded_count;
    int flags;  /* of a shrink; 1: the parent's operations are aborted */
    int device; /* of a rank that the parent does not have */
} dl_device_split_args;

/* What another group can follow from this one by, in the sum of these. */
enum {
    DL_DEVICE_CAN_SHRINK = 1, /* this rank's library has the calls */
    DL_DEVICE_CAN_GROW = 2,
    DL_DEVICE_IS_READY = 4, /* the ranks have met, and no operation is in progress */
};

#endif
