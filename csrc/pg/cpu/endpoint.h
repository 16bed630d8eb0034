/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the ranks of a group need to find each other: each publishes one record in the
 * store, with the host it is on, the name of a Unix socket and an address, where it is
 * met, and a secret that shows who has read it; and reads those of all others. */
#ifndef DISTLITE_PG_CPU_ENDPOINT_H
#define DISTLITE_PG_CPU_ENDPOINT_H

#include "net/local.h"
#include "pg/backend.h"
#include "pg/cpu/health/process_table.h"
#include "pg/cpu/host.h"
#include "pg/cpu/layout.h"
#include "pg/cpu/peer.h"
#include "pg/cpu/tcp/listener.h"

#define DL_PROBLEM_SIZE 512

/* Where a rank is to be met. */
typedef struct dl_contact {
    char socket[DL_LOCAL_NAME_SIZE];
    dl_host host;
    dl_process_id process;
    dl_way way;                    /* for other hosts; may have no address */
    char problem[DL_PROBLEM_SIZE]; /* why it has none */
    /* It was told to use what does not exist: an error whoever shares its host. */
    bool is_refused;
} dl_contact;

/* This rank's view; fixed after dl_endpoint_open. */
typedef struct dl_endpoint {
    int rank;
    int size;
    int listener;           /* for ranks of this host; -1: closed */
    dl_listener calls;      /* for those of others; closed where there are none */
    dl_peer *peers;         /* by rank */
    dl_contact *contacts;   /* by rank */
    dl_way *ways;           /* by rank */
    dl_process **processes; /* by rank; what is known of their ends */
    dl_layout layout;
    const int *names; /* by rank, for texts; NULL: the same */
    /* By rank: on a leader, connections to those ranks of its host that it reached, with
     * its invitation to the join; else -1. */
    int *connections;
    int probe; /* to the leader's socket, while it looks whom it reaches; -1: none */
    /* Between which ranks of one machine there is no Unix socket, and why; empty where all
     * ranks of each machine reach each other. */
    char apart[DL_PROBLEM_SIZE];
} dl_endpoint;

/* The transport that GLOO_DEVICE_TRANSPORT names, torch's variable, has to be there. */
#define DL_TRANSPORT_VARIABLE "GLOO_DEVICE_TRANSPORT"

/* Whether what this process was told of transport and interfaces can be had; for groups
 * that need no endpoint.  DL_NETWORK: not. */
dl_status dl_endpoint_check_settings(void);

/* Publishes and gathers.  DL_TIMEOUT names the ranks that have not come; DL_NETWORK,
 * those that ranks of other hosts could not reach, or whose settings name what they do
 * not have. */
dl_status dl_endpoint_open(dl_endpoint *endpoint, const dl_backend_options *options,
                           dl_deadline deadline);

/* Takes the records out of the store again: a later group may use the same keys.  Called
 * by one rank when all have read them; best effort. */
void dl_endpoint_clear(const dl_endpoint *endpoint, dl_store *store,
                       dl_deadline deadline);

/* The part of it that is about this host: ranks are places there, names are kept.  It
 * shares the listeners and connections, which stay the whole's. */
dl_status dl_endpoint_narrow(const dl_endpoint *endpoint, dl_endpoint *local);
void dl_endpoint_drop_narrow(dl_endpoint *local);

/* Closes the Unix socket and the connections; the rest stays. */
void dl_endpoint_hush(dl_endpoint *endpoint);

void dl_endpoint_fini(dl_endpoint *endpoint);

/* "rank 2 (pid 123 on host h)". */
void dl_endpoint_describe(const dl_endpoint *endpoint, int rank,
                          char text[DL_PEER_TEXT_SIZE]);

/* "cpu/3". */
#define DL_ENDPOINT_KEY_SIZE 24
dl_bytes dl_endpoint_key(int rank, char text[DL_ENDPOINT_KEY_SIZE]);

/* The record of one rank in bytes, and back.  DL_PROTOCOL: of another version. */
void dl_endpoint_put(dl_buffer *buffer, const dl_peer *peer, const dl_contact *contact);
dl_status dl_endpoint_take(dl_bytes bytes, dl_peer *peer, dl_contact *contact);

#endif
