/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/endpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/interface.h"
#include "net/socket.h"
#include "pg/cpu/record_mac.h"
#include "pg/cpu/tcp/life_port.h"
#include "pg/cpu/tcp/link_tls.h"

/* Reads the kernel's boot id, or the host name where there is none. */
static void
read_boot(char *text, size_t room)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, room - 1);

    if (fd >= 0) {
        close(fd);
    }
    if (size <= 0) {
        (void)gethostname(text, room - 1);
        return;
    }
    text[size] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

void
dl_host_own(dl_host *host)
{
    const char *hint = getenv(DL_HOST_HINT_VARIABLE);
    char boot[48] = "";
    struct stat namespace = {0};

    /* A thread may be in another network namespace than the process's first one. */
    (void)stat("/proc/thread-self/ns/net", &namespace);
    read_boot(boot, sizeof boot);
    snprintf(host->stack, sizeof host->stack, "%s/%llu", boot,
             (unsigned long long)namespace.st_ino);
    snprintf(host->hint, sizeof host->hint, "%.63s/%u", hint == NULL ? "" : hint,
             (unsigned)geteuid());
}

dl_tcp_contacts
dl_endpoint_tcp_contacts(const dl_endpoint *endpoint)
{
    return (dl_tcp_contacts){.find = dl_contacts_find_tcp,
                             .context = &endpoint->contacts};
}

static bool
wants_interfaces(void)
{
    const char *wanted = getenv(DL_INTERFACE_VARIABLE);

    return wanted != NULL && wanted[0] != '\0';
}

dl_status
dl_endpoint_check_settings(void)
{
    dl_address addresses[DL_INTERFACES_LIMIT];
    int count;

    DL_TRY(dl_link_tls_check());
    if (wants_interfaces()
        && dl_interface_addresses(NULL, addresses, &count) != DL_OK) {
        return dl_fail(DL_NETWORK, "%s", dl_last_error()->text);
    }
    return DL_OK;
}

void
dl_endpoint_close_calls(dl_endpoint *endpoint)
{
    if (endpoint->has_life_port) {
        dl_life_port_drop(endpoint->calls.tcp.addresses);
        endpoint->has_life_port = false;
    }
    dl_listener_fini(&endpoint->calls);
}

dl_status
dl_endpoint_store(const dl_endpoint *endpoint, dl_store *store, dl_bytes key,
                  const dl_buffer *record, dl_deadline deadline)
{
    dl_record_mac mac = {endpoint->secret, endpoint->group_name, key};
    dl_buffer stored = {0};

    DL_TRY(dl_buffer_check(record));
    dl_status status = dl_record_mac_put(&stored, &mac, dl_buffer_bytes(record));
    if (status == DL_OK) {
        status = dl_store_set(store, key, dl_buffer_bytes(&stored), deadline);
    }
    dl_buffer_fini(&stored);
    return status;
}

dl_status
dl_endpoint_verify(const dl_endpoint *endpoint, dl_bytes key, const dl_buffer *stored,
                   dl_bytes *record)
{
    dl_record_mac mac = {endpoint->secret, endpoint->group_name, key};

    return dl_record_mac_take(dl_buffer_bytes(stored), &mac, record);
}

static dl_process *
find_process(void *context, int rank)
{
    dl_endpoint *self = context;

    return dl_process_find_in(&self->processes[rank],
                              &self->contacts.entries[rank].process);
}

dl_processes
dl_endpoint_processes(dl_endpoint *endpoint)
{
    return (dl_processes){.find = find_process, .context = endpoint};
}

dl_status
dl_endpoint_keep(dl_endpoint *endpoint, int rank, const dl_peer *peer,
                 const dl_contact *contact)
{
    return dl_contacts_put(&endpoint->contacts, rank, peer, contact);
}

/* The join within a host knows nothing of other hosts: it sees a smaller group. */
dl_status
dl_endpoint_open_local(dl_endpoint *endpoint, dl_endpoint *local)
{
    const dl_layout *layout = &endpoint->layout;
    int count = dl_layout_count(layout, layout->host);

    *local = (dl_endpoint){
        .rank = layout->local_rank_of[endpoint->rank],
        .size = count,
        .listener = endpoint->listener,
        .invited = endpoint->invited,
        .table = -1,
        .peers = endpoint->peers,
        .processes = calloc((size_t)count, sizeof *local->processes),
        .connections = malloc((size_t)count * sizeof *local->connections),
    };
    if (local->processes == NULL || local->connections == NULL) {
        dl_endpoint_drop_local(local);
        return dl_fail_no_memory();
    }
    memcpy(local->token, endpoint->token, sizeof local->token);
    local->peers.ranks = dl_layout_ranks(layout, layout->host);
    for (int local_rank = 0; local_rank < count; local_rank++) {
        int rank = local->peers.ranks[local_rank];
        local->processes[local_rank] = find_process(endpoint, rank);
        if (local->processes[local_rank] == NULL) {
            dl_endpoint_drop_local(local);
            return dl_fail_no_memory();
        }
        local->connections[local_rank] =
            endpoint->connections == NULL ? -1 : endpoint->connections[rank];
    }
    return DL_OK;
}

void
dl_endpoint_drop_local(dl_endpoint *local)
{
    free(local->processes);
    free(local->connections);
    *local = (dl_endpoint){.listener = -1, .invited = -1, .table = -1};
}

void
dl_endpoint_close_local(dl_endpoint *endpoint)
{
    dl_socket_close(endpoint->listener);
    endpoint->listener = -1;
    dl_socket_close(endpoint->invited);
    endpoint->invited = -1;
    dl_socket_close(endpoint->table);
    endpoint->table = -1;
    dl_traffic_fini(&endpoint->traffic);
    for (int rank = 0; endpoint->connections != NULL && rank < endpoint->size; rank++) {
        dl_socket_close(endpoint->connections[rank]);
        endpoint->connections[rank] = -1;
    }
}

void
dl_endpoint_fini(dl_endpoint *endpoint)
{
    if (endpoint->peers.find != NULL) {
        dl_endpoint_close_local(endpoint);
    }
    dl_endpoint_close_calls(endpoint);
    dl_tls_unref(endpoint->tls);
    dl_secret_unref(endpoint->secret);
    dl_layout_fini(&endpoint->layout);
    for (int rank = 0; endpoint->processes != NULL && rank < endpoint->size; rank++) {
        dl_process_unref(endpoint->processes[rank]);
    }
    free(endpoint->connections);
    free(endpoint->processes);
    dl_contacts_fini(&endpoint->contacts);
    dl_buffer_fini(&endpoint->record);
    *endpoint = (dl_endpoint){.listener = -1, .invited = -1, .table = -1};
}

void
dl_endpoint_describe(const dl_endpoint *endpoint, int rank,
                     char text[DL_PEER_TEXT_SIZE])
{
    const dl_peers *peers = &endpoint->peers;
    dl_peer peer = dl_peers_find(peers, rank);

    dl_peer_describe(&peer, peers->ranks == NULL ? rank : peers->ranks[rank], text);
}
