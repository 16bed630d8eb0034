/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A relay between the clients of one host and a store's server elsewhere: they connect
 * to its Unix socket, and it has one connection to the server, which carries a channel
 * for each of them (relay_frame.h).
 *
 *     client --Unix socket--+
 *     client --Unix socket--+-- relay ==one connection, with token or TLS==> server
 *     client --Unix socket--+
 *
 * The relay passes bytes on, except that waits for the same keys are one wait at the
 * server (relay_waits.h).  The server has a session and a slot for each client, so that
 * each change is executed once, whichever way it comes.
 * A client whose relay has ended, was restarted or does not answer connects again, to
 * the relay or to the server, with the slot that it had; nothing is kept here that could
 * be lost.
 *
 * Memory is bounded per client: it reads no more of a client's requests while the server
 * is busy with earlier ones, and the server sends no more replies than the relay has
 * room for.  One thread serves the clients and never blocks; another one connects. */
#ifndef DISTLITE_STORE_TCP_RELAY_H
#define DISTLITE_STORE_TCP_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/secret.h"
#include "base/status.h"

typedef struct dl_relay dl_relay;

typedef struct dl_relay_options {
    const char *host; /* of the server */
    uint16_t port;
    const char *name;  /* of the Unix socket, as of a relay before; NULL: a new one */
    dl_secret *secret; /* of the job, or NULL; the relay takes a reference */
    const char *tls;   /* the name of a mode; NULL: that in DISTLITE_TLS */
} dl_relay_options;

/* Listens, and starts to connect; the server need not be there yet.  Processes of the
 * same user only are served.  DL_NETWORK: the name is in use. */
dl_status dl_relay_start(const dl_relay_options *options, dl_relay **relay);

/* Ends the connections.  In a forked child it does nothing. */
void dl_relay_stop(dl_relay *relay);

const char *dl_relay_name(const dl_relay *relay);

/* Returns whether there is a connection to the server; any thread. */
bool dl_relay_is_connected(const dl_relay *relay);

#endif
