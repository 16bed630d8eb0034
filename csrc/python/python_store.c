/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/python_store.h"

#include <stddef.h>
#include <string.h>

#include "python/python_store_calls.h"
#include "python/store_types.h"

/* Which entry of the table answers to which method. */
static const struct {
    const char *method;
    size_t entry;
} entries[] = {
    {"set", offsetof(dl_store_ops, set)},
    {"get", offsetof(dl_store_ops, get)},
    {"add", offsetof(dl_store_ops, add)},
    {"compare_set", offsetof(dl_store_ops, compare_set)},
    {"delete_key", offsetof(dl_store_ops, delete_key)},
    {"check", offsetof(dl_store_ops, check)},
    {"wait", offsetof(dl_store_ops, wait)},
    {"num_keys", offsetof(dl_store_ops, num_keys)},
    {"list_keys", offsetof(dl_store_ops, list_keys)},
    {"append", offsetof(dl_store_ops, append)},
    {"multi_get", offsetof(dl_store_ops, multi_get)},
    {"multi_set", offsetof(dl_store_ops, multi_set)},
    {"queue_push", offsetof(dl_store_ops, queue_push)},
    {"queue_pop", offsetof(dl_store_ops, queue_pop)},
    {"queue_len", offsetof(dl_store_ops, queue_len)},
    {"barrier", offsetof(dl_store_ops, barrier)},
    {"clone", offsetof(dl_store_ops, clone)},
};

/* Entries are function pointers of one size; a NULL one is all zero bytes on every
 * system that has dlopen(3). */
static void
remove_entry(dl_store_ops *ops, size_t entry)
{
    memset((char *)ops + entry, 0, sizeof ops->set);
}

/* -1 with an exception, otherwise whether the class of `object` has its own `method`. */
static int
overrides(const dlpy_state *state, PyObject *object, const char *method)
{
    PyObject *own = PyObject_GetAttrString((PyObject *)Py_TYPE(object), method);
    PyObject *ours = PyObject_GetAttrString((PyObject *)state->store_type, method);
    int result = own == NULL || ours == NULL ? -1 : own != ours;

    Py_XDECREF(own);
    Py_XDECREF(ours);
    return result;
}

/* Looked up once: overrides belong to a class, and classes are complete by the time that
 * they have objects.  Calls still go through the object, so it may shadow a method. */
static int
fill_table(const dlpy_state *state, dlpy_python_store *store)
{
    store->ops = dlpy_python_store_ops;
    store->ops.kind = store->kind;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        int overridden = overrides(state, store->object, entries[i].method);
        if (overridden < 0) {
            return -1;
        }
        if (!overridden) {
            remove_entry(&store->ops, entries[i].entry);
        }
    }
    store->ops.has_extended_api = store->ops.append != NULL
                                  && store->ops.multi_get != NULL
                                  && store->ops.multi_set != NULL;
    return 0;
}

/* Raw memory, because the last reference may be dropped without the GIL. */
dl_store *
dlpy_python_store_new(const dlpy_state *state, PyObject *object)
{
    dlpy_python_store *store = PyMem_RawCalloc(1, sizeof *store);

    if (store == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    store->object = object;
    PyOS_snprintf(store->kind, sizeof store->kind, "%s", Py_TYPE(object)->tp_name);
    if (fill_table(state, store) < 0) {
        PyMem_RawFree(store);
        return NULL;
    }
    dl_store_init(&store->base, &store->ops);
    return &store->base;
}

/* A copy with a table of its own, at a place of its own. */
static void
copy_store(dlpy_python_store *copy, const dlpy_python_store *own)
{
    *copy = (dlpy_python_store){.ops = own->ops, .object = own->object};
    memcpy(copy->kind, own->kind, sizeof copy->kind);
    copy->ops.kind = copy->kind;
    copy->ops.timeout_owner = dlpy_python_store_timeout_owner;
    dl_store_init(&copy->base, &copy->ops);
    atomic_init(&copy->base.is_closed, atomic_load(&own->base.is_closed));
}

dl_store *
dlpy_python_store_share(dl_store *own)
{
    dlpy_python_store *shared = PyMem_RawCalloc(1, sizeof *shared);

    if (shared == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    copy_store(shared, (dlpy_python_store *)own);
    Py_INCREF(shared->object);
    shared->owns_object = true;
    return &shared->base;
}

/* Tables are per object; what all of them share is how they are freed. */
bool
dlpy_python_store_check(const dl_store *store)
{
    return store->ops->free == dlpy_python_store_ops.free;
}

/* Under the GIL, as all that looks at `object`. */
void
dlpy_python_store_detach(dl_store *own)
{
    ((dlpy_python_store *)own)->object = NULL;
}

dl_store *
dlpy_python_store_without(dl_store *store, size_t method, dlpy_python_store *base)
{
    static const char no_entry[sizeof store->ops->set];

    if (!dlpy_python_store_check(store)
        || memcmp((const char *)store->ops + method, no_entry, sizeof no_entry) == 0) {
        return store;
    }
    copy_store(base, (dlpy_python_store *)store);
    remove_entry(&base->ops, method);
    return &base->base;
}
