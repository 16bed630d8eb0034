/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/device/pinned.h"

#include <stdlib.h>

/* Smaller memory is made this large, so that it does for most operations. */
#define SMALLEST ((size_t)64 << 10)

static dl_status
allocate_pinned(dl_pinned *self, const dl_cuda_table *cuda, size_t size)
{
    DL_TRY(dl_cuda_check(
        cuda, cuda->stream_create(&self->stream, DL_CUDA_STREAM_NON_BLOCKING, 0),
        "cudaStreamCreateWithPriority"));
    dl_status status =
        dl_cuda_check(cuda, cuda->host_new(&self->memory, size, DL_CUDA_HOST_PORTABLE),
                      "cudaHostAlloc");
    if (status != DL_OK) {
        cuda->stream_destroy(self->stream);
    }
    return status;
}

dl_status
dl_pinned_reserve(const dl_cuda_table *cuda, int device, size_t size,
                  dl_pinned **pinned)
{
    if (*pinned != NULL && (*pinned)->device == device && (*pinned)->size >= size) {
        return DL_OK;
    }
    dl_pinned_free(*pinned);
    *pinned = NULL;
    dl_pinned *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dl_fail_no_memory();
    }
    self->cuda = cuda;
    self->device = device;
    for (self->size = SMALLEST;
         self->size < size && self->size < DL_PINNED_LIMIT / 2;) {
        self->size *= 2;
    }
    if (self->size < size) {
        /* Twice as much would be too much to lock. */
        self->size = (size + SMALLEST - 1) / SMALLEST * SMALLEST;
    }
    dl_status status = allocate_pinned(self, cuda, self->size);
    if (status != DL_OK) {
        free(self);
        return status;
    }
    *pinned = self;
    return DL_OK;
}

void
dl_pinned_free(dl_pinned *pinned)
{
    int previous;

    if (pinned == NULL) {
        return;
    }
    const dl_cuda_table *cuda = pinned->cuda;
    if (dl_cuda_enter(cuda, pinned->device, &previous) == DL_OK) {
        cuda->host_free(pinned->memory);
        cuda->stream_destroy(pinned->stream);
        dl_cuda_leave(cuda, pinned->device, previous);
    }
    free(pinned);
}
