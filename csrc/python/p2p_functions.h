/* SPDX-License-Identifier: BSD-3-Clause
 *
 * send, recv, isend and irecv: builtins, as the collectives are. */
#ifndef DISTLITE_PYTHON_P2P_FUNCTIONS_H
#define DISTLITE_PYTHON_P2P_FUNCTIONS_H

#include "python/state.h"

int dlpy_add_p2p_functions(PyObject *module);

#endif
