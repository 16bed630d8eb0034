/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/reader.h"

/* Assembled by shifts rather than copied whole: the result does not depend on the
 * host's byte order, and fields need no alignment. */
static bool
take_little_endian(dl_reader *reader, unsigned size, uint64_t *value)
{
    if (dl_reader_left(reader) < size) {
        return false;
    }
    uint64_t sum = 0;
    for (unsigned i = 0; i < size; i++) {
        sum |= (uint64_t)reader->next[i] << (8 * i);
    }
    reader->next += size;
    *value = sum;
    return true;
}

static void
put_little_endian(dl_buffer *buffer, unsigned size, uint64_t value)
{
    uint8_t bytes[8];

    for (unsigned i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    dl_buffer_put(buffer, (dl_bytes){bytes, size});
}

bool
dl_take_u8(dl_reader *reader, uint8_t *value)
{
    if (reader->next == reader->end) {
        return false;
    }
    *value = *reader->next++;
    return true;
}

bool
dl_take_u32(dl_reader *reader, uint32_t *value)
{
    uint64_t wide;

    if (!take_little_endian(reader, 4, &wide)) {
        return false;
    }
    *value = (uint32_t)wide;
    return true;
}

bool
dl_take_u64(dl_reader *reader, uint64_t *value)
{
    return take_little_endian(reader, 8, value);
}

bool
dl_take_i64(dl_reader *reader, int64_t *value)
{
    uint64_t wide;

    if (!take_little_endian(reader, 8, &wide)) {
        return false;
    }
    memcpy(value, &wide, sizeof wide);
    return true;
}

int
dl_take_bytes(dl_reader *reader, size_t limit, dl_bytes *value)
{
    dl_reader probe = *reader;
    uint64_t size;

    if (!dl_take_u64(&probe, &size)) {
        return 0;
    }
    /* Checked before waiting for the rest, so that a peer which announces too much is
     * detected at once.  The size may be any number: it is compared with what is left
     * and never added to a pointer. */
    if (size > limit) {
        return -1;
    }
    if (dl_reader_left(&probe) < size) {
        return 0;
    }
    *value = (dl_bytes){probe.next, (size_t)size};
    probe.next += size;
    *reader = probe;
    return 1;
}

void
dl_put_u8(dl_buffer *buffer, uint8_t value)
{
    dl_buffer_put(buffer, (dl_bytes){&value, 1});
}

void
dl_put_u32(dl_buffer *buffer, uint32_t value)
{
    put_little_endian(buffer, 4, value);
}

void
dl_put_u64(dl_buffer *buffer, uint64_t value)
{
    put_little_endian(buffer, 8, value);
}

void
dl_put_i64(dl_buffer *buffer, int64_t value)
{
    put_little_endian(buffer, 8, (uint64_t)value);
}

void
dl_put_bytes(dl_buffer *buffer, dl_bytes value)
{
    dl_put_u64(buffer, value.size);
    dl_buffer_put(buffer, value);
}
