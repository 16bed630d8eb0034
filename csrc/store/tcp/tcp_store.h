/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The client of a TCP store, and its server when this process is the master.  Speaks
 * torch's wire protocol to any server; to one of ours it adds a status byte to replies
 * (docs/wire.md), so that errors come from the very call.
 *
 * Every call takes a connection of its own from a pool, so calls never delay each other,
 * and returns only when the server has answered, so what it did is seen by every later
 * call from anywhere. */
#ifndef DISTLITE_STORE_TCP_TCP_STORE_H
#define DISTLITE_STORE_TCP_TCP_STORE_H

#include "store/store.h"

typedef struct dl_tcp_store_options {
    const char *host;
    uint16_t port;      /* 0: the master picks one */
    int64_t world_size; /* negative: unknown, nobody is waited for */
    bool is_master;
    bool wait_for_workers;
    bool multi_tenant; /* masters of one port in one process share the server */
    int listen_fd;     /* a bound socket the server adopts, or -1; taken */
    bool use_libuv;
    int64_t timeout; /* of the construction and of later calls, nanoseconds */
} dl_tcp_store_options;

/* Connects (and starts the server) within the options' timeout. */
dl_status dl_tcp_store_new(const dl_tcp_store_options *options, dl_deadline deadline,
                           dl_store **store);

const char *dl_tcp_store_host(const dl_store *store); /* as given */
uint16_t dl_tcp_store_port(const dl_store *store);
bool dl_tcp_store_uses_libuv(const dl_store *store);

/* "TCPStore(client=..., server=...)" */
void dl_tcp_store_describe(const dl_store *store, dl_buffer *text);

/* Whether this build has the libuv server. */
bool dl_tcp_store_has_libuv(void);

#endif
