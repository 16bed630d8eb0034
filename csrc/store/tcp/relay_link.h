/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A relay's connection to the server: made by a thread of its own, which may have to
 * wait for the resolver, the network and the server, and used by the relay's thread
 * without blocking. */
#ifndef DISTLITE_STORE_TCP_RELAY_LINK_H
#define DISTLITE_STORE_TCP_RELAY_LINK_H

#include <semaphore.h>

#include "store/tcp/connection_pool.h"

typedef struct dl_relay_link {
    dl_connection_pool pool; /* with the connection as its only one */
    int wake_fd; /* an eventfd; readable when a connection was made, or refused */
    pthread_t thread;
    sem_t wanted;
    atomic_bool is_refused; /* the last attempt failed, and not for want of a server */
    _Atomic(dl_connection *) made; /* until it is taken */
} dl_relay_link;

/* Starts the thread, which begins to connect.  `tls` is the name of a mode; NULL: that in
 * DISTLITE_TLS.  Takes a reference of its own to the secret, which may be NULL. */
dl_status dl_relay_link_start(dl_relay_link *link, const char *host, uint16_t port,
                              dl_secret *secret, const char *tls);

/* Ends the thread, and closes the connection; does nothing for zeroed memory, and after
 * dl_relay_link_start() has failed. */
void dl_relay_link_stop(dl_relay_link *link);

/* Returns the connection that was made, or NULL. */
dl_connection *dl_relay_link_take(dl_relay_link *link);

/* Closes the connection, which was lost, and asks for another one. */
void dl_relay_link_replace(dl_relay_link *link, dl_connection *lost);

#endif
