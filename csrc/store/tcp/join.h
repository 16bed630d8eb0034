/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a client gets its first connection, and how the master waits for all of them: each
 * client adds one to the counter "init/". */
#ifndef DISTLITE_STORE_TCP_JOIN_H
#define DISTLITE_STORE_TCP_JOIN_H

#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"
#include "store/tcp/connection.h"

/* Tries until the deadline to connect and to be understood; leaves the connection in the
 * pool.  With `joined`, counts this client too and tells how many there are.  A server
 * that is lost before it answers that is taken to have lost its counter as well. */
dl_status dl_join(dl_connection_pool *pool, int64_t *joined, dl_deadline deadline);

/* Until `world_size` clients have joined, `joined` of which are known of. */
dl_status dl_await_workers(dl_connection_pool *pool, int64_t joined, int64_t world_size,
                           dl_deadline deadline);

#endif
