/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/collective_functions.h"

#include "python/arguments.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/group_type.h"
#include "python/reduce_op_arg.h"
#include "python/tensor_arg.h"

/* GroupMember.NON_GROUP_MEMBER: a group that this process is not in. */
#define NON_GROUP_MEMBER (-100)

static bool
is_outside(PyObject *group)
{
    return PyLong_CheckExact(group) && PyLong_AsLong(group) == NON_GROUP_MEMBER;
}

static int
warn_outside(const dlpy_state *state, const char *function)
{
    int rank = state->default_group == NULL
                   ? -1
                   : dl_group_rank(dlpy_group_core(state->default_group));

    return PyErr_WarnFormat(PyExc_UserWarning, 1,
                            "Running %s on global rank %d which does not belong to "
                            "the given group.",
                            function, rank);
}

static int
fail_group(PyObject *group)
{
    /* PyLong_AsLong() of a huge number may have left one. */
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError,
                 "Process group %R is not initialized in the world group map. Please "
                 "initialize the group first.",
                 group);
    return -1;
}

/* The group meant, as a new reference: another thread may replace the default group
 * while this one is in the core.  1: here it is.  0: this process is outside of it, which
 * has been warned of.  -1: an exception is set. */
static int
group_from(const dlpy_state *state, PyObject *object, const char *function,
           PyObject **group)
{
    if (object == NULL || object == Py_None) {
        object = state->default_group;
    }
    if (object == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "Default process group has not been initialized, please make "
                        "sure to call init_process_group.");
        return -1;
    }
    if (dlpy_group_check(state, object)) {
        *group = Py_NewRef(object);
        return 1;
    }
    if (!is_outside(object)) {
        return fail_group(object);
    }
    return warn_outside(state, function) < 0 ? -1 : 0;
}

/* Anything but a plain False is looked at: an op or a group in this place means that the
 * caller counts arguments differently. */
static int
refuse_async(PyObject *async_op)
{
    bool is_async = false;

    if (async_op == NULL || async_op == Py_False) {
        return 0;
    }
    if (dlpy_bool_from(async_op, "async_op", &is_async) < 0) {
        return -1;
    }
    if (is_async) {
        PyErr_SetString(PyExc_NotImplementedError,
                        "async_op=True: asynchronous operations are not in this "
                        "version yet; leave it out to wait for the result");
        return -1;
    }
    return 0;
}

/* What all of these end with. */
static PyObject *
finish(const dlpy_state *state, PyObject *group, dl_status status)
{
    Py_DECREF(group);
    if (status != DL_OK) {
        return dlpy_raise_collective(state, status);
    }
    Py_RETURN_NONE;
}

/* The hot one.  The caller's frame holds the array for the length of the call, so the
 * tensor borrows it; the view holds no reference that would have to be counted. */
static PyObject *
all_reduce(PyObject *module, PyObject *const *args, Py_ssize_t count,
           PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "all_reduce",
        .required = 1,
        .names = {"tensor", "op", "group", "async_op"},
    };
    const dlpy_state *state = dlpy_state_of_module(module);
    dlpy_call call = {args, count, keywords};
    PyObject *values[4];
    PyObject *group;
    dlpy_tensor tensor;
    dl_all_reduce_args core;
    dl_status status;

    if (dlpy_take_arguments(&signature, call, values) < 0
        || dlpy_reduce_op_from(state, values[1], &core.op, &core.factor) < 0
        || refuse_async(values[3]) < 0
        || dlpy_tensor_from(values[0], "tensor", &tensor) < 0) {
        return NULL;
    }
    int found = group_from(state, values[2], signature.function, &group);
    if (found <= 0) {
        dlpy_tensor_release(&tensor);
        return found < 0 ? NULL : Py_NewRef(Py_None);
    }
    core.tensor = tensor.view;
    Py_BEGIN_ALLOW_THREADS
    dl_group *members = dlpy_group_core(group);
    status = dl_group_all_reduce(members, &core, dl_group_deadline(members));
    Py_END_ALLOW_THREADS
    dlpy_tensor_release(&tensor);
    return finish(state, group, status);
}

