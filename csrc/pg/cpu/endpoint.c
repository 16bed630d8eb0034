/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "net/interface.h"
#include "net/socket.h"
#include "pg/cpu/endpoint_hosts.h"

/* Absent ranks named in an error. */
#define NAMED_RANKS 16

/* A rank alone on its host, or whose group needs no other hosts, gets along without an
 * address: what stands in its way is published instead. */
static void
open_calls(dl_endpoint *endpoint, dl_store *store, dl_contact *contact)
{
    dl_address connected;
    dl_address address;
    bool is_connected = dl_store_local_address(store, &connected);

    if (dl_interface_address(is_connected ? &connected : NULL, &address) == DL_OK
        && dl_listener_open(&endpoint->calls, &address, contact->way.token) == DL_OK) {
        contact->way.address = endpoint->calls.address;
    } else {
        snprintf(contact->problem, sizeof contact->problem, "%.*s", DL_PROBLEM_SIZE - 1,
                 dl_last_error()->text);
    }
}

static dl_status
publish(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    char key[DL_ENDPOINT_KEY_SIZE];
    dl_peer self = {.pid = getpid()};
    dl_contact contact = {.way.address.size = 0};
    dl_buffer record = {0};

    /* A longer name stays cut and terminated. */
    (void)gethostname(self.host, sizeof self.host - 1);
    DL_TRY(dl_local_listen(endpoint->size, contact.socket, &endpoint->listener));
    if (getrandom(contact.way.token, DL_TOKEN_SIZE, 0) != DL_TOKEN_SIZE) {
        return dl_fail(DL_INTERNAL, "getrandom: %s", strerror(errno));
    }
    dl_host_own(&contact.host);
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

/* Scratch for one multi-key call: keys and values of all ranks. */
typedef struct all_records {
    char (*texts)[DL_ENDPOINT_KEY_SIZE];
    dl_bytes *keys;
    dl_buffer *values;
    size_t count;
} all_records;

static void
all_records_fini(all_records *all)
{
    for (size_t i = 0; all->values != NULL && i < all->count; i++) {
        dl_buffer_fini(&all->values[i]);
    }
    free(all->texts);
    free(all->keys);
    free(all->values);
}

static dl_status
all_records_init(all_records *all, int size)
{
    size_t count = (size_t)size;

    *all = (all_records){
        .texts = calloc(count, sizeof *all->texts),
        .keys = calloc(count, sizeof *all->keys),
        .values = calloc(count, sizeof *all->values),
        .count = count,
    };
    if (all->texts == NULL || all->keys == NULL || all->values == NULL) {
        return dl_fail_no_memory();
    }
    for (size_t i = 0; i < count; i++) {
        all->keys[i] = dl_endpoint_key((int)i, all->texts[i]);
    }
    return DL_OK;
}

/* Looks once more, to name them; keeps the store's own error when that fails too. */
static dl_status
fail_absent(const all_records *all, dl_store *store, dl_deadline deadline)
{
    dl_error error = *dl_last_error();
    char names[NAMED_RANKS * 12 + 32] = "";
    size_t used = 0;
    int absent = 0;

    for (size_t i = 0; i < all->count; i++) {
        bool exists = true;
        if (dl_store_check(store, &all->keys[i], 1, &exists, dl_deadline_after(0))
            != DL_OK) {
            return dl_fail_again(&error);
        }
        if (!exists && absent++ < NAMED_RANKS) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%zu",
                                     used > 0 ? ", " : "", i);
        }
    }
    if (absent == 0) {
        return dl_fail_again(&error);
    }
    if (absent > NAMED_RANKS) {
        snprintf(names + used, sizeof names - used, " and %d more",
                 absent - NAMED_RANKS);
    }
    return dl_fail(DL_TIMEOUT,
                   "timed out after %" PRId64 "ms: waiting for rank%s %s, which "
                   "%s not come",
                   deadline.limit / DL_MILLISECOND, absent > 1 ? "s" : "", names,
                   absent > 1 ? "have" : "has");
}

static dl_status
gather(dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    all_records all;
    dl_status status = all_records_init(&all, endpoint->size);

    if (status == DL_OK) {
        status = dl_store_multi_get(store, all.keys, all.count, all.values, deadline);
    }
    if (status == DL_TIMEOUT) {
        status = fail_absent(&all, store, deadline);
    }
    for (size_t i = 0; status == DL_OK && i < all.count; i++) {
        status = dl_endpoint_take(dl_buffer_bytes(&all.values[i]), &endpoint->peers[i],
                                  &endpoint->contacts[i]);
        if (status != DL_OK) {
            dl_fail_while("rank %zu", i);
        }
    }
    all_records_fini(&all);
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
    };
    if (endpoint->peers == NULL || endpoint->contacts == NULL
        || endpoint->ways == NULL) {
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
    status = dl_endpoint_group(endpoint);
    if (status != DL_OK) {
        goto fail;
    }
    if (endpoint->layout.host_count == 1) {
        dl_listener_fini(&endpoint->calls);
    }
    return DL_OK;

fail:
    dl_endpoint_fini(endpoint);
    return status;
}

void
dl_endpoint_clear(const dl_endpoint *endpoint, dl_store *store, dl_deadline deadline)
{
    char text[DL_ENDPOINT_KEY_SIZE];
    bool existed;

    for (int rank = 0; rank < endpoint->size; rank++) {
        (void)dl_store_delete_key(store, dl_endpoint_key(rank, text), &existed,
                                  deadline);
    }
}

void
dl_endpoint_hush(dl_endpoint *endpoint)
{
    dl_socket_close(endpoint->listener);
    endpoint->listener = -1;
}

void
dl_endpoint_fini(dl_endpoint *endpoint)
{
    if (endpoint->peers != NULL || endpoint->contacts != NULL) {
        dl_endpoint_hush(endpoint);
    }
    dl_listener_fini(&endpoint->calls);
    dl_layout_fini(&endpoint->layout);
    free(endpoint->peers);
    free(endpoint->contacts);
    free(endpoint->ways);
    *endpoint = (dl_endpoint){.listener = -1};
}
