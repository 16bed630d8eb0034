/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/interface.h"
#include "pg/cpu/cpu_backend.h"
#include "pg/cpu/cpu_state.h"

/* The hosts that a log line lists; of more hosts only the number is given. */
#define TOLD_HOSTS 8

static bool
is_first_of_host(const dl_peers *peers, int rank)
{
    const char *host = dl_peers_find(peers, rank).host;

    for (int before = 0; before < rank; before++) {
        if (strcmp(dl_peers_find(peers, before).host, host) == 0) {
            return false;
        }
    }
    return true;
}

static int
ranks_of_host(const dl_peers *peers, int size, const char *host)
{
    int count = 0;

    for (int rank = 0; rank < size; rank++) {
        count += strcmp(dl_peers_find(peers, rank).host, host) == 0;
    }
    return count;
}

/* Writes "a (3), b (2)"; returns the number of hosts. */
static int
describe_hosts(const dl_peers *peers, int size, char *text, size_t room)
{
    size_t used = 0;
    int hosts = 0;

    text[0] = '\0';
    for (int rank = 0; rank < size; rank++) {
        if (!is_first_of_host(peers, rank) || ++hosts > TOLD_HOSTS) {
            continue;
        }
        const char *host = dl_peers_find(peers, rank).host;
        used += (size_t)snprintf(text + used, room - used, "%s%s (%d)",
                                 hosts > 1 ? ", " : "", host,
                                 ranks_of_host(peers, size, host));
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
        return "shared memory between the ranks of a host that can share it, else TCP";
    }
    return parts > 1 ? "shared memory within a host, TCP between hosts"
                     : "shared memory";
}

void
dl_cpu_log_join(const dl_backend_options *options, const dl_peers *peers, int parts)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    char hosts[TOLD_HOSTS * (DL_HOST_NAME_SIZE + 16)];
    char own[DL_HOST_NAME_SIZE];
    dl_peer alone;

    if (!dl_log_is_on(DL_LOG_INFO)) {
        return;
    }
    dl_peer_own(&alone, own);
    dl_peers known = peers == NULL ? dl_peers_of(&alone) : *peers;
    dl_peer self = dl_peers_find(&known, peers == NULL ? 0 : options->rank);
    int count =
        describe_hosts(&known, peers == NULL ? 1 : options->size, hosts, sizeof hosts);
    describe_address(options->store, address);
    dl_log(DL_LOG_INFO,
           "group %s: backend cpu, rank %d of %d (pid %" PRId64
           " on host %s); %d host%s by number of ranks: %s; transport: %s; address: %s",
           options->group_name, options->rank, options->size, self.pid, self.host,
           count, count > 1 ? "s" : "", hosts, transport_of(count, parts), address);
}

/* Appends "eth0 10.0.0.7\n", without the port, which has no meaning here. */
static void
append_address(dl_buffer *text, const char *name, const dl_address *address)
{
    char host[INET6_ADDRSTRLEN] = "";
    char line[IF_NAMESIZE + INET6_ADDRSTRLEN + 2];
    const void *bytes = address->socket.any.sa_family == AF_INET6
                            ? (const void *)&address->socket.ip6.sin6_addr
                            : (const void *)&address->socket.ip4.sin_addr;

    inet_ntop(address->socket.any.sa_family, bytes, host, sizeof host);
    snprintf(line, sizeof line, "%s %s\n", name, host);
    dl_buffer_put(text, dl_bytes_of(line));
}

static dl_status
put_interfaces(dl_buffer *text)
{
    dl_interface *interfaces;
    size_t count;

    DL_TRY(dl_interface_list(&interfaces, &count));
    for (size_t i = 0; i < count; i++) {
        append_address(text, interfaces[i].name, &interfaces[i].address);
    }
    free(interfaces);
    return dl_buffer_check(text);
}

dl_status
dl_cpu_addresses(const char *connected, dl_buffer *text)
{
    dl_address *local = NULL;
    dl_address chosen[DL_INTERFACES_LIMIT];
    size_t count;
    int chosen_count;

    dl_buffer_clear(text);
    if (connected != NULL) {
        /* A numeric address is parsed without a name server. */
        DL_TRY(dl_address_resolve(connected, 0, dl_deadline_after(DL_SECOND), &local,
                                  &count));
    }
    dl_status status = dl_interface_addresses(local, chosen, &chosen_count);
    free(local);
    DL_TRY(status);
    for (int i = 0; i < chosen_count; i++) {
        append_address(text, "chosen", &chosen[i]);
    }
    return put_interfaces(text);
}
