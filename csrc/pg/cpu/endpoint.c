/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "net/interface.h"
#include "net/socket.h"
#include "pg/cpu/endpoint_hosts.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/reach.h"
#include "pg/cpu/shm/segment.h"
#include "pg/rank_keys.h"

/* torch knows more transports, and refuses those that it was built without as well. */
static dl_status
check_transport(void)
{
    const char *wanted = getenv(DL_TRANSPORT_VARIABLE);
    static const char *const known[] = {"TCP_TLS", "UV", "IBVERBS"};
    bool is_known = false;

    if (wanted == NULL || strcmp(wanted, "TCP") == 0) {
        return DL_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        is_known |= strcmp(wanted, known[i]) == 0;
    }
    return dl_fail(DL_NETWORK,
                   DL_TRANSPORT_VARIABLE "=%.100s %s; unset the variable, or set it to "
                                         "TCP",
                   wanted,
                   is_known ? "is not part of distlite, whose one transport is TCP"
                            : "is no transport");
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

    DL_TRY(check_transport());
    if (wants_interfaces()
        && dl_interface_addresses(NULL, addresses, &count) != DL_OK) {
        return dl_fail(DL_NETWORK, "%s", dl_last_error()->text);
    }
    return DL_OK;
}

/* Listens at the addresses that were chosen. */
static dl_status
listen_for_calls(dl_endpoint *endpoint, dl_store *store, dl_contact *contact)
{
    dl_address connected;
    bool is_connected = dl_store_local_address(store, &connected);
    dl_way way = contact->way;

    DL_TRY(check_transport());
    DL_TRY(dl_interface_addresses(is_connected ? &connected : NULL, way.addresses,
                                  &way.count));
    DL_TRY(dl_listener_open(&endpoint->calls, &way));
    contact->way = endpoint->calls.way;
    return DL_OK;
}

/* If listening fails, the reason is published in place of an address, so that all ranks
 * learn of it.  A group on one host needs no addresses, but settings that name
 * something nonexistent are an error there, too. */
static void
open_calls(dl_endpoint *endpoint, dl_store *store, dl_contact *contact)
{
    if (listen_for_calls(endpoint, store, contact) != DL_OK) {
        snprintf(contact->problem, sizeof contact->problem, "%.*s", DL_PROBLEM_SIZE - 1,
                 dl_last_error()->text);
        contact->is_refused = dl_endpoint_check_settings() != DL_OK;
    }
}

/* Checks what ranks of one host need: memory whose descriptor can be passed, and a
 * socket to which this process can connect. */
static dl_status
try_to_share(dl_endpoint *endpoint, dl_contact *contact)
{
    int probe = -1;

    DL_TRY(dl_segment_check());
    /* The backlog has room for connections that only test the socket, and that are
     * never accepted. */
    DL_TRY(
        dl_local_listen(2 * endpoint->size + 2, contact->socket, &endpoint->listener));
    dl_status status =
        dl_local_connect(contact->socket, dl_deadline_after(DL_SECOND), &probe);
    dl_socket_close(probe);
    return status;
}

/* A sandbox may forbid the memory or the socket.  A unique hint then makes this rank a
 * host of its own for all ranks, which reach it by TCP.  A lack of descriptors has the
 * same effect here, and is an error in later steps, which need them. */
static void
open_socket(dl_endpoint *endpoint, dl_contact *contact)
{
    if (try_to_share(endpoint, contact) == DL_OK) {
        return;
    }
    dl_log(DL_LOG_WARNING,
           "rank %d cannot share memory with other ranks of its host, and uses TCP "
           "between them: %s",
           endpoint->rank, dl_last_error()->text);
    dl_endpoint_close_local(endpoint);
    contact->socket[0] = '\0';
    char *hint = contact->host.hint;
    size_t used = (size_t)snprintf(hint, DL_HOST_HINT_SIZE, "apart-");
    for (int i = 0; i < DL_TOKEN_SIZE; i++) {
        used += (size_t)snprintf(hint + used, DL_HOST_HINT_SIZE - used, "%02x",
                                 contact->process.bytes[i]);
    }
    snprintf(hint + used, DL_HOST_HINT_SIZE - used, "-%d", endpoint->rank);
}

static dl_status
publish(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    char key[DL_ENDPOINT_KEY_SIZE];
    dl_peer self = {.pid = getpid()};
    dl_contact contact = {.way.count = 0};
    dl_buffer record = {0};

    /* A longer name is truncated; the last byte stays zero. */
    (void)gethostname(self.host, sizeof self.host - 1);
    DL_TRY(dl_process_own_id(&contact.process));
    if (getrandom(contact.way.token, DL_TOKEN_SIZE, 0) != DL_TOKEN_SIZE) {
        return dl_fail(DL_INTERNAL, "getrandom: %s", strerror(errno));
    }
    dl_host_own(&contact.host);
    open_socket(endpoint, &contact);
    open_calls(endpoint, store, &contact);
    dl_endpoint_put(&record, &self, &contact);
    dl_status status = dl_buffer_check(&record);
    if (status == DL_OK) {
        status = dl_store_set(store, dl_endpoint_key(endpoint->rank, key),
                              dl_buffer_bytes(&record), deadline);
    }
    dl_buffer_fini(&record);
    return status;
}

static dl_bytes
write_key(const void *context, int rank, char text[DL_RANK_KEY_SIZE])
{
    (void)context;
    return dl_endpoint_key(rank, text);
}

