/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Serves the windows of one group to ranks on other hosts, also while the rank itself
 * computes: a thread accepts their connections, and a thread for each connection reads
 * a request, carries it out and sends the answer.  The hello of a connection names its
 * window.  A rank has one connection to each window, the latest, which bounds threads
 * and descriptors.  The server is created with the group's first window, and ends with
 * the group. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_SERVER_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_SERVER_H

#include "pg/cpu/tcp/listener.h"
#include "pg/cpu/window/window_session.h"

typedef struct dl_window_server dl_window_server;

/* The server copies the name, and borrows the listener until it is stopped.  It takes a
 * reference to `ends`. */
typedef struct dl_window_server_options {
    const char *group_name;
    int rank;
    int size;
    dl_listener *listener;
    dl_window_ends *ends;
} dl_window_server_options;

dl_status dl_window_server_new(const dl_window_server_options *options,
                               dl_window_server **server);
dl_window_server *dl_window_server_ref(dl_window_server *server);
void dl_window_server_unref(dl_window_server *server); /* NULL does nothing */

/* Wakes the accepting thread, which then checks whether the group has ended.  Any
 * thread; takes no locks.  NULL does nothing. */
void dl_window_server_wake(dl_window_server *server);

/* Ends the threads and all connections, after which the listener is not used any more.
 * In a forked child, where there are no threads, it does nothing. */
void dl_window_server_stop(dl_window_server *server);

/* Serves the window, whose number and eventfd are filled in.  After the second function
 * returns, no thread uses the window any more, and its callers have been told. */
dl_status dl_window_server_add(dl_window_server *server, dl_window_served *window);
void dl_window_server_remove(dl_window_server *server, dl_window_served *window);

#endif
