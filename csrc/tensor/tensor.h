/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A borrowed view of an array: never stored past the call, unless the header says who
 * keeps the memory. */
#ifndef DISTLITE_TENSOR_TENSOR_H
#define DISTLITE_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

typedef enum dl_device {
    DL_CPU = 0,
    DL_CUDA = 1,
} dl_device;

typedef struct dl_tensor dl_tensor;

/* Arrays of one dtype, one after another, which count as one array. */
typedef struct dl_pieces {
    int count;
    const dl_tensor *tensors; /* without pieces of their own */
    const size_t *ends;       /* of each, in bytes from the start of the first */
} dl_pieces;

struct dl_tensor {
    void *data;
    size_t count;     /* elements */
    size_t item_size; /* bytes of one */
    dl_dtype dtype;
    uint32_t
        opaque_code; /* of DL_OPAQUE: which dtype it is (tensor/opaque.h); else 0 */
    dl_device device;
    int ndim;
    bool is_contiguous; /* in C order, no gaps; then shape and strides may be NULL */
    bool is_writable;
    const int64_t *shape;   /* ndim entries */
    const int64_t *strides; /* bytes */
    /* Of one that is on a device: which, and the stream its owner works on. */
    void *stream;
    int device_index;
    /* Not NULL: the elements are those of the pieces.  Then it is not contiguous, has no
     * shape, and `data` is an address that no other tensor has.  Whoever makes one sees
     * to it that its pieces share no memory with other arrays of the operation; among
     * each other they may in operations that read all before they write. */
    const dl_pieces *pieces;
};

static inline size_t
dl_tensor_size(const dl_tensor *tensor)
{
    return tensor->count * tensor->item_size;
}

static inline bool
dl_tensors_have_same_dtype(const dl_tensor *left, const dl_tensor *right)
{
    return left->dtype == right->dtype && left->opaque_code == right->opaque_code
           && left->item_size == right->item_size;
}

/* One run of aligned elements, as reductions take them. */
static inline bool
dl_tensor_is_plain(const dl_tensor *tensor)
{
    size_t alignment = dl_dtype_size(tensor->dtype);

    return tensor->is_contiguous
           && (alignment < 2 || (uintptr_t)tensor->data % alignment == 0);
}

#endif
