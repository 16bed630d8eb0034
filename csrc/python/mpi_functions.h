/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The MPI functions that creating the default group needs: which library is used, the
 * rank and size of this process, and the address at which rank 0 serves the store. */
#ifndef DISTLITE_PYTHON_MPI_FUNCTIONS_H
#define DISTLITE_PYTHON_MPI_FUNCTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int dlpy_add_mpi_functions(PyObject *module);

#endif
