/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/map.h"
#include "net/interface.h"
#include "pg/cpu/cpu_backend.h"
#include "pg/cpu/cpu_state.h"

/* The hosts that a log line lists; of more hosts only the number is given. */
#define TOLD_HOSTS 8

/* The ranks on hosts of one name, of which several sets may share memory. */
typedef struct named_host {
    dl_map_entry entry; /* by `name` */
    const char *name;
    int ranks;
} named_host;

/* Fills in `found`, which has room for each host of the layout; returns the number of
 * names. */
static int
count_ranks(const dl_cpu_members *members, named_host *found)
{
    const dl_layout *layout = &members->layout;
    dl_map map = {0};
    int count = 0;

    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        const char *name = dl_peers_find(&members->peers, leader).host;
        dl_map_entry *known = dl_map_find(&map, dl_bytes_of(name));
        if (known == NULL) {
            found[count].name = name;
            known = &found[count++].entry;
            dl_map_insert(&map, known, dl_bytes_of(name));
        }
        DL_MAP_ENTRY(known, named_host, entry)->ranks += dl_layout_count(layout, host);
    }
    dl_map_fini(&map);
    return count;
}

/* Writes "a (3), b (2)". */
static void
describe_hosts(const named_host *hosts, int count, char *text, size_t room)
{
    size_t used = 0;

    for (int i = 0; i < count && i < TOLD_HOSTS; i++) {
        used += (size_t)snprintf(text + used, room - used, "%s%s (%d)",
                                 i > 0 ? ", " : "", hosts[i].name, hosts[i].ranks);
    }
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
dl_cpu_log_join(const dl_backend_options *options, const dl_cpu_members *members)
{
    char address[DL_ADDRESS_TEXT_SIZE];
    char names[TOLD_HOSTS * (DL_HOST_NAME_SIZE + 16)];
    char own[DL_HOST_NAME_SIZE];
    dl_peer self;
    bool is_alone = options->size == 1;
    int parts = is_alone ? 1 : members->layout.host_count;

    if (!dl_log_is_on(DL_LOG_INFO)) {
        return;
    }
    named_host *hosts = calloc((size_t)parts, sizeof *hosts);
    if (hosts == NULL) {
        return;
    }
    dl_peer_own(&self, own);
    int count = 1;
    if (is_alone) {
        hosts[0] = (named_host){.name = own, .ranks = 1};
    } else {
        count = count_ranks(members, hosts);
    }
    describe_hosts(hosts, count, names, sizeof names);
    describe_address(options->store, address);
    dl_log(DL_LOG_INFO,
           "group %s: backend cpu, rank %d of %d (pid %" PRId64
           " on host %s); %d host%s by number of ranks: %s; transport: %s; address: %s",
           options->group_name, options->rank, options->size, self.pid, own, count,
           count > 1 ? "s" : "", names, transport_of(count, parts), address);
    free(hosts);
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
