/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a client makes its first connection, and how the master waits until all clients
 * have done so: each client adds one to the counter "init/". */
#ifndef DISTLITE_STORE_TCP_JOIN_H
#define DISTLITE_STORE_TCP_JOIN_H

#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"
#include "store/tcp/connection.h"

/* Tries until the deadline to connect and to complete the handshake, and leaves the
 * connection in the pool.  If `joined` is not NULL, also counts this client and stores
 * the new count there.  When the connection is lost before the count is known, the
 * client counts itself again: the server is taken to have lost its counter, too. */
dl_status dl_join(dl_connection_pool *pool, int64_t *joined, dl_deadline deadline);

/* Waits until `world_size` clients have joined; `joined` is the count so far.
 * DL_TIMEOUT names both numbers. */
dl_status dl_await_workers(dl_connection_pool *pool, int64_t joined, int64_t world_size,
                           dl_deadline deadline);

#endif
