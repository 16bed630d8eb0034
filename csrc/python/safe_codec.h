/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Encodes and decodes the frequent values of safe mode: None, bool, int, float, str,
 * bytes, list, tuple and dict, without their subclasses.  The format is described in
 * safe_encode.py.  Other values are passed to a function written in Python, which calls
 * back for nested values; safe_encode.py and safe_decode.py contain these functions. */
#ifndef DISTLITE_PYTHON_SAFE_CODEC_H
#define DISTLITE_PYTHON_SAFE_CODEC_H

#include "python/state.h"

/* Deeper than practical data, and well within the size of the stack. */
#define DLPY_SAFE_DEPTH_LIMIT 200

/* The longest encoding of a 64-bit count, with seven bits in each byte. */
#define DLPY_SAFE_COUNT_BYTES 10

/* Module functions, defined in safe_encode.c and safe_decode.c. */
PyObject *dlpy_put_plain(PyObject *module, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords);
PyObject *dlpy_take_plain(PyObject *module, PyObject *const *args, Py_ssize_t count,
                          PyObject *keywords);

int dlpy_add_safe_codec(PyObject *module);

#endif
