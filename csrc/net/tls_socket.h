/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A TLS stream over a TCP socket, in two forms: blocking under a deadline, with the
 * contracts of dl_socket_read() and dl_socket_write(), and one attempt at a time for a
 * loop of the caller's.  The socket is one of net/socket.h; SIGPIPE, interrupts and
 * deadlines are treated as there.  The two forms may be used in turn. */
#ifndef DISTLITE_NET_TLS_SOCKET_H
#define DISTLITE_NET_TLS_SOCKET_H

#include "base/deadline.h"
#include "net/tls.h"

typedef struct dl_tls_socket {
    dl_tls_stream *stream;
    int fd;         /* the caller's: dl_tls_socket_free() leaves it open */
    int error;      /* errno of the socket's failure in an attempt; 0: none yet */
    uint32_t first; /* offset of the first byte of `in` that is not decrypted yet */
    uint32_t last;  /* offset past the last one */
    uint8_t in[4 * DL_TLS_RECORD_SIZE];
} dl_tls_socket;

/* Makes the TLS state of a connected socket; nothing is sent yet. */
dl_status dl_tls_socket_new(dl_tls *tls, bool is_server, int fd, dl_tls_socket **made);

void dl_tls_socket_free(dl_tls_socket *self); /* NULL does nothing */

/* Blocking. */

/* Completes the handshake.  A client's last message stays in the output and travels with
 * the first data: either write something or read.  Fails as dl_tls_read() does;
 * DL_CLOSED: the peer closed the connection in the middle of it. */
dl_status dl_tls_socket_greet(dl_tls_socket *self, dl_deadline deadline);

/* As dl_socket_write(), after the handshake.  After a failure the first part is
 * unchanged only if no byte of this call's was sent. */
dl_status dl_tls_socket_write(dl_tls_socket *self, struct iovec *parts, int count,
                              dl_deadline deadline);

/* As dl_socket_read(), after the handshake. */
dl_status dl_tls_socket_read(dl_tls_socket *self, struct iovec room, size_t least,
                             dl_deadline deadline, size_t *size);

/* One attempt, never blocking.  Both also continue the handshake; `*size` is 0 where a
 * plain socket would say EAGAIN.  Then poll for reading, and for writing as well if
 * dl_tls_socket_wants_room(). */

/* Reads up to `size` bytes.  DL_CLOSED: the peer has closed the connection. */
dl_status dl_tls_socket_receive(dl_tls_socket *self, void *data, size_t room,
                                size_t *size);

/* Encrypts some of the parts' bytes, once earlier ones are sent, and sends what the
 * socket accepts; the parts are not modified.  `*size` bytes of them are taken, although
 * they may not be sent yet. */
dl_status dl_tls_socket_send(dl_tls_socket *self, const struct iovec *parts, int count,
                             size_t *size);

/* Sends what is left of the output, as far as the socket accepts it. */
dl_status dl_tls_socket_flush(dl_tls_socket *self);

/* Whether there is output that the socket has not accepted: poll for writing, then
 * dl_tls_socket_flush() or _send(). */
bool dl_tls_socket_wants_room(const dl_tls_socket *self);

/* Whether bytes have been received that no read has returned: read again before you
 * poll, since poll(2) does not know of them. */
bool dl_tls_socket_holds_input(const dl_tls_socket *self);

#endif
