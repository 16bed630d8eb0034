/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The client of a TCP store, and its server when this process is the master.  Speaks
 * torch's wire protocol to any server.  A server of ours puts a status byte before its
 * replies (docs/wire.md), so that an error is reported by the call that caused it.
 *
 * Every call takes a connection of its own from a pool, so calls never delay each
 * other.  It returns only when the server has answered, so its effect is visible to
 * every later call of any process.
 *
 * A lost connection is replaced by a new one, and the call is repeated.  A server of
 * ours executes each change once and repeats its reply (wire.h).  Torch's server would
 * execute it again: there a call that changes something fails with DL_NETWORK, saying
 * that its outcome is unknown, once a byte of it may have reached the server.  A call
 * waits for a lost server for DL_TCP_STORE_PATIENCE at most, however long its timeout
 * is, so that a dead master is noticed.  A store never continues with a server other
 * than the one it has joined.
 *
 * On the wire every key is prefixed with "/", which the clients' own counter "init/" is
 * not: it counts the clients that have joined with a world size.  num_keys() includes
 * it, as in torch. */
#ifndef DISTLITE_STORE_TCP_TCP_STORE_H
#define DISTLITE_STORE_TCP_TCP_STORE_H

#include "store/store.h"
#include "store/tcp/tcp_store_options.h"

/* Starts the server if this is the master, connects, and waits for workers if asked to,
 * all within `deadline`.  A clone of the store is a client with connections of its own;
 * it is not counted as a worker and does not keep the server alive, which ends with its
 * masters. */
dl_status dl_tcp_store_new(const dl_tcp_store_options *options, dl_deadline deadline,
                           dl_store **store);

const char *dl_tcp_store_host(const dl_store *store); /* as given */
uint16_t dl_tcp_store_port(const dl_store *store);
bool dl_tcp_store_uses_libuv(const dl_store *store); /* as given */

/* Returns which server the store has joined. */
dl_server_identity dl_tcp_store_server(const dl_store *store);

/* Returns whether the environment names a mode of TLS, valid or not. */
bool dl_tcp_store_tls_is_named(void);

/* Returns the name of the store's mode of TLS, "off" without it. */
const char *dl_tcp_store_tls(const dl_store *store);

/* Appends "TCPStore(client=..., server=...)". */
void dl_tcp_store_describe(const dl_store *store, dl_buffer *text);

/* Returns whether this build has the libuv server. */
bool dl_tcp_store_has_libuv(void);

#endif
