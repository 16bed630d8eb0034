/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What making the default group asks of MPI: which library, which rank of how many, and
 * where rank 0 serves the store. */
#ifndef DISTLITE_PYTHON_MPI_FUNCTIONS_H
#define DISTLITE_PYTHON_MPI_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int dlpy_add_mpi_functions(PyObject *module);

#endif
