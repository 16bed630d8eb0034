/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/stores/store_types.h"

#include <stddef.h>
#include <structmember.h>

#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"
#include "store/file_store.h"
#include "store/hash_store.h"
#include "store/prefix_store.h"

bool
dlpy_store_check(const dlpy_state *state, PyObject *object)
{
    return PyObject_TypeCheck(object, state->store_type);
}

dl_store *
dlpy_store_core(PyObject *self)
{
    dl_store *store = dlpy_store_made(self);

    if (store == NULL) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s.__init__() has not run: a subclass must call "
                     "super().__init__()",
                     Py_TYPE(self)->tp_name);
    }
    return store;
}

/* A view of a store written in Python is created anew over a store that owns the
 * object; for all other stores a reference is taken. */
dl_store *
dlpy_store_share(const dlpy_state *state, PyObject *self)
{
    dl_store *own = dlpy_store_core(self);
    PyObject *below = ((dlpy_store *)self)->below;

    if (own == NULL) {
        return NULL;
    }
    if (dlpy_python_store_check(own)) {
        return dlpy_python_store_share(own);
    }
    if (below == NULL) {
        return dl_store_ref(own);
    }
    /* Recurses through views of views. */
    dl_store *shared_below = dlpy_store_share(state, below);
    if (shared_below == NULL) {
        return NULL;
    }
    dl_store *shared = NULL;
    dl_status status =
        dl_prefix_store_new(dl_prefix_store_prefix(own), shared_below, &shared);
    DLPY_END(dl_store_unref(shared_below));
    if (status != DL_OK) {
        PyErr_NoMemory();
    }
    return shared;
}

PyObject *
dlpy_store_describe_unmade(PyObject *self)
{
    return PyUnicode_FromFormat("<%s at %p, before __init__()>", Py_TYPE(self)->tp_name,
                                (void *)self);
}

PyObject *
dlpy_store_alloc(PyTypeObject *type, PyObject *Py_UNUSED(args),
                 PyObject *Py_UNUSED(keywords))
{
    return type->tp_alloc(type, 0);
}

/* Does not call __init__, which would create another store. */
PyObject *
dlpy_store_wrap(PyTypeObject *type, dl_store *store)
{
    dlpy_store *self = (dlpy_store *)type->tp_alloc(type, 0);

    if (self == NULL) {
        DLPY_END(dl_store_unref(store));
        return NULL;
    }
    self->store = store;
    return (PyObject *)self;
}

int
dlpy_store_refuse_second_init(PyObject *self)
{
    if (dlpy_store_made(self) != NULL) {
        PyErr_Format(PyExc_RuntimeError, "%s.__init__() has run already",
                     Py_TYPE(self)->tp_name);
        return -1;
    }
    return 0;
}

/* Gives the object its store, over `below` unless that is NULL.  Takes ownership of
 * `store`, also on failure.  Checks again, as another thread may have done so while the
 * store was created. */
static int
adopt(PyObject *self, dl_store *store, PyObject *below)
{
    int result;

    Py_BEGIN_CRITICAL_SECTION(self);
    result = dlpy_store_refuse_second_init(self);
    if (result == 0) {
        ((dlpy_store *)self)->below = Py_XNewRef(below);
        DLPY_STORE(((dlpy_store *)self)->store, store);
    }
    Py_END_CRITICAL_SECTION();
    if (result < 0) {
        DLPY_END(dl_store_unref(store));
    }
    return result;
}

/* Called only for Store itself and for Python subclasses of it; each method then checks
 * for an override.  Creates the store here so that subclasses need not call
 * super().__init__(). */
static PyObject *
store_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    dlpy_state *state = dlpy_state_of_type(type);

    if (state == NULL) {
        return NULL;
    }
    PyObject *self = dlpy_store_alloc(type, args, keywords);
    if (self != NULL) {
        ((dlpy_store *)self)->store = dlpy_python_store_new(state, self);
        if (((dlpy_store *)self)->store == NULL) {
            Py_CLEAR(self);
        }
    }
    return self;
}

