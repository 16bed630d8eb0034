/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The arguments of a group's backend for devices: its options, and how its ranks are
 * split. */
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

#endif
