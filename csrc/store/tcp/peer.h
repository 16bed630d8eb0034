/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server's end of one connection: moves bytes between a socket and a session, under
 * any event loop.  The loop reports when the socket is readable or writable, and polls
 * for the events that the peer wants; it owns the memory and closes the descriptor.
 *
 * Replies are sent as soon as they are made, so that a request costs one recv(2) and
 * one send(2): only bytes that the socket does not accept wait until it is writable.
 * Where the hub has TLS, it lies between the socket and the session, which is fed
 * nothing before the client has proved itself; a client without TLS is told so.
 * Server thread only.
 *
 * An acceptor accepts new connections, at the TCP port or at the shortcut
 * (connection_pool.h), as many as the hub's limits allow. */
#ifndef DISTLITE_STORE_TCP_PEER_H
#define DISTLITE_STORE_TCP_PEER_H

#include "base/deadline.h"
#include "net/tls.h"
#include "store/tcp/session.h"

/* Largest size of one read: as much as loopback delivers at once. */
#define DL_PEER_READ_SIZE (64u << 10)

/* What a read and its plaintext need, which may include an earlier part of a record. */
#define DL_PEER_INPUT_SIZE (2 * DL_PEER_READ_SIZE + DL_TLS_RECORD_SIZE)

typedef struct dl_peer {
    dl_session session;
    struct dl_carrier *carrier; /* of its channels, if it is a relay; else NULL */
    dl_tls_stream *tls; /* from the first byte on, if the hub has TLS; else NULL */
    int fd;
    uint32_t swallowed; /* bytes read and discarded since the client was refused */
    bool is_refused;    /* no more requests are served; closed after the last reply */
    bool is_local;      /* it came by the hub's shortcut */
} dl_peer;

/* Starts a session on the connected, non-blocking `fd`, which the caller keeps. */
void dl_peer_init(dl_peer *peer, dl_hub *hub, int fd, bool is_local);
void dl_peer_fini(dl_peer *peer);

/* The next three return false when the loop must close the connection. */

/* Reads from the socket once and serves what has arrived.  `input` (DL_PEER_INPUT_SIZE
 * bytes) is scratch memory for the duration of the call. */
bool dl_peer_receive(dl_peer *peer, uint8_t *input);

/* Sends what the socket accepts, within the limits of one turn. */
bool dl_peer_send(dl_peer *peer);

/* Continues a session that dl_session_take_changed() has returned, and sends its
 * replies. */
bool dl_peer_resume(dl_peer *peer);

/* Return whether the loop must poll the socket for reading, and for writing. */
bool dl_peer_wants_input(const dl_peer *peer);
bool dl_peer_wants_room(const dl_peer *peer);

/* How long the loop stops accepting once there are as many connections as the limits,
 * or the process's descriptors, allow.  New ones wait in the kernel's queue meanwhile. */
#define DL_ACCEPTOR_PAUSE (100 * DL_MILLISECOND)

/* Number of connections accepted before existing clients are served again: about half a
 * millisecond's work. */
#define DL_ACCEPTOR_ROUND 64

typedef struct dl_acceptor {
    int fd;          /* listening, non-blocking; -1: none */
    bool is_local;   /* a Unix socket's, which accepts this user's processes only */
    bool is_starved; /* the last call returned -1 although connections may wait */
    dl_hub *hub;     /* counts how often it was starved */
    dl_log_limit log;
    bool is_logged; /* that it is starved; cleared once the kernel's queue is empty */
} dl_acceptor;

/* `fd` is listening and non-blocking, or -1; the caller keeps it.  Applies the limits
 * of `hub`, which are set before. */
void dl_acceptor_init(dl_acceptor *acceptor, int fd, bool is_local, dl_hub *hub);

/* Returns the descriptor of the next connection, with the options of our sockets, or -1
 * when there is none; if `is_starved`, call again only after DL_ACCEPTOR_PAUSE. */
int dl_acceptor_next(dl_acceptor *acceptor);

#endif
