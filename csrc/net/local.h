/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Abstract Unix sockets between processes of one host, which carry messages and file
 * descriptors.  A process that can connect to such a name shares the owner's network
 * namespace, so this is also how processes detect that they share a host.  A name
 * vanishes with its owner; nothing is left in a file system. */
#ifndef DISTLITE_NET_LOCAL_H
#define DISTLITE_NET_LOCAL_H

#include <poll.h>

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"

/* Room for "distlite-" and 32 random hexadecimal digits. */
#define DL_LOCAL_NAME_SIZE 42

#define DL_PARCEL_SIZE 8192
#define DL_PARCEL_FDS 200 /* the kernel's limit is 253 */

/* One message.  Zeroed memory is an empty message. */
typedef struct dl_parcel {
    dl_buffer bytes;
    int fds[DL_PARCEL_FDS];
    int fd_count;
} dl_parcel;

/* Frees the bytes; the descriptors stay open. */
void dl_parcel_fini(dl_parcel *parcel);

/* Frees the bytes and closes the descriptors. */
void dl_parcel_drop(dl_parcel *parcel);

/* Makes a listening socket with a new random name.  All descriptors made by this file
 * are non-blocking, close-on-exec and guarded against forked children; close them with
 * dl_socket_close(). */
dl_status dl_local_listen(int backlog, char name[DL_LOCAL_NAME_SIZE], int *fd);

/* Connects to `name`.  DL_NOT_FOUND: nobody listens under this name in this network
 * namespace, or a sandbox does not let this process connect to it. */
dl_status dl_local_connect(const char *name, dl_deadline deadline, int *fd);

/* Accepts a pending connection; never waits.  DL_NOT_FOUND (no text written): there is
 * none. */
dl_status dl_local_accept(int listener, int *fd);

/* Sends one message, of at least one byte; the caller keeps its descriptors.  DL_CLOSED:
 * the peer is gone. */
dl_status dl_local_send(int fd, const dl_parcel *parcel, dl_deadline deadline);

/* Receives one message into an empty parcel, whose descriptors the caller then owns; on
 * failure the parcel stays empty.  DL_CLOSED: the peer is gone, and all messages that
 * it sent have been read. */
dl_status dl_local_receive(int fd, dl_parcel *parcel, dl_deadline deadline);

/* Waits until one of `fds` is ready.  DL_TIMEOUT: no text is written. */
dl_status dl_local_wait(struct pollfd *fds, int count, dl_deadline deadline);

#endif
