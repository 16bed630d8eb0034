/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The interface between the engine of messages and a carrier of frames to and from one
 * other rank: rings in shared memory (p2p/ring.h), or a link between hosts
 * (p2p/link_channel.h).  Frames arrive complete, in the order in which they were
 * published.  No function blocks. */
#ifndef DISTLITE_PG_CPU_P2P_CHANNEL_H
#define DISTLITE_PG_CPU_P2P_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The head of a frame; the payload follows it. */
typedef struct dl_frame {
    uint64_t id;
    int64_t tag;
    uint64_t total;
    uint32_t code; /* of an opaque dtype */
    uint16_t size; /* of the payload */
    uint8_t kind;  /* not 0 */
    uint8_t dtype;
} dl_frame;

/* A frame that has arrived; valid until it is released. */
typedef struct dl_received {
    const dl_frame *frame;
    const uint8_t *contents;
} dl_received;

typedef struct dl_channel dl_channel;

typedef struct dl_channel_ops {
    /* Returns room for the payload of the next frame, or NULL if there is none yet. */
    uint8_t *(*reserve)(dl_channel *, size_t size);
    /* Sends the frame whose payload was reserved last; copies the head. */
    void (*publish)(dl_channel *, const dl_frame *);
    /* Gives the next frame; returns false if none has arrived. */
    bool (*peek)(dl_channel *, dl_received *);
    /* Frees the room of the frame that was given last. */
    void (*release)(dl_channel *);
} dl_channel_ops;

/* The first member of every kind of channel. */
struct dl_channel {
    const dl_channel_ops *ops;
};

#endif
