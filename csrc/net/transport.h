/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A connection, plain or with TLS, for loops that never block.  Both kinds have the
 * same contract, so users of a transport need not know which it is.  Zeroed memory is a
 * closed transport. */
#ifndef DISTLITE_NET_TRANSPORT_H
#define DISTLITE_NET_TRANSPORT_H

#include <sys/uio.h>

#include "net/tls_socket.h"

typedef struct dl_transport {
    bool is_open;
    int fd;             /* valid while it is open */
    dl_tls_socket *tls; /* NULL: plain */
    /* With TLS: bytes that were encrypted, but not all sent, and not reported yet. */
    size_t unreported;
} dl_transport;

/* Takes over a connected, or connecting, socket.  `tls` may be NULL.  On failure the
 * socket is closed. */
dl_status dl_transport_open(dl_transport *transport, int fd, dl_tls *tls,
                            bool is_server);

/* Closes the connection without sending anything; does nothing if it is closed. */
void dl_transport_close(dl_transport *transport);

/* Move as many bytes of the parts as is possible without blocking; `*size` is their
 * number, 0 where a call would block, and less than there is room for only then.  With
 * TLS both continue the handshake.  After a write of which not all was taken, the next
 * one has to begin with the same bytes, which may have been encrypted already.  `parts`
 * are not changed.
 *
 * `*error` is an errno for DL_CLOSED (ECONNRESET: the peer has closed the connection)
 * and for a DL_NETWORK of the socket; 0 if the status and the text say what has failed
 * in TLS. */
dl_status dl_transport_read(dl_transport *transport, struct iovec *parts, int count,
                            size_t *size, int *error);
dl_status dl_transport_write(dl_transport *transport, struct iovec *parts, int count,
                             size_t *size, int *error);

/* Continues the handshake; `*is_up` tells whether it is complete, and the peer proved,
 * on this side.  For a client, before anything is written; plain streams are up. */
dl_status dl_transport_greet(dl_transport *transport, bool *is_up, int *error);

/* Returns whether a write has taken bytes that it has not reported yet: another message
 * cannot begin here. */
bool dl_transport_is_between(const dl_transport *transport);

/* Returns the events to poll(2) for in order to wait for `events`: input that TLS holds
 * already does not make its socket readable. */
short dl_transport_events(const dl_transport *transport, short events);

#endif
