/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/announce.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "net/address.h"

/* Of more hosts, only the first ones are listed, and all are counted. */
#define TOLD_HOSTS 8

static bool
is_first_of_host(const dl_peer *peers, int rank)
{
    for (int before = 0; before < rank; before++) {
        if (strcmp(peers[before].host, peers[rank].host) == 0) {
            return false;
        }
    }
    return true;
}

static int
ranks_of_host(const dl_peer *peers, int size, const char *host)
{
    int count = 0;

    for (int rank = 0; rank < size; rank++) {
        count += strcmp(peers[rank].host, host) == 0;
    }
    return count;
}

/* Writes "a (3), b (2)"; returns the number of hosts. */
static int
describe_hosts(const dl_peer *peers, int size, char *text, size_t room)
{
    size_t used = 0;
    int hosts = 0;

    text[0] = '\0';
    for (int rank = 0; rank < size; rank++) {
        if (!is_first_of_host(peers, rank) || ++hosts > TOLD_HOSTS) {
            continue;
        }
        used += (size_t)snprintf(text + used, room - used, "%s%s (%d)",
                                 hosts > 1 ? ", " : "", peers[rank].host,
                                 ranks_of_host(peers, size, peers[rank].host));
    }
    return hosts;
}

/* Writes the local address of the connection to the store, at which others can reach
 * this process. */
static void
describe_address(dl_store *store, char text[DL_ADDRESS_TEXT_SIZE])
{
    dl_address address;

    if (store != NULL && dl_store_local_address(store, &address)) {
        dl_address_text(&address, text);
    } else {
        snprintf(text, DL_ADDRESS_TEXT_SIZE, "none, the store has no connection");
    }
}

static const char *
transport_of(int hosts, int parts)
{
    if (parts > hosts) {
        return "shared memory where a host's ranks can share it, else TCP";
    }
    return parts > 1 ? "shared memory inside of a host, TCP between hosts"
                     : "shared memory";
}

void
dl_announce_join(const dl_backend_options *options, const dl_peer *peers, int parts)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    char hosts[TOLD_HOSTS * (DL_HOST_NAME_SIZE + 16)];
    dl_peer alone = {.pid = getpid()};

    if (!dl_log_is_on(DL_LOG_INFO)) {
        return;
    }
    if (peers == NULL) {
        gethostname(alone.host, sizeof alone.host - 1);
    }
    const dl_peer *known = peers == NULL ? &alone : peers;
    const dl_peer *self = peers == NULL ? &alone : &peers[options->rank];
    int count =
        describe_hosts(known, peers == NULL ? 1 : options->size, hosts, sizeof hosts);
    describe_address(options->store, address);
    dl_log(DL_LOG_INFO,
           "group %s: backend cpu, rank %d of %d (pid %" PRId64
           " on host %s); %d host%s by number of ranks: %s; transport: %s; address: %s",
           options->group_name, options->rank, options->size, self->pid, self->host,
           count, count > 1 ? "s" : "", hosts, transport_of(count, parts), address);
}