/* `src` counts in the default group, `group_src` in the group itself; one is given. */
static int
root_from(PyObject *src, PyObject *group_src, int *root)
{
    bool has_src = src != NULL && src != Py_None;
    bool has_group_src = group_src != NULL && group_src != Py_None;
    int64_t rank;

    if (has_src == has_group_src) {
        PyErr_SetString(PyExc_ValueError,
                        has_src ? "Can't specify both group_rank and global_rank"
                                : "Must specify global_rank or group_rank");
        return -1;
    }
    if (dlpy_int64_from(has_src ? src : group_src, &rank) < 0) {
        return -1;
    }
    /* Out of range there as here, and the core says so. */
    *root = rank < 0 || rank > INT_MAX ? -1 : (int)rank;
    return 0;
}

/* Where this process is no member, the root need not be given, so it is looked at after
 * the group. */
static PyObject *
broadcast(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "broadcast",
        .required = 1,
        .names = {"tensor", "src", "group", "async_op", "group_src"},
    };
    const dlpy_state *state = dlpy_state_of_module(module);
    dlpy_call call = {args, count, keywords};
    PyObject *values[5];
    PyObject *group;
    dlpy_tensor tensor;
    dl_broadcast_args core;
    dl_status status;

    if (dlpy_take_arguments(&signature, call, values) < 0
        || refuse_async(values[3]) < 0) {
        return NULL;
    }
    int found = group_from(state, values[2], signature.function, &group);
    if (found <= 0) {
        return found < 0 ? NULL : Py_NewRef(Py_None);
    }
    dl_group *members = dlpy_group_core(group);
    if (root_from(values[1], values[4], &core.root) < 0
        || dlpy_tensor_from(values[0], "tensor", &tensor) < 0) {
        Py_DECREF(group);
        return NULL;
    }
    core.tensor = tensor.view;
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_broadcast(members, &core, dl_group_deadline(members));
    Py_END_ALLOW_THREADS
    dlpy_tensor_release(&tensor);
    return finish(state, group, status);
}

/* Its timeout is of this call alone; the others have the group's. */
static PyObject *
barrier(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "barrier",
        .names = {"group", "async_op", "device_ids", "timeout"},
    };
    const dlpy_state *state = dlpy_state_of_module(module);
    dlpy_call call = {args, count, keywords};
    PyObject *values[4];
    PyObject *group;
    int64_t timeout;
    dl_status status;

    if (dlpy_take_arguments(&signature, call, values) < 0
        || refuse_async(values[1]) < 0) {
        return NULL;
    }
    int found = group_from(state, values[0], signature.function, &group);
    if (found <= 0) {
        return found < 0 ? NULL : Py_NewRef(Py_None);
    }
    dl_group *members = dlpy_group_core(group);
    if (dlpy_timeout_from(values[3], dl_group_timeout(members), &timeout) < 0) {
        Py_DECREF(group);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_barrier(members, dl_deadline_after(timeout));
    Py_END_ALLOW_THREADS
    return finish(state, group, status);
}

#define COLLECTIVE(function, documentation)                                           \
    {#function, (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS, \
     documentation}

static PyMethodDef functions[] = {
    COLLECTIVE(all_reduce,
               "all_reduce($module, /, tensor, op=ReduceOp.SUM, group=None, "
               "async_op=False)\n--\n\n"
               "Combines the arrays of all ranks, element by element; the result "
               "replaces `tensor` on every rank."),
    COLLECTIVE(broadcast,
               "broadcast($module, /, tensor, src=None, group=None, async_op=False, "
               "group_src=None)\n--\n\n"
               "Copies the array of global rank `src` (or rank `group_src` of the "
               "group) into `tensor` on every other rank."),
    COLLECTIVE(barrier,
               "barrier($module, /, group=None, async_op=False, device_ids=None, "
               "timeout=None)\n--\n\n"
               "Returns when every rank has called it.  `device_ids` is for "
               "accelerators and means nothing here."),
    {0},
};

#undef COLLECTIVE

/* Their `__module__` is the package, where users find them, and where inspect looks up
 * the `ReduceOp` of their signatures. */
int
dlpy_add_collective_functions(PyObject *module)
{
    PyObject *package = PyUnicode_InternFromString("distlite");
    int result = package == NULL ? -1 : 0;

    for (PyMethodDef *def = functions; result == 0 && def->ml_name != NULL; def++) {
        PyObject *function = PyCFunction_NewEx(def, module, package);
        result = function == NULL
                     ? -1
                     : PyModule_AddObjectRef(module, def->ml_name, function);
        Py_XDECREF(function);
    }
    Py_XDECREF(package);
    return result;
}
