/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Listening TCP sockets: bound here, or handed in by the caller. */
#ifndef DISTLITE_NET_LISTEN_H
#define DISTLITE_NET_LISTEN_H

#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* Binds and listens; the caller owns `*fd`.  Listens on all addresses (dual stack where
 * IPv6 is available) if `host`
 *   - is empty, "0.0.0.0" or "::";
 *   - is a name other than "localhost" that resolves to loopback on this host, because
 *     other hosts resolve it to another address;
 *   - has no address of this machine, because it is behind address translation; a
 *     warning is logged.
 * Otherwise listens on the first address of `host` that binds, IPv4 before IPv6.  A
 * name that does not resolve is tried again until the deadline. */
dl_status dl_socket_listen(const char *host, uint16_t port, dl_deadline deadline,
                           int *fd);

/* Listens on a bound socket that the caller has made; checks that it is bound to `port`
 * unless that is 0.  The caller keeps ownership of the descriptor. */
dl_status dl_socket_adopt(int fd, uint16_t port);

#endif
