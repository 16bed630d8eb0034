/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Listening TCP sockets, bound here or handed in by the caller. */
#ifndef DISTLITE_NET_LISTEN_H
#define DISTLITE_NET_LISTEN_H

#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* Binds and listens.  An empty host, "0.0.0.0" or "::" is a wildcard and listens on all
 * (dual stack where there is IPv6); otherwise the host's first address that binds, IPv4 before IPv6.  A
 * host none of whose addresses is this machine's (it stands behind a translating router)
 * is a wildcard too, with a warning. */
dl_status dl_socket_listen(const char *host, uint16_t port, dl_deadline deadline,
                           int *fd);

/* Makes a bound socket handed in by the caller listen; checks that it is bound to `port`
 * unless that is 0.  The caller keeps the descriptor, also on failure. */
dl_status dl_socket_adopt(int fd, uint16_t port);

#endif
