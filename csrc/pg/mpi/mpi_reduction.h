/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How MPI is made to reduce as this library promises: floats shorter than 32 bits
 * are widened to float32 and rounded once, at the end; MIN and MAX of floats
 * propagate NaN by operations of our own; operations on bool are logical; AVG is a
 * sum and a division. */
#ifndef DISTLITE_PG_MPI_MPI_REDUCTION_H
#define DISTLITE_PG_MPI_MPI_REDUCTION_H

#include "pg/mpi/mpi_state.h"

typedef struct dl_mpi_reduction {
    dl_reduce_op op;
    double factor;
    dl_dtype dtype;   /* of the arrays */
    dl_dtype worked;  /* that the reduction computes in */
    size_t item_size; /* of an element of `worked` */
    dl_mpi_handle type;
    dl_mpi_handle mpi_op;
    bool is_ours; /* mpi_op is an operation of our own */
} dl_mpi_reduction;

dl_mpi_reduction dl_mpi_reduction_of(const dl_mpi_backend *self, dl_reduce_op op,
                                     double factor, dl_dtype dtype);

/* Returns whether MPI can take the array itself: it is contiguous, aligned
 * and not widened. */
bool dl_mpi_reduction_is_plain(const dl_mpi_reduction *how, const dl_tensor *tensor);

/* Reserves room for `count` widened elements, and behind them for the same
 * unwidened. */
dl_status dl_mpi_reduction_reserve(dl_buffer *buffer, const dl_mpi_reduction *how,
                                   size_t count);

/* Copies the array to `target`: contiguous, multiplied by the factor of PREMUL_SUM, and
 * widened; `shorts` has room for it unwidened. */
void dl_mpi_reduction_load(const dl_mpi_reduction *how, const dl_tensor *tensor,
                           void *target, void *shorts);

/* Copies a result to the array, for AVG after the division; behind `source` there is
 * room for it unwidened. */
void dl_mpi_reduction_store(const dl_mpi_reduction *how, const dl_tensor *tensor,
                            void *source, int divisor);

#endif
