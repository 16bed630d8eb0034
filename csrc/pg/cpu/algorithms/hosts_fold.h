/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The middle level of reductions: each host's leader has its host's partial result, and
 * some or all of them get that of all hosts.  Everything is folded in the order of the
 * hosts. */
#ifndef DISTLITE_PG_CPU_ALGORITHMS_HOSTS_FOLD_H
#define DISTLITE_PG_CPU_ALGORITHMS_HOSTS_FOLD_H

#include "pg/cpu/algorithms/fold.h"
#include "pg/cpu/algorithms/hosts.h"

/* One reduction on one leader. */
typedef struct dl_host_fold {
    dl_hosts *hosts;
    dl_fold fold;
    int divisor; /* what is left to divide by; 1: nothing */
    int root;    /* host that wants the result; -1: all */
    uint8_t *data;
    size_t size;
} dl_host_fold;

/* `data` is a row of `dtype`, the partial result, and becomes the result. */
dl_host_fold dl_host_fold_of(dl_hosts *hosts, const dl_all_reduce_args *args, int root);

/* Everybody sends everything, and folds it: one way across the network. */
dl_status dl_host_fold_small(const dl_host_fold *self);

/* Round after round, each leader folds its share and passes it on, while the next round
 * is under way. */
dl_status dl_host_fold_large(const dl_host_fold *self);

/* Picks one of these. */
dl_status dl_host_fold_run(const dl_host_fold *self);

/* Part `host` of what is at `data` goes to that host; `starts` has a part's first byte, by
 * host, and the end.  Afterwards this host's part is the result. */
dl_status dl_host_fold_scatter(const dl_host_fold *self, const size_t *starts);

#endif
