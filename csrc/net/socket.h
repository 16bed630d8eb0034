/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TCP sockets with deadlines: connect, listen, and moving whole buffers.  Descriptors
 * are non-blocking, close-on-exec, TCP_NODELAY, and guarded against forked children. */
#ifndef DISTLITE_NET_SOCKET_H
#define DISTLITE_NET_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/deadline.h"
#include "base/status.h"
#include "net/address.h"

/* Tries every address of `host`, both families, in rounds until the deadline: each round
 * resolves anew; rounds are spaced by exponential back-off with jitter.  The error lists
 * each address tried last with its errno. */
dl_status dl_socket_connect(const char *host, uint16_t port, dl_deadline deadline,
                            int *fd);

/* Binds and listens.  An empty host, "0.0.0.0" or "::" is a wildcard and listens on all
 * (dual stack where there is IPv6); otherwise the host's first address that binds. */
dl_status dl_socket_listen(const char *host, uint16_t port, dl_deadline deadline,
                           int *fd);

/* Makes a bound socket handed in by the caller listen; checks that it is bound to `port`
 * unless that is 0. */
dl_status dl_socket_adopt(int fd, uint16_t port);

/* The options that every socket of ours has; for one that accept(2) gave. */
void dl_socket_prepare(int fd);

/* Local port; 0 if there is none. */
uint16_t dl_socket_port(int fd);

dl_status dl_socket_local_address(int fd, dl_address *address);
dl_status dl_socket_peer_address(int fd, dl_address *address);

/* All of `parts`, whose entries are consumed.  At most IOV_MAX of them. */
dl_status dl_socket_write(int fd, struct iovec *parts, int count, dl_deadline deadline);

/* At least `least` and at most `room` bytes.  DL_CLOSED: the peer closed first. */
dl_status dl_socket_read(int fd, void *data, size_t least, size_t room, size_t *size,
                         dl_deadline deadline);

/* Undoes the guard and closes; -1 does nothing.  Keeps errno. */
void dl_socket_close(int fd);

#endif
