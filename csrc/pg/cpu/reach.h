/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ranks that seem to share a host reach each other, by trial: names of hosts and
 * numbers of namespaces may be equal by chance or unreadable, and a sandbox may let a
 * process listen and not connect.  The lowest rank of each host leads it:
 *
 *     leader                                    all ranks of all hosts
 *     connects to each other rank's socket
 *     and leaves an invitation there (join.h)
 *     store: "cpu/0/apart", whom it did not  -> read those of all leaders
 *     reach, and why
 *
 * Ranks that were not reached are another host from then on, whose lowest rank leads, and
 * does the same, until every leader has reached all of its own.  All ranks read the same
 * words, so they agree.  The connections stay open for the join. */
#ifndef DISTLITE_PG_CPU_REACH_H
#define DISTLITE_PG_CPU_REACH_H

#include "pg/cpu/endpoint.h"
#include "pg/rank_keys.h"

/* Divides `hosts`, by rank the lowest rank of its host, and fills in the endpoint's
 * connections, probe and `apart`.  DL_PEER_LOST: a leader has ended, or a rank failed. */
dl_status dl_reach_divide(dl_endpoint *endpoint, const dl_backend_options *options,
                          dl_deadline deadline, int *hosts);

/* "cpu/3/apart/" and the leader's token, so that it is not taken for that of an earlier
 * join over the same store. */
dl_bytes dl_reach_key(const dl_endpoint *endpoint, int rank,
                      char text[DL_RANK_KEY_SIZE]);

/* What a leader publishes.  `ranks` has room for `size`. */
void dl_reach_put(dl_buffer *buffer, const int *ranks, int count, const char *reason);
dl_status dl_reach_take(dl_bytes bytes, int size, int *ranks, int *count,
                        char reason[DL_PROBLEM_SIZE]);

#endif
