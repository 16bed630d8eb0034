/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The client of a TCP store, and its server when this process is the master.  Speaks
 * torch's wire protocol to any server; to one of ours it adds a status byte to replies
 * (docs/wire.md), so that errors come from the very call.
 *
 * Every call takes a connection of its own from a pool, so calls never delay each other,
 * and returns only when the server has answered, so what it did is seen by every later
 * call from anywhere.
 *
 * A lost connection is made anew.  A call that may be repeated is; one that may not
 * (add, append, compare_set, queue_push, queue_pop, barrier) fails with DL_NETWORK,
 * saying that its outcome is unknown, once a byte of it may have reached the server.  A
 * server that stays away is waited for a few seconds at most, however long the call's
 * timeout is: a dead master shall not go unnoticed.  delete_key is repeated, and its
 * answer is that of the last try: false may then mean that an earlier one deleted it.
 *
 * On the wire a "/" goes before every key; "init/" counts the clients that joined with a
 * world size.  num_keys() counts it too, as torch's does. */
#ifndef DISTLITE_STORE_TCP_TCP_STORE_H
#define DISTLITE_STORE_TCP_TCP_STORE_H

#include "store/store.h"

/* How long a call goes on looking for a server it has lost. */
#define DL_TCP_STORE_PATIENCE (5 * DL_SECOND)

typedef struct dl_tcp_store_options {
    const char *host;
    uint16_t port;      /* 0: the master picks one */
    int64_t world_size; /* negative: unknown, nobody is waited for */
    bool is_master;
    bool wait_for_workers;
    bool multi_tenant; /* masters of one port in one process share the server */
    int listen_fd;   /* a bound socket the server adopts, or -1; taken, but for one that
                          * another store of this process serves already: DL_INVALID */
    bool use_libuv;  /* of a client: the server is torch's libuv one, or ours */
    int64_t timeout; /* of the construction and of later calls, nanoseconds */
} dl_tcp_store_options;

/* Connects (and starts the server) within `deadline`.  A clone is a client with
 * connections of its own, counts as no worker, and does not keep a server alive: that
 * ends with the masters. */
dl_status dl_tcp_store_new(const dl_tcp_store_options *options, dl_deadline deadline,
                           dl_store **store);

const char *dl_tcp_store_host(const dl_store *store); /* as given */
uint16_t dl_tcp_store_port(const dl_store *store);
bool dl_tcp_store_uses_libuv(const dl_store *store); /* as given */

/* "TCPStore(client=..., server=...)" */
void dl_tcp_store_describe(const dl_store *store, dl_buffer *text);

/* Whether this build has the libuv server. */
bool dl_tcp_store_has_libuv(void);

#endif
