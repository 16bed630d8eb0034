/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI's calls as this library uses them, whatever MPI it is.  The three binary interfaces
 * differ in the type of handles, in constants and in the layout of a status; here a handle
 * is as wide as a pointer, and one file per family fills in the same table from our own
 * declarations.  Results are MPI's: 0 is success, all else is for dl_mpi_check(). */
#ifndef DISTLITE_PG_MPI_MPI_TABLE_H
#define DISTLITE_PG_MPI_MPI_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/library.h"

typedef uintptr_t dl_mpi_handle;

/* Of a message that has come. */
typedef struct dl_mpi_status {
    int source;
    int bytes; /* negative: more than an int can count */
    int is_cancelled;
} dl_mpi_status;

typedef void dl_mpi_user_fn(void *in, void *inout, int *count, void *type);

/* One side of a collective: `count` and `type` of each block. */
typedef struct dl_mpi_part {
    void *data;
    int count;
    dl_mpi_handle type;
} dl_mpi_part;

/* Blocks of different sizes, by rank, in elements of `type`. */
typedef struct dl_mpi_parts {
    void *data;
    const int *counts;
    const int *offsets;
    dl_mpi_handle type;
} dl_mpi_parts;

/* Longer than any family's texts. */
#define DL_MPI_TEXT_SIZE 8193

typedef struct dl_mpi_table {
    const char *family;
    /* constants */
    void *in_place;
    int any_source;
    /* Reductions by an operation of ours send all of an array in each round. */
    bool sends_all;
    int thread_multiple;
    /* A message of so many bytes is on its way at once, even if nobody receives it yet;
     * longer ones may wait for an answer first. */
    int eager_size;
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
    int (*last_tag)(int *tag); /* the largest that a message may have */
    /* To be called at the beginning of MPI_Finalize, whoever calls that; once. */
    int (*at_finalize)(void (*call)(void));
    int (*comm_free)(dl_mpi_handle);
    int (*comm_set_errhandler)(dl_mpi_handle, dl_mpi_handle errhandler);
    /* Of the world's ranks; for these to call. */
    int (*comm_create)(const int *ranks, int count, int tag, dl_mpi_handle *comm);
    /* what does not wait */
    int (*isend)(const dl_mpi_part *, int peer, int tag, dl_mpi_handle comm,
                 dl_mpi_handle *request);
    /* The same, but done only when a receive has taken it. */
    int (*issend)(const dl_mpi_part *, int peer, int tag, dl_mpi_handle comm,
                  dl_mpi_handle *request);
    int (*irecv)(const dl_mpi_part *, int peer, int tag, dl_mpi_handle comm,
                 dl_mpi_handle *request);
    int (*ibcast)(const dl_mpi_part *, int root, dl_mpi_handle comm,
                  dl_mpi_handle *request);
    /* Whether a message with that tag has come, and from whom. */
    int (*iprobe)(int tag, dl_mpi_handle comm, int *is_there, int *source);
    /* Whether such a message has come; it is then `imrecv`'s alone. */
    int (*improbe)(int peer, int tag, dl_mpi_handle comm, int *is_there,
                   dl_mpi_handle *message, int *source);
    int (*imrecv)(const dl_mpi_part *, dl_mpi_handle message, dl_mpi_handle *request);
    /* `status` may be NULL. */
    int (*test)(dl_mpi_handle *request, int *is_done, dl_mpi_status *status);
    int (*cancel)(dl_mpi_handle *request);
    /* collectives, which wait */
    int (*bcast)(const dl_mpi_part *, int root, dl_mpi_handle comm);
    int (*allreduce)(const void *, const dl_mpi_part *, dl_mpi_handle op,
                     dl_mpi_handle comm);
    int (*reduce)(const void *, const dl_mpi_part *, dl_mpi_handle op, int root,
                  dl_mpi_handle comm);
    int (*reduce_scatter)(const void *, const dl_mpi_parts *, dl_mpi_handle op,
                          dl_mpi_handle comm);
    int (*reduce_scatter_block)(const void *, const dl_mpi_part *, dl_mpi_handle op,
                                dl_mpi_handle comm);
    int (*allgather)(const dl_mpi_part *, const dl_mpi_part *, dl_mpi_handle comm);
    int (*allgatherv)(const dl_mpi_part *, const dl_mpi_parts *, dl_mpi_handle comm);
    int (*gather)(const dl_mpi_part *, const dl_mpi_part *, int root,
                  dl_mpi_handle comm);
    int (*scatter)(const dl_mpi_part *, const dl_mpi_part *, int root,
                   dl_mpi_handle comm);
    int (*alltoall)(const dl_mpi_part *, const dl_mpi_part *, dl_mpi_handle comm);
    int (*alltoallv)(const dl_mpi_parts *, const dl_mpi_parts *, dl_mpi_handle comm);
    /* types and reductions of our own */
    int (*op_create)(dl_mpi_user_fn *function, dl_mpi_handle *op);
    int (*type_contiguous)(int count, dl_mpi_handle of, dl_mpi_handle *type);
    int (*type_pair)(const int counts[2], const int64_t offsets[2],
                     const dl_mpi_handle types[2], dl_mpi_handle *type);
    int (*type_free)(dl_mpi_handle type);
} dl_mpi_table;

/* Each fills in `table` from its library; `text` is what that says of itself. */
dl_status dl_mpi_bind_openmpi(void *handle, const char *text, dl_mpi_table *table);
dl_status dl_mpi_bind_mpich(void *handle, const char *text, dl_mpi_table *table);
dl_status dl_mpi_bind_standard(void *handle, const char *text, dl_mpi_table *table);

/* How the libraries are looked for, for texts. */
extern const dl_library dl_mpi_library;

/* The library, loaded once: DL_NOT_FOUND or DL_UNSUPPORTED says what is missing.  Starts
 * nothing. */
dl_status dl_mpi_load(const dl_mpi_table **table);

/* The first line that the loaded library says of itself, and its file. */
const char *dl_mpi_library_text(void);
const char *dl_mpi_library_path(void);

/* DL_BACKEND with what the library says of `result`. */
dl_status dl_mpi_fail(const dl_mpi_table *mpi, int result, const char *call);

static inline dl_status
dl_mpi_check(const dl_mpi_table *mpi, int result, const char *call)
{
    return result == 0 ? DL_OK : dl_mpi_fail(mpi, result, call);
}

#endif
