/* SPDX-License-Identifier: BSD-3-Clause
 *
 * distlite.broadcast_object_list and the other functions on lists of objects.  The
 * interpreter takes longer for a function in Python than for the exchange of a small
 * object; so a call of which a description is kept, with plain lists, is made here.  All
 * others, and what follows the blocks, are up to object_collectives.py. */
#include "python/module/arguments.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"
#include "python/objects/object_call.h"

#define HOME "distlite.objects.object_collectives"
#define NONE (-1)

/* Where its arguments are, of which `safe` is the last. */
typedef struct object_function {
    dlpy_signature signature;
    int op;
    int list;  /* of the results, or of what is sent */
    int value; /* what is sent, if that is another argument; or NONE */
    int group;
    int rank; /* like the next, NONE in an all_gather */
    int group_rank;
    int safe;
} object_function;

/* One call on its way. */
typedef struct call_of_list {
    const object_function *form;
    dlpy_state *state;
    dlpy_object_call *call; /* the kept description */
    PyObject *list;         /* borrowed, like the next */
    PyObject *value;
    Py_ssize_t count;
} call_of_list;

static PyObject *
argument_or_none(PyObject *const *values, int index)
{
    return index == NONE || values[index] == NULL ? Py_None : values[index];
}

static dlpy_object_call *
find_call(dlpy_state *state, const object_function *form, PyObject *const *values)
{
    PyObject *const wanted[] = {
        argument_or_none(values, form->group),
        argument_or_none(values, form->rank),
        argument_or_none(values, form->group_rank),
        argument_or_none(values, form->safe),
    };

    return dlpy_object_call_find(state, form->op, wanted);
}

static bool
is_list_for(PyObject *list, Py_ssize_t least)
{
    return PyList_CheckExact(list) && PyList_GET_SIZE(list) >= least;
}

/* Returns whether nothing about the arguments has to be refused or converted. */
static bool
is_plain(const call_of_list *self)
{
    const dlpy_object_call *call = self->call;
    bool is_root = call->rank == call->root;
    PyObject *objects = self->value;

    switch (self->form->op) {
    case DLPY_BROADCAST_OBJECTS:
        return is_list_for(self->list, 0);
    case DLPY_ALL_GATHER_OBJECTS:
        return is_list_for(self->list, call->size);
    case DLPY_GATHER_OBJECTS:
        return is_root ? is_list_for(self->list, call->size) : self->list == Py_None;
    case DLPY_SCATTER_OBJECTS:
        return is_list_for(self->list, 1)
               && (!is_root
                   || (PyList_CheckExact(objects)
                       && PyList_GET_SIZE(objects) == call->size));
    default:
        return is_list_for(self->list, 0) && !is_root;
    }
}

/* Returns a function of Python. */
static PyObject *
find_function(const char *name)
{
    PyObject *home = PyImport_ImportModule(HOME);
    PyObject *function = home == NULL ? NULL : PyObject_GetAttrString(home, name);

    Py_XDECREF(home);
    return function;
}

static PyObject *
call_in_python(const object_function *form, PyObject *const *values)
{
    PyObject *function = find_function("call_with_list");
    PyObject *result =
        function == NULL
            ? NULL
            : PyObject_CallFunction(function, "isOOOOOO", form->op,
                                    form->signature.function,
                                    argument_or_none(values, form->list),
                                    argument_or_none(values, form->value),
                                    argument_or_none(values, form->group),
                                    argument_or_none(values, form->rank),
                                    argument_or_none(values, form->group_rank),
                                    argument_or_none(values, form->safe));

    Py_XDECREF(function);
    return result;
}

/* Returns the objects for this rank, after blocks that may not be all. */
static PyObject *
objects_of_list(const call_of_list *self, PyObject *found)
{
    if (found == NULL || PyList_Check(found)) {
        return found;
    }
    PyObject *function = find_function("objects_of_list");
    PyObject *objects =
        function == NULL
            ? NULL
            : PyObject_CallFunction(function, "OnOO", (PyObject *)self->call,
                                    self->count, PyTuple_GET_ITEM(found, 0),
                                    PyTuple_GET_ITEM(found, 1));
    Py_XDECREF(function);
    Py_DECREF(found);
    return objects;
}

/* Puts the items of a list or another sequence into the caller's list. */
static int
put_items(PyObject *list, PyObject *objects)
{
    PyObject *items = PySequence_Tuple(objects);
    int result = items == NULL ? -1 : 0;

    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(items); i++) {
        result = PyList_SetItem(list, i, Py_NewRef(PyTuple_GET_ITEM(items, i)));
    }
    Py_XDECREF(items);
    return result;
}

static int
put_results(const call_of_list *self, PyObject *objects)
{
    /* What is sent as a list is one object. */
    bool is_one = self->form->value == NONE;

    if (PyList_GET_SIZE(objects) == 0) {
        return 0;
    }
    return put_items(self->list, is_one ? PyList_GET_ITEM(objects, 0) : objects);
}

