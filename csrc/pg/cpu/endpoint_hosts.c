/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/endpoint_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/interface.h"
#include "pg/cpu/reach.h"

/* Both texts have to be equal: a hint can only separate ranks. */
static bool
is_same_host(const dl_contact *left, const dl_contact *right)
{
    return strcmp(left->host.stack, right->host.stack) == 0
           && strcmp(left->host.hint, right->host.hint) == 0;
}

/* Sets the host of each rank to the lowest rank on it. */
static void
compare_hosts(const dl_endpoint *endpoint, int *hosts)
{
    for (int rank = 0; rank < endpoint->size; rank++) {
        hosts[rank] = 0;
        while (!is_same_host(&endpoint->contacts[hosts[rank]],
                             &endpoint->contacts[rank])) {
            hosts[rank]++;
        }
    }
}

/* Writes "\n    rank 0 (pid 1 on host a) at 10.0.0.1:4000, 10.1.0.1:4001" etc. */
static void
list_addresses(const dl_endpoint *endpoint, char *text, size_t size)
{
    size_t used = 0;

    for (int rank = 0; rank < endpoint->size && used < size; rank++) {
        const dl_way *way = &endpoint->ways[rank];
        char peer[DL_PEER_TEXT_SIZE];
        dl_endpoint_describe(endpoint, rank, peer);
        used += (size_t)snprintf(text + used, size - used, "\n    %s at", peer);
        for (int i = 0; i < way->count && used < size; i++) {
            char address[DL_ADDRESS_TEXT_SIZE];
            dl_address_text(&way->addresses[i], address);
            used += (size_t)snprintf(text + used, size - used, "%s %s",
                                     i > 0 ? "," : "", address);
        }
    }
}

/* A loopback address leads each host to itself: connections would reach the wrong
 * process or none. */
static dl_status
fail_loopback(const dl_endpoint *endpoint)
{
    char table[DL_ERROR_TEXT_SIZE - 512];

    list_addresses(endpoint, table, sizeof table);
    return dl_fail(DL_NETWORK,
                   "the ranks are on different hosts, but not all of their addresses "
                   "mean anything on another one; name the host of the store by an "
                   "address that all can reach, or set " DL_INTERFACE_VARIABLE ":%s",
                   table);
}

/* The rank itself has found the problem, and published it so that all ranks fail at
 * once. */
static dl_status
fail_problem(const dl_endpoint *endpoint, int rank)
{
    const dl_contact *contact = &endpoint->contacts[rank];
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(endpoint, rank, peer);
    if (contact->is_refused) {
        return dl_fail(DL_NETWORK, "%s: %s", peer, contact->problem);
    }
    if (endpoint->apart[0] != '\0') {
        return dl_fail(DL_NETWORK,
                       "%s has no address, and not all ranks of one machine reach each "
                       "other's Unix sockets (%s); %s",
                       peer, endpoint->apart, contact->problem);
    }
    return dl_fail(DL_NETWORK, "%s has no address for ranks on other hosts: %s", peer,
                   contact->problem);
}

static bool
has_loopback(const dl_way *way)
{
    for (int i = 0; i < way->count; i++) {
        if (dl_address_is_loopback(&way->addresses[i])) {
            return true;
        }
    }
    return false;
}

/* Returns the same result on all ranks, because all have the same records. */
static dl_status
check_settings(const dl_endpoint *endpoint)
{
    for (int rank = 0; rank < endpoint->size; rank++) {
        if (endpoint->contacts[rank].is_refused) {
            return fail_problem(endpoint, rank);
        }
    }
    return DL_OK;
}

/* Returns the same result on all ranks as well. */
static dl_status
check_addresses(const dl_endpoint *endpoint)
{
    const dl_contact *contacts = endpoint->contacts;
    bool is_loopback = false;
    bool has_stacks = false;

    for (int rank = 0; rank < endpoint->size; rank++) {
        if (endpoint->ways[rank].count == 0) {
            return fail_problem(endpoint, rank);
        }
        is_loopback |= has_loopback(&endpoint->ways[rank]);
        has_stacks |= strcmp(contacts[rank].host.stack, contacts->host.stack) != 0;
    }
    return is_loopback && has_stacks ? fail_loopback(endpoint) : DL_OK;
}

dl_status
dl_endpoint_group(dl_endpoint *endpoint, const dl_backend_options *options,
                  dl_deadline deadline)
{
    size_t count = (size_t)endpoint->size;

    DL_TRY(check_settings(endpoint));
    int *hosts = malloc(count * sizeof *hosts);

    if (hosts == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < endpoint->size; rank++) {
        endpoint->ways[rank] = endpoint->contacts[rank].way;
    }
    compare_hosts(endpoint, hosts);
    dl_status status = dl_reach_divide(endpoint, options, deadline, hosts);
    if (status == DL_OK) {
        status =
            dl_layout_init(&endpoint->layout, endpoint->rank, endpoint->size, hosts);
    }
    free(hosts);
    return status == DL_OK && endpoint->layout.host_count > 1
               ? check_addresses(endpoint)
               : status;
}

/* The join within a host knows nothing of other hosts: it sees a smaller group. */
dl_status
dl_endpoint_open_local(const dl_endpoint *endpoint, dl_endpoint *local)
{
    const dl_layout *layout = &endpoint->layout;
    int count = dl_layout_count(layout, layout->host);

    *local = (dl_endpoint){
        .rank = layout->place_of[endpoint->rank],
        .size = count,
        .listener = endpoint->listener,
        .peers = calloc((size_t)count, sizeof *local->peers),
        .contacts = calloc((size_t)count, sizeof *local->contacts),
        .processes = calloc((size_t)count, sizeof *local->processes),
        .names = dl_layout_ranks(layout, layout->host),
        .connections = malloc((size_t)count * sizeof *local->connections),
        .probe = -1,
    };
    if (local->peers == NULL || local->contacts == NULL || local->processes == NULL
        || local->connections == NULL) {
        dl_endpoint_drop_local(local);
        return dl_fail_no_memory();
    }
    for (int place = 0; place < count; place++) {
        local->peers[place] = endpoint->peers[local->names[place]];
        local->contacts[place] = endpoint->contacts[local->names[place]];
        local->processes[place] = endpoint->processes[local->names[place]];
        local->connections[place] = endpoint->connections[local->names[place]];
    }
    return DL_OK;
}

void
dl_endpoint_drop_local(dl_endpoint *local)
{
    free(local->peers);
    free(local->contacts);
    free(local->processes);
    free(local->connections);
    *local = (dl_endpoint){.listener = -1, .probe = -1};
}

void
dl_endpoint_describe(const dl_endpoint *endpoint, int rank,
                     char text[DL_PEER_TEXT_SIZE])
{
    int name = endpoint->names == NULL ? rank : endpoint->names[rank];

    dl_peer_describe(&endpoint->peers[rank], name, text);
}
