/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a rank finds the others: its record, what it listens at, and which ranks share a
 * host. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "net/interface.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/join_fault.h"
#include "pg/cpu/reach.h"
#include "pg/cpu/shm/segment.h"
#include "pg/cpu/survey.h"
#include "pg/cpu/tcp/life_port.h"
#include "pg/cpu/tcp/link_tls.h"

/* Listens at the addresses that were chosen. */
static dl_status
listen_for_calls(dl_endpoint *endpoint, dl_store *store, dl_contact *contact)
{
    dl_address connected;
    bool is_connected = dl_store_local_address(store, &connected);
    dl_tcp_contact tcp = contact->tcp;

    tcp.tls = endpoint->contacts.tls;
    tcp.secret = endpoint->contacts.secret;
    DL_TRY(dl_interface_addresses(is_connected ? &connected : NULL, tcp.addresses,
                                  &tcp.count));
    DL_TRY(dl_listener_open(&endpoint->calls, &tcp));
    contact->tcp = endpoint->calls.tcp;
    contact->tcp.life_port = dl_life_port_open(contact->tcp.addresses);
    endpoint->has_life_port = contact->tcp.life_port != 0;
    return DL_OK;
}

/* In mode psk the handshake is a proof of the token, so no other proof is needed
 * inside.  If listening fails, the reason is published in place of an address, so that
 * all ranks learn of it.  A group on one host needs no addresses, but settings that
 * name something nonexistent are an error there, too. */
static void
open_calls(dl_endpoint *endpoint, dl_store *store, dl_contact *contact)
{
    bool has_tls = dl_link_tls_new(endpoint->secret, &endpoint->tls) == DL_OK;
    bool is_proved_by_tls = dl_tls_mode_of(endpoint->tls) == DL_TLS_PSK;

    endpoint->contacts.tls = endpoint->tls;
    endpoint->contacts.secret = is_proved_by_tls ? NULL : endpoint->secret;
    if (!has_tls || listen_for_calls(endpoint, store, contact) != DL_OK) {
        snprintf(contact->problem, sizeof contact->problem, "%.*s", DL_PROBLEM_SIZE - 1,
                 dl_last_error()->text);
        contact->is_refused = !has_tls || dl_endpoint_check_settings() != DL_OK;
    }
    contact->tls_mode = dl_tls_mode_of(endpoint->tls);
}

/* Checks the two requirements for sharing memory: memory whose descriptor can be
 * passed, and a socket to which this process can send. */
