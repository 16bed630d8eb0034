/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Frames from one rank to another through shared memory: a ring of bytes with one
 * producer and one consumer.  A frame lies in one piece, so that its payload can be
 * gathered into the ring and scattered out of it without a copy between.  Knows nothing
 * of what frames mean, and of who sleeps only that a producer may want room. */
#ifndef DISTLITE_PG_CPU_P2P_RING_H
#define DISTLITE_PG_CPU_P2P_RING_H

#include "pg/cpu/channel.h"
#include "pg/cpu/shm/wait.h"

/* Shared; zeroed memory is an empty ring.  Positions grow for ever. */
typedef struct dl_ring_words {
    _Alignas(DL_LINE) dl_word tail; /* the producer's */
    _Alignas(DL_LINE) dl_word head; /* the consumer's */
    _Atomic uint32_t wants_room;    /* the producer found none */
} dl_ring_words;

/* One side's handle. */
typedef struct dl_ring {
    dl_ring_words *words;
    uint8_t *data;
    size_t capacity;
    uint64_t head; /* as last seen, or written */
    uint64_t tail;
} dl_ring;

/* `capacity` is a multiple of DL_LINE. */
size_t dl_ring_memory(size_t capacity);
void dl_ring_open(dl_ring *ring, void *memory, size_t capacity);

/* For the producer: where the payload of the next frame goes, or NULL while there is no
 * room; then the consumer's release tells of it.  `size` is at most a quarter of the
 * capacity. */
uint8_t *dl_ring_reserve(dl_ring *ring, size_t size);

/* The frame whose payload was reserved last. */
void dl_ring_publish(dl_ring *ring, const dl_frame *frame);

/* For the consumer: whether there is a frame, without a look at it. */
static inline bool
dl_ring_has_news(const dl_ring *ring)
{
    return atomic_load_explicit(&ring->words->tail, memory_order_acquire) != ring->head;
}

/* The next frame, in place until released, or NULL. */
const dl_frame *dl_ring_peek(dl_ring *ring);

static inline const uint8_t *
dl_ring_payload(const dl_frame *frame)
{
    return (const uint8_t *)(frame + 1);
}

/* True: the producer waits for room and wants to be woken. */
bool dl_ring_release(dl_ring *ring);

#endif
