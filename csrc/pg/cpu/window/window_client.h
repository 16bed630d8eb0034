/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The accesses of this rank to the memory of a rank on another host: requests over a
 * link between the two ranks, one for each window, which is opened when it is first
 * needed.  Threads use it in turn.  A wait that is abandoned disconnects the link,
 * because the answer may still arrive; the next access opens another one. */
#ifndef DISTLITE_PG_CPU_WINDOW_WINDOW_CLIENT_H
#define DISTLITE_PG_CPU_WINDOW_WINDOW_CLIENT_H

#include "pg/cpu/tcp/link.h"
#include "pg/cpu/window/window_session.h"
#include "pg/lane.h"

typedef struct dl_window_client {
    /* fixed before the first access */
    const dl_window_ranks *ranks; /* NULL in zeroed memory, which is not used */
    int owner;
    dl_link_options options;
    dl_lane turns; /* the next ones are for the thread that has the turn */
    dl_link link;
    int unread;    /* answers; and a request of which not all was sent */
    bool is_dirty; /* some request since the last answer had none */
    bool has_lost; /* a link ended while it was dirty, which no flush has reported */
} dl_window_client;

/* `link` are the options of the link, but for peer, address, token and use; what they
 * point to stays in place. */
void dl_window_client_init(dl_window_client *client, const dl_window_ranks *ranks,
                           int owner, const dl_link_options *link,
                           const dl_tcp_contact *tcp);

/* Sets the number that the owner has given to the window, before the first access. */
void dl_window_client_aim(dl_window_client *client, int number);

/* Disconnects.  In a forked child, where the descriptors are closed already, it leaves
 * them alone. */
void dl_window_client_fini(dl_window_client *client, bool is_inherited);

dl_status dl_window_client_access(dl_window_client *client, const dl_access *access,
                                  size_t item_size, dl_deadline deadline);
dl_status dl_window_client_lock(dl_window_client *client, bool is_shared,
                                dl_deadline deadline);

/* Waits until the accesses have taken effect, and then releases the lock unless
 * `has_lock` is NULL.  It is set to false once the owner has answered, which may be
 * with the failure of an earlier access. */
dl_status dl_window_client_flush(dl_window_client *client, bool *has_lock,
                                 dl_deadline deadline);

/* Releases the lock without waiting for an answer, and disconnects. */
void dl_window_client_drop(dl_window_client *client);

#endif
