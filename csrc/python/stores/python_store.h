/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A store written in Python, as the core sees it: each request acquires the GIL and
 * calls the method of that name, with keys as str and values as bytes.  The store
 * executes the requests whose methods its class overrides.  As for any store, the core
 * builds the others from these or reports what is missing.
 *
 * An exception stays set and is reported as DL_INTERRUPTED through the core to its
 * caller in Python. */
#ifndef DISTLITE_PYTHON_STORES_PYTHON_STORE_H
#define DISTLITE_PYTHON_STORES_PYTHON_STORE_H

#include "python/module/state.h"
#include "store/store.h"

#define DLPY_KIND_SIZE 64

typedef struct dlpy_python_store {
    dl_store base;
    dl_store_ops ops;
    dlpy_mutex lock;
    PyObject
        *object; /* guarded by the lock; borrowed unless owns_object; NULL if gone */
    bool owns_object; /* fixed after init */
    char kind[DLPY_KIND_SIZE];
} dlpy_python_store;

/* Creates the store that `object` itself owns, which borrows the object. */
dl_store *dlpy_python_store_new(const dlpy_state *state, PyObject *object);

/* Returns a new store with the same table that keeps the object alive, for the core. */
dl_store *dlpy_python_store_share(dl_store *own);

bool dlpy_python_store_check(const dl_store *store);

/* Called when the object is being freed: later calls through its own store fail. */
void dlpy_python_store_detach(dl_store *own);

/* Returns `store` itself, unless it is written in Python and overrides the method of
 * request `op`.  In that case returns `*base`, a copy without that override, which is
 * valid as long as the caller's frame. */
dl_store *dlpy_python_store_without(dl_store *store, dl_opcode op,
                                    dlpy_python_store *base);

#endif
