/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The Python objects around stores.  Each owns one dl_store; all methods are Store's.
 *
 * A store written in Python (a subclass of Store itself) owns a dl_store that calls
 * back into it and only borrows it, so the two do not form a reference cycle that is
 * invisible to the garbage collector.  Python objects that use such a store
 * (PrefixStore) hold it by an ordinary reference beside the borrowing dl_store; the C
 * core receives the result of dlpy_store_share(). */
#ifndef DISTLITE_PYTHON_STORES_STORE_TYPES_H
#define DISTLITE_PYTHON_STORES_STORE_TYPES_H

#include "python/module/state.h"
#include "store/store.h"

typedef struct dlpy_store {
    PyObject_HEAD dl_store
        *store;      /* NULL until __init__ has run, then fixed until freed */
    PyObject *below; /* PrefixStore only: the store that it is a view of; fixed before
                        `store` is set */
    PyObject *weak_references;
} dlpy_store;

/* Returns the core's store, borrowed as long as `self` lives; NULL if __init__ has not
 * run. */
static inline dl_store *
dlpy_store_made(PyObject *self)
{
    return DLPY_LOAD(((dlpy_store *)self)->store);
}

/* Returns whether `object` is an instance of Store. */
bool dlpy_store_check(const dlpy_state *state, PyObject *object);

/* The same, with a RuntimeError set if a subclass did not call __init__. */
dl_store *dlpy_store_core(PyObject *self);

/* Returns a new reference for the core, which also keeps the Python objects below the
 * store alive.  Returns NULL with an exception set on failure. */
dl_store *dlpy_store_share(const dlpy_state *state, PyObject *self);

/* Returns a new object of `type` that takes ownership of `store`, also on failure. */
PyObject *dlpy_store_wrap(PyTypeObject *type, dl_store *store);

/* The next four are for the types of stores (store_types.c, tcp_store_type.c). */

/* The tp_new of the types whose __init__ creates the store. */
PyObject *dlpy_store_alloc(PyTypeObject *type, PyObject *args, PyObject *keywords);

/* Called first by __init__: fails with an exception set if the object has its store, as
 * a second one would free the first while calls may be using it. */
int dlpy_store_refuse_second_init(PyObject *self);

/* Called last by __init__: sets the new store, which it takes over, or raises the
 * error. */
int dlpy_store_finish_init(PyObject *self, dl_status status, dl_store *store);

/* Returns the repr of an object that has no store yet, for debuggers and tracebacks. */
PyObject *dlpy_store_describe_unmade(PyObject *self);

/* Arguments of TCPStore and of relays (tcp_store_type.c). */

/* Takes a server's host.  A URL, or an address with a port, would be looked up as a name
 * until the timeout; IPv6 has two colons or more. */
int dlpy_host_from(PyObject *object, const char *name, const char **host);
int dlpy_port_from(PyObject *object, uint16_t *port);

/* Takes the job's token from the argument or, if that is None or NULL, from the
 * environment; the caller owns the reference. */
int dlpy_secret_from(const dlpy_state *state, PyObject *object, dl_secret **secret);

/* Loads the OpenSSL that came with this Python, if one did, so that the core uses that
 * one and does not look for another.  Without the module it looks alone. */
void dlpy_load_own_openssl(void);

/* A store written in Python, as the core sees it (python_store.c): each request acquires
 * the GIL and calls the method of that name, with keys as str and values as bytes.  The
 * store executes the requests whose methods its class overrides.  As for any store, the
 * core builds the others from these or reports what is missing.  An exception stays set
 * and is reported as DL_INTERRUPTED through the core to its caller in Python. */
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

/* The methods of Store (store_methods.c). */
extern PyMethodDef dlpy_store_methods[];
PyObject *dlpy_store_get_timeout(PyObject *self, void *closure);

/* Its operators (store_items.c). */
PyObject *dlpy_store_subscript(PyObject *self, PyObject *key);
int dlpy_store_set_subscript(PyObject *self, PyObject *key, PyObject *value);
int dlpy_store_contains(PyObject *self, PyObject *key);
PyObject *dlpy_store_iterate(PyObject *self);

#endif
