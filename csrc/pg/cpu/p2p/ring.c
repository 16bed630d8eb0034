/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/ring.h"

#include <string.h>

/* Kind of the filler behind the last frame that fits before the end of the ring. */
#define SKIP 0

static size_t
span_of(size_t size)
{
    return dl_round_up(dl_ring_payload_offset(size) + size, DL_RING_UNIT);
}

static size_t
place_of(const dl_ring *ring, uint64_t position)
{
    return (size_t)(position % ring->capacity);
}

static dl_frame *
frame_at(const dl_ring *ring, uint64_t position)
{
    return (dl_frame *)(void *)(ring->data + place_of(ring, position));
}

size_t
dl_ring_memory(size_t capacity)
{
    return sizeof(dl_ring_words) + capacity;
}

void
dl_ring_open(dl_ring *ring, void *memory, size_t capacity)
{
    dl_ring_words *words = memory;

    *ring = (dl_ring){.words = words, .capacity = capacity};
    ring->data = (uint8_t *)(words + 1);
}

static bool
has_room(dl_ring *ring, size_t span)
{
    if (ring->tail + span - ring->head <= ring->capacity) {
        return true;
    }
    ring->head = atomic_load_explicit(&ring->words->head, memory_order_acquire);
    return ring->tail + span - ring->head <= ring->capacity;
}

/* A wake-up cannot be lost: the producer sets wants_room and then looks again, the
 * consumer makes room and then reads wants_room, all sequentially consistent. */
static bool
wait_room(dl_ring *ring, size_t span)
{
    if (has_room(ring, span)) {
        return true;
    }
    atomic_store(&ring->words->wants_room, 1);
    ring->head = atomic_load(&ring->words->head);
    return ring->tail + span - ring->head <= ring->capacity;
}

uint8_t *
dl_ring_reserve(dl_ring *ring, size_t size)
{
    size_t left = ring->capacity - place_of(ring, ring->tail);
    size_t span = span_of(size);
    size_t skipped = left < span ? left : 0;

    if (!wait_room(ring, skipped + span)) {
        return NULL;
    }
    if (skipped > 0) {
        *frame_at(ring, ring->tail) = (dl_frame){.kind = SKIP};
        ring->tail += skipped;
    }
    return (uint8_t *)frame_at(ring, ring->tail) + dl_ring_payload_offset(size);
}

void
dl_ring_publish(dl_ring *ring, const dl_frame *frame)
{
    *frame_at(ring, ring->tail) = *frame;
    ring->tail += span_of(frame->size);
    /* Sequentially consistent, because the publisher reads the number of sleepers
     * next. */
    atomic_store(&ring->words->tail, ring->tail);
}

const dl_frame *
dl_ring_peek(dl_ring *ring)
{
    if (ring->tail == ring->head) {
        ring->tail = atomic_load_explicit(&ring->words->tail, memory_order_acquire);
    }
    if (ring->tail == ring->head) {
        return NULL;
    }
    const dl_frame *frame = frame_at(ring, ring->head);
    if (frame->kind == SKIP) {
        ring->head += ring->capacity - place_of(ring, ring->head);
        frame = frame_at(ring, ring->head);
    }
    return frame;
}

bool
dl_ring_release(dl_ring *ring)
{
    ring->head += span_of(frame_at(ring, ring->head)->size);
    atomic_store(&ring->words->head, ring->head);
    return atomic_load(&ring->words->wants_room) != 0
           && atomic_exchange(&ring->words->wants_room, 0) != 0;
}

void
dl_doorbell_ring(dl_doorbell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    dl_futex_wake(&bell->rings);
}

static dl_ring_channel *
self_of(dl_channel *channel)
{
    return (dl_ring_channel *)(void *)channel;
}

static uint8_t *
reserve(dl_channel *channel, size_t size)
{
    return dl_ring_reserve(&self_of(channel)->out, size);
}

/* No system call is made for a peer that is awake. */
static void
publish(dl_channel *channel, const dl_frame *frame)
{
    dl_ring_channel *self = self_of(channel);

    dl_ring_publish(&self->out, frame);
    if (atomic_load(&self->bell->sleepers) != 0) {
        dl_doorbell_ring(self->bell);
    }
}

static bool
peek(dl_channel *channel, dl_received *received)
{
    const dl_frame *frame = dl_ring_peek(&self_of(channel)->in);

    if (frame == NULL) {
        return false;
    }
    *received = (dl_received){frame, dl_ring_payload(frame)};
    return true;
}

static void
release(dl_channel *channel)
{
    dl_ring_channel *self = self_of(channel);

    if (dl_ring_release(&self->in)) {
        dl_doorbell_ring(self->bell);
    }
}

static const dl_channel_ops ring_ops = {
    .reserve = reserve,
    .publish = publish,
    .peek = peek,
    .release = release,
};

void
dl_ring_channel_init(dl_ring_channel *channel, dl_doorbell *bell)
{
    channel->base.ops = &ring_ops;
    channel->bell = bell;
}
