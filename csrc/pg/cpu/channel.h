/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The seam between the engine of messages and what carries them to one other rank and
 * back: rings in shared memory (p2p/ring_channel.h), or a link between hosts
 * (p2p/link_channel.h).  Frames arrive in the order in which they were published, in one
 * piece.  Nothing waits. */
#ifndef DISTLITE_PG_CPU_CHANNEL_H
#define DISTLITE_PG_CPU_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The head of a frame; the payload follows. */
typedef struct dl_frame {
    uint64_t id;
    int64_t tag;
    uint64_t total;
    uint32_t code; /* of an opaque dtype */
    uint16_t size; /* of the payload */
    uint8_t kind;  /* not 0 */
    uint8_t dtype;
} dl_frame;

/* One that came, in place until released. */
typedef struct dl_received {
    const dl_frame *frame;
    const uint8_t *contents;
} dl_received;

typedef struct dl_channel dl_channel;

typedef struct dl_channel_ops {
    /* Where the payload of the next frame goes; NULL: there is no room yet. */
    uint8_t *(*reserve)(dl_channel *, size_t size);
    /* The frame whose payload was reserved last. */
    void (*publish)(dl_channel *, const dl_frame *);
    /* The next frame; false: none has come. */
    bool (*peek)(dl_channel *, dl_received *);
    void (*release)(dl_channel *);
} dl_channel_ops;

/* Embedded first in every kind. */
struct dl_channel {
    const dl_channel_ops *ops;
};

#endif
