/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arguments.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/store_types.h"
#include "store/file_store.h"
#include "store/hash_store.h"

/* The end of every __init__: the new store, or the error. */
static int
finish_init(PyObject *self, dl_status status, dl_store *store)
{
    if (status != DL_OK) {
        dlpy_state *state = dlpy_state_of_type(Py_TYPE(self));
        if (state != NULL) {
            dlpy_raise_store(state, status);
        }
        return -1;
    }
    return dlpy_store_adopt(self, store);
}

/* Stores are made in __init__ rather than __new__, here and below: a subclass made in
 * Python may take arguments of its own and pass on others. */
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
    return finish_init(self, status, store);
}

PyDoc_STRVAR(hash_store_doc, "HashStore()\n--\n\n"
                             "A store in the memory of this process, for its threads.");

static PyType_Slot hash_store_slots[] = {
    {Py_tp_doc, (void *)hash_store_doc},
    {Py_tp_new, dlpy_store_alloc},
    {Py_tp_init, hash_store_init},
    {0, NULL},
};

static PyType_Spec hash_store_spec = {
    .name = "distlite.HashStore",
    .basicsize = sizeof(dlpy_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hash_store_slots,
};

/* May wait for the file's lock, which has no deadline in its signature because the
 * store's own timeout bounds it. */
static int
file_store_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {
        "FileStore", 1, {"file_name", "world_size"}};
    PyObject *values[2];
    PyObject *path;
    int64_t world_size = -1;
    dl_store *store = NULL;
    dl_status status;

    if (dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_store_refuse_second_init(self) < 0
        || (values[1] != NULL && dlpy_int64_from(values[1], &world_size) < 0)
        || !PyUnicode_FSConverter(values[0], &path)) {
        return -1;
    }
    const char *name = PyBytes_AS_STRING(path);
    Py_BEGIN_ALLOW_THREADS
    status = dl_file_store_new(name, world_size, &store);
    Py_END_ALLOW_THREADS
    int result = finish_init(self, status, store);
    Py_DECREF(path);
    return result;
}

static PyObject *
file_store_path(PyObject *self, void *closure)
{
    dl_store *store = dlpy_store_core(self);

    (void)closure;
    return store == NULL ? NULL : PyUnicode_DecodeFSDefault(dl_file_store_path(store));
}

static PyObject *
file_store_repr(PyObject *self)
{
    PyObject *path = file_store_path(self, NULL);
    PyObject *text = path == NULL ? NULL : PyUnicode_FromFormat("FileStore(%R)", path);

    Py_XDECREF(path);
    return text;
}

static PyGetSetDef file_store_properties[] = {
    {"path", file_store_path, NULL, "The file's name, as given.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(
    file_store_doc,
    "FileStore(file_name, world_size=-1)\n--\n\n"
    "A store in one file that processes share, on one host or on a network file\n"
    "system with working locks.  An existing file is continued.  The file is\n"
    "removed when the last open store of world_size in all closes; a negative\n"
    "world_size never removes it.  Has no queues.");

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

int
dlpy_add_local_store_types(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    if (dlpy_add_type(module, &hash_store_spec, state->store_type,
                      &state->hash_store_type)
        < 0) {
        return -1;
    }
    return dlpy_add_type(module, &file_store_spec, state->store_type,
                         &state->file_store_type);
}
