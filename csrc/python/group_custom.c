/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/group_type.h"

#include "python/convert.h"
#include "python/errors.h"

/* A custom group has no core backend: it comes from torch's other constructor, which
 * takes rank and size, or from a subclass with its own __init__.  Naming the backend
 * selects the core's groups. */
bool
dlpy_group_is_custom(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    if (keywords != NULL && PyDict_GetItemString(keywords, "backend") != NULL) {
        return false;
    }
    return type->tp_init != dlpy_group_init
           || (PyTuple_GET_SIZE(args) == 2 && PyLong_Check(PyTuple_GET_ITEM(args, 0)));
}

static int
make_core(const dlpy_state *state, dlpy_group *self, int rank, int size)
{
    dl_group_options options = {
        .name = "0",
        .backend = "custom",
        .rank = rank,
        .size = size,
        .timeout = DLPY_GROUP_TIMEOUT,
    };
    dl_group *made;
    dl_status status = dl_group_new(&options, NULL, &made);

    if (status != DL_OK) {
        dlpy_raise_store(state, status);
        return -1;
    }
    dl_group_unref(self->group);
    self->group = made;
    Py_CLEAR(self->name);
    return 0;
}

/* Starts with a core group of one rank, which tp_init replaces, so that no method has
 * to check whether there is a core group. */
int
dlpy_group_begin_custom(const dlpy_state *state, dlpy_group *self)
{
    self->is_custom = true;
    self->store = Py_NewRef(Py_None);
    self->handler = Py_XNewRef(state->custom_handler);
    self->description = PyUnicode_FromString("undefined");
    return self->description == NULL ? -1 : make_core(state, self, 0, 1);
}

/* torch has two constructors of a group without a backend.  They are told apart by the
 * number of arguments, or by the argument name "store". */
static bool
names_store(PyObject *args, PyObject *keywords)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);

    if (keywords != NULL) {
        count += PyDict_GET_SIZE(keywords);
    }
    return count >= 3
           || (keywords != NULL && PyDict_GetItemString(keywords, "store") != NULL);
}

int
dlpy_group_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature with_store = {
        "ProcessGroup", 3, {"store", "rank", "size"}};
    static const dlpy_signature without = {"ProcessGroup", 2, {"rank", "size"}};
    dlpy_group *self = (dlpy_group *)object;
    PyObject *values[3] = {NULL};
    int rank;
    int size;

    if (!self->is_custom) {
        return 0;
    }
    bool has_store = names_store(args, keywords);
    PyObject **numbers = has_store ? values + 1 : values;
    const dlpy_state *state = dlpy_state_of_type(Py_TYPE(object));
    if (state == NULL
        || dlpy_take_init_arguments(has_store ? &with_store : &without, args, keywords,
                                    values)
               < 0
        || dlpy_rank_from(numbers[0], "rank", &rank) < 0
        || dlpy_rank_from(numbers[1], "size", &size) < 0
        || make_core(state, self, rank, size) < 0) {
        return -1;
    }
    if (has_store) {
        Py_SETREF(self->store, Py_NewRef(values[0]));
    }
    return 0;
}

/* The method _adopt(): sets the name and the store of a custom group once its creator
 * function has returned it. */
PyObject *
dlpy_group_adopt(PyObject *object, PyObject *args, PyObject *keywords)
{
    dlpy_group *self = (dlpy_group *)object;
    const dlpy_state *state = dlpy_state_of_type(Py_TYPE(object));
    dlpy_group told = {.group = NULL};

    if (state == NULL) {
        return NULL;
    }
    if (!self->is_custom) {
        PyErr_SetString(PyExc_RuntimeError, "the group has a name of its own");
        return NULL;
    }
    int result = dlpy_group_join(state, args, keywords, &told);
    if (result == 0) {
        dl_group *former = self->group;
        self->group = told.group;
        dl_group_unref(former);
        Py_CLEAR(self->name);
        Py_XSETREF(self->store, Py_NewRef(told.store));
        Py_XSETREF(self->description, Py_NewRef(told.description));
    }
    Py_XDECREF(told.store);
    Py_XDECREF(told.description);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
given_by_name(const dlpy_signature *signature, PyObject *const *values)
{
    PyObject *given = PyDict_New();

    for (int i = 0; given != NULL && i < DLPY_ARGUMENTS_LIMIT; i++) {
        if (signature->names[i] == NULL) {
            break;
        }
        if (values[i] != NULL
            && PyDict_SetItemString(given, dlpy_argument_name(signature, i), values[i])
                   < 0) {
            Py_CLEAR(given);
        }
    }
    return given;
}

int
dlpy_group_handle(PyObject *group, const dlpy_signature *signature,
                  PyObject *const *values, PyObject **answer)
{
    /* The handler may be replaced while it runs. */
    PyObject *handler = Py_NewRef(((dlpy_group *)group)->handler);
    PyObject *given = given_by_name(signature, values);
    PyObject *result = NULL;

    if (given != NULL) {
        result =
            PyObject_CallFunction(handler, "OsO", group, signature->function, given);
        Py_DECREF(given);
    }
    Py_DECREF(handler);
    if (result == Py_NotImplemented) {
        Py_DECREF(result);
        return 1;
    }
    Py_DECREF(group);
    *answer = result;
    if (result == Py_None) {
        Py_DECREF(result);
    }
    return result == NULL ? -1 : 0;
}

PyObject *
dlpy_group_set_handler(PyObject *object, PyObject *handler)
{
    dlpy_group *self = (dlpy_group *)object;
    PyObject *former = self->handler;

    self->handler = handler == Py_None ? NULL : Py_NewRef(handler);
    return former == NULL ? Py_NewRef(Py_None) : former;
}
