/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who a rank is, in words for people. */
#ifndef DISTLITE_PG_CPU_PEER_H
#define DISTLITE_PG_CPU_PEER_H

#include <stdint.h>

#define DL_HOST_NAME_SIZE 65 /* HOST_NAME_MAX and the zero */

typedef struct dl_peer {
    int64_t pid; /* as the peer itself sees it */
    char host[DL_HOST_NAME_SIZE];
} dl_peer;

/* "rank 2 (pid 123 on host h)": needs at most this many bytes. */
#define DL_PEER_TEXT_SIZE 128

void dl_peer_describe(const dl_peer *peer, int rank, char text[DL_PEER_TEXT_SIZE]);

#endif
