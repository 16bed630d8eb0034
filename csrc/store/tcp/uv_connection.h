/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One client of the libuv server: moves bytes between a uv_tcp_t and a session.  Writes
 * at once what the socket takes; only the rest becomes a request of libuv's.  Frees
 * itself when it is closed.  Server thread only. */
#ifndef DISTLITE_STORE_TCP_UV_CONNECTION_H
#define DISTLITE_STORE_TCP_UV_CONNECTION_H

#include <uv.h>

#include "store/tcp/session.h"

/* What a server's connections share: the loop's `data`. */
typedef struct dl_uv_shared {
    dl_hub hub;
    uint8_t input[64u << 10]; /* read by one call: what loopback delivers at once */
} dl_uv_shared;

/* Takes `fd`. */
void dl_uv_connection_open(uv_loop_t *loop, int fd);

/* A session that came up as changed. */
void dl_uv_connection_resume(dl_session *session);

/* Of the connection's handle, the only uv_tcp_t there are. */
void dl_uv_connection_close(uv_handle_t *handle);

#endif