/* Looks once more, to name the ranks that have not come.  If that fails as well, or all
 * have come meanwhile, keeps the store's error. */
static dl_status
fail_absent(const dl_rank_keys *keys, dl_store *store, dl_deadline deadline)
{
    dl_error error = *dl_last_error();
    dl_rank_list absent;

    if (dl_rank_keys_absent(keys, store, &absent) != DL_OK || absent.count == 0) {
        return dl_fail_again(&error);
    }
    return dl_fail(DL_TIMEOUT,
                   "timed out after %" PRId64 "ms: waiting for rank%s %s, which "
                   "%s not come",
                   deadline.limit / DL_MILLISECOND, absent.count > 1 ? "s" : "",
                   absent.text, absent.count > 1 ? "have" : "has");
}

static dl_status
read_records(dl_endpoint *endpoint, const dl_buffer *records)
{
    for (int rank = 0; rank < endpoint->size; rank++) {
        dl_status status =
            dl_endpoint_take(dl_buffer_bytes(&records[rank]), &endpoint->peers[rank],
                             &endpoint->contacts[rank]);
        if (status != DL_OK) {
            return dl_fail_while("rank %d", rank);
        }
        DL_TRY(dl_process_find(&endpoint->contacts[rank].process,
                               &endpoint->processes[rank]));
    }
    return DL_OK;
}

static dl_status
gather(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    dl_buffer *records = dl_rank_values_new(endpoint->size);
    dl_rank_keys keys = {0};
    dl_status status = records == NULL
                           ? DL_NO_MEMORY
                           : dl_rank_keys_init(&keys, endpoint->size, write_key, NULL);

    if (status == DL_OK) {
        status = dl_join_fault_await(&keys, store, records, deadline, NULL, NULL);
    }
    if (status == DL_TIMEOUT) {
        status = fail_absent(&keys, store, deadline);
    }
    if (status == DL_OK) {
        status = read_records(endpoint, records);
    }
    dl_rank_keys_fini(&keys);
    dl_rank_values_free(records, endpoint->size);
    return status;
}

dl_status
dl_endpoint_open(dl_endpoint *endpoint, const dl_backend_options *options,
                 dl_deadline deadline)
{
    size_t count = (size_t)options->size;
    dl_status status;

    *endpoint = (dl_endpoint){
        .rank = options->rank,
        .size = options->size,
        .listener = -1,
        .peers = calloc(count, sizeof *endpoint->peers),
        .contacts = calloc(count, sizeof *endpoint->contacts),
        .ways = calloc(count, sizeof *endpoint->ways),
        .processes = calloc(count, sizeof *endpoint->processes),
        .connections = malloc(count * sizeof *endpoint->connections),
        .probe = -1,
    };
    for (size_t i = 0; endpoint->connections != NULL && i < count; i++) {
        endpoint->connections[i] = -1;
    }
    if (endpoint->peers == NULL || endpoint->contacts == NULL || endpoint->ways == NULL
        || endpoint->processes == NULL || endpoint->connections == NULL) {
        status = dl_fail_no_memory();
        goto fail;
    }
    status = publish(endpoint, options->store, deadline);
    if (status != DL_OK) {
        goto fail;
    }
    status = gather(endpoint, options->store, deadline);
    if (status != DL_OK) {
        goto fail;
    }
    status = dl_endpoint_group(endpoint, options, deadline);
    if (status != DL_OK) {
        goto fail;
    }
    if (endpoint->layout.host_count == 1) {
        dl_listener_fini(&endpoint->calls);
    }
    return DL_OK;

fail:
    /* The fault is stored before the sockets close, because ranks that see them close
     * look for it. */
    dl_join_fault_tell(options->store, options->rank);
    dl_endpoint_fini(endpoint);
    return status;
}

void
dl_endpoint_clear(const dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    const dl_layout *layout = &endpoint->layout;
    char text[DL_RANK_KEY_SIZE];
    bool existed;

    for (int host = 0; host < layout->host_count; host++) {
        int leader = dl_layout_leader(layout, host);
        (void)dl_store_delete_key(store, dl_reach_key(endpoint, leader, text), &existed,
                                  deadline);
    }
    for (int rank = 0; rank < endpoint->size; rank++) {
        (void)dl_store_delete_key(store, dl_endpoint_key(rank, text), &existed,
                                  deadline);
    }
}

void
dl_endpoint_close_local(dl_endpoint *endpoint)
{
    dl_socket_close(endpoint->listener);
    endpoint->listener = -1;
    for (int rank = 0; endpoint->connections != NULL && rank < endpoint->size; rank++) {
        dl_socket_close(endpoint->connections[rank]);
        endpoint->connections[rank] = -1;
    }
}

void
dl_endpoint_fini(dl_endpoint *endpoint)
{
    if (endpoint->peers != NULL || endpoint->contacts != NULL) {
        dl_endpoint_close_local(endpoint);
    }
    dl_listener_fini(&endpoint->calls);
    dl_layout_fini(&endpoint->layout);
    for (int rank = 0; endpoint->processes != NULL && rank < endpoint->size; rank++) {
        dl_process_unref(endpoint->processes[rank]);
    }
    free(endpoint->connections);
    free(endpoint->processes);
    free(endpoint->peers);
    free(endpoint->contacts);
    free(endpoint->ways);
    *endpoint = (dl_endpoint){.listener = -1, .probe = -1};
}
