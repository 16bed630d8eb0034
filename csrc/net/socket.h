/* SPDX-License-Identifier: BSD-3-Clause
 *
 * TCP sockets, and moving whole buffers by a deadline; they are made in net/connect.h
 * and net/listen.h.  Descriptors are non-blocking, close-on-exec, TCP_NODELAY, guarded
 * against forked children, and kept alive, so that a peer whose host has vanished is
 * noticed within minutes. */
#ifndef DISTLITE_NET_SOCKET_H
#define DISTLITE_NET_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/deadline.h"
#include "base/status.h"
#include "net/address.h"

/* An unconnected socket of ours.  On failure `*fd` stays and errno says why. */
bool dl_socket_open(int family, int *fd);

/* Failing costs latency or a late notice, never correctness, and is ignored. */
void dl_socket_set_option(int fd, int level, int name, int value);

/* What every socket of ours has but for non-blocking and close-on-exec; for a descriptor
 * that somebody else made. */
void dl_socket_set_options(int fd);

/* The same for one that accept4(2) gave as non-blocking and close-on-exec: cheap, because
 * most options come from the listening socket. */
void dl_socket_prepare(int fd);

/* From now on reads and writes sleep in the kernel for a few milliseconds before they
 * resort to poll(2), which saves a system call per answer.  Only for descriptors that
 * nothing but dl_socket_read() and dl_socket_write() touches. */
void dl_socket_make_patient(int fd);

/* Local port; 0 if there is none. */
uint16_t dl_socket_port(int fd);

/* DL_NETWORK: `fd` has no such address, or no longer; `*address` stays as it is. */
dl_status dl_socket_local_address(int fd, dl_address *address);
dl_status dl_socket_peer_address(int fd, dl_address *address);

/* All of `parts`, at most IOV_MAX of them.  Their entries are consumed: on failure they
 * are what has not gone. */
dl_status dl_socket_write(int fd, struct iovec *parts, int count, dl_deadline deadline);

/* Into `room`, at least `least` bytes (at least 1).  A passed deadline takes what is
 * there.  DL_CLOSED: the peer closed first. */
dl_status dl_socket_read(int fd, struct iovec room, size_t least, dl_deadline deadline,
                         size_t *size);

/* Whether the peer has closed an idle connection, or sent what nobody asked for. */
bool dl_socket_is_stale(int fd);

/* Undoes the guard and closes; -1 does nothing.  Keeps errno. */
void dl_socket_close(int fd);

#endif
