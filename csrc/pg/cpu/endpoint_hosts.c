/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/endpoint_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/interface.h"

/* Both: the hint only ever divides. */
static bool
is_same_host(const dl_contact *left, const dl_contact *right)
{
    return strcmp(left->host.stack, right->host.stack) == 0
           && strcmp(left->host.hint, right->host.hint) == 0;
}

/* Each rank's host is the lowest rank on it. */
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

/* "rank 0 (pid 1 on host a) 127.0.0.1:4000; rank 1 ..." */
static void
list_addresses(const dl_endpoint *endpoint, char *text, size_t size)
{
    size_t used = 0;

    for (int rank = 0; rank < endpoint->size && used < size; rank++) {
        char peer[DL_PEER_TEXT_SIZE];
        char address[DL_ADDRESS_TEXT_SIZE];
        dl_endpoint_describe(endpoint, rank, peer);
        dl_address_text(&endpoint->ways[rank].address, address);
        used +=
            (size_t)snprintf(text + used, size - used, "\n    %s at %s", peer, address);
    }
}

/* Loopback is where each host finds itself: calls would go to the wrong process, or to
 * none, and time out. */
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

/* The rank itself knew it from the start, and published it so that all fail at once. */
static dl_status
fail_problem(const dl_endpoint *endpoint, int rank)
{
    char peer[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(endpoint, rank, peer);
    return dl_fail(DL_NETWORK, "%s has no address for ranks on other hosts: %s", peer,
                   endpoint->contacts[rank].problem);
}

/* The same verdict on all ranks, because all see the same records. */
static dl_status
check_addresses(const dl_endpoint *endpoint)
{
    const dl_contact *contacts = endpoint->contacts;
    bool has_loopback = false;
    bool has_stacks = false;

    for (int rank = 0; rank < endpoint->size; rank++) {
        const dl_address *address = &endpoint->ways[rank].address;
        if (address->size == 0) {
            return fail_problem(endpoint, rank);
        }
        has_loopback |= dl_address_is_loopback(address);
        has_stacks |= strcmp(contacts[rank].host.stack, contacts->host.stack) != 0;
    }
    return has_loopback && has_stacks ? fail_loopback(endpoint) : DL_OK;
}

dl_status
dl_endpoint_group(dl_endpoint *endpoint)
{
    size_t count = (size_t)endpoint->size;
    int *hosts = malloc(count * sizeof *hosts);

    if (hosts == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < endpoint->size; rank++) {
        endpoint->ways[rank] = endpoint->contacts[rank].way;
    }
    compare_hosts(endpoint, hosts);
    dl_status status =
        dl_layout_init(&endpoint->layout, endpoint->rank, endpoint->size, hosts);
    free(hosts);
    return status == DL_OK && endpoint->layout.host_count > 1
               ? check_addresses(endpoint)
               : status;
}

/* The join of a host knows nothing of other hosts: it sees a smaller group. */
dl_status
dl_endpoint_narrow(const dl_endpoint *endpoint, dl_endpoint *local)
{
    const dl_layout *layout = &endpoint->layout;
    int count = dl_layout_count(layout, layout->host);

    *local = (dl_endpoint){
        .rank = layout->place_of[endpoint->rank],
        .size = count,
        .listener = endpoint->listener,
        .peers = calloc((size_t)count, sizeof *local->peers),
        .contacts = calloc((size_t)count, sizeof *local->contacts),
        .names = dl_layout_ranks(layout, layout->host),
    };
    if (local->peers == NULL || local->contacts == NULL) {
        dl_endpoint_drop_narrow(local);
        return dl_fail_no_memory();
    }
    for (int place = 0; place < count; place++) {
        local->peers[place] = endpoint->peers[local->names[place]];
        local->contacts[place] = endpoint->contacts[local->names[place]];
    }
    return DL_OK;
}

void
dl_endpoint_drop_narrow(dl_endpoint *local)
{
    free(local->peers);
    free(local->contacts);
    *local = (dl_endpoint){.listener = -1};
}

void
dl_endpoint_describe(const dl_endpoint *endpoint, int rank,
                     char text[DL_PEER_TEXT_SIZE])
{
    int name = endpoint->names == NULL ? rank : endpoint->names[rank];

    dl_peer_describe(&endpoint->peers[rank], name, text);
}
