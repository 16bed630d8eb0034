/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The one table by which operations between hosts choose an algorithm. */
#include <limits.h>

#include "pg/cpu/hosts/leaders.h"

#define KIB ((size_t)1 << 10)
#define ANY SIZE_MAX
#define MANY INT_MAX

/* The hosts of a group, of which the first speaks for all in small exchanges: at most the
 * square root of the number of hosts, and a power of two between these.  The messages of
 * larger groups are fewer in all, and more for the head, which receives them one by
 * one. */
#define GROUP_LEAST 4
#define GROUP_MOST 16

/* The number of hosts up to which data is sent to each: that takes one way across the
 * network, as few messages, and sums in the order of the hosts. */
#define FEW 4

/* The first row that fits counts. */
typedef struct choice {
    dl_op_type op;
    int most_hosts;
    size_t most_bytes; /* of an array, or of the blocks that a rank has or gets */
    size_t most_share; /* the same, for each host */
    dl_leaders_fn *run;
} choice;

static const choice choices[] = {
    {DL_BROADCAST, 2, ANY, ANY, dl_send_tree},
    {DL_BROADCAST, MANY, 256 * KIB - 1, ANY, dl_send_tree},
    {DL_BROADCAST, MANY, ANY, 512 * KIB - 1, dl_send_pieces},
    {DL_BROADCAST, MANY, ANY, ANY, dl_send_shares},

    /* Whole arrays cross the network once, shares twice: up to as much as a link carries
     * in half a round trip. */
    {DL_ALL_REDUCE, 3, 64 * KIB, ANY, dl_fold_whole},
    {DL_ALL_REDUCE, FEW, 40 * KIB, ANY, dl_fold_whole},
    {DL_ALL_REDUCE, FEW, ANY, ANY, dl_fold_rounds},
    {DL_ALL_REDUCE, 32, 16 * KIB, ANY, dl_fold_groups},
    {DL_ALL_REDUCE, MANY, 8 * KIB, ANY, dl_fold_groups},
    {DL_ALL_REDUCE, MANY, ANY, 16 * KIB, dl_fold_shares},
    {DL_ALL_REDUCE, MANY, ANY, ANY, dl_fold_rounds},

    {DL_REDUCE, FEW, ANY, ANY, dl_fold_rounds},
    {DL_REDUCE, MANY, 16 * KIB, ANY, dl_fold_tree},
    {DL_REDUCE, MANY, ANY, 16 * KIB, dl_fold_shares},
    {DL_REDUCE, MANY, ANY, ANY, dl_fold_rounds},

    /* Blocks that other leaders pass on are copied once more than those sent to each. */
    {DL_REDUCE_SCATTER, FEW, ANY, ANY, dl_fold_rounds},
    {DL_REDUCE_SCATTER, MANY, ANY, 16 * KIB, dl_fold_parts},
    {DL_REDUCE_SCATTER, MANY, ANY, ANY, dl_fold_rounds},

    {DL_ALL_GATHER, FEW, ANY, ANY, dl_gather_full},
    {DL_ALL_GATHER, MANY, ANY, 16 * KIB, dl_gather_ring},
    {DL_ALL_GATHER, MANY, ANY, ANY, dl_gather_full},

    {DL_ALL_TO_ALL, FEW, ANY, ANY, dl_exchange_full},
    {DL_ALL_TO_ALL, MANY, ANY, 4 * KIB, dl_exchange_slots},
    {DL_ALL_TO_ALL, MANY, ANY, ANY, dl_exchange_full},

    /* One way across the network, however many hosts there are. */
    {DL_SCAN, MANY, 64 * KIB, ANY, dl_scan_gathered},
    {DL_SCAN, MANY, ANY, ANY, dl_scan_chain},
};

dl_leaders_fn *
dl_hosts_select(dl_op_type op, int hosts, size_t size)
{
    const choice *row = choices;

    while (row->op != op || row->most_hosts < hosts || row->most_bytes < size
           || row->most_share < size / (size_t)hosts) {
        row++;
    }
    return row->run;
}

bool
dl_hosts_folds_partly(dl_leaders_fn *algorithm)
{
    return algorithm == dl_fold_tree || algorithm == dl_fold_groups
           || algorithm == dl_fold_shares || algorithm == dl_fold_parts;
}

int
dl_hosts_group_size(int hosts)
{
    int size = GROUP_LEAST;

    while (size < GROUP_MOST && 4 * size * size <= hosts) {
        size *= 2;
    }
    return hosts > FEW ? size : 1;
}
