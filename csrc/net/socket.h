/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TCP sockets, and transfers of whole buffers under a deadline.  Connections are made
 * in net/connect.h and net/listen.h.  Descriptors are non-blocking, close-on-exec,
 * TCP_NODELAY, guarded against forked children, and use keep-alive, so that a peer
 * whose host has vanished is noticed within minutes. */
#ifndef DISTLITE_NET_SOCKET_H
#define DISTLITE_NET_SOCKET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/deadline.h"
#include "base/status.h"
#include "net/address.h"

/* Makes an unconnected socket.  On failure `*fd` is unchanged and errno has
 * the reason. */
bool dl_socket_open(int family, int *fd);

/* Sets an option.  Failures are ignored: they cost latency or delay the detection of a
 * lost peer, but never correctness. */
void dl_socket_set_option(int fd, int level, int name, int value);

/* Sets all options of this library's sockets except non-blocking and close-on-exec, and
 * guards the descriptor; for a socket that was made elsewhere. */
void dl_socket_set_options(int fd);

/* Prepares a descriptor from accept4(2), non-blocking and close-on-exec already.  It
 * only guards it, because the options are inherited from the listening socket. */
void dl_socket_prepare(int fd);

/* Makes reads and writes sleep in the kernel for a few milliseconds before they fall
 * back to poll(2), which saves a system call per reply.  Only for descriptors that are
 * used by nothing but dl_socket_read() and dl_socket_write(). */
void dl_socket_set_kernel_wait(int fd);

/* Returns the local port, or 0 if there is none. */
uint16_t dl_socket_port(int fd);

/* DL_NETWORK: `fd` has no such address (any more); `*address` is unchanged. */
dl_status dl_socket_local_address(int fd, dl_address *address);
dl_status dl_socket_peer_address(int fd, dl_address *address);

/* Sends all of `parts`, at most IOV_MAX of them.  Modifies them: after a failure they
 * describe the bytes that were not sent. */
dl_status dl_socket_write(int fd, struct iovec *parts, int count, dl_deadline deadline);

/* Reads at least `least` bytes (1 or more) and at most what `room` holds.  After the
 * deadline it still takes what has arrived.  DL_CLOSED: the peer closed before that. */
dl_status dl_socket_read(int fd, struct iovec room, size_t least, dl_deadline deadline,
                         size_t *size);

/* Waits until one of `fds` is ready.  DL_TIMEOUT: no text is written. */
dl_status dl_socket_wait(struct pollfd *fds, int count, dl_deadline deadline);

/* Waits for `events` of one descriptor, after EAGAIN. */
dl_status dl_socket_await(int fd, short events, dl_deadline deadline);

/* Returns whether an idle connection is unusable: the peer has closed it, or has sent
 * bytes that were not requested. */
bool dl_socket_is_stale(int fd);

/* Returns the number of bytes sent that the peer's kernel has not acknowledged; 0 once the
 * connection has ended. */
size_t dl_socket_unacknowledged(int fd);

/* Reads and drops what has arrived, before a close: otherwise the kernel would reset the
 * connection, and discard what it has not sent or delivered yet. */
void dl_socket_discard_input(int fd);

/* Removes the guard and closes the descriptor; -1 does nothing.  Preserves errno. */
void dl_socket_close(int fd);

#endif