static PyObject *
make_call(const call_of_list *self)
{
    const dlpy_object_call *call = self->call;
    bool is_dealt = self->form->op == DLPY_SCATTER_OBJECTS && call->rank == call->root;
    PyObject *value = is_dealt ? PyList_AsTuple(self->value) : Py_NewRef(self->value);
    PyObject *found = value == NULL
                          ? NULL
                          : dlpy_object_call_exchange(self->state, self->call, value,
                                                      self->count, NULL);
    Py_XDECREF(value);
    PyObject *objects = objects_of_list(self, found);
    int result = objects == NULL ? -1 : put_results(self, objects);

    Py_XDECREF(objects);
    if (result < 0) {
        return NULL;
    }
    return self->form->op == DLPY_RECV_OBJECTS
               ? PyLong_FromLongLong(dlpy_group_global_rank(call->group, call->root))
               : Py_NewRef(Py_None);
}

static PyObject *
run_function(PyObject *module, const object_function *form, dlpy_call given)
{
    PyObject *values[DLPY_ARGUMENTS_LIMIT];

    if (dlpy_take_arguments(&form->signature, given, values) < 0) {
        return NULL;
    }
    call_of_list self = {
        .form = form,
        .state = dlpy_state_of_module(module),
        .list = argument_or_none(values, form->list),
        .value =
            argument_or_none(values, form->value == NONE ? form->list : form->value),
    };
    self.call = find_call(self.state, form, values);
    if (self.call == NULL || !is_plain(&self)) {
        Py_XDECREF(self.call);
        return call_in_python(form, values);
    }
    self.count = form->value == NONE ? PyList_GET_SIZE(self.list) : 1;
    PyObject *result = make_call(&self);
    Py_DECREF(self.call);
    return result;
}

DLPY_BUILTIN(broadcast_object_list, "broadcast_object_list", run_function,
             object_function, .signature.required = 1,
             .signature.names = {"object_list", "src", "group", "device", "group_src",
                                 "*safe"},
             .op = DLPY_BROADCAST_OBJECTS, .value = NONE, .group = 2, .rank = 1,
             .group_rank = 4, .safe = 5)

DLPY_BUILTIN(all_gather_object, "all_gather_object", run_function, object_function,
             .signature.required = 2,
             .signature.names = {"object_list", "obj", "group", "*safe"},
             .op = DLPY_ALL_GATHER_OBJECTS, .value = 1, .group = 2, .rank = NONE,
             .group_rank = NONE, .safe = 3)

DLPY_BUILTIN(gather_object, "gather_object", run_function, object_function,
             .signature.required = 1,
             .signature.names = {"obj", "object_gather_list", "dst", "group",
                                 "group_dst", "*safe"},
             .op = DLPY_GATHER_OBJECTS, .list = 1, .value = 0, .group = 3, .rank = 2,
             .group_rank = 4, .safe = 5)

DLPY_BUILTIN(scatter_object_list, "scatter_object_list", run_function, object_function,
             .signature.required = 1,
             .signature.names = {"scatter_object_output_list",
                                 "scatter_object_input_list", "src", "group",
                                 "group_src", "*safe"},
             .op = DLPY_SCATTER_OBJECTS, .value = 1, .group = 3, .rank = 2,
             .group_rank = 4, .safe = 5)

DLPY_BUILTIN(send_object_list, "send_object_list", run_function, object_function,
             .signature.required = 1,
             .signature.names = {"object_list", "dst", "group", "device", "group_dst",
                                 "use_batch", "*safe"},
             .op = DLPY_SEND_OBJECTS, .value = NONE, .group = 2, .rank = 1,
             .group_rank = 4, .safe = 6)

DLPY_BUILTIN(recv_object_list, "recv_object_list", run_function, object_function,
             .signature.required = 1,
             .signature.names = {"object_list", "src", "group", "device", "group_src",
                                 "use_batch", "*safe"},
             .op = DLPY_RECV_OBJECTS, .value = NONE, .group = 2, .rank = 1,
             .group_rank = 4, .safe = 6)

static PyMethodDef functions[] = {
    DLPY_FUNCTION("broadcast_object_list", broadcast_object_list,
                  DLPY_DOC_BROADCAST_OBJECT_LIST),
    DLPY_FUNCTION("all_gather_object", all_gather_object, DLPY_DOC_ALL_GATHER_OBJECT),
    DLPY_FUNCTION("gather_object", gather_object, DLPY_DOC_GATHER_OBJECT),
    DLPY_FUNCTION("scatter_object_list", scatter_object_list,
                  DLPY_DOC_SCATTER_OBJECT_LIST),
    DLPY_FUNCTION("send_object_list", send_object_list, DLPY_DOC_SEND_OBJECT_LIST),
    DLPY_FUNCTION("recv_object_list", recv_object_list, DLPY_DOC_RECV_OBJECT_LIST),
    {0},
};

const dlpy_part dlpy_object_functions = {.functions = functions};
