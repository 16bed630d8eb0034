/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/p2p/ring.h"

#include <string.h>

#include "pg/cpu/shm/segment.h"

/* The most bytes of pages that are asked for at once. */
#define MOST_BACKED ((size_t)128 << 10)

/* Slots of a ring: enough that a sender of small messages seldom waits, and no more
 * than fit into a core's first-level cache. */
#define MOST_SLOTS ((size_t)256)
#define BYTES_PER_SLOT ((size_t)256)

/* Bytes of payloads after which the producer begins again at the start, if all have
 * been read.  Small ones: enough that it seldom asks, and no more than stay in the
 * first-level caches of both sides.  Larger ones: little to give pages to at first, and
 * later the whole ring: lines that have left the second-level cache of the reader's core
 * are written again in half the time.  Before so many bytes, of each message those of a
 * lap at most, that saves less than the pages cost; and laps of a length in between stay
 * in that cache. */
#define LAP ((size_t)8 << 10)
#define LARGEST_OF_LAP ((size_t)4 << 10)
#define FIRST_LONG_LAP ((size_t)64 << 10)
#define BYTES_OF_FIRST_LAPS ((uint64_t)16 << 20)

/* About ten microseconds, in which the largest payload is read. */
#define FREED_POLLS 20000

_Static_assert(sizeof(dl_ring_cell) == DL_RING_UNIT, "a cell is a cache line");

static size_t
cells_for(size_t capacity)
{
    size_t count = capacity / BYTES_PER_SLOT;

    return count < MOST_SLOTS ? count : MOST_SLOTS;
}

size_t
dl_ring_memory(size_t capacity)
{
    return sizeof(dl_ring_words)
           + dl_round_up(cells_for(capacity) * sizeof(dl_ring_cell), DL_LINE)
           + capacity;
}

void
dl_ring_open(dl_ring *ring, void *memory, size_t capacity)
{
    dl_ring_words *words = memory;
    size_t cells = cells_for(capacity);

    *ring = (dl_ring){.words = words,
                      .cells = (dl_ring_cell *)(void *)(words + 1),
                      .cell_count = cells,
                      .capacity = capacity};
    ring->data =
        (uint8_t *)(words + 1) + dl_round_up(cells * sizeof(dl_ring_cell), DL_LINE);
}

/* Returns the bytes that a payload takes in the ring of bytes. */
static size_t
span_of(size_t size)
{
    return size <= DL_RING_INLINE ? 0 : dl_round_up(size, DL_RING_UNIT);
}

static size_t
offset_of(const dl_ring *ring, uint64_t place)
{
    return (size_t)place & (ring->capacity - 1);
}

/* Reads what the consumer has freed.  Until that has read the first payload of a lap,
 * it is less than is known. */
static void
read_freed(dl_ring *ring)
{
    uint64_t freed = atomic_load(&ring->words->freed);

    ring->freed = freed > ring->freed ? freed : ring->freed;
}

/* Begins a lap at the start of the ring if the consumer has freed all of this one, and
 * otherwise asks again a few small payloads later.  New pages cost more than to wait a
 * moment for a consumer that is reading the last payload. */
static void
begin_lap(dl_ring *ring, size_t span)
{
    bool needs_pages = offset_of(ring, ring->place) + span > ring->backed;

    read_freed(ring);
    for (int i = 0; i < FREED_POLLS && needs_pages && ring->freed < ring->place; i++) {
        read_freed(ring);
    }
    if (ring->freed < ring->place) {
        ring->lap_end = ring->place + LAP / 4;
        return;
    }
    ring->place = dl_round_up(ring->place, ring->capacity);
    ring->freed = ring->place;
    ring->lap_end = ring->place + LAP;
    ring->long_lap_end =
        ring->place
        + (ring->large < BYTES_OF_FIRST_LAPS ? FIRST_LONG_LAP : ring->capacity);
}

/* Returns the next place where `span` bytes are contiguous. */
static uint64_t
place_for(const dl_ring *ring, size_t span)
{
    size_t left = ring->capacity - offset_of(ring, ring->place);

    return left < span ? ring->place + left : ring->place;
}

static bool
fits_ring(const dl_ring *ring, uint64_t end)
{
    return ring->next + 1 - ring->taken <= ring->cell_count
           && end - ring->freed <= ring->capacity;
}

static bool
has_room(dl_ring *ring, uint64_t end)
{
    if (fits_ring(ring, end)) {
        return true;
    }
    read_freed(ring);
    ring->taken = atomic_load(&ring->words->taken);
    return fits_ring(ring, end);
}

/* A wake-up cannot be lost: the producer sets wants_room and then checks again, the
 * consumer makes room and then reads wants_room, all sequentially consistent. */
static bool
wait_room(dl_ring *ring, uint64_t end)
{
    if (has_room(ring, end)) {
        return true;
    }
    atomic_store(&ring->words->wants_room, 1);
    return has_room(ring, end);
}

