/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The frequent values of safe mode in bytes and back: None, bool, int, float, str, bytes,
 * list, tuple, dict, and exactly these.  The format is that of safe_encode.py.  All that
 * is rare goes to a function written in Python, which comes back here for what is inside;
 * safe_encode.py and safe_decode.py have these. */
#ifndef DISTLITE_PYTHON_SAFE_CODEC_H
#define DISTLITE_PYTHON_SAFE_CODEC_H

#include "python/state.h"

/* Deeper than data are, and far from the end of the stack. */
#define DLPY_SAFE_DEPTH_LIMIT 200

/* Room for a count of 64 bits, seven in each byte. */
#define DLPY_SAFE_COUNT_BYTES 10

/* Functions of the module, in their own files. */
PyObject *dlpy_put_plain(PyObject *module, PyObject *const *args, Py_ssize_t count,
                         PyObject *keywords);
PyObject *dlpy_take_plain(PyObject *module, PyObject *const *args, Py_ssize_t count,
                          PyObject *keywords);

int dlpy_add_safe_codec(PyObject *module);

#endif
