/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests to a store and replies, as values.  Every kind of store executes a request
 * and fills in a reply; the wire codec encodes the same struct, and the server passes
 * decoded requests to the executor of the table (store/execute.h).
 *
 * The table in request.c has one row per request.  To add a request, add a row there,
 * its effect on the table in execute.c, its method in python/stores/store_methods.c,
 * and an inline function in store.h if C code calls it; docs/architecture.md lists all
 * files. */
#ifndef DISTLITE_STORE_REQUEST_H
#define DISTLITE_STORE_REQUEST_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/reader.h"
#include "base/status.h"

/* The numbers are the opcodes of torch's protocol; STATS is ours, and exists
 * on the wire only as a checked request.  VALIDATE, CANCEL_WAIT and PING are part
 * of managing a connection: callers of a store do not make them. */
typedef enum dl_opcode {
    DL_OP_VALIDATE = 0,
    DL_OP_SET = 1,
    DL_OP_COMPARE_SET = 2,
    DL_OP_GET = 3,
    DL_OP_ADD = 4,
    DL_OP_CHECK = 5,
    DL_OP_WAIT = 6,
    DL_OP_NUM_KEYS = 7,
    DL_OP_DELETE_KEY = 8,
    DL_OP_APPEND = 9,
    DL_OP_MULTI_GET = 10,
    DL_OP_MULTI_SET = 11,
    DL_OP_CANCEL_WAIT = 12,
    DL_OP_PING = 13,
    DL_OP_QUEUE_PUSH = 14,
    DL_OP_QUEUE_POP = 15,
    DL_OP_QUEUE_LEN = 16,
    DL_OP_LIST_KEYS = 17,
    DL_OP_BARRIER = 18,
    DL_OP_STATS = 19,
    DL_OP_COUNT = 20,
    DL_OP_FIRST_OWN = DL_OP_STATS,
} dl_opcode;

typedef struct dl_store_request {
    dl_opcode op;
    bool is_blocking; /* QUEUE_POP: waits while the queue is empty; not on the wire */
    bool is_checked;  /* on the wire: the reply begins with a status */
    dl_bytes key;
    dl_bytes expected; /* COMPARE_SET */
    dl_bytes value;    /* SET, COMPARE_SET (desired), APPEND, QUEUE_PUSH */
    int64_t number;    /* ADD delta, BARRIER world size, PING nonce, VALIDATE magic */
    size_t count;      /* of `keys` and `values`, or of those in `items` */
    const dl_bytes *keys;
    const dl_bytes *values; /* MULTI_SET */
    dl_reader items;        /* decoded from the wire, instead of `keys` and `values` */
    struct dl_blob *blob;   /* SET: instead of `value`; the executor takes it over */
} dl_store_request;

/* Written only if the request succeeds, except `values`, which may be
 * filled in part. */
typedef struct dl_store_reply {
    /* The number that the reply consists of; 0 or 1 for CHECK and DELETE_KEY, and the
     * number of names for LIST_KEYS. */
    int64_t number;
    /* Provided by the caller: one empty buffer; for MULTI_GET one for each key.
     * LIST_KEYS writes the names there in the format of dl_put_bytes(). */
    dl_buffer *values;
} dl_store_reply;

/* The fields that may follow an opcode on the wire: the members of a request in use. */
typedef enum dl_request_field {
    DL_FIELD_END = 0, /* ends a list of fields, as zeroed entries do */
    DL_FIELD_U32,
    DL_FIELD_I64,
    DL_FIELD_KEY,
    DL_FIELD_EXPECTED,
    DL_FIELD_VALUE,
    DL_FIELD_COUNT,
    DL_FIELD_KEYS,  /* `count` keys */
    DL_FIELD_PAIRS, /* `count` pairs of a key and a value */
} dl_request_field;

/* What a reply consists of, on the wire and as the result of a method. */
typedef enum dl_reply_kind {
    DL_REPLY_NONE,
    DL_REPLY_ALL_EXIST, /* u8, 0 if they do; a truth value */
    DL_REPLY_EXISTED,   /* i64, 0 or 1; a truth value */
    DL_REPLY_NUMBER,    /* i64 */
    DL_REPLY_NONCE,     /* u32 */
    DL_REPLY_VALUE,     /* blob */
    DL_REPLY_VALUES,    /* `count` blobs */
    DL_REPLY_ITEM,      /* i64, the length before the pop; unless 0, a blob */
    DL_REPLY_NAMES,     /* i64 and that many blobs */
    DL_REPLY_OVER,      /* u8 0, when the wait has ended; no result */
    DL_REPLY_CANCELLED, /* u8 1 */
    DL_REPLY_STATS,     /* blob, see dl_reply_put_fact(); a dict */
} dl_reply_kind;

#define DL_REQUEST_FIELDS_MAX 5 /* the longest list of fields and its end */

typedef struct dl_request_kind {
    const char *name; /* of the method; NULL for a request of the connection itself */
    const char *wire_name; /* in docs/wire.md, logs and a server's errors */
    dl_request_field fields[DL_REQUEST_FIELDS_MAX];
    dl_reply_kind reply;
    bool may_wait;     /* for keys that do not exist, until the deadline */
    bool is_change;    /* executing it twice may differ from executing it once */
    bool needs_queues; /* not supported by torch's legacy server and FileStore */
} dl_request_kind;

extern const dl_request_kind dl_request_kinds[DL_OP_COUNT];

/* Sets of requests are masks of these bits. */
#define DL_REQUEST(op) (UINT32_C(1) << (op))

/* Returns the keys of a request that was not decoded from the wire;
 * `*count` may be 0. */
const dl_bytes *dl_request_keys(const dl_store_request *request, size_t *count);

/* Takes the next key of a decoded request; for MULTI_SET keys and values alternate. */
dl_bytes dl_request_take_item(dl_reader *items);

/* An iterator over the keys of any request, and the values of a MULTI_SET, in order. */
typedef struct dl_key_walk {
    const dl_store_request *request;
    dl_reader items;
    size_t next;
    size_t count;
} dl_key_walk;

dl_key_walk dl_key_walk_begin(const dl_store_request *request);

/* Moves on to the next key; returns false if there are no more.  `value` is NULL for a
 * request without pairs. */
bool dl_key_walk_next(dl_key_walk *walk, dl_bytes *key, dl_bytes *value);

/* Removes the names of a LIST_KEYS reply that do not begin with `prefix`, and strips it
 * from the others. */
dl_status dl_reply_keep_names(dl_store_reply *reply, dl_bytes prefix);

/* The reply to STATS is text, with a line for each fact: "keys 12\n".  A name with a
 * slash, "refusals/keys", belongs to a group of facts.  A value is a decimal number or a
 * word.  Readers ignore names that they do not know, so that servers can tell more
 * without a new version of the protocol. */

/* Appends one line; `name` and `word` contain no blanks and no line feeds. */
void dl_reply_put_fact(dl_buffer *text, const char *name, uint64_t value);
void dl_reply_put_word(dl_buffer *text, const char *name, const char *word);

/* Takes the next line.  Returns 1, 0 at the end, and -1 if the text is malformed. */
int dl_reply_take_fact(dl_bytes *text, dl_bytes *name, dl_bytes *value);

#endif
