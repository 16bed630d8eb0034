/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who a rank is, in words for people. */
#ifndef DISTLITE_PG_CPU_PEER_H
#define DISTLITE_PG_CPU_PEER_H

#include <stdint.h>

#include "base/status.h"

#define DL_HOST_NAME_SIZE 65 /* HOST_NAME_MAX and the zero */

typedef struct dl_peer {
    int64_t pid; /* as the peer itself sees it */
    char host[DL_HOST_NAME_SIZE];
} dl_peer;

/* "rank 2 (pid 123 on host h)": needs at most this many bytes. */
#define DL_PEER_TEXT_SIZE 128

void dl_peer_describe(const dl_peer *peer, int rank, char text[DL_PEER_TEXT_SIZE]);

/* Why an operation ends here with what `rank` said of its own end of it: adds who gave
 * up, unless the text says itself who is to blame, and is as true here as there. */
dl_status dl_peer_fail_gave_up(const dl_peer *peer, int rank, const dl_error *cause);

#endif
