/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The first step of collectives of objects: each rank sends all others a card that
 * describes its object.  Small objects are part of the card, so they need one exchange
 * only.  The format of cards is known to objects.py alone. */
#ifndef DISTLITE_PYTHON_OBJECT_CARDS_H
#define DISTLITE_PYTHON_OBJECT_CARDS_H

#include "python/state.h"

int dlpy_add_object_cards(PyObject *module);

#endif
