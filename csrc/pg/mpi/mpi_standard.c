/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The binary interface that MPI 5 defines for all libraries: handles are pointers, and
 * the predefined ones are small numbers. */
#include <string.h>

#include "pg/mpi/mpi_table.h"

typedef void *native_handle;
#define DL_MPI_STATUS_SOURCE 0
#define DL_MPI_STATUS_IGNORE NULL
#define DL_MPI_ANY_SOURCE (-1)
#define DL_MPI_TAG_UB 501
#define DL_MPI_WORLD 0x101
#define DL_MPI_SELF 0x102
#define DL_MPI_BYTE 0x247
#include "pg/mpi/mpi_family.h"

dl_status
dl_mpi_bind_standard(void *handle, const char *text, dl_mpi_table *table)
{
    DL_TRY(bind_calls(handle, table));
    table->in_place = (void *)(intptr_t)1;
    table->any_source = DL_MPI_ANY_SOURCE;
    table->any_tag = -2;
    table->thread_multiple = 4096;
    table->world = DL_MPI_WORLD;
    table->self = DL_MPI_SELF;
    /* Intel MPI 2021.18 exchanges this one and the next smaller, which aborts. */
    table->errors_return = strncmp(text, "Intel(R) MPI", 12) == 0 ? 0x142 : 0x143;
    table->byte = DL_MPI_BYTE;
    table->int8 = 0x240;
    table->uint8 = 0x241;
    table->int16 = 0x248;
    table->uint16 = 0x249;
    table->int32 = 0x250;
    table->uint32 = 0x251;
    table->int64 = 0x258;
    table->uint64 = 0x259;
    table->float32 = 0x210;
    table->float64 = 0x214;
    table->complex64 = 0x212;
    table->complex128 = 0x216;
    table->sum = 0x21;
    table->min = 0x22;
    table->max = 0x23;
    table->product = 0x24;
    table->band = 0x28;
    table->bor = 0x29;
    table->bxor = 0x2a;
    table->land = 0x30;
    table->lor = 0x31;
    table->lxor = 0x32;
    return DL_OK;
}
