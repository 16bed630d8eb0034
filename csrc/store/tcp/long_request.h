/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A request over many keys (CHECK, WAIT, MULTI_GET, MULTI_SET, LIST_KEYS), carried out
 * a few keys at a time, so that other clients are served in between; these may change
 * the table between two steps.  Knows nothing of sessions: the caller parks
 * the waiter of a blocked WAIT.  A listing may or may not have what others set and delete
 * while it is built.
 *
 * The reply is built in an output of its own and handed over as a whole: the reply to
 * an earlier WAIT of the same client may be written at any time, and must not be placed
 * in the middle of this one. */
#ifndef DISTLITE_STORE_TCP_LONG_REQUEST_H
#define DISTLITE_STORE_TCP_LONG_REQUEST_H

#include "base/blob.h"
#include "store/request.h"
#include "store/table.h"
#include "store/tcp/output.h"

typedef struct dl_long_request {
    dl_store_request request; /* its items lie in `bytes` from the first step on */
    dl_buffer bytes;
    dl_key_walk walk;
    dl_output reply;
    dl_table_cursor cursor; /* LIST_KEYS: at the next name */
    int64_t listed;         /* LIST_KEYS: number of names in the reply */
    bool has_waited; /* WAIT: has blocked since it last began with the first key */
} dl_long_request;

typedef enum dl_long_progress {
    DL_LONG_MORE,    /* call dl_long_step() again */
    DL_LONG_DONE,    /* `reply` is complete except for the status byte */
    DL_LONG_BLOCKED, /* WAIT: `*key` is absent; call again when it exists */
    DL_LONG_FAILED,  /* for the reason in dl_last_error() */
} dl_long_progress;

/* Returns whether the request covers so many keys or bytes that it is carried out in
 * steps. */
bool dl_request_is_long(const dl_store_request *request, const dl_table *table);

/* Returns NULL when out of memory.  The request's items still lie in the caller's
 * buffer: call dl_long_own() or dl_long_copy() before the first step. */
dl_long_request *dl_long_new(const dl_store_request *request);
void dl_long_free(dl_long_request *one); /* NULL does nothing */

/* Takes over the memory of `held`, in which the items lie, and leaves an empty
 * buffer. */
void dl_long_own(dl_long_request *one, dl_buffer *held);

/* Copies the items into memory of its own. */
dl_status dl_long_copy(dl_long_request *one);

/* Processes about `*work` keys, and decrements `*work` for each.  `*key` is set with
 * DL_LONG_BLOCKED only. */
dl_long_progress dl_long_step(dl_long_request *one, dl_table *table, int *work,
                              dl_bytes *key);

#endif
