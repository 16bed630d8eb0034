/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finds out by trial which ranks that seem to share a host reach each other.  Host
 * identities may be equal by chance or unreadable, and a sandbox may let a process
 * listen but not connect.  The lowest rank of each host leads it:
 *
 *     leader                                    all ranks of all hosts
 *     calls each other rank's socket, and
 *     leaves an invitation there (join.h)
 *     store: "cpu/0/apart", the ranks that   -> read those of all leaders
 *     it did not reach, and why
 *
 * The ranks that were not reached count as on another host from then on.  Their lowest
 * rank leads them and does the same, until every leader has reached all ranks of its
 * host.  All ranks read the same lists, so they agree.  In larger groups all know already,
 * by their links, whether there are any lists to be read (endpoint.h).  The connections
 * stay open for the join. */
#ifndef DISTLITE_PG_CPU_REACH_H
#define DISTLITE_PG_CPU_REACH_H

#include "pg/agree/rank_keys.h"
#include "pg/cpu/endpoint.h"

/* Divides `hosts`, which has for each rank the lowest rank of its host, and fills in
 * the endpoint's `connections` and `apart`.  Returns DL_PEER_LOST if a leader has
 * ended, or a rank has failed to join. */
dl_status dl_reach_divide(dl_endpoint *endpoint, const dl_backend_options *options,
                          dl_deadline deadline, int *hosts);

/* Writes a key of a leader, such as "cpu/3/apart/" and the leader's token, which
 * distinguishes it from that of an earlier join over the same store. */
dl_bytes dl_reach_key(const dl_endpoint *endpoint, int rank, const char *what,
                      char text[DL_RANK_KEY_SIZE]);

/* Writes a leader's list: the ranks that it did not reach, and why. */
void dl_reach_put(dl_buffer *buffer, const int *ranks, int count, const char *reason);

/* Reads a leader's list in a group of `size` ranks; `ranks` has room for as many.
 * Returns DL_PROTOCOL if the bytes are damaged. */
dl_status dl_reach_take(dl_bytes bytes, int size, int *ranks, int *count,
                        char reason[DL_PROBLEM_SIZE]);

#endif
