/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the windows of one group have in common: the group's end, and, with several hosts,
 * the threads that serve the windows to ranks on other hosts, also while the rank itself
 * computes.  One thread accepts connections, and one for each connection reads a
 * request, carries it out and sends the answer.  The hello of a connection names its
 * window.  A rank has one connection to each window, the latest, which bounds threads
 * and descriptors.  The threads are started for the group's first window, and end with
 * the group. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_SERVER_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_SERVER_H

#include "pg/cpu/tcp/listener.h"
#include "pg/cpu/window/window_session.h"

typedef struct dl_window_server {
    atomic_uint references;
    dl_window_ends ends;
    atomic_bool has_cause; /* the first one is kept */
    char *group_name;
    uint32_t fork_generation;
    /* fixed from the first window on */
    dl_listener *listener;
    int rank;
    int size;
    atomic_int bell; /* eventfd: a caller is there, or the group has ended; or -1 */
    pthread_t thread;
    bool has_thread; /* for the callers of serve and close */
    atomic_bool is_stopped;
    dl_listener_bell callers;
    pthread_mutex_t lock; /* the threads of connections do not take it */
    /* guarded by lock */
    dl_list windows;
    dl_list connections; /* also those that are over, until a thread joins theirs */
    int window_count;    /* so far */
} dl_window_server;

/* Copies the name.  NULL: there is no memory. */
dl_window_server *dl_window_server_new(const char *group_name);
dl_window_server *dl_window_server_ref(dl_window_server *server);
void dl_window_server_unref(dl_window_server *server); /* NULL does nothing */

/* Stores that the group has ended with `cause`; the first cause is kept.  Any thread;
 * takes no locks. */
void dl_window_server_end(dl_window_server *server, const dl_error *cause);

/* Ends the threads and all connections, after which the listener is not used any more,
 * and drops a reference.  In a forked child there are no threads.  NULL does nothing. */
void dl_window_server_close(dl_window_server *server);

/* Serves the window, whose number and eventfd are filled in, to the callers of the
 * listener, which is borrowed until dl_window_server_close().  One thread at a time.  After
 * the second function returns, no thread uses the window any more, and its callers have
 * been told. */
dl_status dl_window_server_add(dl_window_server *server, dl_listener *listener,
                               dl_window_served *window);
void dl_window_server_remove(dl_window_server *server, dl_window_served *window);

#endif
