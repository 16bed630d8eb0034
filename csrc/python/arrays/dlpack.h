/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Arrays of other libraries (torch, JAX, CuPy, ...) through the DLPack protocol: a
 * capsule that holds the memory, with a struct that describes it.  Never imports the
 * other library.
 *
 * Types that offer DLPack's table of C functions (torch 2.13 does) need no capsule: a
 * view takes some nanoseconds instead of two microseconds.  The table ignores pending
 * conjugations and negations; they are checked here. */
#ifndef DISTLITE_PYTHON_ARRAYS_DLPACK_H
#define DISTLITE_PYTHON_ARRAYS_DLPACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* The memory layout of DLPack's structs, declared here so that its headers are not
 * needed. */
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

/* The library of an array type.  Two things depend on it rather than on the array:
 * which stream its work is queued on, and whether arrays may be written to if their
 * export does not say so. */
typedef enum dlpy_library {
    DLPY_LIBRARY_OTHER = 0,
    DLPY_LIBRARY_TORCH = 1,
    DLPY_LIBRARY_CUPY = 2,
} dlpy_library;

/* More dimensions than any known library supports. */
#define DLPY_DLPACK_DIMENSIONS 64

/* A view's own copy of shape and strides: those of the array may change while the core
 * works without the GIL. */
typedef struct dlpy_dimensions {
    int64_t shape[DLPY_DLPACK_DIMENSIONS];
    int64_t strides[DLPY_DLPACK_DIMENSIONS];
} dlpy_dimensions;

/* For memory whose accesses are ordered by streams: what its owner has to do before it
 * exports the memory.  A stream that is no pointer is a number of DLPack. */
enum {
    DLPY_DLPACK_NO_STREAM = -1,     /* nothing: streams are ordered by events */
    DLPY_DLPACK_DEFAULT_STREAM = 1, /* let the legacy default stream wait */
};

/* Exports the object through `__dlpack__`, with `stream` if its memory is ordered by
 * streams.  Returns 1 if `view` is set; it borrows from `*capsule` and `dimensions`,
 * which must outlive it.  Returns 0 if the object has no `__dlpack__`, and -1 with an
 * exception set on failure, for example for memory of an unsupported device.
 * `parameter` names the argument in error messages.  `*capsule` is a new reference or
 * NULL in every case. */
int dlpy_dlpack_view(PyObject *object, const char *parameter, intptr_t stream,
                     dl_tensor *view, dlpy_dimensions *dimensions, PyObject **capsule);

/* Returns the table of a type, or NULL if it has none; `*library` is set for any
 * type. */
const dlpack_exchange *dlpy_exchange_find(PyTypeObject *type, dlpy_library *library);

/* Returns 1 if `view` is set; it borrows the elements from the object, which the caller
 * holds, and shape and strides from `dimensions`.  Returns 0 if the type has no such
 * table, belongs to a library whose arrays may be read-only, or if the table rejects
 * this object.  Returns -1 with an exception set on failure. */
int dlpy_exchange_view(PyObject *object, const char *parameter, dl_tensor *view,
                       dlpy_dimensions *dimensions);

/* Returns a capsule that owns the memory of an array viewed by dlpy_exchange_view(),
 * None if the table cannot export it, or NULL with an exception set. */
PyObject *dlpy_exchange_own(PyObject *object);

#endif
