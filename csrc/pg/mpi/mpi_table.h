/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's functions as this library uses them, whichever MPI library is loaded.  The
 * three binary interfaces differ in the type of handles, in constants and in the layout
 * of a status.  Here a handle is as wide as a pointer, and one file per family fills in
 * the same table from its own declarations.  The functions return MPI's result codes: 0
 * is success, and dl_mpi_check() turns any other into an error. */
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

/* Longer than the texts of any family, for errors and for versions. */
#define DL_MPI_TEXT_SIZE 8193

typedef struct dl_mpi_table {
    /* constants */
    void *in_place;
    int any_source;
    int any_tag;
    int thread_multiple;
    dl_mpi_handle world, self, errors_return, byte;
    dl_mpi_handle int8, uint8, int16, uint16, int32, uint32, int64, uint64;
    dl_mpi_handle float32, float64, complex64, complex128;
    dl_mpi_handle sum, product, min, max, land, lor, lxor, band, bor, bxor;
    /* the library as a whole */
    int (*init_thread)(int *, char ***, int, int *);
    int (*query_thread)(int *);
    int (*initialized)(int *);
    int (*finalized)(int *);
    int (*finalize)(void);
    int (*error_string)(int, char *, int *);
    /* communicators */
    int (*comm_rank)(dl_mpi_handle, int *rank);
    int (*comm_size)(dl_mpi_handle, int *size);
    int (*last_tag)(int *tag); /* the largest that MPI accepts */
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
    /* Stores whether a message with that tag has arrived, and from which rank. */
    int (*iprobe)(int tag, dl_mpi_handle comm, int *is_there, int *source);
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
    /* datatypes of our own */
    int (*type_contiguous)(int count, dl_mpi_handle of, dl_mpi_handle *type);
    int (*type_pair)(const int counts[2], const int64_t offsets[2],
                     const dl_mpi_handle types[2], dl_mpi_handle *type);
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
