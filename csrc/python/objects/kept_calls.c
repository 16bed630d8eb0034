/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The descriptions of calls on objects that a group keeps. */
#include "python/groups/default_group.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"
#include "python/objects/object_call.h"

/* Descriptions that a group keeps: of its latest different calls. */
#define KEPT_LIMIT 128

/* What a kept description was asked for with. */
typedef struct wanted {
    int op;
    PyObject *safe;
    int64_t ranks[2]; /* global, and in the group; -1 for None */
    bool is_default;
} wanted;

/* Returns false for ranks that are no plain numbers. */
static bool
read_ranks(PyObject *const *args, int64_t ranks[2])
{
    for (int i = 0; i < 2; i++) {
        if (args[i] == Py_None) {
            ranks[i] = -1;
        } else {
            ranks[i] = PyLong_CheckExact(args[i]) ? PyLong_AsLong(args[i]) : -1;
            if (ranks[i] < 0) {
                PyErr_Clear();
                return false;
            }
        }
    }
    return true;
}

/* Returns the place of a description in the tuple, or the tuple's size. */
static Py_ssize_t
find_kept(PyObject *all, const wanted *wanted)
{
    Py_ssize_t i = 0;

    for (; i < PyTuple_GET_SIZE(all); i++) {
        const dlpy_object_call *each =
            (const dlpy_object_call *)PyTuple_GET_ITEM(all, i);
        if (each->op == wanted->op && each->ranks[0] == wanted->ranks[0]
            && each->ranks[1] == wanted->ranks[1] && each->safe == wanted->safe
            && each->is_default == wanted->is_default) {
            break;
        }
    }
    return i;
}

/* Reads `args`: the group, the rank, the rank in the group, and safe.  Returns a new
 * reference to the group, or NULL if descriptions of such a call are not kept. */
static PyObject *
read_wanted(dlpy_state *state, PyObject *const *args, wanted *wanted)
{
    PyObject *world = dlpy_default_group(state);
    PyObject *group = args[0] == Py_None ? world : args[0];

    wanted->safe = args[3];
    wanted->is_default = group == world;
    bool is_plain = args[3] == Py_None || PyBool_Check(args[3]);
    if (group != NULL
        && (!is_plain || !dlpy_group_check(state, group)
            || !read_ranks(args + 1, wanted->ranks))) {
        group = NULL;
    }
    Py_XINCREF(group);
    Py_XDECREF(world);
    return group;
}

dlpy_object_call *
dlpy_object_call_find(dlpy_state *state, int op, PyObject *const *args)
{
    wanted wanted = {.op = op};
    PyObject *found = NULL;
    PyObject *group = read_wanted(state, args, &wanted);
    PyObject *all = group == NULL ? NULL : dlpy_group_object_calls(group);
    Py_ssize_t place = all == NULL ? 0 : find_kept(all, &wanted);

    if (all != NULL && place < PyTuple_GET_SIZE(all)) {
        found = Py_NewRef(PyTuple_GET_ITEM(all, place));
    }
    Py_XDECREF(all);
    Py_XDECREF(group);
    return (dlpy_object_call *)found;
}

static PyObject *
kept_call(PyObject *module, PyObject *const *values)
{
    int op;

    if (dlpy_int_from(values[0], "op", &op) < 0) {
        return NULL;
    }
    dlpy_object_call *found =
        dlpy_object_call_find(dlpy_state_of_module(module), op, values + 1);
    return found != NULL ? (PyObject *)found : Py_NewRef(Py_None);
}

DLPY_PARSED(kept_call, "_kept_call", 5, "op", "group", "rank", "group_rank", "safe")

PyObject *
dlpy_object_call_keep(PyObject *object, PyTypeObject *type, PyObject *const *args,
                      Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        "keep", 4, {"group", "rank", "group_rank", "safe"}};
    dlpy_object_call *self = (dlpy_object_call *)object;
    wanted wanted = {.op = self->op};
    PyObject *values[4];

    if (dlpy_take_arguments(&signature, (dlpy_call){args, count, keywords}, values)
        < 0) {
        return NULL;
    }
    PyObject *group = read_wanted(dlpy_state_of_class(type), values, &wanted);
    if (group == NULL) {
        return Py_NewRef(Py_None);
    }
    self->ranks[0] = wanted.ranks[0];
    self->ranks[1] = wanted.ranks[1];
    self->safe = wanted.safe;
    self->is_default = wanted.is_default;
    PyObject *former = dlpy_group_object_calls(group);
    Py_ssize_t size = former == NULL ? 0 : PyTuple_GET_SIZE(former);
    Py_ssize_t place = former == NULL ? 0 : find_kept(former, &wanted);
    place = place < KEPT_LIMIT ? place : KEPT_LIMIT - 1;
    PyObject *all = PyTuple_New(place < size ? size : size + 1);
    if (all != NULL) {
        PyTuple_SET_ITEM(all, 0, Py_NewRef(object));
        for (Py_ssize_t i = 0; i < size; i++) {
            if (i != place) {
                PyTuple_SET_ITEM(all, i < place ? i + 1 : i,
                                 Py_NewRef(PyTuple_GET_ITEM(former, i)));
            }
        }
        dlpy_group_keep_object_calls(group, all);
    }
    Py_XDECREF(former);
    Py_DECREF(group);
    return all == NULL ? NULL : Py_NewRef(Py_None);
}

static PyObject *
forget_calls(PyObject *module, PyObject *group)
{
    if (dlpy_group_check(dlpy_state_of_module(module), group)) {
        dlpy_group_keep_object_calls(group, NULL);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_kept_call", kept_call_call, DLPY_DOC__KEPT_CALL),
    {"_forget_calls", forget_calls, METH_O, DLPY_DOC__FORGET_CALLS},
    {0},
};

const dlpy_part dlpy_kept_calls = {.functions = functions};
