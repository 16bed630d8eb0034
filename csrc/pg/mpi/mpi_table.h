/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's functions as this library uses them, whichever MPI library is loaded.  The
 * three binary interfaces differ in the type of handles, in constants and in the layout
 * of a status.  Here a handle is as wide as a pointer, and one file for each type of
 * handles fills in the same table from one body (mpi_abi.h).  The functions return MPI's
 * result codes: 0 is success, and dl_mpi_check() turns any other into an error. */
#ifndef DISTLITE_PG_MPI_MPI_TABLE_H
#define DISTLITE_PG_MPI_MPI_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/library.h"

typedef uintptr_t dl_mpi_handle;

/* What MPI reports of a message that was received or found. */
typedef struct dl_mpi_status {
    int source;
    int tag;
    int bytes; /* negative: more than an int can hold */
} dl_mpi_status;

/* A buffer for MPI.  In a collective, `count` and `type` describe one block of it. */
typedef struct dl_mpi_part {
    void *data;
    int count;
    dl_mpi_handle type;
} dl_mpi_part;

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

typedef struct dl_mpi_table {
    /* constants */
#define X(name, openmpi, mpich, standard) dl_mpi_handle name;
    DL_MPI_HANDLES(X)
#undef X
    void *in_place;
    int any_source;
    int any_tag;
    int thread_multiple;
    int tag_ub; /* the key of an attribute of the world */
    /* the library as a whole */
    int (*init_thread)(int *, char ***, int, int *);
    int (*query_thread)(int *);
    int (*initialized)(int *);
    int (*finalized)(int *);
    int (*finalize)(void);
    int (*error_string)(int, char *, int *);
    /* communicators */
    int (*place)(int *rank, int *size); /* in the world */
    int (*last_tag)(int *tag);          /* the largest that MPI accepts */
    /* Registers `call`, which MPI_Finalize calls first, whichever part of the program
     * calls that.  To be used once. */
    int (*at_finalize)(void (*call)(void));
    int (*comm_free)(dl_mpi_handle);
    int (*comm_set_errhandler)(dl_mpi_handle, dl_mpi_handle errhandler);
    /* Creates a communicator of ranks of the world; only these ranks call it. */
    int (*comm_create)(const int *ranks, int count, int tag, dl_mpi_handle *comm);
    /* functions that do not block */
    int (*isend)(const dl_mpi_part *, int peer, int tag, dl_mpi_handle comm,
                 dl_mpi_handle *request);
    int (*irecv)(const dl_mpi_part *, int peer, int tag, dl_mpi_handle comm,
                 dl_mpi_handle *request);
    /* Lets MPI make progress with what is in flight. */
    int (*progress)(void);
    /* Stores whether a message of `peer` with that tag has arrived, and takes it out of
     * matching: only imrecv can receive it then. */
    int (*improbe)(int peer, int tag, dl_mpi_handle comm, int *is_there,
                   dl_mpi_handle *message, dl_mpi_status *status);
    int (*imrecv)(const dl_mpi_part *, dl_mpi_handle message, dl_mpi_handle *request);
    /* `status` may be NULL. */
    int (*test)(dl_mpi_handle *request, int *is_done, dl_mpi_status *status);
    /* Collectives, which do not block either.  `input` is one block, or in_place; the
     * part is the output, or one block of it.  Of iscatter `input` has all blocks. */
    int (*ibcast)(const dl_mpi_part *, int root, dl_mpi_handle comm,
                  dl_mpi_handle *request);
    int (*iallreduce)(const void *input, const dl_mpi_part *, dl_mpi_handle op,
                      dl_mpi_handle comm, dl_mpi_handle *request);
    int (*ireduce)(const void *input, const dl_mpi_part *, dl_mpi_handle op, int root,
                   dl_mpi_handle comm, dl_mpi_handle *request);
    int (*iscan)(const void *input, const dl_mpi_part *, dl_mpi_handle op,
                 dl_mpi_handle comm, dl_mpi_handle *request);
    int (*iexscan)(const void *input, const dl_mpi_part *, dl_mpi_handle op,
                   dl_mpi_handle comm, dl_mpi_handle *request);
    int (*iallgather)(const void *input, const dl_mpi_part *, dl_mpi_handle comm,
                      dl_mpi_handle *request);
    int (*igather)(const void *input, const dl_mpi_part *, int root, dl_mpi_handle comm,
                   dl_mpi_handle *request);
    int (*iscatter)(const void *input, const dl_mpi_part *, int root,
                    dl_mpi_handle comm, dl_mpi_handle *request);
    /* Creates a datatype of so many bytes, which an int need not count. */
    int (*type_bytes)(size_t size, dl_mpi_handle *type);
    int (*type_free)(dl_mpi_handle type);
} dl_mpi_table;

/* Fill in `table` from the library behind `handle`; `text` is the
 * library's version text. */
dl_status dl_mpi_bind_openmpi(void *handle, const char *text, dl_mpi_table *table);
dl_status dl_mpi_bind_mpich(void *handle, const char *text, dl_mpi_table *table);
dl_status dl_mpi_bind_standard(void *handle, const char *text, dl_mpi_table *table);

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

#endif
