/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/peer.h"

#include <inttypes.h>
#include <stdio.h>

void
dl_peer_describe(const dl_peer *peer, int rank, char text[DL_PEER_TEXT_SIZE])
{
    snprintf(text, DL_PEER_TEXT_SIZE, "rank %d (pid %" PRId64 " on host %s)", rank,
             peer->pid, peer->host);
}
