/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Frames from one rank to another through shared memory: a ring of bytes with one
 * producer and one consumer.  A frame is contiguous, so that its payload can be
 * gathered into the ring and scattered out of it without a copy in between.  The ring
 * does not know what frames mean; of sleepers it only knows that the producer may be
 * waiting for room.
 *
 * A channel to a rank of the same host is one ring in each direction, and the doorbell
 * at which the other rank sleeps. */
#ifndef DISTLITE_PG_CPU_P2P_RING_H
#define DISTLITE_PG_CPU_P2P_RING_H

#include "pg/cpu/p2p/channel.h"
#include "pg/cpu/shm/wait.h"

/* The shared part; zeroed memory is an empty ring.  Positions only grow. */
typedef struct dl_ring_words {
    _Alignas(DL_LINE) dl_word tail; /* written by the producer */
    _Alignas(DL_LINE) dl_word head; /* written by the consumer */
    _Atomic uint32_t wants_room;    /* the producer found no room */
} dl_ring_words;

/* The handle of one side. */
typedef struct dl_ring {
    dl_ring_words *words;
    uint8_t *data;
    size_t capacity;
    uint64_t head; /* as last read or written by this side */
    uint64_t tail;
} dl_ring;

/* Bytes of shared memory for a ring.  `capacity` is a multiple of DL_LINE. */
size_t dl_ring_memory(size_t capacity);
void dl_ring_open(dl_ring *ring, void *memory, size_t capacity);

/* For the producer.  Returns where the payload of the next frame goes, or NULL while
 * there is no room; in that case a later dl_ring_release() returns true.  `size` is at
 * most a quarter of the capacity. */
uint8_t *dl_ring_reserve(dl_ring *ring, size_t size);

/* Publishes the frame whose payload was reserved last. */
void dl_ring_publish(dl_ring *ring, const dl_frame *frame);

/* For the consumer.  Returns true if a frame is ready, without reading it. */
static inline bool
dl_ring_has_news(const dl_ring *ring)
{
    return atomic_load_explicit(&ring->words->tail, memory_order_acquire) != ring->head;
}

/* Returns the next frame, which stays in place until it is released, or NULL. */
const dl_frame *dl_ring_peek(dl_ring *ring);

/* Frames begin at multiples of this, a cache line. */
#define DL_RING_UNIT ((size_t)64)

/* Returns where the payload of a frame begins: behind the head if both fit into one
 * line, else at the next line, so that it can be written in whole lines. */
static inline size_t
dl_ring_payload_offset(size_t size)
{
    return sizeof(dl_frame) + size <= DL_RING_UNIT ? sizeof(dl_frame) : DL_RING_UNIT;
}

static inline const uint8_t *
dl_ring_payload(const dl_frame *frame)
{
    return (const uint8_t *)frame + dl_ring_payload_offset(frame->size);
}

/* Releases the frame that was peeked at.  Returns true if the producer waits for room
 * and has to be woken. */
bool dl_ring_release(dl_ring *ring);

/* What the waiting threads of one rank sleep on; in shared memory. */
typedef struct dl_doorbell {
    _Alignas(DL_LINE) _Atomic uint32_t rings;
    _Atomic uint32_t sleepers;
} dl_doorbell;

typedef struct dl_ring_channel {
    dl_channel base;
    dl_ring out;
    dl_ring in;
    dl_doorbell *bell; /* the other rank's */
} dl_ring_channel;

/* Initialises a channel whose two rings are already open. */
void dl_ring_channel_init(dl_ring_channel *channel, dl_doorbell *bell);

/* Wakes the threads that sleep at the bell. */
void dl_doorbell_ring(dl_doorbell *bell);

#endif
