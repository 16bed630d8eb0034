/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Locks and atomic fields for interpreters without a GIL.  In one that has a GIL every
 * lock below is empty and costs nothing.
 *
 * Fields of one object are guarded by its critical section, Py_BEGIN_CRITICAL_SECTION,
 * which the interpreter suspends while the thread waits for another lock or is
 * detached. Data that belongs to no object is guarded by a dlpy_mutex.  Fields that
 * every operation reads are atomic. */
#ifndef DISTLITE_PYTHON_MODULE_FREE_THREADING_H
#define DISTLITE_PYTHON_MODULE_FREE_THREADING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>

#if PY_VERSION_HEX < 0x030d0000
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

/* With a GIL, fields that threads hand to each other need no further ordering. */
#ifdef Py_GIL_DISABLED
#define DLPY_ACQUIRE memory_order_acquire
#define DLPY_RELEASE memory_order_release
#else
#define DLPY_ACQUIRE memory_order_relaxed
#define DLPY_RELEASE memory_order_relaxed
#endif

/* For a plain field of an object that one thread sets while others read it. */
#define DLPY_LOAD(field) __atomic_load_n(&(field), DLPY_ACQUIRE)
#define DLPY_STORE(field, value) __atomic_store_n(&(field), (value), DLPY_RELEASE)

/* A zeroed mutex is open.  No Python code may run while it is held. */
typedef struct dlpy_mutex {
#ifdef Py_GIL_DISABLED
    PyMutex mutex;
#else
    char unused;
#endif
} dlpy_mutex;

static inline void
dlpy_mutex_lock(dlpy_mutex *self)
{
#ifdef Py_GIL_DISABLED
    PyMutex_Lock(&self->mutex);
#else
    (void)self;
#endif
}

static inline void
dlpy_mutex_unlock(dlpy_mutex *self)
{
#ifdef Py_GIL_DISABLED
    PyMutex_Unlock(&self->mutex);
#else
    (void)self;
#endif
}

/* The version of a few atomic fields that are read without a lock: odd while they are
 * written.  Readers load the fields with DLPY_ACQUIRE and writers store them with
 * DLPY_RELEASE. */
typedef struct dlpy_version {
#ifdef Py_GIL_DISABLED
    atomic_uint value;
#else
    char unused;
#endif
} dlpy_version;

/* Returns the version, for dlpy_version_is(). */
static inline unsigned
dlpy_version_read(const dlpy_version *self)
{
#ifdef Py_GIL_DISABLED
    return atomic_load_explicit(&self->value, memory_order_acquire);
#else
    (void)self;
    return 0;
#endif
}

/* Returns whether what was read since dlpy_version_read() belongs together. */
static inline bool
dlpy_version_is(const dlpy_version *self, unsigned version)
{
#ifdef Py_GIL_DISABLED
    return version % 2 == 0
           && atomic_load_explicit(&self->value, memory_order_relaxed) == version;
#else
    (void)self, (void)version;
    return true;
#endif
}

/* Begins to write.  Returns false, and nothing may be written, while another thread
 * does. */
static inline bool
dlpy_version_begin(dlpy_version *self)
{
#ifdef Py_GIL_DISABLED
    unsigned version = atomic_load_explicit(&self->value, memory_order_relaxed);

    return version % 2 == 0
           && atomic_compare_exchange_strong_explicit(&self->value, &version,
                                                      version + 1, memory_order_acquire,
                                                      memory_order_relaxed);
#else
    (void)self;
    return true;
#endif
}

static inline void
dlpy_version_end(dlpy_version *self)
{
#ifdef Py_GIL_DISABLED
    atomic_fetch_add_explicit(&self->value, 1, memory_order_release);
#else
    (void)self;
#endif
}

/* Returns a new reference to a module that has been imported; NULL, without an
 * exception, if it has not. */
PyObject *dlpy_imported_module(const char *name);

/* Returns whether a dict of str has the key; without an exception. */
bool dlpy_dict_has(PyObject *dict, const char *key);

#endif
