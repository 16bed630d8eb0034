/* SPDX-License-Identifier: BSD-3-Clause
 *
 * DLPack's structs as they lie in memory, declared by hand so that no header of it is
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
    int64_t *strides; /* in elements; NULL is compact */
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

/* Functions that a type of arrays offers to C, in a capsule on the type. */
typedef struct dlpack_exchange {
    uint32_t major;
    uint32_t minor;
    const struct dlpack_exchange *previous;
    void *allocate;
    /* As a managed tensor, which owns the memory. */
    int (*own)(PyObject *object, dlpack_versioned **tensor);
    void *import;
    /* Fills the struct with what lives as long as the object does, unchanged.  May be
     * NULL; 0, or -1 with an exception set. */
    int (*borrow)(PyObject *object, dlpack_tensor *tensor);
    /* Where the library's work on a device goes now. */
    int (*current_stream)(int32_t device_type, int32_t device_index, void **stream);
} dlpack_exchange;

_Static_assert(sizeof(dlpack_tensor) == 48, "fixed by DLPack");
_Static_assert(offsetof(dlpack_versioned, tensor) == 32, "fixed by DLPack");
_Static_assert(offsetof(dlpack_exchange, borrow) == 40, "fixed by DLPack");
_Static_assert(sizeof(dlpack_exchange) == 56, "fixed by DLPack");

enum {
    DLPACK_CPU = 1,
    DLPACK_CUDA = 2,
    DLPACK_CUDA_HOST = 3, /* pinned: ordinary memory to the CPU */
    DLPACK_ROCM_HOST = 11,
    DLPACK_CUDA_MANAGED = 13, /* on both: to be used where the device is */
};

enum {
    DLPACK_FLAG_READ_ONLY = 1,
    DLPACK_FLAG_IS_COPY = 2, /* what is written there is lost */
};

#endif
