/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The few calls of the CUDA runtime that ordering streams takes, in our own words: the
 * library is found at run time, and its headers are not needed to build.  Streams and
 * events are the driver's, so those of torch, CuPy or JAX may be given to ours. */
#ifndef DISTLITE_PG_CUDA_TABLE_H
#define DISTLITE_PG_CUDA_TABLE_H

#include "base/library.h"

enum {
    DL_CUDA_SUCCESS = 0,
    DL_CUDA_NOT_READY = 600,
    DL_CUDA_STREAM_NON_BLOCKING = 1,
    DL_CUDA_EVENT_NO_TIMING = 2,
    DL_CUDA_ON_DEVICE = 3, /* both ends of a copy */
    DL_CUDA_CAPTURE_NONE = 0,
    DL_CUDA_CAPTURE_ACTIVE = 1,
    DL_CUDA_MODE_RELAXED = 2,
    DL_CUDA_CAPTURE_IMPLICIT = 906,
    DL_CUDA_CAPABILITY_MAJOR = 75, /* attributes of a device, as the next */
    DL_CUDA_CAPABILITY_MINOR = 76,
};

/* As long as CUDA 13 makes it; 12 fills the first part of it. */
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
    X(stream_settle, cudaStreamSynchronize, int, (void *))                        \
    X(memory_new, cudaMalloc, int, (void **, size_t))                             \
    X(memory_free, cudaFree, int, (void *))                                       \
    X(memory_new_ordered, cudaMallocAsync, int, (void **, size_t, void *))        \
    X(memory_free_ordered, cudaFreeAsync, int, (void *, void *))                  \
    X(device_attribute, cudaDeviceGetAttribute, int, (int *, int, int))           \
    X(copy, cudaMemcpyAsync, int, (void *, const void *, size_t, int, void *))

/* The way to the driver's own functions: the first from CUDA 12.5 on, the second up to
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
    /* cuDevicePrimaryCtxGetState; NULL: nobody can tell. */
    int (*context_state)(int device, unsigned *flags, int *is_active);
} dl_cuda_table;

/* The runtime, loaded once; DL_NOT_FOUND or DL_UNSUPPORTED says what is missing, also
 * where there is no driver or no device. */
dl_status dl_cuda_load(const dl_cuda_table **table);

/* DL_OK, or a worded DL_BACKEND. */
dl_status dl_cuda_check(const dl_cuda_table *cuda, int result, const char *call);

/* Makes `device` the thread's current one; what was before goes to `previous`, for
 * dl_cuda_leave(): libraries share this setting.  Around every call of the runtime on a
 * thread that is not the library's own: most calls make a context on the current device,
 * which takes hundreds of megabytes, and every thread begins with device 0. */
dl_status dl_cuda_enter(const dl_cuda_table *cuda, int device, int *previous);

/* The previous device becomes current again, unless nobody in this process uses it: then
 * making it current would make a context on it. */
void dl_cuda_leave(const dl_cuda_table *cuda, int device, int previous);

#endif
