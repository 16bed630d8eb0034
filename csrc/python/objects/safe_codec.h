/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small plain values as data, in the format of safe_codec.py, without a call of Python.
 * All other values, and errors, are up to the caller, who has pickle or safe_codec.py. */
#ifndef DISTLITE_PYTHON_OBJECTS_SAFE_CODEC_H
#define DISTLITE_PYTHON_OBJECTS_SAFE_CODEC_H

#include "base/bytes.h"
#include "python/module/state.h"

/* Encodes a value that is made of None, bool, int, float, str, bytes, list, tuple and
 * dict only, and whose copy is like it: each of its containers occurs in it once.
 * Returns the size, or -1, without an exception, if it is another value or has no room;
 * the memory is undefined then. */
Py_ssize_t dlpy_data_encode(PyObject *value, uint8_t *memory, size_t room);

/* Returns the value, or NULL, without an exception, if it has other parts or the bytes
 * are malformed, which safe_codec.py tells. */
PyObject *dlpy_data_decode(dl_bytes data);

#endif
