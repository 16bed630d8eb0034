/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One call over one connection: which requests it takes to a server of ours or of
 * torch's, in which order, and how their replies are read; and what becomes of a call
 * whose connection is lost.
 *
 * Ours answers everything at once and says when a key is absent, so that a get is one
 * round trip when the key is there.  Torch's needs a WAIT before the GET, since a GET of
 * an absent key may cost the connection. */
#ifndef DISTLITE_STORE_TCP_EXCHANGE_H
#define DISTLITE_STORE_TCP_EXCHANGE_H

#include "base/deadline.h"
#include "store/tcp/connection.h"

/* An answer that needs no waiting may take so long whatever the call's timeout is: that
 * is about keys, not about the way to the server. */
#define DL_ANSWER_GRACE (5 * DL_SECOND)

typedef struct dl_tcp_call {
    dl_store_request request;
    dl_store_reply reply;
    dl_bytes key_prefix;
    dl_deadline deadline; /* of waiting for keys */
    bool is_legacy;       /* the server, if it is torch's, is the one without queues */
    /* Whether the call may be done again after its connection was lost: at first as the
     * request's kind says.  The exchange sets it while it does something harmless on
     * behalf of a call that may not. */
    bool is_repeatable;
} dl_tcp_call;

/* Until when an answer may come that needs no waiting. */
dl_deadline dl_answer_deadline(const dl_tcp_call *call);

/* DL_OK, DL_TIMEOUT, DL_QUEUE_EMPTY, DL_UNSUPPORTED (decided here, no byte is sent), what the server said, or how the connection was
 * lost.  connection->is_clean tells whether it can be used again. */
dl_status dl_exchange(dl_connection *connection, dl_tcp_call *call);

/* The call on whatever connection there is, and again on a new one when that was lost, as
 * far as the request allows: tcp_store.h says which.  As dl_exchange(), and DL_CLOSED when the pool was closed meanwhile. */
dl_status dl_retry(dl_connection_pool *pool, dl_tcp_call *call);

#endif
