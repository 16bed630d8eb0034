/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec of a store's requests, whose fields are listed in store/request.c.  Pure
 * functions over bytes, for client and server alike; docs/wire.md describes the format.
 *
 * The protocol is torch's.  A server of ours also understands checked requests, whose
 * opcode has DL_WIRE_CHECKED set.  Their reply begins with a status byte: DL_OK,
 * followed by the plain reply (nothing for requests that have none), or another
 * dl_status, followed by its text.  A client finds out whether the server understands
 * them by a CHECK of DL_WIRE_HELLO, a key that no client can store. */
#ifndef DISTLITE_STORE_TCP_WIRE_H
#define DISTLITE_STORE_TCP_WIRE_H

#include "base/proof.h"
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

/* Appends the request.  `key_prefix` (the client's "/") is put before every key. */
void dl_wire_put_request(dl_buffer *out, const dl_store_request *request,
                         dl_bytes key_prefix);

/* Appends a SET, APPEND or QUEUE_PUSH without the bytes of its value, which the caller
 * sends from its own memory right after, so that a large value is not copied. */
void dl_wire_put_request_head(dl_buffer *out, const dl_store_request *request,
                              dl_bytes key_prefix);

/* How far a request has been decoded, so that every byte is examined once, however the
 * request is split.  Zeroed: at a request's first byte. */
typedef struct dl_wire_cursor {
    size_t position; /* offset of the current field from the request's first byte */
    size_t needed;   /* with fewer bytes than this decoding cannot go on */
    size_t items;    /* offset of the first of several keys */
    uint32_t count;  /* number of keys announced */
    uint32_t left;   /* number of keys and values not decoded yet */
    uint8_t field;   /* index of the current field in the request's layout */
} dl_wire_cursor;

/* Decodes the request at the start of `bytes`, which have grown since the last call
 * with this cursor.  Returns 1 when it is complete: its size is `cursor->position`, and
 * its fields point into `bytes`.  Returns 0 when more bytes are needed, and -1 when it
 * is invalid; dl_last_error() tells why, and request->op and is_checked are set. */
int dl_wire_take_request(dl_wire_cursor *cursor, dl_bytes bytes,
                         dl_store_request *request);

/* If `bytes` begin with a SET whose key and value size have arrived, fills `request`
 * but for `value`, stores the offset and the size of the value, and returns true. */
bool dl_wire_take_head(dl_bytes bytes, dl_store_request *request, size_t *head_size,
                       size_t *value_size);

/* Appends the reply to a checked request that failed with the thread's last error. */
void dl_wire_put_error(dl_buffer *out);

/* What client and server of a store with a token prove right behind VALIDATE. */
extern const dl_proof_terms dl_wire_proof;

/* Refuses, with the text of the thread's last error, a client whose message in place of
 * a proof begins with the byte `first`: as a checked request that failed, or, to a
 * client that begins with a plain request and expects the nonce of its PING, by this
 * number in place of the nonce, and a blob with the text.  A client's first PING carries
 * the number of its process, which is never this. */
#define DL_WIRE_PROOF_REQUIRED 0xFFFFFFFFu
void dl_wire_put_refusal(dl_buffer *out, uint8_t first);

/* Returns "SET" and the like, for logs. */
const char *dl_wire_op_name(dl_opcode op);

#endif
