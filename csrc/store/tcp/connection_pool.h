/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The connections of one client to one server.  Every call takes a connection of its
 * own, so that a blocked call never delays another.  The most recently used one is
 * taken first, and a few idle ones are kept.  The pool also lists the connections in
 * use, so that closing it wakes their calls.
 *
 * The pool joins one server: the one that its first connection reaches.  A later
 * connection that reaches another one, on the same address and port, is refused before
 * anything is asked of it.  So a server of the same identity, which has the journal of
 * the first, may go on at the address of a standby (server_variable.h): connections are
 * tried at the address that was reached last, and then at the other one.
 *
 * The shortcut is a Unix socket at which a server of ours serves the clients of its host:
 * it costs both sides less processor time than TCP does over loopback.  The protocol is
 * the same from the first byte on, with the same proof of the token and the same TLS.
 *
 *     client                                server
 *     TCP: handshake                    ->  its identity, and the name of the socket
 *     requests
 *     Unix socket: the same handshake   ->  one more client
 *     closes the TCP connection
 *
 * The name cannot direct a client to another process: the client accepts only a process
 * of its own user, according to the kernel, that has the identity of the server it has
 * joined.  The server accepts only clients of its own user.  An abstract name is known
 * within one network namespace, so a client elsewhere finds no such socket and stays
 * with TCP, as does every client for which any other check fails. */
#ifndef DISTLITE_STORE_TCP_CONNECTION_POOL_H
#define DISTLITE_STORE_TCP_CONNECTION_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/tcp/connection.h"

/* Number of idle connections kept: about as many as a usual process has threads. */
#define DL_POOL_IDLE_LIMIT 8

/* How many calls a connection serves before the pool takes the shortcut.  Moving costs as
 * much as about 17 calls save, and with TLS some hundreds; a rank that joins a job, and
 * leaves it again, makes about 20. */
#define DL_SHORTCUT_WORTH 32
#define DL_SHORTCUT_WORTH_TLS 1024

typedef struct dl_connection_pool {
    char *host;                /* fixed after init */
    uint16_t port;             /* fixed after init */
    char *standby;             /* the other host, or NULL; fixed after init */
    uint16_t standby_port;     /* the same */
    atomic_bool is_at_standby; /* that was reached last */
    dl_secret *secret;         /* a reference, or NULL; fixed after init */
    dl_tls *tls;               /* the same */
    atomic_bool is_closed;
    pthread_mutex_t lock;
    bool takes_shortcut;            /* set before the first connection */
    char relay[DL_LOCAL_NAME_SIZE]; /* of this host; empty: none; the same */
    /* guarded by lock */
    dl_server_identity joined;
    char shortcut[DL_LOCAL_NAME_SIZE]; /* the latest that was told; empty: none */
    bool is_shortcut_usable;           /* it is tried: it has not failed yet */
    int64_t relay_from;                /* the relay is not tried before */
    bool is_relay_told;                /* that it does not answer was logged */
    dl_address local; /* of the TCP connection that shortcut or relay replace */
    dl_address peer;  /* the same */
    dl_list idle;     /* the most recently used at the end */
    dl_list busy;
    uint32_t idle_size;
} dl_connection_pool;

/* Takes references of its own to the secret and to what connections are encrypted with,
 * either of which may be NULL.  The pool takes no shortcut and has no relay, and the
 * standby of the environment.  DL_INVALID: that is malformed. */
dl_status dl_connection_pool_init(dl_connection_pool *pool, const char *host,
                                  uint16_t port, dl_secret *secret, dl_tls *tls);

/* Returns or sets which server the pool has joined.  If it is known, any other server
 * is refused; otherwise the pool joins the first one that answers. */
dl_server_identity dl_connection_pool_joined(dl_connection_pool *pool);
void dl_connection_pool_set_joined(dl_connection_pool *pool,
                                   const dl_server_identity *joined);

/* Closes and frees all connections; no call may be using the pool any more.
 * `is_inherited` as in dl_connection_free(). */
void dl_connection_pool_fini(dl_connection_pool *pool, bool is_inherited);

/* Returns an idle connection, or NULL when there is none.  `is_careful` discards those
 * that the server has closed meanwhile: for changes, which torch's server cannot
 * repeat, and which ours cannot once it has forgotten the slot.  It has not while the
 * connection was used a short time ago. */
dl_connection *dl_connection_pool_take(dl_connection_pool *pool, bool is_careful);

/* Makes a new connection, by the relay if there is one, by the shortcut if it is known,
 * and otherwise in one round of connecting, and performs the handshake; `first` as in
 * dl_connection_greet().  `slot` is that of a lost connection, or NULL for a new one.
 * DL_CANCELLED when the pool is closed.  DL_MISMATCH when the server is not the one that
 * the pool has joined. */
dl_status dl_connection_pool_open(dl_connection_pool *pool, const dl_slot *slot,
                                  const dl_store_request *first, dl_deadline deadline,
                                  dl_connection **connection);

/* Returns whether dl_connection_pool_take_shortcut() should be called for an idle
 * connection that was taken. */
bool dl_connection_pool_is_due(dl_connection_pool *pool,
                               const dl_connection *connection);

/* Replaces the clean TCP connection by one over the server's shortcut; leaves it as it
 * is if that does not work within a second.  Fails only with DL_INTERRUPTED, or
 * DL_CANCELLED when the pool is closed; the connection is then the pool's again. */
dl_status dl_connection_pool_take_shortcut(dl_connection_pool *pool,
                                           dl_connection **connection,
                                           dl_deadline deadline);

/* Returns a connection to the pool.  It is kept if it is clean and there is room, and
 * closed otherwise.  After one whose relay does not answer, new connections lead to the
 * server directly for a while. */
void dl_connection_pool_give(dl_connection_pool *pool, dl_connection *connection);

/* Closes the idle connections: when one was lost, the others most likely are, too. */
void dl_connection_pool_drop_idle(dl_connection_pool *pool);

/* Shuts down all connections: calls in progress fail, later ones get no connection. */
void dl_connection_pool_close(dl_connection_pool *pool);

/* Sets both addresses of one of the connections, whichever it is, and returns its
 * descriptor, or -1 if there is none.  A connection over the shortcut has the addresses
 * of the TCP connection that it replaced. */
int dl_connection_pool_addresses(dl_connection_pool *pool, dl_address *local,
                                 dl_address *peer);

#endif
