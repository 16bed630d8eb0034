/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The client's end of one connection to a store's server, ours or torch's: performs the
 * handshake, sends requests, and reads the fields of replies.  Which fields a reply has
 * is the business of exchange.c.  Knows nothing of retrying, or of what a key means.
 *
 * A pool keeps the connections of one client to one server.  Every call takes a
 * connection of its own, so that a blocked call never delays another.  The most
 * recently used one is taken first, and a few idle ones are kept.  The pool also lists
 * the connections in use, so that closing it wakes their calls.
 *
 * A connection is used by one call at a time.  A failure in the middle of an exchange
 * leaves replies unread (`is_clean` is false): the connection can then only be
 * closed.
 *
 * Each connection to a server of ours has a slot (wire.h).  A call whose connection was
 * lost while the server may have executed a change passes the slot on to the next
 * connection, where the server answers the repeated change as if nothing had happened.
 *
 * The pool joins one server: the one that its first connection reaches.  A later
 * connection that reaches another one, on the same address and port, is refused before
 * anything is asked of it. */
#ifndef DISTLITE_STORE_TCP_CONNECTION_H
#define DISTLITE_STORE_TCP_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/list.h"
#include "base/secret.h"
#include "base/status.h"
#include "net/address.h"
#include "net/tls_socket.h"
#include "store/tcp/wire.h"

/* Size of the receive buffer.  Replies up to this size are read in one system call; of
 * a longer one only the beginning passes through the buffer. */
#define DL_CONNECTION_ROOM 16384

typedef struct dl_connection {
    dl_list node;       /* guarded by the pool's lock */
    int fd;             /* fixed after init */
    dl_tls_socket *tls; /* NULL: plain; fixed after dl_connection_secure() */
    bool is_ours;       /* server knows checked requests; fixed after the handshake */
    bool is_clean;      /* no reply, or part of one, is outstanding */
    bool is_changing;   /* a change was put, and its reply is outstanding */
    bool may_be_done;   /* a byte of that change may have reached the server */
    bool is_remembered; /* the server knew the slot */
    dl_slot slot;       /* drawn in the handshake, unless it was set before */
    uint8_t identity[DL_IDENTITY_SIZE]; /* the server's, if it is ours */
    int64_t idle_since;
    uint32_t nonce; /* of the latest PING */
    uint32_t first; /* offset of the first unread byte of `in` */
    uint32_t last;  /* offset past the last one */
    dl_buffer out;  /* requests not sent yet */
    char peer[DL_ADDRESS_TEXT_SIZE];
    uint8_t in[DL_CONNECTION_ROOM];
} dl_connection;

/* Makes a connection from a connected descriptor, which it takes, also on failure. */
dl_status dl_connection_new(int fd, dl_connection **connection);

/* Closes and frees; NULL does nothing.  In a forked child the descriptor has been
 * closed already and its number may be in use again: `is_inherited` leaves it alone. */
void dl_connection_free(dl_connection *connection, bool is_inherited);

/* Draws the id of a new slot. */
dl_status dl_slot_draw(dl_slot *slot);

/* Begins TLS, before anything else is sent; NULL does nothing.  DL_DENIED: the peer has
 * not proved itself, or refuses what this process proves.  DL_PROTOCOL: it does not
 * speak TLS, or has ended. */
dl_status dl_connection_secure(dl_connection *connection, dl_tls *tls,
                               dl_deadline deadline);

/* Performs the handshake and finds out whether the server is ours.  `first` (or NULL)
 * is a request without key prefix that travels in the same segment; the caller reads
 * its reply.  It must be a plain request, which either server understands.  With a
 * `secret` both sides prove to each other that they know it (proof.h); the server must
 * be ours then.  DL_DENIED: it does not know the secret, or asks for one and gets none
 * or another.  DL_PROTOCOL: it is not ours. */
dl_status dl_connection_greet(dl_connection *connection, const dl_secret *secret,
                              const dl_store_request *first, dl_deadline deadline);

/* Encodes a request for dl_connection_send(): as a checked one if the server is ours;
 * for torch's server a request that has no reply is followed by a PING. */
void dl_connection_put(dl_connection *connection, dl_store_request *request,
                       dl_bytes key_prefix);

/* Sends all requests that dl_connection_put() has encoded. */
dl_status dl_connection_send(dl_connection *connection, dl_deadline deadline);

/* Encodes and sends one request.  A large value is sent from the caller's memory. */
dl_status dl_connection_ask(dl_connection *connection, dl_store_request *request,
                            dl_bytes key_prefix, dl_deadline deadline);

