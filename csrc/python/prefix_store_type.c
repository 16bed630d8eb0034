/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arguments.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/store_types.h"
#include "store/prefix_store.h"

/* NULL with an exception. */
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

/* The core's store below is borrowed by its wrapper, so the wrapper is kept as well: it
 * is also what underlying_store gives back, the very object that was passed. */
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
    if (status != DL_OK || dlpy_store_adopt(self, store) < 0) {
        return -1;
    }
    ((dlpy_store *)self)->below = Py_NewRef(values[1]);
    return 0;
}

static PyObject *
underlying_store(PyObject *self, void *closure)
{
    (void)closure;
    if (dlpy_store_core(self) == NULL) {
        return NULL;
    }
    return Py_NewRef(((dlpy_store *)self)->below);
}

/* Views end at the first object that is no view, whatever its class. */
static PyObject *
underlying_non_prefix_store(PyObject *self, void *closure)
{
    (void)closure;
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
    dl_store *store = dlpy_store_core(self);
    PyObject *prefix =
        store == NULL ? NULL : dlpy_text_from(dl_prefix_store_prefix(store));
    PyObject *text = prefix == NULL
                         ? NULL
                         : PyUnicode_FromFormat("PrefixStore(%R, %R)", prefix,
                                                ((dlpy_store *)self)->below);

    Py_XDECREF(prefix);
    return text;
}

static PyGetSetDef prefix_store_properties[] = {
    {"underlying_store", underlying_store, NULL, "The store that was given.", NULL},
    {"_underlying_non_prefix_store", underlying_non_prefix_store, NULL,
     "The first store below that is no PrefixStore.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(prefix_store_doc,
             "PrefixStore(prefix, store)\n--\n\n"
             "A view of another store in which key stands for '<prefix>/<key>' there.\n"
             "The timeout is that store's, and num_keys() counts all of its keys.");

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

int
dlpy_add_prefix_store_type(PyObject *module)
{
    dlpy_state *state = dlpy_state_of_module(module);

    return dlpy_add_type(module, &prefix_store_spec, state->store_type,
                         &state->prefix_store_type);
}
