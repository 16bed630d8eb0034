/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A server's end of one connection: moves bytes between a socket and a session, under
 * any event loop.  The loop says when the socket is ready, and looks for what the peer
 * wants; it owns the memory and closes the descriptor.
 *
 * Replies are sent as soon as they are made, so that a request costs one recv(2) and one
 * send(2): only what the socket does not take waits until it has room.  Server thread
 * only.
 *
 * New connections come from an acceptor, also when the process has run out of
 * descriptors. */
#ifndef DISTLITE_STORE_TCP_PEER_H
#define DISTLITE_STORE_TCP_PEER_H

#include "base/deadline.h"
#include "store/tcp/session.h"

/* What one read may take: as much as loopback delivers at once. */
#define DL_PEER_INPUT_SIZE (64u << 10)

typedef struct dl_peer {
    dl_session session;
    int fd;
    uint32_t swallowed; /* bytes read since the conversation was over */
    bool is_refused;    /* it is over: once all is sent, nothing is said any more */
} dl_peer;

/* A session on the connected, non-blocking `fd`, which the caller keeps. */
void dl_peer_init(dl_peer *peer, dl_hub *hub, int fd);
void dl_peer_fini(dl_peer *peer);

/* The following answer false when the connection is over, to be closed. */

/* The socket may have something to read; `input` (DL_PEER_INPUT_SIZE bytes) is used for
 * the duration of the call. */
bool dl_peer_receive(dl_peer *peer, uint8_t *input);

/* The socket may have room. */
bool dl_peer_send(dl_peer *peer);

/* Its session came up as changed. */
bool dl_peer_resume(dl_peer *peer);

/* Whether the loop shall look for something to read, for room to write. */
bool dl_peer_wants_input(const dl_peer *peer);
bool dl_peer_wants_room(const dl_peer *peer);

/* For so long nothing is accepted once descriptors have run out, but for those of the program: those who connect
 * wait in the kernel's queue meanwhile. */
#define DL_ACCEPTOR_PAUSE (100 * DL_MILLISECOND)

/* So many are accepted before the clients that are there have their turn: about half a
 * millisecond. */
#define DL_ACCEPTOR_ROUND 64

typedef struct dl_acceptor {
    int fd;           /* listening, non-blocking */
    int last_fd;      /* the last that was accepted */
    uint64_t reserve; /* descriptors that are left to the program */
    bool is_starved;
    dl_log_limit log;
    bool is_logged; /* that it is, since last nobody was waiting */
} dl_acceptor;

/* `fd` is listening and non-blocking, and stays the caller's. */
void dl_acceptor_init(dl_acceptor *acceptor, int fd, const dl_limits *limits);

/* The next connection, with the options of our sockets.  -1: none for now, or, when
 * `is_starved`, not before the pause is over. */
int dl_acceptor_next(dl_acceptor *acceptor);

#endif
