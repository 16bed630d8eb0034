/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a group need to find each other: each publishes one record in the
 * store, with the name of a Unix socket and a secret that shows who has read it, and
 * reads those of all others. */
#ifndef DISTLITE_PG_CPU_ENDPOINT_H
#define DISTLITE_PG_CPU_ENDPOINT_H

#include "net/local.h"
#include "pg/backend.h"
#include "pg/cpu/peer.h"

#define DL_TOKEN_SIZE 16

/* Where a rank is to be met. */
typedef struct dl_contact {
    char socket[DL_LOCAL_NAME_SIZE];
    uint8_t token[DL_TOKEN_SIZE];
} dl_contact;

/* This rank's view; fixed after dl_endpoint_open. */
typedef struct dl_endpoint {
    int rank;
    int size;
    int listener;
    dl_peer *peers;       /* by rank */
    dl_contact *contacts; /* by rank */
} dl_endpoint;

/* Publishes and gathers.  DL_TIMEOUT names the ranks that have not come. */
dl_status dl_endpoint_open(dl_endpoint *endpoint, const dl_backend_options *options,
                           dl_deadline deadline);

/* Takes the records out of the store again: a later group may use the same keys.  Called
 * by one rank when all have read them; best effort. */
void dl_endpoint_clear(const dl_endpoint *endpoint, dl_store *store,
                       dl_deadline deadline);

/* Closes the listener; peers and contacts stay. */
void dl_endpoint_hush(dl_endpoint *endpoint);

void dl_endpoint_fini(dl_endpoint *endpoint);

/* "cpu/3". */
#define DL_ENDPOINT_KEY_SIZE 24
dl_bytes dl_endpoint_key(int rank, char text[DL_ENDPOINT_KEY_SIZE]);

/* The record of one rank in bytes, and back.  DL_PROTOCOL: of another version. */
void dl_endpoint_put(dl_buffer *buffer, const dl_peer *peer, const dl_contact *contact);
dl_status dl_endpoint_take(dl_bytes bytes, dl_peer *peer, dl_contact *contact);

#endif
