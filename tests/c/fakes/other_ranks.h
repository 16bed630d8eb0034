/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Records in a store of ranks that do not exist, as if other processes
 * had published them. */
#ifndef DISTLITE_TESTS_FAKES_OTHER_RANKS_H
#define DISTLITE_TESTS_FAKES_OTHER_RANKS_H

#include "check.h"
#include "pg/cpu/endpoint.h"
#include "pg/cpu/reach.h"

static inline void
fake_publish_record(dl_store *store, int rank, const dl_peer *peer,
                    const dl_contact *contact)
{
    dl_buffer record = {0};
    char key[DL_ENDPOINT_KEY_SIZE];

    dl_endpoint_put(&record, peer, contact);
    CHECK_OK(dl_store_set(store, dl_endpoint_key(rank, key), dl_buffer_bytes(&record),
                          dl_deadline_after(0)));
    dl_buffer_fini(&record);
}

/* Publishes that the rank reaches all ranks of its host, in case it is a leader. */
static inline void
fake_publish_reach(dl_store *store, int rank, const dl_contact *contact)
{
    dl_endpoint endpoint = {.rank = rank};
    dl_buffer outcome = {0};
    char key[DL_RANK_KEY_SIZE];
    dl_peer peer = {.host = ""};

    CHECK_OK(dl_contacts_init(&endpoint.contacts, rank, rank + 1));
    CHECK_OK(dl_contacts_put(&endpoint.contacts, rank, &peer, contact));
    dl_reach_put(&outcome, NULL, 0, "");
    CHECK_OK(dl_store_set(store, dl_reach_key(&endpoint, rank, "apart", key),
                          dl_buffer_bytes(&outcome), dl_deadline_after(0)));
    dl_buffer_fini(&outcome);
    dl_contacts_fini(&endpoint.contacts);
}

/* Opens a socket that others can call, though nothing accepts the calls. */
static inline void
fake_open_socket(dl_contact *contact)
{
    int fd;

    CHECK_OK(dl_local_listen(contact->tcp.token, contact->socket, &fd));
}

#endif
