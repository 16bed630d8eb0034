/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's functions as they are in whichever MPI library is loaded.  The three binary
 * interfaces differ in the width of handles, in constants and in the layout of a status.
 * A handle is declared as wide as a pointer here.  In MPICH's interface it is an int,
 * which on the processors that are supported is the low half of the register, of the slot
 * of the stack or of the memory that holds a pointer, so that one declaration serves both:
 * a variable for a handle that MPI writes has to be 0 before.  The functions return
 * MPI's result codes: 0 is success, and dl_mpi_check() turns any other into an error. */
#ifndef DISTLITE_PG_MPI_MPI_TABLE_H
#define DISTLITE_PG_MPI_MPI_TABLE_H

#include <stdint.h>

#include "base/library.h"

typedef uintptr_t dl_mpi_handle;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(void *) == 8,
               "the low half of a pointer comes first, and may hold MPICH's handles");

/* Longer than the texts of any library, for errors and for versions. */
#define DL_MPI_TEXT_SIZE 8193

/* Predefined handles: the name here, that of the object which Open MPI exports, and the
 * number in the binary interfaces of MPICH and of the standard. */
#define DL_MPI_HANDLES(X)                              \
    X(world, comm_world, 0x44000000, 0x101)            \
    X(self, comm_self, 0x44000001, 0x102)              \
    X(errors_return, errors_return, 0x54000001, 0x143) \
    X(byte, byte, 0x4c00010d, 0x247)                   \
    X(int8, int8_t, 0x4c000137, 0x240)                 \
    X(uint8, uint8_t, 0x4c00013b, 0x241)               \
    X(int16, int16_t, 0x4c000238, 0x248)               \
    X(uint16, uint16_t, 0x4c00023c, 0x249)             \
    X(int32, int32_t, 0x4c000439, 0x250)               \
    X(uint32, uint32_t, 0x4c00043d, 0x251)             \
    X(int64, int64_t, 0x4c00083a, 0x258)               \
    X(uint64, uint64_t, 0x4c00083e, 0x259)             \
    X(float32, float, 0x4c00040a, 0x210)               \
    X(float64, double, 0x4c00080b, 0x214)              \
    X(complex64, c_float_complex, 0x4c000840, 0x212)   \
    X(complex128, c_double_complex, 0x4c001041, 0x216) \
    X(sum, op_sum, 0x58000003, 0x21)                   \
    X(product, op_prod, 0x58000004, 0x24)              \
    X(min, op_min, 0x58000002, 0x22)                   \
    X(max, op_max, 0x58000001, 0x23)                   \
    X(land, op_land, 0x58000005, 0x30)                 \
    X(lor, op_lor, 0x58000007, 0x31)                   \
    X(lxor, op_lxor, 0x58000009, 0x32)                 \
    X(band, op_band, 0x58000006, 0x28)                 \
    X(bor, op_bor, 0x58000008, 0x29)                   \
    X(bxor, op_bxor, 0x5800000a, 0x2a)

typedef int dl_mpi_copy_fn(dl_mpi_handle, int, void *, void *, void *, int *);
typedef int dl_mpi_delete_fn(dl_mpi_handle, int, void *, void *);

/* MPI's functions, of which those that move data do not block. */
#define DL_MPI_FUNCTIONS(X, H)                                               \
    X(init_thread, MPI_Init_thread, (int *, char ***, int, int *))           \
    X(query_thread, MPI_Query_thread, (int *))                               \
    X(initialized, MPI_Initialized, (int *))                                 \
    X(finalized, MPI_Finalized, (int *))                                     \
    X(finalize, MPI_Finalize, (void))                                        \
    X(error_string, MPI_Error_string, (int, char *, int *))                  \
    X(comm_rank, MPI_Comm_rank, (H, int *))                                  \
    X(comm_size, MPI_Comm_size, (H, int *))                                  \
    X(comm_get_attr, MPI_Comm_get_attr, (H, int, void *, int *))             \
    X(comm_create_keyval, MPI_Comm_create_keyval,                            \
      (dl_mpi_copy_fn *, dl_mpi_delete_fn *, int *, void *))                 \
    X(comm_set_attr, MPI_Comm_set_attr, (H, int, void *))                    \
    X(comm_free, MPI_Comm_free, (H *))                                       \
    X(comm_set_errhandler, MPI_Comm_set_errhandler, (H, H))                  \
    X(comm_group, MPI_Comm_group, (H, H *))                                  \
    X(group_incl, MPI_Group_incl, (H, int, const int *, H *))                \
    X(group_free, MPI_Group_free, (H *))                                     \
    X(comm_create_group, MPI_Comm_create_group, (H, H, int, H *))            \
    X(isend, MPI_Isend, (const void *, int, H, int, int, H, H *))            \
    X(irecv, MPI_Irecv, (void *, int, H, int, int, H, H *))                  \
    X(iprobe, MPI_Iprobe, (int, int, H, int *, void *))                      \
    X(test, MPI_Test, (H *, int *, void *))                                  \
    X(ibarrier, MPI_Ibarrier, (H, H *))                                      \
    X(ibcast, MPI_Ibcast, (void *, int, H, int, H, H *))                     \
    X(iallreduce, MPI_Iallreduce, (const void *, void *, int, H, H, H, H *)) \
    X(iallgather, MPI_Iallgather, (const void *, int, H, void *, int, H, H, H *))

/* The constants of a binary interface. */
typedef struct dl_mpi_abi {
    void *in_place;
    void *status_ignore;
    int any_source;
    int thread_multiple;
    int tag_ub; /* the key of an attribute of the world */
} dl_mpi_abi;

typedef struct dl_mpi_table {
    dl_mpi_abi abi;
#define X(name, openmpi, mpich, standard) dl_mpi_handle name;
    DL_MPI_HANDLES(X)
#undef X
#define X(field, symbol, arguments) int(*field) arguments;
    DL_MPI_FUNCTIONS(X, dl_mpi_handle)
#undef X
} dl_mpi_table;

/* Where an MPI library is searched for; error texts cite it. */
extern const dl_library dl_mpi_library;

/* Loads the library on the first call and returns its table.  DL_NOT_FOUND or
 * DL_UNSUPPORTED: the error text says what is missing.  Does not start MPI. */
dl_status dl_mpi_load(const dl_mpi_table **table);

/* Return the library's version text, up to its first comma or line end, and
 * the library's file. */
const char *dl_mpi_library_text(void);
const char *dl_mpi_library_path(void);

/* Fails with DL_BACKEND and the library's text for `result`; `call` names the function
 * that returned it. */
dl_status dl_mpi_fail(const dl_mpi_table *mpi, int result, const char *call);

static inline dl_status
dl_mpi_check(const dl_mpi_table *mpi, int result, const char *call)
{
    return result == 0 ? DL_OK : dl_mpi_fail(mpi, result, call);
}

/* Stores whether a request has ended, of which MPI writes 0 or a null handle then. */
static inline int
dl_mpi_test(const dl_mpi_table *mpi, dl_mpi_handle *request, int *is_done)
{
    return mpi->test(request, is_done, mpi->abi.status_ignore);
}

#endif
