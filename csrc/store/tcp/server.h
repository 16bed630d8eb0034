/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server of a TCP store: one thread, one event loop, one table, a session per
 * connection.  There are two event loops around the same sessions: server_uv.c (libuv)
 * and server_poll.c (epoll).  The thread never resolves a name and never blocks on one
 * client. */
#ifndef DISTLITE_STORE_TCP_SERVER_H
#define DISTLITE_STORE_TCP_SERVER_H

#include "base/secret.h"
#include "base/status.h"
#include "net/tls.h"
#include "store/tcp/journal.h"
#include "store/tcp/peer.h"

typedef struct dl_server dl_server;

typedef struct dl_server_options {
    dl_secret *secret;       /* clients have to prove that they know it; or NULL */
    dl_tls *tls;             /* clients have to speak it; or NULL */
    const char *journal;     /* path of the file that keeps the contents; or NULL */
    dl_journal_sync sync;    /* of the journal */
    const dl_limits *limits; /* NULL: those of the environment; tests set their own */
} dl_server_options;

/* The operations of one kind of event loop. */
typedef struct dl_server_ops {
    const char *kind; /* "libuv", "poll" */
    /* Fills the table from the journal, if there is one, and starts the thread.
     * `listen_fd` is bound, listening and non-blocking; it is taken, also on
     * failure. */
    dl_status (*start)(int listen_fd, const dl_server_options *options,
                       dl_server **server);
    /* Joins the thread, closes every connection and frees the server, in bounded time.
     * Any thread, once.  In a forked child it does nothing: the thread does not exist
     * there, and fork(2) may have copied its data in the middle of a change. */
    void (*stop)(dl_server *server);
} dl_server_ops;

extern const dl_server_ops dl_server_poll_ops;

/* At the TCP port, and at the shortcut if there is one. */
#define DL_SERVER_ACCEPTORS 2

/* Does what the servers have in common before their loops start: initialises the hub,
 * applies the limits of the environment, draws the identity, fills the table from the
 * journal, and opens the shortcut.  On failure, too, the caller calls dl_hub_fini() and
 * closes the descriptors of `acceptors` that are not -1, among them `listen_fd`. */
dl_status dl_server_prepare(int listen_fd, const dl_server_options *options,
                            dl_hub *hub, dl_acceptor acceptors[DL_SERVER_ACCEPTORS]);

/* Returns NULL in a build without libuv. */
const dl_server_ops *dl_server_uv_ops(void);

#endif
