/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the ranks of a group are and how others reach them, for people. */
#ifndef DISTLITE_PG_CPU_CPU_ADDRESSES_H
#define DISTLITE_PG_CPU_CPU_ADDRESSES_H

#include "pg/backend.h"
#include "pg/cpu/peer.h"

/* Logs one line at INFO about a group that was joined, which shows where its ranks are
 * and how they reach each other.  `peers` is by rank, and NULL in a group of one;
 * `parts` is the number of sets of ranks that share memory. */
void dl_cpu_log_join(const dl_backend_options *options, const dl_peer *peers,
                     int parts);

#endif
