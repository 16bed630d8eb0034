/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a message through shared memory has to do, and nothing else: a copy into a ring as
 * large as distlite's and one out of it, in parts, with one flag for each.  There are no
 * tags, deadlines, threads or sleepers.  messages_peer.py loads it as a shared library, and
 * calls it as it calls the other sides. */
#include <emmintrin.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LINE 64
#define RING ((size_t)2 << 20)
#define LEAST_PART ((size_t)8 << 10)
#define SLOTS (RING / LEAST_PART)

/* A rank that sends and receives is this far ahead of what has arrived at most. */
#define AHEAD ((size_t)128 << 10)

/* Polls after which the core is left to others: the other rank may be without one. */
#define POLLS 1000

/* As in tensor/copy.c. */
#define PREFETCHED 1024
#define LEAST_STREAMED ((size_t)2 << 10)

/* A target of this size is written past the caches, which do not hold the arrays. */
#define LEAST_UNCACHED ((size_t)6 << 20)

/* A message that is not larger is beside its flag. */
#define INLINE 56

typedef struct slot {
    _Alignas(LINE) uint8_t contents[INLINE];
    _Atomic uint64_t number; /* of the part, from 1 */
} slot;

/* In shared memory, which is zeroed at first. */
typedef struct ring {
    _Alignas(2 * LINE) _Atomic uint64_t taken; /* parts */
    _Alignas(2 * LINE) slot slots[SLOTS];
    _Alignas(4096) uint8_t data[RING];
} ring;

/* One rank's side. */
typedef struct loop {
    ring *out, *in;
    uint64_t put, taken; /* parts */
    size_t part;         /* bytes; at least LEAST_PART */
    bool is_streaming;   /* stores into the ring go past the caches */
} loop;

size_t
loop_memory(void)
{
    return 2 * sizeof(ring);
}

size_t
loop_size(void)
{
    return sizeof(loop);
}

void
loop_open(loop *self, uint8_t *memory, int rank, size_t part, bool is_streaming)
{
    ring *rings = (ring *)(void *)memory;

    *self = (loop){.out = &rings[rank],
                   .in = &rings[1 - rank],
                   .part = part,
                   .is_streaming = is_streaming};
}

static void
copy_streaming(uint8_t *target, const uint8_t *source, size_t size)
{
    size_t head = -(uintptr_t)target % LINE;
    size_t lines = head + (size - head) / LINE * LINE;

    memcpy(target, source, head);
    for (size_t at = head; at < lines; at += LINE) {
        const __m128i *from = (const __m128i *)(const void *)(source + at);
        __m128i *to = (__m128i *)(void *)(target + at);
        __m128i parts[4];
        _mm_prefetch((const char *)from + PREFETCHED, _MM_HINT_T0);
        for (int i = 0; i < 4; i++) {
            parts[i] = _mm_loadu_si128(from + i);
        }
        for (int i = 0; i < 4; i++) {
            _mm_stream_si128(to + i, parts[i]);
        }
    }
    _mm_sfence();
    memcpy(target + lines, source + lines, size - lines);
}

/* Returns the bytes of the next part, 0 if there is no room for it. */
static size_t
put_part(loop *self, const uint8_t *source, size_t left)
{
    size_t count = RING / self->part;
    size_t at = self->put % count;
    size_t size = left < self->part ? left : self->part;
    slot *next = &self->out->slots[at];

    if (self->put
        == atomic_load_explicit(&self->out->taken, memory_order_acquire) + count) {
        return 0;
    }
    if (size <= INLINE) {
        memcpy(next->contents, source, size);
    } else if (self->is_streaming && size >= LEAST_STREAMED) {
        copy_streaming(self->out->data + at * self->part, source, size);
    } else {
        memcpy(self->out->data + at * self->part, source, size);
    }
    atomic_store_explicit(&next->number, ++self->put, memory_order_release);
    return size;
}

/* Returns the bytes of the next part, 0 if it has not arrived. */
static size_t
take_part(loop *self, uint8_t *target, size_t left, bool is_uncached)
{
    size_t at = self->taken % (RING / self->part);
    size_t size = left < self->part ? left : self->part;
    slot *next = &self->in->slots[at];

    if (atomic_load_explicit(&next->number, memory_order_acquire) != self->taken + 1) {
        return 0;
    }
    const uint8_t *source =
        size <= INLINE ? next->contents : self->in->data + at * self->part;
    if (is_uncached) {
        copy_streaming(target, source, size);
    } else {
        memcpy(target, source, size);
    }
    atomic_store_explicit(&self->in->taken, ++self->taken, memory_order_release);
    return size;
}

/* Sends and receives at the same time; either size may be 0. */
void
loop_exchange(loop *self, uint8_t *target, size_t in_size, const uint8_t *source,
              size_t out_size)
{
    size_t sent = 0, got = 0;
    int idle = 0;

    while (sent < out_size || got < in_size) {
        size_t before = sent + got;
        if (sent < out_size && (got == in_size || sent < got + AHEAD)) {
            sent += put_part(self, source + sent, out_size - sent);
        }
        if (got < in_size) {
            got +=
                take_part(self, target + got, in_size - got, in_size >= LEAST_UNCACHED);
        }
        idle = sent + got > before ? 0 : idle + 1;
        if (idle > POLLS) {
            sched_yield();
        }
    }
}
