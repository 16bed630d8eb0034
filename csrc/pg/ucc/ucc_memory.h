/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that a backend's arrays are in, the CPU's or a CUDA device's, and rows:
 * buffers of it that hold elements contiguously for UCC.  On a device, copies are made
 * on a stream of the backend's own, and dl_ucc_memory_settle() waits for them. */
#ifndef DISTLITE_PG_UCC_UCC_MEMORY_H
#define DISTLITE_PG_UCC_UCC_MEMORY_H

#include "base/status.h"
#include "pg/device/cuda_table.h"
#include "tensor/tensor.h"

typedef struct dl_ucc_memory {
    int kind;                  /* UCC's constant; zero: the CPU's */
    const dl_cuda_table *cuda; /* NULL: the CPU's */
    void *stream;
} dl_ucc_memory;

typedef struct dl_ucc_row {
    void *data;
    size_t capacity;
} dl_ucc_row;

/* Initialises the memory of the thread's current device. */
dl_status dl_ucc_memory_on_device(dl_ucc_memory *memory);
void dl_ucc_memory_fini(dl_ucc_memory *memory);

/* Makes room for `size` bytes.  The contents of the row are lost. */
dl_status dl_ucc_row_reserve(const dl_ucc_memory *memory, dl_ucc_row *row, size_t size);
void dl_ucc_row_fini(const dl_ucc_memory *memory, dl_ucc_row *row);

/* Copy an array's elements to a row, and back.  On a device the array must be
 * contiguous. */
dl_status dl_ucc_copy_in(const dl_ucc_memory *memory, void *target,
                         const dl_tensor *source);
dl_status dl_ucc_copy_out(const dl_ucc_memory *memory, const dl_tensor *target,
                          const void *source);

/* Waits until the copies have completed. */
dl_status dl_ucc_memory_settle(const dl_ucc_memory *memory);

#endif
