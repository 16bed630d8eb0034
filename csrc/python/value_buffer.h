/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A dl_buffer that the core fills without the GIL and that then becomes a bytes object.
 * A large one is allocated as a bytes object from the start: a second copy would cost
 * as much as receiving the value. */
#ifndef DISTLITE_PYTHON_VALUE_BUFFER_H
#define DISTLITE_PYTHON_VALUE_BUFFER_H

#include "base/buffer.h"
#include "python/state.h"

/* Returns an empty buffer. */
dl_buffer dlpy_value_buffer(void);

/* Returns the contents as bytes, or NULL with an exception set.  The buffer is emptied
 * in either case. */
PyObject *dlpy_object_from_buffer(dl_buffer *buffer);

#endif
