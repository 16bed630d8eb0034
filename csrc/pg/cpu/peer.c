/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void
dl_peer_own(dl_peer *peer, char host[DL_HOST_NAME_SIZE])
{
    *peer = (dl_peer){.pid = getpid(), .host = host};
    /* A longer name is truncated; the last byte stays zero. */
    memset(host, 0, DL_HOST_NAME_SIZE);
    (void)gethostname(host, DL_HOST_NAME_SIZE - 1);
}

void
dl_peer_describe(const dl_peer *peer, int rank, char text[DL_PEER_TEXT_SIZE])
{
    snprintf(text, DL_PEER_TEXT_SIZE, "rank %d (pid %" PRId64 " on host %s)", rank,
             peer->pid, peer->host == NULL ? "" : peer->host);
}

void
dl_peers_describe(const dl_peers *peers, int rank, char text[DL_PEER_TEXT_SIZE])
{
    dl_peer peer = dl_peers_find(peers, rank);

    dl_peer_describe(&peer, rank, text);
}

static dl_peer
find_in_list(const void *list, int rank)
{
    return ((const dl_peer *)list)[rank];
}

dl_peers
dl_peers_of(const dl_peer *list)
{
    return (dl_peers){.find = find_in_list, .context = list};
}

dl_status
dl_peer_fail_gave_up(const dl_peer *peer, int rank, const dl_error *cause)
{
    char name[DL_PEER_TEXT_SIZE];

    if (cause->status == DL_PEER_LOST || cause->status == DL_MISMATCH
        || strstr(cause->text, " gave up: ") != NULL) {
        return dl_rethrow(cause);
    }
    dl_peer_describe(peer, rank, name);
    return dl_fail(cause->status, "%s gave up: %.*s", name,
                   DL_ERROR_TEXT_SIZE - DL_PEER_TEXT_SIZE - 16, cause->text);
}
