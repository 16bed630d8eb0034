/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One conversation with a store's server, ours or torch's: the handshake, requests out,
 * fields of replies in.  Which fields a reply has is the business of exchange.c.  Knows
 * nothing of pools, of retrying, or of what a key means.
 *
 * At any time one call uses it.  Any failure leaves replies unread (`is_clean` false):
 * the connection is then good for nothing but closing. */
#ifndef DISTLITE_STORE_TCP_CONNECTION_H
#define DISTLITE_STORE_TCP_CONNECTION_H

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

#endif
