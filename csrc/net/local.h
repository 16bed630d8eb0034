/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Abstract Unix sockets between processes of one host: messages, and descriptors that
 * travel with them.  Whoever can connect to such a name shares the network namespace of
 * its owner, so it is also how processes find out that they share a host.  Names vanish
 * with their owner; nothing is left in a file system. */
#ifndef DISTLITE_NET_LOCAL_H
#define DISTLITE_NET_LOCAL_H

#include <poll.h>

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"

/* "distlite-" and 32 random hexadecimal digits. */
#define DL_LOCAL_NAME_SIZE 42

#define DL_PARCEL_SIZE 8192
#define DL_PARCEL_FDS 200 /* the kernel's limit is 253 */

/* One message.  Zeroed memory is an empty one. */
typedef struct dl_parcel {
    dl_buffer bytes;
    int fds[DL_PARCEL_FDS];
    int fd_count;
} dl_parcel;

/* Frees the bytes; closes descriptors only in dl_parcel_drop. */
void dl_parcel_fini(dl_parcel *parcel);
void dl_parcel_drop(dl_parcel *parcel);

/* A listening socket under a fresh name.  All descriptors made here are non-blocking,
 * close-on-exec and guarded against forked children; dl_socket_close() ends them. */
dl_status dl_local_listen(int backlog, char name[DL_LOCAL_NAME_SIZE], int *fd);

/* DL_NOT_FOUND: nobody listens under this name in this network namespace, or a sandbox
 * keeps this process from connecting to it. */
dl_status dl_local_connect(const char *name, dl_deadline deadline, int *fd);

/* Does not wait.  DL_NOT_FOUND (no text written): nobody has come. */
dl_status dl_local_accept(int listener, int *fd);

/* DL_CLOSED: the peer is gone.  The parcel's descriptors stay the caller's. */
dl_status dl_local_send(int fd, const dl_parcel *parcel, dl_deadline deadline);

/* Into an empty parcel, whose descriptors become the caller's; on failure it stays empty.
 * DL_CLOSED: the peer is gone, and all that it wrote before has been read. */
dl_status dl_local_receive(int fd, dl_parcel *parcel, dl_deadline deadline);

/* Until one of `fds` is ready.  DL_TIMEOUT: no text written. */
dl_status dl_local_wait(struct pollfd *fds, int count, dl_deadline deadline);

#endif
