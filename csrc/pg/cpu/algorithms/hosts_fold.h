/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions between hosts: the leader of each host has its host's partial result, and
 * all leaders or one of them get the result of all hosts.  It is always folded in the
 * order of the hosts. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_HOSTS_FOLD_H
#define DISTLITE_PG_CPU_ALGORITHMS_HOSTS_FOLD_H

#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/algorithms/hosts.h"

/* One reduction on one leader. */
typedef struct dl_host_fold {
    dl_hosts *hosts;
    dl_fold fold;
    int divisor; /* divides the folded result; 1: no division */
    int root;    /* host that gets the result; -1: all */
    uint8_t *data;
    size_t size;
} dl_host_fold;

/* Prepares a reduction of the tensor in `args`, which is contiguous: it has the partial
 * result, and gets the result. */
dl_host_fold dl_host_fold_of(dl_hosts *hosts, const dl_all_reduce_args *args, int root);

/* Each leader sends its whole partial result to each other one, or to the root's only,
 * which folds them all: the data takes one way across the network. */
dl_status dl_host_fold_small(const dl_host_fold *self);

/* Works in rounds: each leader folds its share and passes it on, while the next rounds
 * are under way. */
dl_status dl_host_fold_large(const dl_host_fold *self);

/* Runs one of these, chosen by the size. */
dl_status dl_host_fold_run(const dl_host_fold *self);

/* Sends each host its part of `data`: `starts` has the first byte of each part, by
 * host, and the end of the last.  Afterwards this host's part has the result. */
dl_status dl_host_fold_scatter(const dl_host_fold *self, const size_t *starts);

#endif
