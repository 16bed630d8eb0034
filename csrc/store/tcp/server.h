/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The server of a TCP store: one thread, one event loop (loop.h), one table, a session
 * per connection.  The thread never resolves a name and never blocks on one client. */
#ifndef DISTLITE_STORE_TCP_SERVER_H
#define DISTLITE_STORE_TCP_SERVER_H

#include "base/secret.h"
#include "base/status.h"
#include "net/tls.h"
#include "store/tcp/journal.h"
#include "store/tcp/limits.h"
#include "store/tcp/loop.h"

typedef struct dl_server dl_server;

typedef struct dl_server_options {
    dl_secret *secret;       /* clients have to prove that they know it; or NULL */
    dl_tls *tls;             /* clients have to speak it; or NULL */
    const char *journal;     /* path of the file that keeps the contents; or NULL */
    dl_journal_sync sync;    /* of the journal */
    const dl_limits *limits; /* NULL: the environment's; tests set their own */
} dl_server_options;

/* Fills the table from the journal, if there is one, and starts the thread, with a loop
 * of this kind.  `listen_fd` is bound, listening and non-blocking; it is taken, also on
 * failure. */
dl_status dl_server_start(const dl_loop_ops *kind, int listen_fd,
                          const dl_server_options *options, dl_server **server);

/* Joins the thread, closes every connection and frees the server, in bounded time.  Any
 * thread, once.  In a forked child it does nothing: the thread does not exist there, and
 * fork(2) may have copied its data in the middle of a change. */
void dl_server_stop(dl_server *server);

#endif
