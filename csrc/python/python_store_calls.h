/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of a store written in Python, with every entry present: how each operation
 * becomes a method call. */
#ifndef DISTLITE_PYTHON_PYTHON_STORE_CALLS_H
#define DISTLITE_PYTHON_PYTHON_STORE_CALLS_H

#include "python/python_store.h"

extern const dl_store_ops dlpy_python_store_ops;

/* Of copies: the timeout is kept in the store that the object itself owns. */
dl_store *dlpy_python_store_timeout_owner(dl_store *store);

#endif