/* Gives the ring of bytes pages up to `end` and beyond, as many as it has so far, the
 * first time around. */
static void
populate_pages(dl_ring *ring, size_t end)
{
    size_t more = dl_min_size(ring->backed < LAP ? LAP : ring->backed, MOST_BACKED);
    size_t to = ring->backed + more > end ? ring->backed + more : end;

    to = dl_min_size(to, ring->capacity);
    dl_segment_populate(ring->data + ring->backed, to - ring->backed);
    ring->backed = to;
}

void
dl_ring_populate(dl_ring *ring)
{
    size_t before = (size_t)(ring->data - (uint8_t *)ring->words);

    ring->backed = dl_min_size(FIRST_LONG_LAP, ring->capacity);
    dl_segment_populate(ring->words, before + ring->backed);
}

uint8_t *
dl_ring_reserve(dl_ring *ring, size_t size)
{
    size_t span = span_of(size);
    uint64_t end = span > LARGEST_OF_LAP ? ring->long_lap_end : ring->lap_end;

    if (ring->place + span > end) {
        begin_lap(ring, span);
    }
    ring->place = place_for(ring, span);
    if (!wait_room(ring, ring->place + span)) {
        return NULL;
    }
    size_t offset = offset_of(ring, ring->place);
    if (offset + span > ring->backed) {
        populate_pages(ring, offset + span);
    }
    return span == 0 ? dl_ring_cell_at(ring, ring->next)->contents
                     : ring->data + offset;
}

void
dl_ring_publish(dl_ring *ring, const dl_frame *frame)
{
    dl_ring_cell *cell = dl_ring_cell_at(ring, ring->next);
    size_t span = span_of(frame->size);

    cell->frame = *frame;
    if (span > 0) {
        memcpy(cell->contents, &ring->place, sizeof ring->place);
        ring->place += span;
    }
    if (span > LARGEST_OF_LAP) {
        ring->large += dl_min_size(frame->total, FIRST_LONG_LAP);
    }
    /* Sequentially consistent, because the publisher reads the number of sleepers
     * next. */
    atomic_store(&cell->number, (uint32_t)ring->next + 1);
    ring->next++;
}

const dl_frame *
dl_ring_peek(const dl_ring *ring)
{
    return dl_ring_has_frame(ring) ? &dl_ring_cell_at(ring, ring->next)->frame : NULL;
}

static uint64_t
place_in(const dl_ring_cell *cell)
{
    uint64_t place;

    memcpy(&place, cell->contents, sizeof place);
    return place;
}

const uint8_t *
dl_ring_payload(const dl_ring *ring)
{
    const dl_ring_cell *cell = dl_ring_cell_at(ring, ring->next);

    return span_of(cell->frame.size) == 0
               ? cell->contents
               : ring->data + offset_of(ring, place_in(cell));
}

bool
dl_ring_release(dl_ring *ring)
{
    const dl_ring_cell *cell = dl_ring_cell_at(ring, ring->next);
    size_t span = span_of(cell->frame.size);

    if (span > 0) {
        atomic_store_explicit(&ring->words->freed, place_in(cell) + span,
                              memory_order_release);
    }
    ring->next++;
    atomic_store(&ring->words->taken, ring->next);
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
ring_channel_of(dl_channel *channel)
{
    return (dl_ring_channel *)(void *)channel;
}

static uint8_t *
reserve_payload(dl_channel *channel, size_t size)
{
    return dl_ring_reserve(&ring_channel_of(channel)->out, size);
}

/* No system call is made for a peer that is awake. */
static void
publish_frame(dl_channel *channel, const dl_frame *frame)
{
    dl_ring_channel *self = ring_channel_of(channel);

    dl_ring_publish(&self->out, frame);
    if (atomic_load(&self->bell->sleepers) != 0) {
        dl_doorbell_ring(self->bell);
    }
}

static bool
peek_frame(dl_channel *channel, dl_received *received)
{
    const dl_ring *in = &ring_channel_of(channel)->in;
    const dl_frame *frame = dl_ring_peek(in);

    if (frame == NULL) {
        return false;
    }
    *received = (dl_received){frame, dl_ring_payload(in)};
    return true;
}

static void
release_ring(dl_channel *channel)
{
    dl_ring_channel *self = ring_channel_of(channel);

    if (dl_ring_release(&self->in)) {
        dl_doorbell_ring(self->bell);
    }
}

static const dl_channel_ops ring_ops = {
    .reserve = reserve_payload,
    .publish = publish_frame,
    .peek = peek_frame,
    .release = release_ring,
};

void
dl_ring_channel_init(dl_ring_channel *channel, dl_doorbell *bell)
{
    channel->base.ops = &ring_ops;
    channel->bell = bell;
}
