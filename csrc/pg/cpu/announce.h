/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the log says of a group that was joined: enough to see from one line whether the
 * ranks are where they should be and how they reach each other. */
#ifndef DISTLITE_PG_CPU_ANNOUNCE_H
#define DISTLITE_PG_CPU_ANNOUNCE_H

#include "pg/backend.h"
#include "pg/cpu/peer.h"

/* One line at INFO.  `peers` by rank, NULL in a group of one; `parts`: sets of ranks that
 * share memory. */
void dl_announce_join(const dl_backend_options *options, const dl_peer *peers,
                      int parts);

#endif
