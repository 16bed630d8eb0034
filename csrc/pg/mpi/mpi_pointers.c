/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The two binary interfaces in which handles are pointers.  In Open MPI 4 and 5 the
 * predefined ones are the addresses of objects that the library exports; in the interface
 * that MPI 5 defines for all libraries they are small numbers. */
#include <dlfcn.h>
#include <string.h>

#include "pg/mpi/mpi_table.h"

typedef void *native_handle;
#define DL_MPI_STATUS_SOURCE 0
#define DL_MPI_STATUS_IGNORE NULL
#include "pg/mpi/mpi_abi.h"

static dl_status
find_object(void *handle, const char *symbol, dl_mpi_handle *object)
{
    *object = FROM(dlsym(handle, symbol));
    return *object != 0 ? DL_OK
                        : dl_fail(DL_UNSUPPORTED, "Open MPI in %s has no %s",
                                  dl_library_path(handle), symbol);
}

dl_status
dl_mpi_bind_openmpi(void *handle, const char *text, dl_mpi_table *table)
{
    (void)text;
    DL_TRY(bind_calls(handle, table));
#define X(name, openmpi, mpich, standard) \
    DL_TRY(find_object(handle, "ompi_mpi_" #openmpi, &table->name));
    DL_MPI_HANDLES(X)
#undef X
    table->in_place = (void *)(intptr_t)1;
    table->any_source = -1;
    table->any_tag = -1;
    table->thread_multiple = 3;
    table->tag_ub = 0;
    return DL_OK;
}

dl_status
dl_mpi_bind_standard(void *handle, const char *text, dl_mpi_table *table)
{
    DL_TRY(bind_calls(handle, table));
#define X(name, openmpi, mpich, standard) table->name = standard;
    DL_MPI_HANDLES(X)
#undef X
    if (strncmp(text, "Intel(R) MPI", 12) == 0) {
        /* Intel MPI 2021.18 exchanges this one and the next, which aborts. */
        table->errors_return--;
    }
    table->in_place = (void *)(intptr_t)1;
    table->any_source = -1;
    table->any_tag = -2;
    table->thread_multiple = 4096;
    table->tag_ub = 501;
    return DL_OK;
}
