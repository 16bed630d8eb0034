/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Several arrays that an operation takes as one, of coalesced calls (packing.py).  A pack is
 * an argument like any array; only this package makes packs. */
#ifndef DISTLITE_PYTHON_PACK_H
#define DISTLITE_PYTHON_PACK_H

#include "python/array_guard.h"
#include "python/tensor_arg.h"

/* Whether it is a pack, and its view, which lasts as long as the pack. */
bool dlpy_pack_view(PyObject *object, dl_tensor *view);

/* dlpy_tensor_note_write() and dlpy_guard_add() for each array of a pack. */
int dlpy_pack_note_write(PyObject *pack);
int dlpy_pack_guard(dlpy_guard *guard, PyObject *pack);

/* The type and functions of packing.py. */
int dlpy_add_packs(PyObject *module);

#endif