static dl_status
try_to_share(dl_endpoint *endpoint, dl_contact *contact)
{
    DL_TRY(dl_segment_check());
    DL_TRY(dl_local_check_user());
    DL_TRY(dl_local_listen(contact->tcp.token, contact->socket, &endpoint->listener));
    return dl_local_check(contact->socket);
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
           "rank %d cannot share memory with other ranks of its host, and uses TCP to "
           "reach them: %s",
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

/* Every user of a TCPStore with a token has proved it.  Other kinds require no proof,
 * and those written in Python have no token to return; for them the token of the
 * environment is used. */
static dl_status
find_secret(dl_endpoint *endpoint, dl_store *store)
{
    endpoint->secret = dl_secret_ref(dl_store_secret(store));
    return endpoint->secret != NULL ? DL_OK : dl_secret_find(&endpoint->secret);
}

static dl_status
publish_record(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    char key[DL_ENDPOINT_KEY_SIZE];
    dl_contact contact = {.tcp.count = 0};
    dl_peer self;

    dl_peer_own(&self, contact.host_name);
    DL_TRY(dl_process_own_id(&contact.process));
    if (getrandom(endpoint->token, DL_TOKEN_SIZE, 0) != DL_TOKEN_SIZE) {
        return dl_fail(DL_INTERNAL, "getrandom: %s", strerror(errno));
    }
    memcpy(contact.tcp.token, endpoint->token, DL_TOKEN_SIZE);
    dl_host_own(&contact.host);
    open_socket(endpoint, &contact);
    open_calls(endpoint, store, &contact);
    DL_TRY(dl_endpoint_keep(endpoint, endpoint->rank, &self, &contact));
    dl_endpoint_put(&endpoint->record, &self, &contact);
    return dl_endpoint_store(endpoint, store, dl_endpoint_key(endpoint->rank, key),
                             &endpoint->record, deadline);
}

/* Writes "\n    rank 0 (pid 1 on host a) at 10.0.0.1:4000, 10.1.0.1:4001" etc. */
static void
list_addresses(const dl_endpoint *endpoint, char *text, size_t size)
{
    size_t used = 0;

    for (int rank = 0; rank < endpoint->size && used < size; rank++) {
        dl_tcp_contact tcp;
        char peer[DL_PEER_TEXT_SIZE];
        dl_contacts_find_tcp(&endpoint->contacts, rank, &tcp);
        dl_endpoint_describe(endpoint, rank, peer);
        used += (size_t)snprintf(text + used, size - used, "\n    %s at", peer);
        for (int i = 0; i < tcp.count && used < size; i++) {
            char address[DL_ADDRESS_TEXT_SIZE];
            dl_address_text(&tcp.addresses[i], address);
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
                   "the ranks are on different hosts, but some of their addresses are "
                   "valid on their own host only; set MASTER_ADDR to an address that "
                   "all ranks can reach, or set " DL_INTERFACE_VARIABLE ":%s",
                   table);
}

/* The rank itself has found the problem, and published it so that all ranks fail at
 * once. */
static dl_status
fail_problem(const dl_endpoint *endpoint, int rank)
{
    char problem[DL_PROBLEM_SIZE];
    char peer[DL_PEER_TEXT_SIZE];

    dl_contacts_problem(&endpoint->contacts, rank, problem);
    dl_endpoint_describe(endpoint, rank, peer);
    if (endpoint->contacts.entries[rank].is_refused) {
        return dl_fail(DL_NETWORK, "%s: %s", peer, problem);
    }
    if (endpoint->apart[0] != '\0') {
        return dl_fail(DL_NETWORK,
                       "%s has no address, and some ranks of one machine cannot reach "
                       "each other's Unix sockets (%s); %s",
                       peer, endpoint->apart, problem);
    }
    return dl_fail(DL_NETWORK, "%s has no address for ranks on other hosts: %s", peer,
                   problem);
}

/* Ranks with different modes cannot read each other's messages. */
static dl_status
fail_modes(const dl_endpoint *endpoint, int rank)
{
    const dl_contact_entry *entries = endpoint->contacts.entries;
    char first[DL_PEER_TEXT_SIZE];
    char other[DL_PEER_TEXT_SIZE];

    dl_endpoint_describe(endpoint, 0, first);
    dl_endpoint_describe(endpoint, rank, other);
    return dl_fail(DL_NETWORK,
                   "%s has TLS \"%s\" for its links, %s \"%s\": every process of a job "
                   "needs the same DISTLITE_TLS and GLOO_DEVICE_TRANSPORT",
                   first, dl_tls_mode_name((dl_tls_mode)entries[0].tls_mode), other,
                   dl_tls_mode_name((dl_tls_mode)entries[rank].tls_mode));
}

/* Fails if ranks of different hosts cannot reach each other. */
static dl_status
check_addresses(const dl_endpoint *endpoint)
{
    const dl_survey *survey = endpoint->contacts.survey;

    if (survey->unaddressed >= 0) {
        return fail_problem(endpoint, survey->unaddressed);
    }
    return survey->has_loopback && survey->has_stacks ? fail_loopback(endpoint) : DL_OK;
}

/* Divides the ranks that claim to share a host, by the trial of reach.h. */
static dl_status
divide_hosts(dl_endpoint *endpoint, const dl_backend_options *options,
             dl_deadline deadline)
{
    int *hosts = malloc((size_t)endpoint->size * sizeof *hosts);

    if (hosts == NULL) {
        return dl_fail_no_memory();
    }
    for (int rank = 0; rank < endpoint->size; rank++) {
        hosts[rank] = dl_contacts_leader(&endpoint->contacts, rank);
    }
    dl_status status = dl_reach_divide(endpoint, options, deadline, hosts);
    if (status == DL_OK) {
        status =
            dl_layout_init(&endpoint->layout, endpoint->rank, endpoint->size, hosts);
    }
    free(hosts);
    return status;
}

/* Fills in `layout`, and checks that ranks of different hosts can reach each other.
 * Returns DL_NETWORK, on all ranks because all have the same survey, if some have no
 * address that other hosts can reach, or settings that name something that does not
 * exist. */
static dl_status
group_hosts(dl_endpoint *endpoint, const dl_backend_options *options,
            dl_deadline deadline)
{
    const dl_survey *survey = endpoint->contacts.survey;

    if (survey->refused >= 0) {
        return fail_problem(endpoint, survey->refused);
    }
    if (survey->other_mode >= 0) {
        return fail_modes(endpoint, survey->other_mode);
    }
    if (endpoint->has_reached) {
        endpoint->layout = dl_survey_layout(survey, endpoint->size, endpoint->rank);
    } else {
        DL_TRY(divide_hosts(endpoint, options, deadline));
    }
    return endpoint->layout.host_count > 1 ? check_addresses(endpoint) : DL_OK;
}

dl_status
dl_endpoint_open(dl_endpoint *endpoint, const dl_backend_options *options,
                 dl_deadline deadline)
{
    dl_status status;

    *endpoint = (dl_endpoint){
        .rank = options->rank,
        .size = options->size,
        .group_name = options->group_name,
        .store = options->store,
        .deadline = deadline,
        .listener = -1,
        .invited = -1,
        .table = -1,
        .peers = {.find = dl_contacts_peer, .context = &endpoint->contacts},
        .processes = calloc((size_t)options->size, sizeof *endpoint->processes),
    };
    status = dl_contacts_init(&endpoint->contacts, options->rank, options->size);
    if (status != DL_OK || endpoint->processes == NULL) {
        status = dl_fail_no_memory();
        goto fail;
    }
    status = find_secret(endpoint, options->store);
    if (status != DL_OK) {
        goto fail;
    }
    status = publish_record(endpoint, options->store, deadline);
    if (status != DL_OK) {
        goto fail;
    }
    status = dl_endpoint_get_records(endpoint, options->store, deadline);
    if (status != DL_OK) {
        goto fail;
    }
    dl_buffer_fini(&endpoint->record);
    status = group_hosts(endpoint, options, deadline);
    if (status != DL_OK) {
        goto fail;
    }
    if (endpoint->layout.host_count == 1) {
        dl_endpoint_close_calls(endpoint);
    }
    endpoint->has_life_port = false;
    return DL_OK;

fail:
    /* The fault is stored before the sockets close, because ranks that see them close
     * read it. */
    dl_join_fault_publish(options->store, options->rank);
    dl_endpoint_fini(endpoint);
    return status;
}
