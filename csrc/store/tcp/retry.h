/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A call on whatever connection there is, and again on a new one when that was lost, as
 * far as the kind of call allows: tcp_store.h says which. */
#ifndef DISTLITE_STORE_TCP_RETRY_H
#define DISTLITE_STORE_TCP_RETRY_H

#include "base/status.h"
#include "store/tcp/connection_pool.h"
#include "store/tcp/exchange.h"

/* As dl_exchange(), and DL_CLOSED when the pool was closed meanwhile. */
dl_status dl_retry(dl_connection_pool *pool, dl_tcp_call *call);

#endif
