/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The latest change and its reply for every slot (wire.h), which the server remembers
 * so that each change is executed once although a client repeats those whose reply was
 * lost.  A client repeats only the latest one, since it reads each reply before it
 * makes the next change.
 *
 * The memory is bounded.  A slot is forgotten when its client says that it leaves, some
 * time after its connection was lost, and earlier when there are too many.  A client
 * that reconnects later is told so, and reports that the outcome is unknown: nothing is
 * executed twice.
 *
 * Knows nothing of bytes on the wire.  Server thread only. */
#ifndef DISTLITE_STORE_TCP_REPLIES_H
#define DISTLITE_STORE_TCP_REPLIES_H

#include "base/blob.h"
#include "base/list.h"
#include "base/map.h"
#include "store/execute.h"
#include "store/tcp/wire.h"

struct dl_session;

typedef enum dl_outcome {
    DL_OUTCOME_NONE = 0,  /* it changed nothing, or failed: a repeat is executed */
    DL_OUTCOME_BEGUN,     /* a BARRIER that waits */
    DL_OUTCOME_DONE,      /* a repeat gets the reply that is remembered */
    DL_OUTCOME_FORGOTTEN, /* done, but its reply was too large to be kept any longer */
} dl_outcome;

typedef struct dl_reply_slot {
    dl_map_entry node;
    uint8_t id[DL_SLOT_ID_SIZE];
    struct dl_session *session; /* of its connection; NULL: that was lost */
    uint64_t next;              /* number of the connection's next change */
    uint64_t sequence;          /* of the latest change */
    dl_opcode op;               /* of that change, like the rest */
    dl_outcome outcome;
    int64_t number;      /* the reply, as in dl_table_reply */
    dl_blob *value;      /* QUEUE_POP: the item; a reference */
    dl_buffer name;      /* QUEUE_POP: the queue's, to which the item may be returned */
    bool is_undelivered; /* the connection was lost before the reply was sent */
    size_t size;         /* its share of the total */
    dl_list aging;       /* while it has no connection, or a large value: in the list */
    int64_t since;       /* the later of when it lost the one and got the other */
} dl_reply_slot;

typedef struct dl_replies {
    dl_map slots;
    dl_list aging;      /* slots to forget, or their values; the oldest first */
    dl_buffer *changes; /* gets records, as that of the table; NULL: none */
    size_t size;        /* bytes of all slots, and of the large values they hold */
    uint64_t limit;     /* of `size`; exceeded only by slots in use, without values */
    int64_t
        age; /* nanoseconds after which a lost slot, or a large value, is forgotten */
    uint64_t repeated; /* number of changes that were repeated and not executed again */
    uint64_t forgotten; /* number of slots and replies that were forgotten */
} dl_replies;

void dl_replies_init(dl_replies *replies);
void dl_replies_fini(dl_replies *replies);

/* Returns the slot that a client names in its hello, which is a new one unless
 * `*is_remembered`: a slot without a connection that lacks changes which its client has
 * made is forgotten first.  NULL: out of memory (DL_NO_MEMORY), or a sequence number that
 * otherwise does not follow the slot's (DL_PROTOCOL).  The caller sets `session`. */
dl_reply_slot *dl_replies_open(dl_replies *replies, dl_table *table,
                               const dl_slot *named, bool *is_remembered);

/* Returns whether a repetition of the slot's latest change is answered from the slot,
 * and not executed. */
static inline bool
dl_replies_has_reply(const dl_reply_slot *slot)
{
    return slot->outcome != DL_OUTCOME_NONE;
}

/* Begins the change with the next number, which replaces the one before. */
void dl_replies_begin(dl_replies *replies, dl_reply_slot *slot, uint64_t sequence,
                      const dl_store_request *request);

/* Remembers the reply to that change; takes a reference of its own to an item.  The value
 * in the reply to a COMPARE_SET is known from the request. */
void dl_replies_keep(dl_replies *replies, dl_table *table, dl_reply_slot *slot,
                     const dl_table_reply *reply);

/* Drops the reply's value, since the client has read it. */
void dl_replies_drop_value(dl_replies *replies, dl_reply_slot *slot);

/* Notes that the slot's connection was lost, with its reply only partly sent or not at
 * all if `is_undelivered`. */
void dl_replies_lose(dl_replies *replies, dl_table *table, dl_reply_slot *slot,
                     bool is_undelivered);

/* Forgets the slot, whose client leaves and has read all its replies. */
void dl_replies_forget(dl_replies *replies, dl_reply_slot *slot);

/* Records the state of the slot's latest change.  To be called whenever that has
 * changed, before the reply is sent.  An item in the reply is not recorded again: its
 * record is that of the latest POP.  Does not fail where that record has left room
 * (dl_change_reserve()). */
dl_status dl_replies_record(dl_replies *replies, const dl_reply_slot *slot);

/* Applies a record: makes the slot or replaces its state, as one whose connection was
 * lost, or forgets it.  `name` and `item` are those of the latest POP; `item` is NULL if
 * there is none.  DL_BACKEND: the record is malformed. */
dl_status dl_replies_apply(dl_replies *replies, dl_table *table,
                           const dl_change *change, dl_bytes name, dl_blob *item);

/* Appends a record of the slot; one that `is_whole` has all that is remembered. */
void dl_replies_put(dl_buffer *out, const dl_reply_slot *slot, bool is_whole);

/* Returns when dl_replies_wake() must be called next; INT64_MAX: never. */
int64_t dl_replies_next_wake(const dl_replies *replies);

/* Forgets slots and values that are too old.  An item that was popped for a client that
 * did not reconnect, and that was not sent completely, returns to the front of its queue:
 * that client cannot have received it.  May end waits. */
void dl_replies_wake(dl_replies *replies, dl_table *table, int64_t now);

#endif
