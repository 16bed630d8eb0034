/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The output of one client: the bytes of small replies in one buffer, and large values
 * by reference, in order.  A value that is replaced in the table stays alive here until
 * it is sent.  Knows nothing of sockets; zeroed memory is an empty output. */
#ifndef DISTLITE_STORE_TCP_OUTPUT_H
#define DISTLITE_STORE_TCP_OUTPUT_H

#include <sys/uio.h>

#include "base/blob.h"
#include "base/buffer.h"

/* See dl_output_is_full().  More than any reply without large values needs. */
#define DL_OUTPUT_LIMIT (1u << 20)

typedef struct dl_output {
    dl_buffer bytes;    /* small replies; written with the dl_put functions */
    size_t bytes_sent;  /* how many of `bytes` have been sent */
    dl_buffer values;   /* references to blobs, each with its position in `bytes` */
    size_t values_sent; /* how many of the blobs have been sent */
    size_t value_sent;  /* how many bytes of the next blob have been sent */
    size_t values_left; /* bytes of all blobs that have not been sent */
} dl_output;

/* A position in the contents. */
typedef struct dl_output_mark {
    size_t bytes;
    size_t values;
} dl_output_mark;

void dl_output_fini(dl_output *output);

/* Appends a value: its size as u64, then its bytes.  NULL is the empty value. */
void dl_output_put_value(dl_output *output, dl_blob *value);

/* Appends the bytes of `blob` without a size, by reference. */
void dl_output_put_blob(dl_output *output, dl_blob *blob);

static inline dl_output_mark
dl_output_end(const dl_output *output)
{
    return (dl_output_mark){output->bytes.size, output->values.size};
}

/* Removes what was put after `mark`.  Nothing may have been sent since it was taken. */
void dl_output_cut(dl_output *output, dl_output_mark mark);

/* Bytes that have not been sent. */
static inline size_t
dl_output_size(const dl_output *output)
{
    return output->bytes.size - output->bytes_sent + output->values_left;
}

/* Returns whether more than DL_OUTPUT_LIMIT was put since the output was last empty:
 * the session puts no more until all is sent.  Small replies that are sent meanwhile
 * count as well, since their memory is only released when the output is empty. */
static inline bool
dl_output_is_full(const dl_output *output)
{
    return output->bytes.size + output->values.size + output->values_left
           > DL_OUTPUT_LIMIT;
}

/* Fills in the first parts of what is left, `room` and `most` bytes at most, and returns
 * their number.  They are valid until the next put. */
int dl_output_gather(const dl_output *output, struct iovec *parts, int room,
                     size_t most);

/* Removes the first `size` bytes of what is left.  An output that is then empty has no
 * memory: most clients are idle most of the time. */
void dl_output_consume(dl_output *output, size_t size);

/* Returns DL_NO_MEMORY if any put failed: the contents are then incomplete. */
dl_status dl_output_check(const dl_output *output);

#endif
