/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A borrowed view of an array.  A function does not keep it after it returns, unless
 * its header says who keeps the memory alive. */
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

/* Several arrays of one dtype that count as one array, in their order. */
typedef struct dl_pieces {
    int count;
    const dl_tensor *tensors; /* which have no pieces themselves */
    const size_t *ends;       /* of each, in bytes from the start of the first */
} dl_pieces;

struct dl_tensor {
    void *data;
    size_t count;     /* elements */
    size_t item_size; /* bytes of an element */
    dl_dtype dtype;
    uint32_t opaque_code; /* the dtype behind DL_OPAQUE (tensor/dtype.h); else 0 */
    dl_device device;
    int ndim;
    bool is_contiguous; /* in C order without gaps: shape and strides may be NULL */
    bool is_writable;
    const int64_t *shape;   /* ndim entries */
    const int64_t *strides; /* bytes */
    /* For memory on a device: its index, and the stream that its owner works on. */
    void *stream;
    int device_index;
    /* Its owner may use the memory for something else once it is released, although
     * operations of the stream still use it. */
    bool ignores_streams;
    /* If not NULL, the elements are those of the pieces.  Then the tensor is not
     * contiguous and has no shape, and `data` is an address that no other tensor has.
     * The maker ensures that the pieces share no memory with other arrays of the
     * operation; they may share memory with each other only in operations that read
     * everything before they write. */
    const dl_pieces *pieces;
};

static inline size_t
dl_tensor_size(const dl_tensor *tensor)
{
    return tensor->count * tensor->item_size;
}

/* Returns memory of `size` bytes as a writable array of DL_UINT8. */
static inline dl_tensor
dl_tensor_of_bytes(void *data, size_t size)
{
    return (dl_tensor){.data = data,
                       .count = size,
                       .item_size = 1,
                       .dtype = DL_UINT8,
                       .is_contiguous = true,
                       .is_writable = true};
}

static inline bool
dl_tensors_have_same_dtype(const dl_tensor *left, const dl_tensor *right)
{
    return left->dtype == right->dtype && left->opaque_code == right->opaque_code
           && left->item_size == right->item_size;
}

/* Returns whether the array is one run of aligned elements, as the reductions
 * require. */
static inline bool
dl_tensor_is_plain(const dl_tensor *tensor)
{
    size_t alignment = dl_dtype_size(tensor->dtype);

    return tensor->is_contiguous
           && (alignment < 2 || (uintptr_t)tensor->data % alignment == 0);
}

#endif
