/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPICH and the libraries that share its binary interface, such as Intel MPI: handles
 * are ints, and the predefined ones are fixed numbers. */
#include "pg/mpi/mpi_table.h"

typedef int native_handle;
#define DL_MPI_STATUS_SOURCE 2
#define DL_MPI_STATUS_IGNORE ((void *)(intptr_t)1)
#include "pg/mpi/mpi_abi.h"

dl_status
dl_mpi_bind_mpich(void *handle, const char *text, dl_mpi_table *table)
{
    (void)text;
    DL_TRY(bind_calls(handle, table));
#define X(name, openmpi, mpich, standard) table->name = mpich;
    DL_MPI_HANDLES(X)
#undef X
    table->in_place = (void *)(intptr_t)-1;
    table->any_source = -2;
    table->any_tag = -1;
    table->thread_multiple = 3;
    table->tag_ub = 0x64400001;
    return DL_OK;
}
