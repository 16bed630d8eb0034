/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One call of a TCP store's client: which requests it sends to a server of ours or of
 * torch's, in which order, how their replies are read, and when a call is repeated
 * after its connection was lost.
 *
 * Our server answers every GET at once and reports an absent key, so that a get of a
 * key that exists is one round trip.  Torch's server needs a WAIT before the GET, since
 * it may close the connection on a GET of an absent key. */
#ifndef DISTLITE_STORE_TCP_TCP_CALL_H
#define DISTLITE_STORE_TCP_TCP_CALL_H

#include "base/deadline.h"
#include "store/tcp/connection_pool.h"

/* How long a call tries to reconnect to a server that it has lost. */
#define DL_TCP_STORE_PATIENCE (5 * DL_SECOND)

/* How long a reply that waits for no key may take, even if the call's timeout is
 * shorter: the timeout limits the wait for keys, not the round trip to the server. */
#define DL_ANSWER_GRACE (5 * DL_SECOND)

typedef struct dl_tcp_call {
    dl_store_request request;
    dl_store_reply reply;
    dl_bytes key_prefix;
    dl_deadline deadline; /* for waiting for keys */
    bool is_legacy;       /* a server of torch's is the one without queues */
    bool lacks_keys;      /* DL_TIMEOUT, and the server lives: keys are absent */
    /* Of the connection that was lost while it was changing something: the next
     * connection repeats the change in this slot. */
    dl_slot slot;
    bool may_be_done; /* that change may have been executed; `slot` is valid */
} dl_tcp_call;

/* Carries out the call on `connection`.  Returns DL_OK, DL_TIMEOUT, DL_QUEUE_EMPTY,
 * DL_UNSUPPORTED (before any byte is sent), the server's status, or the failure of the
 * connection.  connection->is_clean tells whether it can be used again. */
dl_status dl_tcp_call_once(dl_connection *connection, dl_tcp_call *call);

/* Carries out the call on a connection of the pool, and repeats it on a new one when
 * that was lost, unless it is a change that torch's server may have executed (see
 * tcp_store.h).  Fails as dl_tcp_call_once(), and with DL_CLOSED when the pool was closed
 * meanwhile. */
dl_status dl_tcp_call_run(dl_connection_pool *pool, dl_tcp_call *call);

#endif
