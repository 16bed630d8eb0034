/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/cpu/shm/slot_writer.h"

#include "base/deadline.h"
#include "tensor/copy.h"
#include "tensor/strided.h"

/* Bytes of a sample at most. */
#define SAMPLE ((size_t)16 << 10)
#define SAMPLE_LEAST ((size_t)4096)

/* Bytes between two samples: while these confirm plain stores, and while they confirm
 * streaming; those that favour a change follow each other.  A sample of plain stores
 * takes a tenth longer than a copy of its bytes, and while the writer streams, about as
 * long as streaming ten times its bytes. */
#define PLAIN_INTERVAL ((size_t)128 << 10)
#define STREAMING_INTERVAL ((size_t)4 << 20)

/* Consecutive samples that change the kind of stores: a single one may have been
 * interrupted, or have met lines that are nowhere in a cache. */
#define SAMPLES_TO_CHANGE 3

/* A sample is slow if its plain stores are slower than this, in bytes per nanosecond.
 * Streaming stores go at 25 to 50, and their reader, which then works at the same time,
 * at 10 to 17.  Plain ones: within one shared cache 20 to 60 into lines that have left the
 * first-level cache of the core that read them, and 7 to 11 into others; between two
 * caches 2 to 5. */
#define BYTES_PER_NS 12

/* Bytes that are collected before they are written. */
#define TILE ((size_t)4096)

#define LINE 64

void
dl_slot_writer_sample(dl_slot_writer *self, size_t size, int64_t nanoseconds)
{
    bool is_slow = nanoseconds > (int64_t)size / BYTES_PER_NS;

    self->contrary = is_slow == self->is_streaming ? 0 : self->contrary + 1;
    if (self->contrary == SAMPLES_TO_CHANGE) {
        self->is_streaming = is_slow;
        self->contrary = 0;
    }
    if (self->contrary > 0) {
        self->until_sample = 0;
    } else {
        self->until_sample = self->is_streaming ? STREAMING_INTERVAL : PLAIN_INTERVAL;
    }
}

/* Reads the source first, so that only the stores are timed. */
static void
load_source(const uint8_t *source, size_t size)
{
    for (size_t at = 0; at < size; at += LINE) {
        (void)*(const volatile uint8_t *)(source + at);
    }
}

/* Writes a sample, and returns its size. */
static size_t
write_sample(dl_slot_writer *self, uint8_t *target, const uint8_t *source, size_t size)
{
    size_t part = size < SAMPLE ? size : SAMPLE;

    load_source(source, part);
    int64_t start = dl_now();
    dl_copy(target, source, part);
    dl_slot_writer_sample(self, part, dl_now() - start);
    return part;
}

void
dl_slot_write(dl_slot_writer *self, void *target, const void *source, size_t size)
{
    uint8_t *to = target;
    const uint8_t *from = source;
    size_t done = 0;

    if (size < DL_SLOT_WRITER_LEAST) {
        dl_copy(target, source, size);
        return;
    }
    if (self->until_sample <= size && size >= SAMPLE_LEAST) {
        done = write_sample(self, to, from, size);
    } else {
        self->until_sample -= size < self->until_sample ? size : self->until_sample;
    }
    if (self->is_streaming) {
        dl_copy_streaming(to + done, from + done, size - done);
    } else {
        dl_copy(to + done, from + done, size - done);
    }
}

/* Elements that are not contiguous are collected in a buffer, because non-temporal
 * stores have to fill whole lines. */
void
dl_slot_gather(dl_slot_writer *self, void *target, const dl_tensor *tensor,
               size_t offset, size_t size)
{
    uint8_t *to = target;
    uint8_t tile[TILE];

    if (size < DL_SLOT_WRITER_LEAST) {
        dl_strided_gather_part(target, tensor, offset, size);
        return;
    }
    if (tensor->is_contiguous) {
        dl_slot_write(self, target, (const uint8_t *)tensor->data + offset, size);
        return;
    }
    for (size_t at = 0; at < size; at += sizeof tile) {
        size_t part = size - at < sizeof tile ? size - at : sizeof tile;
        dl_strided_gather_part(tile, tensor, offset + at, part);
        dl_slot_write(self, to + at, tile, part);
    }
}
