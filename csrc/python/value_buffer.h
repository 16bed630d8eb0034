/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A dl_buffer that the core fills without the GIL and that then becomes a bytes object.
 * A large one is that object from the start: a second copy would cost as much as
 * receiving it did. */
#ifndef DISTLITE_PYTHON_VALUE_BUFFER_H
#define DISTLITE_PYTHON_VALUE_BUFFER_H

#include "base/buffer.h"
#include "python/state.h"

/* Empty. */
dl_buffer dlpy_value_buffer(void);

/* Bytes with what the buffer holds, which is emptied in any case; NULL with an
 * exception. */
PyObject *dlpy_object_from_buffer(dl_buffer *buffer);

#endif
