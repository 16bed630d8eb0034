/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which arrays of a collective over many go into packs. */
#include "python/arrays/tensor_arg.h"
#include "python/groups/default_group.h"
#include "python/groups/group_type.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/parts.h"

/* Returns whether the group's operations take packs; operations written in Python do
 * not. */
static bool
takes_packs(dlpy_state *state, PyObject *group)
{
    if (PyTuple_CheckExact(group) && PyTuple_GET_SIZE(group) == 2) {
        group = PyTuple_GET_ITEM(group, 0);
    }
    PyObject *used = group == Py_None ? dlpy_default_group(state) : Py_NewRef(group);
    bool takes =
        used != NULL && dlpy_group_check(state, used) && !dlpy_group_has_handler(used);
    Py_XDECREF(used);
    return takes;
}

/* Only numeric arrays are packed: opaque elements may differ in ways that a pack does
 * not record. */
static bool
is_packed(const dl_tensor *view, int64_t limit)
{
    return view->device == DL_CPU && view->dtype != DL_OPAQUE
           && dl_tensor_size(view) < (size_t)limit;
}

static PyObject *
new_indices(PyObject *plan)
{
    PyObject *indices = PyList_New(0);
    int result = indices == NULL ? -1 : PyList_Append(plan, indices);

    Py_XDECREF(indices);
    return result < 0 ? NULL : indices;
}

/* The plan depends on sizes and dtypes only, which are the same on all ranks.
 * `open_ones` has the list of indices of each dtype's pack, borrowed from the plan. */
static int
plan_array(PyObject *plan, PyObject *open_ones[DL_DTYPE_COUNT], Py_ssize_t index,
           const dl_tensor *view, bool is_in_pack)
{
    PyObject **open = is_in_pack ? &open_ones[view->dtype] : NULL;
    PyObject *indices = open == NULL ? NULL : *open;

    if (indices == NULL && (indices = new_indices(plan)) == NULL) {
        return -1;
    }
    if (open != NULL) {
        *open = indices;
    }
    return dlpy_append(indices, PyLong_FromSsize_t(index));
}

static PyObject *
plan_packs(PyObject *module, PyObject *const *values)
{
    dlpy_state *state = dlpy_state_of_module(module);
    int64_t limit;
    PyObject *open_ones[DL_DTYPE_COUNT] = {0};

    if (dlpy_int64_from(values[1], "limit", &limit) < 0
        || dlpy_array_list_check(values[0]) < 0) {
        return NULL;
    }
    PyObject *items = PySequence_Tuple(values[0]);
    PyObject *plan = items == NULL ? NULL : PyList_New(0);
    bool takes = takes_packs(state, values[2]);
    for (Py_ssize_t i = 0; plan != NULL && i < PyTuple_GET_SIZE(items); i++) {
        dlpy_tensor tensor = {.view.dtype = DL_OPAQUE};
        /* If the core is not called, the arrays are not converted here either. */
        if (takes
            && dlpy_tensor_from(PyTuple_GET_ITEM(items, i), "tensor", &tensor) < 0) {
            Py_CLEAR(plan);
            break;
        }
        bool is_in_pack = takes && is_packed(&tensor.view, limit);
        if (plan_array(plan, open_ones, i, &tensor.view, is_in_pack) < 0) {
            Py_CLEAR(plan);
        }
        dlpy_tensor_release(&tensor);
    }
    Py_XDECREF(items);
    return plan;
}

DLPY_PARSED(plan_packs, "_plan_packs", 3, "arrays", "limit", "group")

static PyMethodDef functions[] = {
    DLPY_FUNCTION("_plan_packs", plan_packs_call, DLPY_DOC__PLAN_PACKS),
    {0},
};

const dlpy_part dlpy_pack_plans = {.functions = functions};