/* Reads the beginning of a reply: the status, and the text of an error, if the server
 * is ours; nothing if it is torch's.  Fails with the server's own status and text;
 * after such a refusal the connection is clean. */
dl_status dl_connection_take_status(dl_connection *connection, dl_deadline deadline);

/* Reads what confirms a request without reply: nothing more if the server is ours, the
 * reply to the PING if it is torch's. */
dl_status dl_connection_take_echo(dl_connection *connection, dl_deadline deadline);

/* Waits until at least `size` bytes of a reply are in the buffer and takes none of
 * them, so that none is lost when the deadline passes first. */
dl_status dl_connection_await(dl_connection *connection, uint32_t size,
                              dl_deadline deadline);

dl_status dl_connection_take_u8(dl_connection *connection, dl_deadline deadline,
                                uint8_t *value);
dl_status dl_connection_take_i64(dl_connection *connection, dl_deadline deadline,
                                 int64_t *value);

/* Reads a size and so many bytes, which replace the contents of `value`. */
dl_status dl_connection_take_blob(dl_connection *connection, dl_deadline deadline,
                                  dl_buffer *value);

/* Marks the last outstanding reply as read: the next change has the next number, and
 * the connection is clean again, unless the server has sent more than was asked for. */
void dl_connection_finish(dl_connection *connection);

/* Number of idle connections kept: about as many as a usual process has threads. */
#define DL_POOL_IDLE_LIMIT 8

typedef struct dl_connection_pool {
    char *host;        /* fixed after init */
    uint16_t port;     /* fixed after init */
    dl_secret *secret; /* a reference, or NULL; fixed after init */
    dl_tls *tls;       /* the same */
    atomic_bool is_closed;
    pthread_mutex_t lock;
    dl_server_identity joined; /* guarded by lock */
    dl_list idle;              /* guarded by lock; the most recently used at the end */
    dl_list busy;              /* guarded by lock */
    uint32_t idle_size;        /* guarded by lock */
} dl_connection_pool;

/* Takes a reference of its own to the secret, which may be NULL. */
dl_status dl_connection_pool_init(dl_connection_pool *pool, const char *host,
                                  uint16_t port, dl_secret *secret);

/* Returns which server the pool has joined, or sets it: as known, to be refused any
 * other, or as not known, to join whichever answers. */
dl_server_identity dl_connection_pool_joined(dl_connection_pool *pool);
void dl_connection_pool_set_joined(dl_connection_pool *pool,
                                   const dl_server_identity *joined);

/* Sets what connections are encrypted with; takes a reference, before the first one. */
void dl_connection_pool_set_tls(dl_connection_pool *pool, dl_tls *tls);

/* Closes and frees all connections; no call may be using the pool any more.
 * `is_inherited` as in dl_connection_free(). */
void dl_connection_pool_fini(dl_connection_pool *pool, bool is_inherited);

/* Returns an idle connection, or NULL when there is none.  `is_careful` discards those
 * that the server has closed meanwhile: for changes, which torch's server cannot repeat,
 * and which ours cannot once it has forgotten the slot.  It has not while the connection
 * was used a short time ago. */
dl_connection *dl_connection_pool_take(dl_connection_pool *pool, bool is_careful);

/* Makes a new connection, in one round of connecting, and performs the handshake;
 * `first` as in dl_connection_greet().  `slot` is that of a lost connection, or NULL for
 * a new one.  DL_CANCELLED when the pool is closed.  DL_MISMATCH when the server is not
 * the one that the pool has joined. */
dl_status dl_connection_pool_open(dl_connection_pool *pool, const dl_slot *slot,
                                  const dl_store_request *first, dl_deadline deadline,
                                  dl_connection **connection);

/* Returns a connection to the pool.  It is kept if it is clean and there is room, and
 * closed otherwise. */
void dl_connection_pool_give(dl_connection_pool *pool, dl_connection *connection);

/* Closes the idle connections: when one was lost, the others most likely are, too. */
void dl_connection_pool_drop_idle(dl_connection_pool *pool);

/* Shuts down all connections: calls in progress fail, later ones get no connection. */
void dl_connection_pool_close(dl_connection_pool *pool);

/* Tells both addresses of any one of the connections and returns its descriptor, or -1
 * when there is none. */
int dl_connection_pool_ends(dl_connection_pool *pool, dl_address *local,
                            dl_address *peer);

#endif
