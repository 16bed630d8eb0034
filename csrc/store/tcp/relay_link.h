/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A relay's connection to the server: made by a thread of its own, which may have to
 * wait for the resolver, the network and the server, and used by the relay's thread
 * without blocking. */
#ifndef DISTLITE_STORE_TCP_RELAY_LINK_H
#define DISTLITE_STORE_TCP_RELAY_LINK_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/tcp/connection.h"

typedef struct dl_relay_link {
    /* fixed after start */
    char *host;
    uint16_t port;
    dl_secret *secret;
    dl_tls *tls;
    int wake_fd; /* an eventfd; readable when a connection was made, or refused */
    pthread_t thread;
    atomic_bool is_closed;
    pthread_mutex_t lock;
    pthread_cond_t condition;
    atomic_bool is_refused; /* the last attempt failed, and not for want of a server */
    bool is_wanted;         /* guarded by lock */
    int connecting;         /* guarded by lock; the descriptor of the attempt, or -1 */
    dl_connection *made;    /* guarded by lock; until it is taken */
} dl_relay_link;

/* Starts the thread, which begins to connect.  `tls` is the name of a mode; NULL: that in
 * DISTLITE_TLS.  Takes a reference of its own to the secret, which may be NULL. */
dl_status dl_relay_link_start(dl_relay_link *link, const char *host, uint16_t port,
                              dl_secret *secret, const char *tls);
void dl_relay_link_stop(dl_relay_link *link);

/* Returns the connection that was made, or NULL.  The caller frees it. */
dl_connection *dl_relay_link_take(dl_relay_link *link);

/* Asks for another connection, since the one before was lost. */
void dl_relay_link_want(dl_relay_link *link);

#endif
