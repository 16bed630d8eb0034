/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a TCP store is made with. */
#ifndef DISTLITE_STORE_TCP_TCP_STORE_OPTIONS_H
#define DISTLITE_STORE_TCP_TCP_STORE_OPTIONS_H

#include "base/secret.h"
#include "store/tcp/journal.h"
#include "store/tcp/wire.h"

typedef struct dl_tcp_store_options {
    const char *host;
    uint16_t port;      /* 0: the master picks one */
    int64_t world_size; /* negative: unknown, the master does not wait for clients */
    bool is_master;
    bool wait_for_workers;
    bool multi_tenant; /* masters of one port in one process share the server */
    /* A bound socket that the server adopts, or -1.  It is taken, unless another store
     * of this process serves it already, which is DL_INVALID. */
    int listen_fd;
    bool use_libuv;  /* master: serves with libuv; client: torch's server does */
    int64_t timeout; /* of later calls, nanoseconds */
    /* The secret that server and clients prove to each other, or NULL.  The store takes
     * a reference of its own. */
    dl_secret *secret;
    /* The server to join, as dl_tcp_store_server() returns it; NULL: whichever
     * answers. */
    const dl_server_identity *server;
    const char *journal;  /* master: the file that keeps the contents, or NULL */
    dl_journal_sync sync; /* of the journal */
    /* The name of a mode of net/tls.h; NULL: that in DISTLITE_TLS. */
    const char *tls;
} dl_tcp_store_options;

#endif
