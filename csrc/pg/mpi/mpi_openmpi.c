/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI 4 and 5: handles are pointers, and the predefined ones are the addresses of
 * objects that the library exports. */
#include <dlfcn.h>

#include "pg/mpi/mpi_table.h"

/* Predefined handles, set by dl_mpi_bind_openmpi(), that mpi_family.h needs by name. */
static void *world_object;
static void *self_object;
static void *byte_object;

typedef void *native_handle;
#define DL_MPI_STATUS_SOURCE 0
#define DL_MPI_STATUS_IGNORE NULL
#define DL_MPI_ANY_SOURCE (-1)
#define DL_MPI_TAG_UB 0
#define DL_MPI_WORLD world_object
#define DL_MPI_SELF self_object
#define DL_MPI_BYTE byte_object
#include "pg/mpi/mpi_family.h"

typedef struct constant {
    const char *symbol;
    size_t offset;
} constant;

#define CONSTANT(field, symbol) {"ompi_mpi_" #symbol, offsetof(dl_mpi_table, field)}

static const constant constants[] = {
    CONSTANT(world, comm_world),
    CONSTANT(self, comm_self),
    CONSTANT(errors_return, errors_return),
    CONSTANT(byte, byte),
    CONSTANT(int8, int8_t),
    CONSTANT(uint8, uint8_t),
    CONSTANT(int16, int16_t),
    CONSTANT(uint16, uint16_t),
    CONSTANT(int32, int32_t),
    CONSTANT(uint32, uint32_t),
    CONSTANT(int64, int64_t),
    CONSTANT(uint64, uint64_t),
    CONSTANT(float32, float),
    CONSTANT(float64, double),
    CONSTANT(complex64, c_float_complex),
    CONSTANT(complex128, c_double_complex),
    CONSTANT(sum, op_sum),
    CONSTANT(product, op_prod),
    CONSTANT(min, op_min),
    CONSTANT(max, op_max),
    CONSTANT(land, op_land),
    CONSTANT(lor, op_lor),
    CONSTANT(lxor, op_lxor),
    CONSTANT(band, op_band),
    CONSTANT(bor, op_bor),
    CONSTANT(bxor, op_bxor),
};

dl_status
dl_mpi_bind_openmpi(void *handle, const char *text, dl_mpi_table *table)
{
    (void)text;
    DL_TRY(bind_calls(handle, table));
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        void *object = dlsym(handle, constants[i].symbol);
        if (object == NULL) {
            return dl_fail(DL_UNSUPPORTED, "Open MPI in %s has no %s",
                           dl_library_path(handle), constants[i].symbol);
        }
        *(dl_mpi_handle *)(void *)((char *)table + constants[i].offset) = FROM(object);
    }
    world_object = TO(table->world);
    self_object = TO(table->self);
    byte_object = TO(table->byte);
    table->in_place = (void *)(intptr_t)1;
    table->any_source = DL_MPI_ANY_SOURCE;
    table->any_tag = -1;
    table->thread_multiple = 3;
    return DL_OK;
}
