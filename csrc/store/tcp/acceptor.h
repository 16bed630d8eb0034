/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Taking new connections off a server's listening socket, under any event loop, also
 * when the process has run out of descriptors. */
#ifndef DISTLITE_STORE_TCP_ACCEPTOR_H
#define DISTLITE_STORE_TCP_ACCEPTOR_H

#include <stdbool.h>

#include "base/deadline.h"

/* For so long nothing is accepted once descriptors have run out: those who connect
 * wait in the kernel's queue meanwhile. */
#define DL_ACCEPTOR_PAUSE (100 * DL_MILLISECOND)

typedef struct dl_acceptor {
    int fd; /* listening, non-blocking */
    bool is_starved;
    bool is_logged; /* that it is, since last nobody was waiting */
} dl_acceptor;

/* The next connection, with the options of our sockets.  -1: none for now, or, when
 * `is_starved`, not before the pause is over. */
int dl_acceptor_next(dl_acceptor *acceptor);

#endif
