/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The executor: what each request does to a table.  It serves HashStore, the TCP server
 * and the reading half of FileStore, which differ in who excludes whom, in how a caller
 * waits and in where a reply goes.  It never waits and takes no lock. */
#ifndef DISTLITE_STORE_EXECUTE_H
#define DISTLITE_STORE_EXECUTE_H

#include "store/request.h"
#include "store/table.h"

typedef struct dl_table_reply {
    /* As in dl_store_reply; for QUEUE_POP the length before the pop.  For DL_NOT_FOUND the
     * index of the first absent key. */
    int64_t number;
    /* GET, COMPARE_SET: borrowed until the next change of the table.  QUEUE_POP: a
     * reference of the caller's.  NULL for COMPARE_SET: the key holds nothing, and the
     * answer is what was expected. */
    dl_blob *value;
    dl_blob **values; /* MULTI_GET: after dl_table_hold() */
} dl_table_reply;

/* Executes any request but BARRIER and those of a connection, as far as it can be done at
 * once; takes over request->blob.  The values of a MULTI_GET and the names of a LIST_KEYS
 * are left in the table for the owner to read (dl_table_get(), dl_table_list()).
 *
 * When a request that may wait has to, the status comes without a text: DL_NOT_FOUND
 * (GET, MULTI_GET, WAIT: a key is absent) or DL_QUEUE_EMPTY. */
dl_status dl_table_execute(dl_table *table, const dl_store_request *request,
                           dl_table_reply *reply);

/* After a success and before the next change: takes references to all that is borrowed and
 * to the values of a MULTI_GET, so that the owner can give back its lock before it copies
 * them.  The names of a LIST_KEYS are copied to `reply` at once. */
dl_status dl_table_hold(const dl_table *table, const dl_store_request *request,
                        dl_table_reply *held, dl_store_reply *reply);

/* Copies what is held to the caller's reply and releases it. */
dl_status dl_table_give(const dl_table_reply *held, const dl_store_request *request,
                        dl_store_reply *reply);

#endif
