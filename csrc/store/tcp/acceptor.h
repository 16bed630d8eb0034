/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The part of a server that is the same under every event loop: taking new connections
 * off the listening socket, also when the process has run out of descriptors, and the
 * log line about a client that is sent away. */
#ifndef DISTLITE_STORE_TCP_ACCEPTOR_H
#define DISTLITE_STORE_TCP_ACCEPTOR_H

#include <stdbool.h>

#include "base/deadline.h"

/* For so long nothing is accepted once descriptors have run out: those who connect
 * wait in the kernel's queue meanwhile. */
#define DL_ACCEPTOR_PAUSE (100 * DL_MILLISECOND)

/* How much a client that was told its error may still send, read and thrown away: were it
 * left unread, closing would reset the connection and the error be lost.  More than any
 * one request has after the field that is wrong. */
#define DL_ACCEPTOR_PATIENCE (16u << 20)

typedef struct dl_acceptor {
    int fd; /* listening, non-blocking */
    bool is_starved;
    bool is_logged; /* that it is, since last nobody was waiting */
} dl_acceptor;

/* The next connection, with the options of our sockets.  -1: none for now, or, when
 * `is_starved`, not before the pause is over. */
int dl_acceptor_next(dl_acceptor *acceptor);

/* Logs that client `fd` goes because of the thread's last error. */
void dl_acceptor_log_refusal(int fd);

#endif
