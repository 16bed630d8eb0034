/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A change of a table as a record: what a journal keeps (store/tcp/journal.h).  The
 * records say what the contents have become and not what was asked for, so that they
 * can be applied in order without the requests that caused them. */
#ifndef DISTLITE_STORE_CHANGE_H
#define DISTLITE_STORE_CHANGE_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/reader.h"

/* The numbers are those in the file. */
typedef enum dl_change_kind {
    DL_CHANGE_SET = 1,
    DL_CHANGE_APPEND = 2,
    DL_CHANGE_DELETE = 3, /* the value of the key, if there is one */
    DL_CHANGE_PUSH = 4,
    DL_CHANGE_PUT_BACK = 5, /* an item, as the oldest one */
    DL_CHANGE_POP = 6,      /* the oldest item, if there is one */
    DL_CHANGE_EMPTY = 7,    /* the queue of the key, before its items in a snapshot */
    /* Not of the table, but of what a server remembers (store/tcp/replies.h); the key
     * is the id of a slot. */
    DL_CHANGE_REPLY = 8,
    DL_CHANGE_FORGET = 9,
    /* When the value of the key ends, until it is set again or deleted: the time since
     * 1970 in milliseconds (i64).  Follows the record of the value. */
    DL_CHANGE_END = 10,
    DL_CHANGE_LAST = DL_CHANGE_END,
} dl_change_kind;

typedef struct dl_change {
    dl_change_kind kind;
    dl_bytes key;
    dl_bytes value; /* empty for kinds without one */
} dl_change;

/* Bytes of a record besides those of its key and value. */
#define DL_CHANGE_OVERHEAD 17

/* Size of a DL_CHANGE_END besides its key. */
#define DL_CHANGE_END_SIZE (DL_CHANGE_OVERHEAD + sizeof(int64_t))

void dl_change_put(dl_buffer *out, dl_change_kind kind, dl_bytes key, dl_bytes value);

/* Puts a DL_CHANGE_END; `at` is on dl_now()'s clock.  The record has the time of the
 * wall clock, which goes on between two processes. */
void dl_change_put_end(dl_buffer *out, dl_bytes key, int64_t at);

/* Returns the time that a DL_CHANGE_END tells, on dl_now()'s clock and at least 1; -1
 * if it is malformed. */
int64_t dl_change_end(const dl_change *change);

/* Takes the next record, which points into the reader's bytes.  Returns 1, 0 at the
 * end, and -1 if the bytes are no record. */
int dl_change_take(dl_reader *reader, dl_change *change);

#endif
