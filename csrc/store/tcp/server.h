/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server of a TCP store: one thread, one event loop, one table, a session per
 * connection.  Two loops around the same sessions: server_uv.c (libuv) and
 * server_poll.c (epoll).  Never resolves a name, never blocks on one client. */
#ifndef DISTLITE_STORE_TCP_SERVER_H
#define DISTLITE_STORE_TCP_SERVER_H

#include "base/status.h"

typedef struct dl_server dl_server;

/* One event loop. */
typedef struct dl_server_ops {
    const char *kind; /* "libuv", "poll" */
    /* `listen_fd` is bound, listening and non-blocking; taken, also on failure. */
    dl_status (*start)(int listen_fd, dl_server **server);
    /* Joins the thread, closes every connection, frees.  Bounded; from any thread, once.
     * In a forked child it leaves all as it is: the thread is not there, and may have
     * been in the middle of changing what would be freed. */
    void (*stop)(dl_server *server);
} dl_server_ops;

extern const dl_server_ops dl_server_poll_ops;

/* NULL in a build without libuv. */
const dl_server_ops *dl_server_uv_ops(void);

#endif
