/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPICH and the libraries that share its binary interface, such as Intel MPI: handles
 * are ints, and the predefined ones are fixed numbers. */
#include "pg/mpi/mpi_table.h"

typedef int native_handle;
#define DL_MPI_STATUS_SOURCE 2
#define DL_MPI_STATUS_IGNORE ((void *)(intptr_t)1)
#define DL_MPI_ANY_SOURCE (-2)
#define DL_MPI_TAG_UB 0x64400001
#define DL_MPI_WORLD 0x44000000
#define DL_MPI_SELF 0x44000001
#define DL_MPI_BYTE 0x4c00010d
#include "pg/mpi/mpi_family.h"

dl_status
dl_mpi_bind_mpich(void *handle, const char *text, dl_mpi_table *table)
{
    (void)text;
    DL_TRY(bind_calls(handle, table));
    table->in_place = (void *)(intptr_t)-1;
    table->any_source = DL_MPI_ANY_SOURCE;
    table->any_tag = -1;
    table->thread_multiple = 3;
    table->world = DL_MPI_WORLD;
    table->self = DL_MPI_SELF;
    table->errors_return = 0x54000001;
    table->byte = DL_MPI_BYTE;
    table->int8 = 0x4c000137;
    table->int16 = 0x4c000238;
    table->int32 = 0x4c000439;
    table->int64 = 0x4c00083a;
    table->uint8 = 0x4c00013b;
    table->uint16 = 0x4c00023c;
    table->uint32 = 0x4c00043d;
    table->uint64 = 0x4c00083e;
    table->float32 = 0x4c00040a;
    table->float64 = 0x4c00080b;
    table->complex64 = 0x4c000840;
    table->complex128 = 0x4c001041;
    table->max = 0x58000001;
    table->min = 0x58000002;
    table->sum = 0x58000003;
    table->product = 0x58000004;
    table->land = 0x58000005;
    table->band = 0x58000006;
    table->lor = 0x58000007;
    table->bor = 0x58000008;
    table->lxor = 0x58000009;
    table->bxor = 0x5800000a;
    return DL_OK;
}
