/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that a backend's arrays are in, the CPU's or a CUDA device's, and rows of it:
 * room in which elements stand one behind another for UCC.  On a device copies go through
 * a stream of the backend's own, and whoever needs them settles it. */
#ifndef DISTLITE_PG_UCC_UCC_MEMORY_H
#define DISTLITE_PG_UCC_UCC_MEMORY_H

#include "base/status.h"
#include "pg/cuda_table.h"
#include "tensor/tensor.h"

typedef struct dl_ucc_memory {
    int kind;                  /* UCC's number; zeroed: the CPU's */
    const dl_cuda_table *cuda; /* NULL: the CPU's */
    void *stream;
} dl_ucc_memory;

typedef struct dl_ucc_row {
    void *data;
    size_t capacity;
} dl_ucc_row;

/* Of the thread's current device. */
dl_status dl_ucc_memory_on_device(dl_ucc_memory *memory);
void dl_ucc_memory_fini(dl_ucc_memory *memory);

/* What was in it is lost. */
dl_status dl_ucc_row_reserve(const dl_ucc_memory *memory, dl_ucc_row *row, size_t size);
void dl_ucc_row_fini(const dl_ucc_memory *memory, dl_ucc_row *row);

/* An array's elements to a row of them, and back; on a device it has no gaps. */
dl_status dl_ucc_copy_in(const dl_ucc_memory *memory, void *target,
                         const dl_tensor *source);
dl_status dl_ucc_copy_out(const dl_ucc_memory *memory, const dl_tensor *target,
                          const void *source);

/* Until these are over. */
dl_status dl_ucc_memory_settle(const dl_ucc_memory *memory);

#endif
