/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a client finds and reaches the relay of its host (relay.h). */
#ifndef DISTLITE_STORE_TCP_RELAY_CLIENT_H
#define DISTLITE_STORE_TCP_RELAY_CLIENT_H

#include "net/local.h"

/* What a relay sends to a client before the store's protocol: this byte at once, by which
 * the client knows that the relay lives, and both addresses of the connection to the
 * server as soon as there is one: the sockaddrs, with room for IPv6. */
#define DL_RELAY_ALIVE 0

/* Which relay a client uses for which server, as text: "NAME@HOST:PORT". */
#define DL_RELAY_VARIABLE "DISTLITE_STORE_RELAY"

/* Reads the variable.  `name` is empty if it is unset or names another server, whose
 * host is compared as text.  DL_INVALID: it is malformed. */
dl_status dl_relay_find(const char *host, uint16_t port, char name[DL_LOCAL_NAME_SIZE]);

/* How long a relay that is not stopped may take to accept a connection. */
#define DL_RELAY_PATIENCE (500 * DL_MILLISECOND)

/* Makes a connection to the relay and reads its first byte.  DL_NOT_FOUND: there is no
 * relay.  DL_TIMEOUT: it does not answer. */
dl_status dl_relay_connect(const char *name, int *fd);

#endif
