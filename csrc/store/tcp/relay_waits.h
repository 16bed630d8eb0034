/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Waits of a relay's clients for the same keys, which are one wait at the server: it has
 * a channel of its own, and its reply goes to all who asked.
 *
 * A wait that is sent already may have seen a key that was deleted since.  So those who
 * ask meanwhile share the next one, which is sent when the first has ended: each of them
 * gets a reply that is true for its own request.
 *
 * Relay's thread only. */
#ifndef DISTLITE_STORE_TCP_RELAY_WAITS_H
#define DISTLITE_STORE_TCP_RELAY_WAITS_H

#include "base/list.h"
#include "base/map.h"
#include "store/tcp/relay_frame.h"

/* The bit of a channel's number that distinguishes channels of waits from those of
 * clients. */
#define DL_RELAY_SHARED UINT32_C(0x80000000)

/* Part of a client.  Zeroed memory waits for nothing. */
typedef struct dl_relay_waiter {
    dl_list node;
    struct dl_relay_wait *wait; /* NULL: none */
} dl_relay_waiter;

typedef struct dl_relay_waits {
    dl_buffer *out; /* frames to the server; fixed */
    dl_map requests;
    dl_map channels;
    uint32_t last_channel;
    /* Gives a client the reply to its wait, which is over; empty if that was lost. */
    void (*reply)(dl_relay_waiter *waiter, dl_bytes reply);
} dl_relay_waits;

/* Returns whether `bytes` are exactly one checked WAIT. */
bool dl_relay_is_wait(dl_bytes bytes);

/* Makes the client wait, which waits for nothing. */
dl_status dl_relay_waits_join(dl_relay_waits *waits, dl_relay_waiter *waiter,
                              dl_bytes request);

/* Ends the client's wait, if there is one, without a reply. */
void dl_relay_waits_leave(dl_relay_waits *waits, dl_relay_waiter *waiter);

/* Takes the server's frame, or a piece of one, for the channel of a wait. */
void dl_relay_waits_take(dl_relay_waits *waits, const dl_relay_head *head,
                         dl_bytes piece);

/* Forgets all waits after the connection was lost; none has clients any more. */
void dl_relay_waits_fini(dl_relay_waits *waits);

#endif
