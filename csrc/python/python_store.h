/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A store written in Python, as the core sees it: each request takes the GIL and calls the
 * method of that name with keys as str and values as bytes.  The requests that it
 * executes are those whose methods its class overrides, so that the front door makes the
 * others from these, or says what is missing, as for any store.
 *
 * An exception stays set and travels up as DL_INTERRUPTED, past the core, to whoever
 * called it from Python. */
#ifndef DISTLITE_PYTHON_PYTHON_STORE_H
#define DISTLITE_PYTHON_PYTHON_STORE_H

#include "python/state.h"
#include "store/store.h"

#define DLPY_KIND_SIZE 64

typedef struct dlpy_python_store {
    dl_store base;
    dl_store_ops ops;
    PyObject *object; /* under the GIL; borrowed unless `owns_object`; NULL once gone */
    bool owns_object; /* fixed after init */
    char kind[DLPY_KIND_SIZE];
} dlpy_python_store;

/* The store that `object` itself owns; it borrows the object. */
dl_store *dlpy_python_store_new(const dlpy_state *state, PyObject *object);

/* One for the core: a new store with the same table that keeps the object alive. */
dl_store *dlpy_python_store_share(dl_store *own);

bool dlpy_python_store_check(const dl_store *store);

/* The object is being freed: calls that still come in through its own store fail. */
void dlpy_python_store_detach(dl_store *own);

/* `store` itself, unless it is written in Python and overrides the method of request `op`:
 * then `*base`, which does without it and lives as long as the caller's frame. */
dl_store *dlpy_python_store_without(dl_store *store, dl_opcode op,
                                    dlpy_python_store *base);

#endif
