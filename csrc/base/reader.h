/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Bounds-checked little-endian fields: "take" reads from a run of bytes, "put" appends
 * to a buffer.  A take returns whether it succeeded, and advances only then.  This is
 * the only byte-order code in the project; the codecs decide which fields follow
 * which. */
#ifndef DISTLITE_BASE_READER_H
#define DISTLITE_BASE_READER_H

#include "base/buffer.h"
#include "base/bytes.h"

typedef struct dl_reader {
    const uint8_t *next;
    const uint8_t *end;
} dl_reader;

static inline dl_reader
dl_reader_of(dl_bytes bytes)
{
    /* Adding to NULL is undefined, even 0. */
    return (dl_reader){bytes.data,
                       bytes.size == 0 ? bytes.data : bytes.data + bytes.size};
}

static inline size_t
dl_reader_left(const dl_reader *reader)
{
    return (size_t)(reader->end - reader->next);
}

bool dl_take_u8(dl_reader *reader, uint8_t *value);
bool dl_take_u32(dl_reader *reader, uint32_t *value);
bool dl_take_u64(dl_reader *reader, uint64_t *value);
bool dl_take_i64(dl_reader *reader, int64_t *value);

/* Takes a u64 size and that many bytes; `*value` points into the reader's bytes.
 * Returns 1 on success, 0 if not all of them are there yet, -1 if the size exceeds
 * `limit`, so that the peer is in error. */
int dl_take_bytes(dl_reader *reader, size_t limit, dl_bytes *value);

void dl_put_u8(dl_buffer *buffer, uint8_t value);
void dl_put_u32(dl_buffer *buffer, uint32_t value);
void dl_put_u64(dl_buffer *buffer, uint64_t value);
void dl_put_i64(dl_buffer *buffer, int64_t value);

/* Puts a u64 size, then the bytes. */
void dl_put_bytes(dl_buffer *buffer, dl_bytes value);

#endif
