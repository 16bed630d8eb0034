/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The bytes between a relay (relay.h) and the server.  The relay makes one connection as
 * clients do, except that its hello names no slot (wire.h).  From the reply of a server of
 * ours on, both sides send frames; docs/wire.md describes them.  Pure functions over
 * bytes. */
#ifndef DISTLITE_STORE_TCP_RELAY_FRAME_H
#define DISTLITE_STORE_TCP_RELAY_FRAME_H

#include "store/tcp/wire.h"

/* A channel carries the bytes of one client, which are those of a connection of its
 * own.  The relay has at most one DATA without ACK in each channel, and the server sends
 * no more DATA than the relay has given credit for, so that both hold bounded memory for
 * a client that sends or reads nothing, and no client stops the others. */
typedef enum dl_relay_kind {
    DL_RELAY_OPEN = 1,  /* relay: a new channel, with DL_RELAY_CREDIT bytes of credit */
    DL_RELAY_DATA = 2,  /* both: `size` bytes follow */
    DL_RELAY_ACK = 3,   /* server: the DATA is served, or waits for keys; the size is 1
                            if no part of a request is left, otherwise 0 */
    DL_RELAY_GRANT = 4, /* relay: `size` more bytes of credit */
    DL_RELAY_CLOSE = 5, /* both: the last frame of the channel */
} dl_relay_kind;

#define DL_RELAY_CREDIT (256u << 10)
#define DL_RELAY_DATA_LIMIT (256u << 10)
#define DL_RELAY_HEAD_SIZE 9

typedef struct dl_relay_head {
    uint32_t channel;
    uint8_t kind;
    uint32_t size;
} dl_relay_head;

void dl_relay_put_head(dl_buffer *out, dl_relay_kind kind, uint32_t channel,
                       uint32_t size);

/* Decodes DL_RELAY_HEAD_SIZE bytes.  DL_PROTOCOL: it is not the head of a frame. */
dl_status dl_relay_take_head(const uint8_t *bytes, dl_relay_head *head);

/* Collects the head of a frame from bytes that arrive in pieces. */
typedef struct dl_relay_reader {
    uint8_t held[DL_RELAY_HEAD_SIZE];
    uint8_t held_size;
    dl_relay_head head;
    uint32_t left; /* bytes of the DATA that have not been taken */
} dl_relay_reader;

/* Takes the next event from the front of `*bytes`: a head, or a piece of the DATA that
 * `reader->head` has announced.  Returns 1 for a head (`piece` is empty) or a piece, 0
 * when more bytes are needed, and -1 for a malformed head. */
int dl_relay_next(dl_relay_reader *reader, dl_bytes *bytes, dl_bytes *piece);

#endif
