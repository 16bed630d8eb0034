/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One conversation with a store's server, ours or torch's: the handshake, requests out,
 * fields of replies in.  Which fields a reply has is the business of exchange.c.  Knows
 * nothing of retrying, or of what a key means.
 *
 * A pool keeps the connections of one client to one server.  Every call takes one for
 * itself, so that a blocked call never delays another; the most recently used goes out
 * first, and a few idle ones are kept.  Those in use are known too, so that closing wakes
 * their calls.
 *
 * At any time one call uses a connection.  Any failure leaves replies unread (`is_clean` false):
 * the connection is then good for nothing but closing. */
#ifndef DISTLITE_STORE_TCP_CONNECTION_H
#define DISTLITE_STORE_TCP_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/list.h"
#include "base/status.h"
#include "net/address.h"
#include "store/tcp/wire.h"

/* Replies up to this size arrive in one system call; of longer ones only the beginning
 * is copied once more. */
#define DL_CONNECTION_ROOM 16384

typedef struct dl_connection {
    dl_list node;   /* guarded by the pool's lock */
    int fd;         /* fixed after init */
    bool is_ours;   /* understands checked requests; fixed after the handshake */
    bool is_clean;  /* no reply, or part of one, is outstanding */
    bool has_sent;  /* a byte of the latest requests may have reached the server */
    uint32_t nonce; /* of the latest PING */
    uint32_t first; /* unread bytes of `in` */
    uint32_t last;  /* their end */
    dl_buffer out;  /* requests not sent yet */
    char peer[DL_ADDRESS_TEXT_SIZE];
    uint8_t in[DL_CONNECTION_ROOM];
} dl_connection;

/* Takes a connected descriptor. */
dl_status dl_connection_new(int fd, dl_connection **connection);

/* NULL does nothing.  In a forked child, whose copy of the descriptor is closed already,
 * `is_inherited` leaves alone what may have got its number. */
void dl_connection_free(dl_connection *connection, bool is_inherited);

/* Introduces the client and learns who the server is.  `first` (or NULL) is a request
 * without key prefix that travels in the same segment; its reply is the caller's to
 * take.  It must read the same whatever the server is: a plain one. */
dl_status dl_connection_greet(dl_connection *connection, const dl_store_request *first,
                              dl_deadline deadline);

/* Encodes a request for dl_connection_send(): checked if the server is ours; for torch's
 * a request that has no reply is followed by a PING. */
void dl_connection_put(dl_connection *connection, dl_store_request *request,
                       dl_bytes key_prefix);

/* Sends what was put. */
dl_status dl_connection_send(dl_connection *connection, dl_deadline deadline);

/* Both; a large value goes out from the caller's memory. */
dl_status dl_connection_ask(dl_connection *connection, dl_store_request *request,
                            dl_bytes key_prefix, dl_deadline deadline);

/* The beginning of the reply to such a request: the server's status and text if it is
 * ours, nothing if it is torch's. */
dl_status dl_connection_take_status(dl_connection *connection, dl_deadline deadline);

/* What tells that a request without reply is done: nothing more if the server is ours,
 * the PING's echo if it is torch's. */
dl_status dl_connection_take_echo(dl_connection *connection, dl_deadline deadline);

/* Makes at least `size` bytes of a reply arrive without taking any: when the deadline
 * passes first, none is lost. */
dl_status dl_connection_await(dl_connection *connection, uint32_t size,
                              dl_deadline deadline);

dl_status dl_connection_take_u8(dl_connection *connection, dl_deadline deadline,
                                uint8_t *value);
dl_status dl_connection_take_i64(dl_connection *connection, dl_deadline deadline,
                                 int64_t *value);

/* A size and so many bytes, which replace what `value` holds. */
dl_status dl_connection_take_blob(dl_connection *connection, dl_deadline deadline,
                                  dl_buffer *value);

/* The last reply asked for has been read to its end. */
void dl_connection_finish(dl_connection *connection);

/* Idle connections kept: the threads of a usual process. */
#define DL_POOL_IDLE_LIMIT 8

typedef struct dl_connection_pool {
    char *host;    /* fixed after init */
    uint16_t port; /* fixed after init */
    atomic_bool is_closed;
    pthread_mutex_t lock;
    dl_list idle;       /* guarded by lock; the last was used last */
    dl_list busy;       /* guarded by lock */
    uint32_t idle_size; /* guarded by lock */
} dl_connection_pool;

dl_status dl_connection_pool_init(dl_connection_pool *pool, const char *host,
                                  uint16_t port);

/* Nobody may be using it any more.  `is_inherited` as in dl_connection_free(). */
void dl_connection_pool_fini(dl_connection_pool *pool, bool is_inherited);

/* An idle connection, or NULL.  A careful caller gets none that the server has closed:
 * for requests that must not be lost on the way. */
dl_connection *dl_connection_pool_take(dl_connection_pool *pool, bool is_careful);

/* A new connection, in one round of connecting, which has introduced itself; `first` as
 * in dl_connection_greet(). */
dl_status dl_connection_pool_open(dl_connection_pool *pool,
                                  const dl_store_request *first, dl_deadline deadline,
                                  dl_connection **connection);

/* Gives back what was taken or opened: kept if it is clean and there is room. */
void dl_connection_pool_give(dl_connection_pool *pool, dl_connection *connection);

/* Closes the idle ones: after one connection was lost the others are lost, too. */
void dl_connection_pool_drop_idle(dl_connection_pool *pool);

/* Ends every conversation: calls under way fail, later ones get no connection. */
void dl_connection_pool_close(dl_connection_pool *pool);

/* Both ends of any one of the connections and its descriptor; -1 when there is none. */
int dl_connection_pool_ends(dl_connection_pool *pool, dl_address *local,
                            dl_address *peer);

#endif
