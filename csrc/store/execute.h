/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The executor: applies requests to a table.  HashStore, the TCP server and the reading
 * half of FileStore share it; they differ in locking, in how a caller waits and in
 * where a reply goes.  It never waits and takes no lock: the owner of the table
 * provides exclusion. */
#ifndef DISTLITE_STORE_EXECUTE_H
#define DISTLITE_STORE_EXECUTE_H

#include "store/request.h"
#include "store/table.h"

typedef struct dl_table_reply {
    /* As in dl_store_reply; for QUEUE_POP the length before the pop.  With DL_NOT_FOUND
     * the index of the first absent key. */
    int64_t number;
    /* GET, COMPARE_SET: borrowed until the next change of the table.  QUEUE_POP: a
     * reference that the caller owns.  NULL for COMPARE_SET: the key has no value, and
     * the reply is the expected value. */
    dl_blob *value;
    dl_blob **values; /* MULTI_GET: after dl_table_hold() */
} dl_table_reply;

/* Executes any request except BARRIER and those of a connection, as far as possible
 * without waiting; takes over request->blob.  The values of a MULTI_GET, the names of a
 * LIST_KEYS and the counts of a STATS are left in the table, where the owner reads them
 * (dl_table_get(), dl_table_put_names(), dl_table_put_facts()).
 *
 * If a request has to wait, the status has no text: DL_NOT_FOUND (GET, MULTI_GET, WAIT:
 * a key is absent) or DL_QUEUE_EMPTY. */
dl_status dl_table_execute(dl_table *table, const dl_store_request *request,
                           dl_table_reply *reply);

/* Takes references to everything that is borrowed and to the values of a MULTI_GET, so
 * that the owner can release its lock before it copies them.  The names of a LIST_KEYS
 * and the counts of a STATS are copied to `reply` at once.  Called after a successful
 * request, before the next change. */
dl_status dl_table_hold(const dl_table *table, const dl_store_request *request,
                        dl_table_reply *held, dl_store_reply *reply);

/* Copies what dl_table_hold() has taken to the caller's reply and drops the references.
 * Needs no lock. */
dl_status dl_table_give(const dl_table_reply *held, const dl_store_request *request,
                        dl_store_reply *reply);

/* Appends the counts of the table to a reply to STATS. */
void dl_table_put_facts(const dl_table *table, dl_buffer *text);

#endif
