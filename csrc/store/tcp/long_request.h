/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A request over many keys, carried out a few keys at a time, so that other clients have
 * their turn in between: CHECK, WAIT, MULTI_GET, MULTI_SET, LIST_KEYS.  Others may change
 * the table in between.  Knows nothing of sessions; who waits parks the waiter.
 *
 * The reply is put together apart and handed over whole: an answer to an earlier WAIT of
 * the same client may come at any time, and must not land in its middle. */
#ifndef DISTLITE_STORE_TCP_LONG_REQUEST_H
#define DISTLITE_STORE_TCP_LONG_REQUEST_H

#include "store/request.h"
#include "store/table.h"
#include "store/tcp/names.h"
#include "store/tcp/output.h"

typedef struct dl_long_request {
    dl_store_request request; /* its items lie in `bytes`, once that has them */
    dl_buffer bytes;
    dl_key_walk walk;
    dl_output reply;
    uint64_t since;  /* LIST_KEYS: a listing that is not older */
    bool has_waited; /* WAIT: for a key, since it began with the first one */
} dl_long_request;

typedef enum dl_long_progress {
    DL_LONG_MORE,    /* to be gone on with */
    DL_LONG_DONE,    /* `reply` is complete but for the status byte */
    DL_LONG_BLOCKED, /* WAIT: `*key` is absent; go on when it is there */
    DL_LONG_FAILED,  /* for the reason in dl_last_error() */
} dl_long_progress;

/* Whether a request is to be carried out in this way, on such a table. */
bool dl_request_is_long(const dl_store_request *request, const dl_table *table);

/* NULL: no memory.  The request's items stay where they are: after this, dl_long_own()
 * or dl_long_copy(). */
dl_long_request *dl_long_new(const dl_store_request *request, const dl_table *table);
void dl_long_free(dl_long_request *one); /* NULL does nothing */

/* Takes `held`, in which the items lie, and leaves an empty buffer. */
void dl_long_own(dl_long_request *one, dl_buffer *held);

/* Copies the items. */
dl_status dl_long_copy(dl_long_request *one);

/* Goes on, by about as many keys as `*work` says, which is counted down. */
dl_long_progress dl_long_step(dl_long_request *one, dl_table *table, dl_names *names,
                              int *work, dl_bytes *key);

#endif
