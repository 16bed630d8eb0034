/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How MPI is made to reduce the way this library promises: floats shorter than 32 bits
 * travel as such, and are rounded once, at the end; MIN and MAX of floats pass NaN on by
 * operations of our own; bool is logical; AVG is a sum and a division. */
#ifndef DISTLITE_PG_MPI_MPI_REDUCTION_H
#define DISTLITE_PG_MPI_MPI_REDUCTION_H

#include "pg/mpi/mpi_state.h"

typedef struct dl_mpi_reduction {
    dl_reduce_op op;
    double factor;
    dl_dtype dtype;   /* of the arrays */
    dl_dtype worked;  /* of what is added up */
    size_t item_size; /* of the latter */
    dl_mpi_handle type;
    dl_mpi_handle mpi_op;
    bool is_ours; /* the latter */
} dl_mpi_reduction;

dl_mpi_reduction dl_mpi_reduction_of(const dl_mpi_backend *self, dl_reduce_op op,
                                     double factor, dl_dtype dtype);

/* Whether MPI can have the array itself. */
bool dl_mpi_reduction_is_plain(const dl_mpi_reduction *how, const dl_tensor *tensor);

/* Room for `count` elements, and behind them for the same unwidened. */
dl_status dl_mpi_reduction_reserve(dl_buffer *buffer, const dl_mpi_reduction *how,
                                   size_t count);

/* The array in a row, scaled and widened; `shorts` has room for it unwidened. */
void dl_mpi_reduction_load(const dl_mpi_reduction *how, const dl_tensor *tensor,
                           void *target, void *shorts);

/* The way back, after the division; behind `source` is room for it unwidened. */
void dl_mpi_reduction_store(const dl_mpi_reduction *how, const dl_tensor *tensor,
                            void *source, int divisor);

#endif
