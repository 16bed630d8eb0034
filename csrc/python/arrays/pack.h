/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A pack: several arrays that an operation takes as one, for coalesced calls
 * (packing.py).  A pack is passed like any array; only this package creates packs. */
#ifndef DISTLITE_PYTHON_ARRAYS_PACK_H
#define DISTLITE_PYTHON_ARRAYS_PACK_H

#include "python/arrays/array_guard.h"

/* Returns true if `object` is a pack, and stores its view, which is valid as long as
 * the pack. */
bool dlpy_pack_view(PyObject *object, dl_tensor *view);

/* Call dlpy_tensor_note_write() and dlpy_guard_add() for each array of a pack. */
int dlpy_pack_note_write(PyObject *pack);
int dlpy_pack_guard(dlpy_guard *guard, PyObject *pack);

/* Returns 0, or -1 with a TypeError set if `object` is neither a list nor a tuple. */
int dlpy_array_list_check(PyObject *object);

#endif
