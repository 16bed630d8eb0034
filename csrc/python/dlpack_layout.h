/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory layout of DLPack's structs, declared here so that its headers are not
 * needed.  Knows nothing of this project's tensors. */
#ifndef DISTLITE_PYTHON_DLPACK_LAYOUT_H
#define DISTLITE_PYTHON_DLPACK_LAYOUT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dlpack_tensor {
    char *data;
    int32_t device_type;
    int32_t device_index;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL means contiguous in C order */
    uint64_t byte_offset;
} dlpack_tensor;

typedef struct dlpack_versioned {
    uint32_t major;
    uint32_t minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

/* The C functions of an array type, which the type offers in a capsule. */
typedef struct dlpack_exchange {
    uint32_t major;
    uint32_t minor;
    const struct dlpack_exchange *previous;
    void *allocate;
    /* Exports a managed tensor, which owns the memory. */
    int (*own)(PyObject *object, dlpack_versioned **tensor);
    void *import;
    /* Fills the struct with data that stays valid and unchanged as long as the object
     * lives.  Returns 0, or -1 with an exception set.  May be NULL. */
    int (*borrow)(PyObject *object, dlpack_tensor *tensor);
    /* Returns the library's current stream on a device. */
    int (*current_stream)(int32_t device_type, int32_t device_index, void **stream);
} dlpack_exchange;

_Static_assert(sizeof(dlpack_tensor) == 48, "fixed by DLPack");
_Static_assert(offsetof(dlpack_versioned, tensor) == 32, "fixed by DLPack");
_Static_assert(offsetof(dlpack_exchange, borrow) == 40, "fixed by DLPack");
_Static_assert(sizeof(dlpack_exchange) == 56, "fixed by DLPack");

enum {
    DLPACK_CPU = 1,
    DLPACK_CUDA = 2,
    DLPACK_CUDA_HOST = 3, /* pinned: ordinary memory for the CPU */
    DLPACK_ROCM_HOST = 11,
    DLPACK_CUDA_MANAGED = 13, /* accessible from both; used on its device */
};

enum {
    DLPACK_FLAG_READ_ONLY = 1,
    DLPACK_FLAG_IS_COPY = 2, /* writes to it would be lost */
};

#endif
