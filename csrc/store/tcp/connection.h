/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The client's end of one connection to a store's server, ours or torch's: performs the
 * handshake, sends requests, and reads the fields of replies.  Which fields a reply has
 * is the business of tcp_call.c.  Knows nothing of retrying, or of what a key means.
 *
 * A connection is used by one call at a time.  A failure in the middle of an exchange
 * leaves replies unread (`is_clean` is false): the connection can then only be
 * closed.
 *
 * Each connection to a server of ours has a slot (wire.h).  A call whose connection was
 * lost while the server may have executed a change passes the slot on to the next
 * connection, where the server answers the repeated change as if nothing had
 * happened. */
#ifndef DISTLITE_STORE_TCP_CONNECTION_H
#define DISTLITE_STORE_TCP_CONNECTION_H

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/list.h"
#include "base/secret.h"
#include "base/status.h"
#include "net/address.h"
#include "net/local.h"
#include "net/tls_socket.h"
#include "store/tcp/wire.h"

/* Size of the receive buffer.  Replies up to this size are read in one system call; of
 * a longer one only the beginning passes through the buffer. */
#define DL_CONNECTION_ROOM 16384

typedef struct dl_connection {
    dl_list node;         /* guarded by the lock of connection_pool.h */
    int fd;               /* fixed after init */
    dl_tls_socket *tls;   /* NULL: plain; fixed before anything is sent */
    bool is_distlite;     /* server knows checked requests; fixed after the handshake */
    bool is_clean;        /* no reply, or part of one, is outstanding */
    bool is_changing;     /* a change was put, and its reply is outstanding */
    bool may_be_done;     /* a byte of that change may have reached the server */
    bool is_relay_silent; /* it is lost because the relay does not answer */
    bool is_relayed;      /* over the Unix socket of a relay; fixed after init */
    bool is_local;        /* over that, or the server's shortcut; fixed after init */
    uint32_t uses;        /* calls that it has served */
    dl_slot slot;         /* drawn for a new connection, unless another one is set */
    dl_wire_welcome server; /* what it has told, if it is ours */
    int64_t idle_since;
    uint32_t nonce;                 /* of the latest PING */
    uint32_t first;                 /* offset of the first unread byte of `in` */
    uint32_t last;                  /* offset past the last one */
    dl_buffer out;                  /* requests not sent yet */
    char relay[DL_LOCAL_NAME_SIZE]; /* the name of that relay */
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

/* Prepares TLS for a store's connections.  `name` is that of a mode; NULL: that in
 * DISTLITE_TLS.  Fails as dl_tls_mode_from() and dl_tls_new(). */
dl_status dl_connection_tls(const char *name, const dl_secret *secret, dl_tls **tls);

/* Begins TLS, before anything else is sent; NULL does nothing.  DL_DENIED: the peer has
 * not authenticated itself, or refuses this process.  DL_PROTOCOL: it does not speak
 * TLS, or has ended. */
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

/* Reads what a relay tells a client first: both addresses of its connection to the
 * server, once there is one. */
dl_status dl_connection_take_addresses(dl_connection *connection, dl_deadline deadline,
                                       dl_address *local, dl_address *peer);

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

/* Reads whether the answer to a CHECK is DL_WIRE_READY. */
dl_status dl_connection_take_flag(dl_connection *connection, dl_deadline deadline,
                                  bool *is_ready);

/* Reads a size and so many bytes, which replace the contents of `value`. */
dl_status dl_connection_take_blob(dl_connection *connection, dl_deadline deadline,
                                  dl_buffer *value);

/* Marks the last outstanding reply as read: the next change has the next number, and
 * the connection is clean again, unless the server has sent more than was asked for. */
void dl_connection_end_reply(dl_connection *connection);

/* Tells a server of ours that the client has read all its replies and closes next, so
 * that it need not remember them.  One that does not learn of it forgets them after a
 * while. */
void dl_connection_leave(const dl_connection *connection);

#endif
