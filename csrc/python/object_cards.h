/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How collectives of objects begin: each rank tells all others on a card what it has,
 * and small objects ride on it, so that these need one meeting.  What a card says is
 * known to objects.py alone. */
#ifndef DISTLITE_PYTHON_OBJECT_CARDS_H
#define DISTLITE_PYTHON_OBJECT_CARDS_H

#include "python/state.h"

int dlpy_add_object_cards(PyObject *module);

#endif
