/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The calls of the CUDA runtime that order streams and copy between device and host,
 * declared here because the library is found at run time and its headers are not needed
 * to build.  Streams and events belong to the driver, so those of torch, CuPy or JAX
 * may be passed in. */
#ifndef DISTLITE_PG_DEVICE_CUDA_TABLE_H
#define DISTLITE_PG_DEVICE_CUDA_TABLE_H

#include "base/library.h"

enum {
    DL_CUDA_SUCCESS = 0,
    DL_CUDA_NOT_READY = 600,
    DL_CUDA_STREAM_NON_BLOCKING = 1,
    DL_CUDA_EVENT_NO_TIMING = 2,
    DL_CUDA_TO_DEVICE = 1, /* from the host; directions of copies, like the next */
    DL_CUDA_TO_HOST = 2,
    DL_CUDA_ON_DEVICE = 3,     /* from device to device */
    DL_CUDA_HOST_PORTABLE = 1, /* page-locked for all devices */
    DL_CUDA_CAPTURE_NONE = 0,
    DL_CUDA_CAPTURE_ACTIVE = 1,
    DL_CUDA_MODE_RELAXED = 2,
    DL_CUDA_CAPTURE_IMPLICIT = 906,
    DL_CUDA_CAPABILITY_MAJOR = 75, /* attributes of a device, like the next */
    DL_CUDA_CAPABILITY_MINOR = 76,
};

/* As large as in CUDA 13; CUDA 12 fills only the first part. */
typedef struct dl_cuda_pointer {
    int type;
    int device;
    void *rest[10];
} dl_cuda_pointer;

_Static_assert(sizeof(dl_cuda_pointer) == 88, "fixed by CUDA 13");

#define DL_CUDA_SYMBOLS(X)                                                        \
    X(driver_version, cudaDriverGetVersion, int, (int *))                         \
    X(error_text, cudaGetErrorString, const char *, (int))                        \
    X(last_error, cudaGetLastError, int, (void))                                  \
    X(device_count, cudaGetDeviceCount, int, (int *))                             \
    X(get_device, cudaGetDevice, int, (int *))                                    \
    X(set_device, cudaSetDevice, int, (int))                                      \
    X(pointer_attributes, cudaPointerGetAttributes, int,                          \
      (dl_cuda_pointer *, const void *))                                          \
    X(priority_range, cudaDeviceGetStreamPriorityRange, int, (int *, int *))      \
    X(stream_create, cudaStreamCreateWithPriority, int, (void **, unsigned, int)) \
    X(stream_destroy, cudaStreamDestroy, int, (void *))                           \
    X(stream_wait, cudaStreamWaitEvent, int, (void *, void *, unsigned))          \
    X(stream_is_capturing, cudaStreamIsCapturing, int, (void *, int *))           \
    X(exchange_mode, cudaThreadExchangeStreamCaptureMode, int, (int *))           \
    X(event_create, cudaEventCreateWithFlags, int, (void **, unsigned))           \
    X(event_record, cudaEventRecord, int, (void *, void *))                       \
    X(event_query, cudaEventQuery, int, (void *))                                 \
    X(event_destroy, cudaEventDestroy, int, (void *))                             \
    X(stream_synchronize, cudaStreamSynchronize, int, (void *))                   \
    X(memory_new_ordered, cudaMallocAsync, int, (void **, size_t, void *))        \
    X(memory_free_ordered, cudaFreeAsync, int, (void *, void *))                  \
    X(host_new, cudaHostAlloc, int, (void **, size_t, unsigned))                  \
    X(host_free, cudaFreeHost, int, (void *))                                     \
    X(device_attribute, cudaDeviceGetAttribute, int, (int *, int, int))           \
    X(copy, cudaMemcpyAsync, int, (void *, const void *, size_t, int, void *))

/* How to find the driver's own functions: the first from CUDA 12.5 on, the second up to
 * CUDA 12. */
#define DL_CUDA_OPTIONAL_SYMBOLS(X)                                   \
    X(driver_entry_of_version, cudaGetDriverEntryPointByVersion, int, \
      (const char *, void **, unsigned, unsigned long long, int *))   \
    X(driver_entry, cudaGetDriverEntryPoint, int,                     \
      (const char *, void **, unsigned long long, int *))

typedef struct dl_cuda_table {
#define X(field, symbol, result, arguments) result(*field) arguments;
    DL_CUDA_SYMBOLS(X)
    DL_CUDA_OPTIONAL_SYMBOLS(X)
#undef X
    /* cuDevicePrimaryCtxGetState; NULL if it was not found. */
    int (*context_state)(int device, unsigned *flags, int *is_active);
} dl_cuda_table;

/* Loads the runtime once.  DL_NOT_FOUND and DL_UNSUPPORTED say what is missing, which
 * may also be a driver or a device. */
dl_status dl_cuda_load(const dl_cuda_table **table);

/* Turns a result of the runtime into DL_OK, or DL_BACKEND with a text. */
dl_status dl_cuda_check(const dl_cuda_table *cuda, int result, const char *call);

/* Makes `device` the thread's current one and stores the one before in `previous` for
 * dl_cuda_leave(), since libraries share this setting.  Needed around every call of the
 * runtime on a thread that is not the library's own: most calls make a context on the
 * current device, which takes hundreds of megabytes, and every thread begins with
 * device 0. */
dl_status dl_cuda_enter(const dl_cuda_table *cuda, int device, int *previous);

/* Makes the previous device current again, unless this process has no context on it:
 * then making it current would make one. */
void dl_cuda_leave(const dl_cuda_table *cuda, int device, int previous);

#endif