/* Takes no arguments; neither do subclasses without their own __init__. */
static int
store_init(PyObject *Py_UNUSED(self), PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {"Store", 0, {NULL}};

    return dlpy_take_init_arguments(&signature, args, keywords, NULL);
}

static int
store_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((dlpy_store *)self)->below);
    return 0;
}

/* The core's store is dropped together with `below`, without which it must not be
 * called. */
static int
store_clear(PyObject *self)
{
    dlpy_store *store = (dlpy_store *)self;

    if (store->below != NULL) {
        dl_store *core = store->store;
        store->store = NULL;
        DLPY_END(dl_store_unref(core));
        Py_CLEAR(store->below);
    }
    return 0;
}

/* Calls in progress hold the object, so no call uses the core's store any more, except
 * through references from dlpy_store_share(), which are counted. */
static void
store_dealloc(PyObject *self)
{
    dlpy_store *store = (dlpy_store *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    /* First, since dropping the store releases the GIL: no other thread may obtain an
     * object that is being deallocated. */
    if (store->weak_references != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    store_clear(self);
    if (store->store != NULL) {
        if (dlpy_python_store_check(store->store)) {
            dlpy_python_store_detach(store->store);
        }
        DLPY_END(dl_store_unref(store->store));
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef store_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(dlpy_store, weak_references), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef store_properties[] = {
    {"timeout", dlpy_store_get_timeout, NULL, DLPY_DOC_STORE_TIMEOUT, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(store_doc, "Store()\n--\n\n" DLPY_DOC_STORE);

static PyType_Slot store_slots[] = {
    {Py_tp_doc, (void *)store_doc},
    {Py_tp_new, store_new},
    {Py_tp_init, store_init},
    {Py_tp_dealloc, store_dealloc},
    {Py_tp_traverse, store_traverse},
    {Py_tp_clear, store_clear},
    {Py_tp_methods, dlpy_store_methods},
    {Py_tp_members, store_members},
    {Py_tp_getset, store_properties},
    {Py_mp_subscript, dlpy_store_subscript},
    {Py_mp_ass_subscript, dlpy_store_set_subscript},
    {Py_sq_contains, dlpy_store_contains},
    {Py_tp_iter, dlpy_store_iterate},
    {0, NULL},
};

static PyType_Spec store_spec = {
    .name = "distlite.Store",
    .basicsize = sizeof(dlpy_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC
             | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = store_slots,
};

int
dlpy_store_finish_init(PyObject *self, dl_status status, dl_store *store)
{
    if (status != DL_OK) {
        dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
        if (state != NULL) {
            dlpy_raise_store(state, status);
        }
        return -1;
    }
    return adopt(self, store, NULL);
}

/* Stores are created in __init__ rather than __new__, here and below: a Python subclass
 * may take arguments of its own and pass on others. */
static int
hash_store_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {"HashStore", 0, {NULL}};
    dl_store *store = NULL;

    if (dlpy_take_init_arguments(&signature, args, keywords, NULL) < 0
        || dlpy_store_refuse_second_init(self) < 0) {
        return -1;
    }
    dl_status status = dl_hash_store_new(&store);
    return dlpy_store_finish_init(self, status, store);
}

/* The address distinguishes two empty stores. */
static PyObject *
hash_store_repr(PyObject *self)
{
    dl_store *store = dlpy_store_made(self);
    char keys[40] = "";

    if (store == NULL) {
        return dlpy_store_describe_unmade(self);
    }
    long long count = (long long)dl_hash_store_try_count(store);
    if (count >= 0) {
        PyOS_snprintf(keys, sizeof keys, " with %lld key%s", count,
                      count == 1 ? "" : "s");
    }
    return PyUnicode_FromFormat("<%s%s at %p>", Py_TYPE(self)->tp_name, keys,
                                (void *)self);
}

PyDoc_STRVAR(hash_store_doc, "HashStore()\n--\n\n" DLPY_DOC_HASHSTORE);

static PyType_Slot hash_store_slots[] = {
    {Py_tp_doc, (void *)hash_store_doc},
    {Py_tp_new, dlpy_store_alloc},
    {Py_tp_init, hash_store_init},
    {Py_tp_repr, hash_store_repr},
    {0, NULL},
};

static PyType_Spec hash_store_spec = {
    .name = "distlite.HashStore",
    .basicsize = sizeof(dlpy_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hash_store_slots,
};

/* Converts a path as open() does; `*path` is a bytes object. */
static int
path_from(PyObject *object, const char *what, PyObject **path)
{
    if (!PyUnicode_FSConverter(object, path)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Format(PyExc_TypeError,
                         "%s must be str, bytes or os.PathLike, not %s", what,
                         Py_TYPE(object)->tp_name);
        }
        return -1;
    }
    return 0;
}

static void
describe_opening(const void *subject, char text[DL_WAIT_ROW_TEXT])
{
    snprintf(text, DL_WAIT_ROW_TEXT, "FileStore('%.80s')", (const char *)subject);
}

/* Releases the GIL: creating the store may wait for the file's lock.  It takes no
 * deadline, as the store's own timeout bounds the wait. */
static int
file_store_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {
        "FileStore", 1, {"file_name", "world_size"}};
    PyObject *values[2];
    PyObject *path;
    int64_t world_size = -1;
    dl_store *store = NULL;
    dl_waiting waiting;
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    dl_status status;

    if (state == NULL
        || dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_store_refuse_second_init(self) < 0
        || (values[1] != NULL
            && dlpy_int64_from(values[1], "world_size", &world_size) < 0)
        || path_from(values[0], "file_name", &path) < 0) {
        return -1;
    }
    const char *name = PyBytes_AS_STRING(path);
    dlpy_waiting_enter(state, &waiting, describe_opening, name, dl_deadline_after(-1));
    Py_BEGIN_ALLOW_THREADS
    status = dl_file_store_new(name, world_size, &store);
    Py_END_ALLOW_THREADS
    dl_waiting_end(&waiting);
    int result = dlpy_store_finish_init(self, status, store);
    Py_DECREF(path);
    return result;
}

static PyObject *
file_store_path(PyObject *self, void *Py_UNUSED(closure))
{
    dl_store *store = dlpy_store_core(self);

    return store == NULL ? NULL : PyUnicode_DecodeFSDefault(dl_file_store_path(store));
}

static PyObject *
file_store_repr(PyObject *self)
{
    if (dlpy_store_made(self) == NULL) {
        return dlpy_store_describe_unmade(self);
    }
    PyObject *path = file_store_path(self, NULL);
    PyObject *text = path == NULL ? NULL : PyUnicode_FromFormat("FileStore(%R)", path);

    Py_XDECREF(path);
    return text;
}

static PyGetSetDef file_store_properties[] = {
    {"path", file_store_path, NULL, DLPY_DOC_FILESTORE_PATH, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(file_store_doc,
             "FileStore(file_name, world_size=-1)\n--\n\n" DLPY_DOC_FILESTORE);

static PyType_Slot file_store_slots[] = {
    {Py_tp_doc, (void *)file_store_doc},   {Py_tp_new, dlpy_store_alloc},
    {Py_tp_init, file_store_init},         {Py_tp_repr, file_store_repr},
    {Py_tp_getset, file_store_properties}, {0, NULL},
};

static PyType_Spec file_store_spec = {
    .name = "distlite.FileStore",
    .basicsize = sizeof(dlpy_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = file_store_slots,
};

/* Returns NULL with an exception set on failure. */
static dl_store *
core_of_argument(const dlpy_state *state, PyObject *object)
{
    if (object == Py_None) {
        PyErr_SetString(PyExc_ValueError, "store argument cannot be None");
        return NULL;
    }
    if (!dlpy_store_check(state, object)) {
        PyErr_Format(PyExc_TypeError, "store must be a Store, not %s",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    return dlpy_store_core(object);
}

/* The core's store below may only borrow its Python object, so that object is kept as
 * well.  It is also what underlying_store returns, the same object that was passed. */
static int
prefix_store_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {"PrefixStore", 2, {"prefix", "store"}};
    dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
    PyObject *values[2];
    dlpy_bytes prefix;
    dl_store *store = NULL;

    if (state == NULL
        || dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_store_refuse_second_init(self) < 0) {
        return -1;
    }
    dl_store *below = core_of_argument(state, values[1]);
    if (below == NULL || dlpy_bytes_from(values[0], "prefix", &prefix) < 0) {
        return -1;
    }
    dl_status status = dl_prefix_store_new(prefix.bytes, below, &store);
    if (status != DL_OK) {
        dlpy_raise_store(state, status);
    }
    dlpy_bytes_release(&prefix);
    return status != DL_OK ? -1 : adopt(self, store, values[1]);
}

static PyObject *
underlying_store(PyObject *self, void *Py_UNUSED(closure))
{
    if (dlpy_store_core(self) == NULL) {
        return NULL;
    }
    return Py_NewRef(((dlpy_store *)self)->below);
}

/* Follows the views to the first object that is not one, whatever its class. */
static PyObject *
underlying_non_prefix_store(PyObject *self, void *Py_UNUSED(closure))
{
    if (dlpy_store_core(self) == NULL) {
        return NULL;
    }
    PyObject *store = self;
    while (((dlpy_store *)store)->below != NULL) {
        store = ((dlpy_store *)store)->below;
    }
    return Py_NewRef(store);
}

static PyObject *
prefix_store_repr(PyObject *self)
{
    dl_store *store = dlpy_store_made(self);

    if (store == NULL) {
        return dlpy_store_describe_unmade(self);
    }
    PyObject *prefix = dlpy_text_from(dl_prefix_store_prefix(store));
    PyObject *text = prefix == NULL
                         ? NULL
                         : PyUnicode_FromFormat("PrefixStore(%R, %R)", prefix,
                                                ((dlpy_store *)self)->below);

    Py_XDECREF(prefix);
    return text;
}

static PyGetSetDef prefix_store_properties[] = {
    {"underlying_store", underlying_store, NULL, DLPY_DOC_PREFIXSTORE_UNDERLYING_STORE,
     NULL},
    {"_underlying_non_prefix_store", underlying_non_prefix_store, NULL,
     "The first store below that is not a PrefixStore.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(prefix_store_doc,
             "PrefixStore(prefix, store)\n--\n\n" DLPY_DOC_PREFIXSTORE);

static PyType_Slot prefix_store_slots[] = {
    {Py_tp_doc, (void *)prefix_store_doc},   {Py_tp_new, dlpy_store_alloc},
    {Py_tp_init, prefix_store_init},         {Py_tp_repr, prefix_store_repr},
    {Py_tp_getset, prefix_store_properties}, {0, NULL},
};

static PyType_Spec prefix_store_spec = {
    .name = "distlite.PrefixStore",
    .basicsize = sizeof(dlpy_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = prefix_store_slots,
};

const dlpy_part dlpy_store_type = {
    .type = &store_spec,
    .slot = offsetof(dlpy_state, store_type),
};
const dlpy_part dlpy_hash_store_type = {
    .type = &hash_store_spec,
    .base = offsetof(dlpy_state, store_type),
    .slot = offsetof(dlpy_state, hash_store_type),
};
const dlpy_part dlpy_file_store_type = {
    .type = &file_store_spec,
    .base = offsetof(dlpy_state, store_type),
    .slot = offsetof(dlpy_state, file_store_type),
};
const dlpy_part dlpy_prefix_store_type = {
    .type = &prefix_store_spec,
    .base = offsetof(dlpy_state, store_type),
    .slot = offsetof(dlpy_state, prefix_store_type),
};
