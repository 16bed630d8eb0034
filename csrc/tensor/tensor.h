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

typedef struct dl_tensor {
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
} dl_tensor;

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
