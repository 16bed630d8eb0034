/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Listening TCP sockets, bound here or handed in by the caller. */
#ifndef DISTLITE_NET_LISTEN_H
#define DISTLITE_NET_LISTEN_H

#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

/* Binds and listens.  All addresses (dual stack where there is IPv6) are listened on for
 * an empty host, "0.0.0.0" and "::"; for a name other than "localhost" that stands for
 * loopback here, which other hosts know by another address; and, with a warning, for a
 * host none of whose addresses is this machine's, because it stands behind a translating
 * router.  Otherwise the host's first address that binds, IPv4 before IPv6.  A name that is not
 * known is looked up again until the deadline. */
dl_status dl_socket_listen(const char *host, uint16_t port, dl_deadline deadline,
                           int *fd);

/* Makes a bound socket handed in by the caller listen; checks that it is bound to `port`
 * unless that is 0.  The caller keeps the descriptor, also on failure. */
dl_status dl_socket_adopt(int fd, uint16_t port);

#endif
