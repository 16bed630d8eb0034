/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections between processes of one host and one user, which carry messages and file
 * descriptors.  A process listens under the abstract name of a Unix socket; one that can
 * send to the name shares the owner's network namespace, so this is also how processes
 * detect that they share a host.  A name vanishes with its owner; nothing is left in a
 * file system.
 *
 *     caller                                      listener
 *     makes a pair of connected sockets, and
 *     leaves its first message in it
 *     datagram: the key, one end of the pair  ->  accepts the end
 *
 * Every process on the host can see the name and send to it.  So the kernel drops
 * datagrams without the key before they take room in the listener's queue: strangers
 * can neither fill it nor cost the listener time.  Both sides also check that the peer
 * is a process of the same user: the listener by the credentials that the kernel
 * attaches to the datagram, the caller by those attached to the first message that
 * comes back.  Same user means that the sender's real user id is the receiver's
 * effective one; root is a user like any other.
 *
 * A service is simpler: a name to which every process can connect, for streams of bytes
 * without descriptors.  Both sides ask the kernel which user made the other end, and
 * end a connection to another user's process. */
#ifndef DISTLITE_NET_LOCAL_H
#define DISTLITE_NET_LOCAL_H

#include "base/buffer.h"
#include "base/deadline.h"
#include "base/status.h"

/* Room for "distlite-" and 32 random hexadecimal digits. */
#define DL_LOCAL_NAME_SIZE 42

/* The size of the secret that a caller presents. */
#define DL_LOCAL_KEY_SIZE 16

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

/* Checks that this process's user can be told from others.  DL_NOT_FOUND: it runs as the
 * user id that stands for all unknown users of its user namespace. */
dl_status dl_local_check_user(void);

/* Makes a listening socket with a new random name, for callers that have `key`.  All
 * descriptors made by this file are non-blocking, close-on-exec and guarded against
 * forked children; close them with dl_socket_close(). */
dl_status dl_local_listen(const uint8_t key[DL_LOCAL_KEY_SIZE],
                          char name[DL_LOCAL_NAME_SIZE], int *fd);

/* Connects to `name`, with `first` as the first message.  Does not wait until the call
 * is accepted; the connection ends if the listener does not live to accept it.
 * DL_NOT_FOUND: no process listens under this name in this network namespace, or a
 * sandbox does not let this process send to it.  DL_TIMEOUT: the listener's queue is
 * full. */
dl_status dl_local_call(const char *name, const uint8_t key[DL_LOCAL_KEY_SIZE],
                        const dl_parcel *first, dl_deadline deadline, int *fd);

/* Checks whether a process listens under `name`; never waits.  DL_NOT_FOUND: as
 * above. */
dl_status dl_local_check(const char *name);

/* Accepts a pending call; never waits.  DL_NOT_FOUND (no text written): there is none,
 * or it was a stranger's, whose connection was ended. */
dl_status dl_local_accept(int listener, const uint8_t key[DL_LOCAL_KEY_SIZE], int *fd);

/* Makes a listening socket with a new random name, at which dl_local_service_connect()
 * makes streams.  Strangers can connect as well: see dl_local_service_check(). */
dl_status dl_local_service_listen(char name[DL_LOCAL_NAME_SIZE], int *fd);

/* The same with a name that the caller knows from dl_local_service_listen(), or has made
 * like one (dl_local_service_is_name()): of a process that takes the place of another. */
dl_status dl_local_service_listen_at(const char *name, int *fd);

/* Returns whether dl_local_service_listen() may have made the name. */
bool dl_local_service_is_name(dl_bytes name);

/* Connects to the service of this name; never waits.  DL_NOT_FOUND: there is none in
 * this network namespace, it is a process of another user, or a sandbox does not let
 * this process connect.  DL_TIMEOUT: too many connections wait to be accepted. */
dl_status dl_local_service_connect(const char *name, int *fd);

/* Checks that the other end of an accepted stream is a process of the same user.
 * DL_DENIED: it is not. */
dl_status dl_local_service_check(int fd);

/* Returns the number of the process that made the other end of a stream; 0: unknown, for
 * example because it is in another namespace. */
int dl_local_service_peer(int fd);

/* Sends one message, of at least one byte; the caller keeps its descriptors.  DL_CLOSED:
 * the peer is gone. */
dl_status dl_local_send(int fd, const dl_parcel *parcel, dl_deadline deadline);

/* Receives one message into an empty parcel, whose descriptors the caller then owns; on
 * failure the parcel stays empty.  DL_CLOSED: the peer is gone, and all messages that
 * it sent have been read; or it is a process of another user. */
dl_status dl_local_receive(int fd, dl_parcel *parcel, dl_deadline deadline);

#endif
