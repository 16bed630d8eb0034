/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What session.c and answer.c share: the server's state of one client.  session.c knows
 * the bytes that arrive and calls answer.c for each request, which knows nothing of it;
 * both call the hub, which knows only the part that is `client`. */
#ifndef DISTLITE_STORE_TCP_SESSION_STATE_H
#define DISTLITE_STORE_TCP_SESSION_STATE_H

#include "base/proof.h"
#include "store/tcp/hub.h"

typedef struct dl_session {
    dl_client client;
    dl_hub *hub;
    dl_output output;           /* to be sent */
    struct dl_partial *partial; /* input that is not served yet; NULL for nothing */
    dl_waiter waiter;           /* the one WAIT or BARRIER that is not answered yet */
    dl_buffer waited;           /* the keys of that WAIT */
    size_t pending;             /* its share of the hub's */
    size_t pending_output;
    dl_reply_slot *slot;  /* of its changes; NULL: a client of torch's */
    dl_proof *proof;      /* while that is under way; else NULL */
    dl_output_mark saved; /* what precedes the replies that wait for the journal */
    struct dl_carrier *carrier; /* it is a channel of this (carrier.h); else NULL */
    bool is_carrier;            /* its connection carries channels from now on */
    bool is_checked;            /* the latest request was a checked one */
    bool wait_is_checked;
} dl_session;

#endif
