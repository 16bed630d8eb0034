/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Writes memory that other ranks read, with the kind of stores that is faster there.  A
 * plain store first takes the cache line from the core that read it last.  If that has
 * dropped it, and the cores share a cache, this is quick, and the reader then finds the
 * data in that cache.  Otherwise it takes up to ten times as long as a non-temporal
 * store, which sends the line to memory without fetching it.
 *
 * Which case it is depends on the cores on which the ranks run and on what they do
 * meanwhile, so a writer times samples of its own plain stores.  It needs no
 * agreement with the readers: the bytes are the same, and are visible to readers that
 * see what is published afterwards. */
#ifndef DISTLITE_PG_CPU_SHM_SLOT_WRITER_H
#define DISTLITE_PG_CPU_SHM_SLOT_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* Smaller writes use plain stores and are not timed. */
#define DL_SLOT_WRITER_LEAST ((size_t)2048)

/* The state of one writer, for memory with the same readers.  Zeroed memory is valid;
 * used by one thread at a time. */
typedef struct dl_slot_writer {
    bool is_streaming;   /* uses non-temporal stores */
    int contrary;        /* consecutive samples in favour of the other kind */
    size_t until_sample; /* bytes to be written before the next sample */
} dl_slot_writer;

/* Copies `size` bytes of `source`, which do not overlap `target`. */
void dl_slot_write(dl_slot_writer *writer, void *target, const void *source,
                   size_t size);

/* As dl_strided_gather_part(). */
void dl_slot_gather(dl_slot_writer *writer, void *target, const dl_tensor *tensor,
                    size_t offset, size_t size);

/* Takes a sample into account: plain stores of `size` bytes took `nanoseconds`.  Called
 * by dl_slot_write(); declared for tests. */
void dl_slot_writer_sample(dl_slot_writer *writer, size_t size, int64_t nanoseconds);

#endif
