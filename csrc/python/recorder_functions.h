/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module functions through which distlite.tools reads the recorder. */
#ifndef DISTLITE_PYTHON_RECORDER_FUNCTIONS_H
#define DISTLITE_PYTHON_RECORDER_FUNCTIONS_H

#include "python/state.h"

int dlpy_add_recorder_functions(PyObject *module);

#endif
