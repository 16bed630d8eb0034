/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Layouts of the store's requests and replies: the only file that knows them.  Plain
 * functions over bytes, for client and server alike; docs/wire.md is the table.
 *
 * The protocol is torch's.  A server of ours also understands an opcode with
 * DL_WIRE_CHECKED set: the same request, whose reply begins with a status byte: DL_OK and
 * then the plain reply (nothing, for requests that have none), or a dl_status and a text.
 * A client learns that it may use these by asking, with CHECK, for DL_WIRE_HELLO, a key
 * that no client can store. */
#ifndef DISTLITE_STORE_TCP_WIRE_H
#define DISTLITE_STORE_TCP_WIRE_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/reader.h"

typedef enum dl_opcode {
    DL_OP_VALIDATE = 0,
    DL_OP_SET = 1,
    DL_OP_COMPARE_SET = 2,
    DL_OP_GET = 3, /* never waits; checked and absent: DL_NOT_FOUND */
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
    DL_OP_COUNT = 19,
} dl_opcode;

#define DL_WIRE_CHECKED 0x80
#define DL_WIRE_MAGIC 0x3C85F7CEu
#define DL_WIRE_HELLO "distlite/1"

#define DL_WIRE_KEY_LIMIT 8192u
#define DL_WIRE_VALUE_LIMIT (8u << 20)
#define DL_WIRE_KEYS_LIMIT 131072u

#define DL_WIRE_READY 0     /* CHECK: all present; WAIT, BARRIER: over */
#define DL_WIRE_NOT_READY 1 /* CHECK: at least one is absent */
#define DL_WIRE_CANCELLED 1 /* CANCEL_WAIT, always */

/* What the fields of a request are used for is in wire.c's table of layouts. */
typedef struct dl_request {
    dl_opcode op;
    bool is_checked;
    dl_bytes key;
    dl_bytes expected; /* COMPARE_SET */
    dl_bytes value;    /* SET, COMPARE_SET (desired), APPEND, QUEUE_PUSH */
    int64_t number;    /* ADD delta, BARRIER world size, PING nonce, VALIDATE magic */
    size_t count;      /* multi-key requests */
    const dl_bytes *keys;   /* to encode from */
    const dl_bytes *values; /* MULTI_SET: to encode from */
    dl_reader items;        /* decoded: for dl_wire_take_item() */
    struct dl_blob *blob;   /* the server's, for a SET's value that is not in `value` */
} dl_request;

/* Appends the request.  `key_prefix` goes before every key (the client's "/"). */
void dl_wire_put_request(dl_buffer *out, const dl_request *request,
                         dl_bytes key_prefix);

/* The same, but stops short of the last `value`, which the caller sends from its own
 * memory right after: large values are not copied.  SET, APPEND, QUEUE_PUSH. */
void dl_wire_put_request_head(dl_buffer *out, const dl_request *request,
                              dl_bytes key_prefix);

/* How far a request has been understood, so that every byte is looked at once however
 * it arrives.  Zeroed: at a request's first byte. */
typedef struct dl_wire_cursor {
    size_t position; /* of the field under way, from the request's first byte */
    size_t needed;   /* fewer bytes than this do not get any further */
    size_t items;    /* where the first of several keys is */
    uint32_t count;  /* how many keys are announced */
    uint32_t left;   /* keys and values not taken yet */
    uint8_t field;   /* its index in the layout */
} dl_wire_cursor;

/* `bytes` starts with the request that `cursor` is about, and has grown since the last
 * call.  1: taken, `cursor->position` is its size and its fields point into `bytes`.
 * 0: not all here yet.  -1: can never be one; dl_last_error() says why, and
 * request->op and is_checked are set. */
int dl_wire_take_request(dl_wire_cursor *cursor, dl_bytes bytes, dl_request *request);

/* When `bytes` is a SET of which the key and the value's size are here: fills `request`
 * but for `value`, and tells where the value begins and its size. */
bool dl_wire_take_head(dl_bytes bytes, dl_request *request, size_t *head_size,
                       size_t *value_size);

/* The next of a decoded request's `count` keys, or for MULTI_SET key and value in turns. */
dl_bytes dl_wire_take_item(dl_reader *items);

/* The reply to a checked request that failed with the thread's last error. */
void dl_wire_put_error(dl_buffer *out);

/* "SET", ...: for logs. */
const char *dl_wire_op_name(dl_opcode op);

#endif
