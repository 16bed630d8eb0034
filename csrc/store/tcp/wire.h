/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The codec of a store's requests, whose fields are listed in store/request.c.  Pure
 * functions over bytes, for client and server alike; docs/wire.md describes the format.
 *
 * The protocol is torch's.  A server of ours also understands checked requests, whose
 * opcode has DL_WIRE_CHECKED set.  Their reply begins with a status byte: DL_OK,
 * followed by the plain reply (nothing for requests that have none), or another
 * dl_status, followed by its text.  A client finds out whether the server understands
 * them by its hello: a CHECK of one key that no client can store.  The key carries the
 * client's slot, and a server of ours answers with more than torch's does: its
 * identity, whether it remembers the slot, and its shortcut. */
#ifndef DISTLITE_STORE_TCP_WIRE_H
#define DISTLITE_STORE_TCP_WIRE_H

#include "base/proof.h"
#include "net/local.h"
#include "store/request.h"

#define DL_WIRE_CHECKED 0x80
#define DL_WIRE_MAGIC 0x3C85F7CEu
#define DL_WIRE_HELLO "distlite/3"

#define DL_WIRE_KEY_LIMIT 8192u
#define DL_WIRE_VALUE_LIMIT (8u << 20)
#define DL_WIRE_KEYS_LIMIT 131072u

#define DL_WIRE_READY 0     /* CHECK: all present; WAIT, BARRIER: over */
#define DL_WIRE_NOT_READY 1 /* CHECK: at least one is absent */
#define DL_WIRE_CANCELLED 1 /* CANCEL_WAIT, always */

/* The identity of a server, drawn at random when it starts, by which a client that lost
 * its connection recognises it. */
#define DL_IDENTITY_SIZE 16

/* Which server a client has joined. */
typedef struct dl_server_identity {
    bool is_known;    /* false: none yet, and any will do */
    bool is_distlite; /* false: torch's, which have no identity */
    uint8_t bytes[DL_IDENTITY_SIZE];
} dl_server_identity;

/* A slot numbers the requests of one client that change something
 * (dl_request_kind.is_change), of which one at a time is under way: a connection's, or
 * that of the connection which replaces a lost one.  The server executes each number
 * once, and repeats its reply to a client that repeats the request.  The id is drawn at
 * random by the client, so that nobody else can name it. */
#define DL_SLOT_ID_SIZE 16

typedef struct dl_slot {
    uint8_t id[DL_SLOT_ID_SIZE];
    /* Of the next change, from 1, or of the one under way.  0: there is no slot, since the
     * connection is a relay's (relay_frame.h). */
    uint64_t sequence;
} dl_slot;

/* Appends the hello of a client whose next change on the connection is that of
 * `slot`. */
void dl_wire_put_hello(dl_buffer *out, const dl_slot *slot);

/* Returns whether the decoded request is a hello, and fills in `slot`. */
bool dl_wire_take_hello(const dl_store_request *request, dl_slot *slot);

/* Whether servers have shortcuts, and clients take them: 0 or 1, the default. */
#define DL_SHORTCUT_VARIABLE "DISTLITE_STORE_UNIX"

/* The Unix socket at which a server of ours serves the clients of its host as well, and
 * the port at which it serves all: behind a proxy a client finds another one. */
typedef struct dl_shortcut {
    char name[DL_LOCAL_NAME_SIZE]; /* empty: there is none */
    uint16_t port;
} dl_shortcut;

/* What our server tells in its reply to a hello. */
typedef struct dl_wire_welcome {
    uint8_t identity[DL_IDENTITY_SIZE];
    bool is_remembered; /* it knew the slot */
    dl_shortcut shortcut;
} dl_wire_welcome;

/* Appends that reply: DL_WIRE_READY and DL_WIRE_WELCOME_SIZE bytes. */
#define DL_WIRE_WELCOME_SIZE (DL_IDENTITY_SIZE + 1 + 4 + DL_LOCAL_NAME_SIZE)
void dl_wire_put_welcome(dl_buffer *out, const dl_wire_welcome *welcome);

/* Decodes DL_WIRE_WELCOME_SIZE bytes.  What is no name of a socket of ours is no
 * shortcut. */
void dl_wire_take_welcome(const uint8_t *bytes, dl_wire_welcome *welcome);

/* A byte by which a client with a slot says that it has read the replies to all its
 * changes and closes the connection: the server forgets the slot.  No reply. */
#define DL_WIRE_LEAVE 0xC2

/* Appends the request.  `key_prefix` (the client's "/") is put before every key. */
void dl_wire_put_request(dl_buffer *out, const dl_store_request *request,
                         dl_bytes key_prefix);

/* The same without the bytes of the value, which is the last field of every request that
 * has one: the caller sends them from its own memory, so that a large one is not copied.
 * Returns whether the request has a value. */
bool dl_wire_put_request_head(dl_buffer *out, const dl_store_request *request,
                              dl_bytes key_prefix);

/* The progress in decoding a request, so that every byte is examined once, however the
 * request is split.  Zeroed memory is at the first byte of a request. */
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

/* The terms of the proof between client and server of a store with a token, which
 * follows VALIDATE. */
extern const dl_proof_terms dl_wire_proof;

/* Refuses, with the text of the thread's last error, a client whose message in place of
 * a proof begins with the byte `first`.  To a checked request the reply is its failure;
 * to a plain one, whose client expects the nonce of its PING, it is
 * DL_WIRE_PROOF_REQUIRED in place of the nonce, and a blob with the text.  A client's
 * first nonce is its process id, which never has this value. */
#define DL_WIRE_PROOF_REQUIRED 0xFFFFFFFFu
void dl_wire_put_refusal(dl_buffer *out, uint8_t first);

#endif
