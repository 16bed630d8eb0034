/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The log line about a group that was joined.  It shows whether the ranks are where
 * they should be, and how they reach each other. */
#ifndef DISTLITE_PG_CPU_ANNOUNCE_H
#define DISTLITE_PG_CPU_ANNOUNCE_H

#include "pg/backend.h"
#include "pg/cpu/peer.h"

/* Logs one line at INFO.  `peers` is by rank, and NULL in a group of one; `parts` is
 * the number of sets of ranks that share memory. */
void dl_announce_join(const dl_backend_options *options, const dl_peer *peers,
                      int parts);

#endif
