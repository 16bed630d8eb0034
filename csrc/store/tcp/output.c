/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/output.h"

#include <stdlib.h>

#include "base/reader.h"

/* A value of at least this size is put by reference.  Copying a smaller one costs less
 * than one more part of a gathered write. */
#define LARGE_VALUE (16u << 10)

/* Once an output has MANY_BYTES, values of at least MANY_VALUE bytes are put by
 * reference, too: a client that names the same key a hundred thousand times in one
 * request then costs about as much memory as the request itself. */
#define MANY_BYTES (256u << 10)
#define MANY_VALUE 64u

typedef struct value_ref {
    size_t at; /* the blob is sent before bytes.data[at] */
    dl_blob *blob;
} value_ref;

static const value_ref *
refs_of(const dl_output *output)
{
    return (const value_ref *)(const void *)output->values.data;
}

static size_t
ref_count(const dl_output *output)
{
    return output->values.size / sizeof(value_ref);
}

void
dl_output_fini(dl_output *output)
{
    const value_ref *refs = refs_of(output);

    for (size_t i = output->values_sent; i < ref_count(output); i++) {
        dl_blob_unref(refs[i].blob);
    }
    dl_buffer_fini(&output->bytes);
    dl_buffer_fini(&output->values);
    *output = (dl_output){0};
}

static bool
is_worth_a_reference(const dl_output *output, size_t size)
{
    return size >= LARGE_VALUE
           || (size >= MANY_VALUE && output->bytes.size >= MANY_BYTES);
}

void
dl_output_put_value(dl_output *output, dl_blob *value)
{
    if (value == NULL || !is_worth_a_reference(output, value->size)) {
        dl_put_bytes(&output->bytes,
                     value == NULL ? (dl_bytes){0} : dl_blob_bytes(value));
        return;
    }
    dl_put_u64(&output->bytes, value->size);
    dl_output_put_blob(output, value);
}

void
dl_output_put_blob(dl_output *output, dl_blob *blob)
{
    value_ref ref = {.at = output->bytes.size, .blob = blob};

    /* No byte of an empty blob would ever be consumed, so it would never be
     * released. */
    if (blob->size == 0) {
        return;
    }
    dl_buffer_put(&output->values, (dl_bytes){(const uint8_t *)&ref, sizeof ref});
    if (!output->values.has_failed) {
        dl_blob_ref(blob);
        output->values_left += blob->size;
    }
}

void
dl_output_cut(dl_output *output, dl_output_mark mark)
{
    for (size_t i = mark.values / sizeof(value_ref); i < ref_count(output); i++) {
        dl_blob *blob = refs_of(output)[i].blob;
        output->values_left -= blob->size;
        dl_blob_unref(blob);
    }
    output->values.size = mark.values;
    output->bytes.size = mark.bytes;
}

/* Adds a part of at most `*most` bytes, unless it is empty; returns the new number of
 * parts. */
static int
add_part(struct iovec *parts, int count, const uint8_t *data, size_t size, size_t *most)
{
    size = size < *most ? size : *most;
    *most -= size;
    if (size > 0) {
        parts[count++] = (struct iovec){.iov_base = (void *)data, .iov_len = size};
    }
    return count;
}

int
dl_output_gather(const dl_output *output, struct iovec *parts, int room, size_t most)
{
    const value_ref *refs = refs_of(output);
    size_t from = output->bytes_sent;
    size_t skipped = output->value_sent;
    int count = 0;

    for (size_t i = output->values_sent; i < ref_count(output) && count < room; i++) {
        count =
            add_part(parts, count, output->bytes.data + from, refs[i].at - from, &most);
        if (count < room) {
            count = add_part(parts, count, refs[i].blob->data + skipped,
                             refs[i].blob->size - skipped, &most);
        }
        from = refs[i].at;
        skipped = 0;
    }
    if (count < room) {
        count = add_part(parts, count, output->bytes.data + from,
                         output->bytes.size - from, &most);
    }
    return count;
}

/* Consumes at most `size` of the bytes before the next value and returns how many. */
static size_t
consume_bytes(dl_output *output, size_t size)
{
    bool has_value = output->values_sent < ref_count(output);
    size_t end =
        has_value ? refs_of(output)[output->values_sent].at : output->bytes.size;
    size_t left = end - output->bytes_sent;
    size_t taken = size < left ? size : left;

    output->bytes_sent += taken;
    return taken;
}

static size_t
consume_value(dl_output *output, size_t size)
{
    dl_blob *blob = refs_of(output)[output->values_sent].blob;
    size_t left = blob->size - output->value_sent;
    size_t taken = size < left ? size : left;

    output->value_sent += taken;
    output->values_left -= taken;
    if (taken == left) {
        dl_blob_unref(blob);
        output->values_sent++;
        output->value_sent = 0;
    }
    return taken;
}

void
dl_output_consume(dl_output *output, size_t size)
{
    /* Alternates: the bytes before the next value, then that value. */
    while (size > 0) {
        size -= consume_bytes(output, size);
        if (size > 0) {
            size -= consume_value(output, size);
        }
    }
    if (dl_output_size(output) == 0) {
        dl_output_fini(output);
    }
}

dl_status
dl_output_check(const dl_output *output)
{
    DL_TRY(dl_buffer_check(&output->bytes));
    return dl_buffer_check(&output->values);
}
