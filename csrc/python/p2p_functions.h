/* SPDX-License-Identifier: BSD-3-Clause
 *
 * send, recv, isend and irecv as builtins, like the collectives. */
#ifndef DISTLITE_PYTHON_P2P_FUNCTIONS_H
#define DISTLITE_PYTHON_P2P_FUNCTIONS_H

#include "python/state.h"

int dlpy_add_p2p_functions(PyObject *module);

#endif
