/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a client is still to be sent: bytes of small replies run together, and large
 * values by reference, in order.  A value that is replaced in the table meanwhile lives
 * on here until it is sent.  Knows nothing of sockets; zeroed memory is an empty one. */
#ifndef DISTLITE_STORE_TCP_OUTPUT_H
#define DISTLITE_STORE_TCP_OUTPUT_H

#include <sys/uio.h>

#include "base/blob.h"
#include "base/buffer.h"

/* More than a reply to a call of ours that is not about large values. */
#define DL_OUTPUT_LIMIT (1u << 20)

typedef struct dl_output {
    dl_buffer bytes;    /* small replies; put into with the dl_put functions */
    size_t bytes_sent;  /* how many of them are gone */
    dl_buffer values;   /* of references, each with its place among the bytes */
    size_t values_sent; /* how many of them are gone */
    size_t value_sent;  /* how much of the next one is gone */
    size_t values_left; /* bytes of them that are not */
} dl_output;

void dl_output_fini(dl_output *output);

/* u64 size, then the bytes; NULL is the empty value. */
void dl_output_put_value(dl_output *output, dl_blob *value);

/* The bytes alone, by reference. */
void dl_output_put_blob(dl_output *output, dl_blob *blob);

/* Moves all of `from`, of which nothing is sent yet, behind what is in `output`. */
void dl_output_append(dl_output *output, dl_output *from);

/* Bytes left to be sent. */
static inline size_t
dl_output_size(const dl_output *output)
{
    return output->bytes.size - output->bytes_sent + output->values_left;
}

/* Whether so much was put since it was last empty that no more shall be, until all is
 * sent.  What is sent counts too: the memory is only given back at the end. */
static inline bool
dl_output_is_full(const dl_output *output)
{
    return output->bytes.size + output->values.size + output->values_left
           > DL_OUTPUT_LIMIT;
}

/* The first parts of what is left, `room` at most; returns how many.  They are valid
 * until the next put. */
int dl_output_gather(const dl_output *output, struct iovec *parts, int room);

/* The first `size` bytes of what is left are gone.  When nothing is left, starts anew
 * and keeps a little of the memory. */
void dl_output_consume(dl_output *output, size_t size);

/* DL_NO_MEMORY if any put failed: what is here is useless then. */
dl_status dl_output_check(const dl_output *output);

#endif
