/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec of a store's requests, whose fields are listed in store/request.c.  Plain
 * functions over bytes, for client and server alike; docs/wire.md is the table.
 *
 * The protocol is torch's.  A server of ours also understands an opcode with
 * DL_WIRE_CHECKED set: the same request, whose reply begins with a status byte: DL_OK and
 * then the plain reply (nothing, for requests that have none), or a dl_status and a text.
 * A client learns that it may use these by asking, with CHECK, for DL_WIRE_HELLO, a key
 * that no client can store. */
#ifndef DISTLITE_STORE_TCP_WIRE_H
#define DISTLITE_STORE_TCP_WIRE_H

#include "store/request.h"

#define DL_WIRE_CHECKED 0x80
#define DL_WIRE_MAGIC 0x3C85F7CEu
#define DL_WIRE_HELLO "distlite/1"

#define DL_WIRE_KEY_LIMIT 8192u
#define DL_WIRE_VALUE_LIMIT (8u << 20)
#define DL_WIRE_KEYS_LIMIT 131072u

#define DL_WIRE_READY 0     /* CHECK: all present; WAIT, BARRIER: over */
#define DL_WIRE_NOT_READY 1 /* CHECK: at least one is absent */
#define DL_WIRE_CANCELLED 1 /* CANCEL_WAIT, always */

/* Appends the request.  `key_prefix` goes before every key (the client's "/"). */
void dl_wire_put_request(dl_buffer *out, const dl_store_request *request,
                         dl_bytes key_prefix);

/* The same, but stops short of the last `value`, which the caller sends from its own
 * memory right after: large values are not copied.  SET, APPEND, QUEUE_PUSH. */
void dl_wire_put_request_head(dl_buffer *out, const dl_store_request *request,
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
int dl_wire_take_request(dl_wire_cursor *cursor, dl_bytes bytes,
                         dl_store_request *request);

/* When `bytes` is a SET of which the key and the value's size are here: fills `request`
 * but for `value`, and tells where the value begins and its size. */
bool dl_wire_take_head(dl_bytes bytes, dl_store_request *request, size_t *head_size,
                       size_t *value_size);

/* The reply to a checked request that failed with the thread's last error. */
void dl_wire_put_error(dl_buffer *out);

/* "SET", ...: for logs. */
const char *dl_wire_op_name(dl_opcode op);

#endif
