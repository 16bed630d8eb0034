/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Frames from one rank to another through shared memory, with one producer and one
 * consumer: a ring of cells, one cache line each, and a ring of bytes.  A cell has the
 * head of a frame and a payload of a few bytes, and says itself whether it is filled: a
 * small frame costs its reader one line that another core has written.  A larger
 * payload is contiguous in the ring of bytes, so that it can be gathered into it and
 * scattered out of it without a copy in between.  The ring does not interpret frames,
 * and the only sleeper that it knows of is a producer that waits for room.
 *
 * A channel to a rank of the same host is one ring in each direction, and the doorbell
 * at which the other rank sleeps. */
#ifndef DISTLITE_PG_CPU_P2P_RING_H
#define DISTLITE_PG_CPU_P2P_RING_H

#include "pg/cpu/p2p/channel.h"
#include "pg/cpu/shm/wait.h"

/* Slots are of this size, and larger payloads begin at multiples of it: a cache line. */
#define DL_RING_UNIT ((size_t)64)

/* The largest payload that a cell holds. */
#define DL_RING_INLINE ((size_t)28)

typedef struct dl_ring_cell {
    _Alignas(DL_RING_UNIT) dl_frame frame;
    /* The payload, or where a larger one begins in the ring of bytes. */
    uint8_t contents[DL_RING_INLINE];
    /* The number of the frame, counted from 1; written last.  A consumer waits for the
     * next number, so that a cell does not have to be cleared. */
    _Atomic uint32_t number;
} dl_ring_cell;

/* The shared part, which only the consumer writes, but for `wants_room`; zeroed memory is
 * an empty ring.  Positions only grow. */
typedef struct dl_ring_words {
    _Alignas(DL_LINE) dl_word taken; /* frames */
    dl_word freed;                   /* bytes of the ring of bytes */
    _Atomic uint32_t wants_room;     /* the producer found no room */
    /* On a line of their own, which the producer reads for each message and which seldom
     * changes. */
    _Alignas(DL_LINE) dl_word kept; /* bytes of messages that wait for a receive */
} dl_ring_words;

/* The handle of one side. */
typedef struct dl_ring {
    dl_ring_words *words;
    dl_ring_cell *cells;
    uint8_t *data;
    size_t cell_count;
    size_t capacity;
    uint64_t next; /* the producer's next frame to fill, the consumer's next to take */
    /* for the producer: */
    uint64_t place; /* where the next payload begins at the earliest */
    /* A payload beyond this begins at the start of the ring again if all has been read:
     * a small one, and a larger one. */
    uint64_t lap_end, long_lap_end;
    uint64_t large; /* bytes of messages with larger payloads, of each a lap at most */
    uint64_t taken; /* as last read */
    uint64_t freed; /* as last read, or known */
    size_t backed;  /* bytes that have pages, at least */
} dl_ring;

/* Bytes of shared memory for a ring whose ring of bytes has `capacity`, a power of two
 * of at least 4 KiB. */
size_t dl_ring_memory(size_t capacity);
void dl_ring_open(dl_ring *ring, void *memory, size_t capacity);

/* Gives the part that is used first its pages; for both sides. */
void dl_ring_populate(dl_ring *ring);

/* For the producer.  Returns where the payload of the next frame goes, or NULL while
 * there is no room; in that case a later dl_ring_release() returns true.  `size` is at
 * most a quarter of the capacity.  A consumer that keeps up finds the payloads at the
 * start of the ring again and again, where they stay in the caches and few pages are
 * used. */
uint8_t *dl_ring_reserve(dl_ring *ring, size_t size);

/* Publishes the frame whose payload was reserved last. */
void dl_ring_publish(dl_ring *ring, const dl_frame *frame);

static inline dl_ring_cell *
dl_ring_cell_at(const dl_ring *ring, uint64_t frame)
{
    return &ring->cells[frame & (ring->cell_count - 1)];
}

static inline bool
dl_ring_is_filled(const dl_ring *ring, uint64_t frame)
{
    return atomic_load_explicit(&dl_ring_cell_at(ring, frame)->number,
                                memory_order_acquire)
           == (uint32_t)frame + 1;
}

/* For the consumer.  Returns true if a frame is ready, without reading it. */
static inline bool
dl_ring_has_frame(const dl_ring *ring)
{
    return dl_ring_is_filled(ring, ring->next);
}

/* The same for a thread of the consumer that does not own the handle. */
static inline bool
dl_ring_seems_to_have_frame(const dl_ring *ring)
{
    return dl_ring_is_filled(
        ring, atomic_load_explicit(&ring->words->taken, memory_order_relaxed));
}

/* Returns the next frame, which stays in place until it is released, or NULL. */
const dl_frame *dl_ring_peek(const dl_ring *ring);

/* Returns the payload of the frame that was peeked at. */
const uint8_t *dl_ring_payload(const dl_ring *ring);

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
