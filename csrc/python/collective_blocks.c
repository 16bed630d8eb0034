/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/collective_blocks.h"

#include "python/convert.h"
#include "python/errors.h"
#include "python/torch_profiler.h"

int
dlpy_side_array(dlpy_side *side, PyObject *object, const char *parameter)
{
    if (dlpy_tensor_from(object, parameter, &side->tensor) < 0) {
        return -1;
    }
    side->array = object;
    side->has_tensor = true;
    return 0;
}

/* Sets `*rows` to NULL if no lengths are given, which means equal blocks. */
static int
rows_from(PyObject *object, int count, int64_t **rows)
{
    bool is_given = object != NULL && object != Py_None;
    PyObject *list =
        is_given ? PySequence_Fast(object, "split sizes must be a list") : NULL;
    /* A tuple cannot change while the items' __index__ runs. */
    PyObject *items = list == NULL ? NULL : PySequence_Tuple(list);

    Py_XDECREF(list);
    *rows = NULL;
    if (items == NULL) {
        return is_given ? -1 : 0;
    }
    Py_ssize_t size = PyTuple_GET_SIZE(items);
    int result = 0;
    if (size != 0 && size != count) {
        PyErr_SetString(PyExc_ValueError,
                        "Number of tensor splits not equal to group size");
        result = -1;
    } else if (size != 0) {
        *rows = PyMem_Malloc((size_t)count * sizeof **rows);
        result = *rows == NULL ? (PyErr_NoMemory(), -1) : 0;
    }
    for (Py_ssize_t i = 0; i < size && result == 0; i++) {
        result =
            dlpy_int64_from(PyTuple_GET_ITEM(items, i), "a split size", &(*rows)[i]);
    }
    Py_DECREF(items);
    if (result < 0) {
        PyMem_Free(*rows);
    }
    return result;
}

int
dlpy_side_cut(dlpy_side *side, const dlpy_collective *call, PyObject *object,
              const char *parameter, PyObject *rows)
{
    int count = dl_group_size(call->core);
    int64_t *lengths;

    if (dlpy_side_array(side, object, parameter) < 0
        || rows_from(rows, count, &lengths) < 0) {
        return -1;
    }
    dl_status status = dl_blocks_cut(&side->blocks, &side->tensor.view, lengths, count);
    PyMem_Free(lengths);
    if (status != DL_OK) {
        dlpy_raise_collective(call->state, status);
        return -1;
    }
    side->has_blocks = true;
    return 0;
}

int
dlpy_side_list(dlpy_side *side, const dlpy_collective *call, PyObject *object,
               const char *parameter)
{
    return dlpy_tensor_list_from(object, parameter, dl_group_size(call->core),
                                 &side->list);
}

void
dlpy_side_release(dlpy_side *side)
{
    if (side->has_blocks) {
        dl_blocks_fini(&side->blocks);
    }
    if (side->has_tensor) {
        dlpy_tensor_release(&side->tensor);
    }
    dlpy_tensor_list_release(&side->list);
}

/* Returns a borrowed reference to an array or a tuple of arrays, or None if there are
 * none. */
static PyObject *
arrays_of(const dlpy_side *side)
{
    if (side->has_tensor) {
        return side->array;
    }
    return side->list.items == NULL ? Py_None : side->list.items;
}

/* Returns a new reference to the arrays and to the owners of their views, if there are
 * any. */
static PyObject *
pins_of(const dlpy_side *side)
{
    if (!side->has_tensor) {
        return dlpy_tensor_list_pins(&side->list);
    }
    PyObject *owner = side->tensor.owner;
    return owner == NULL ? Py_NewRef(side->array) : PyTuple_Pack(2, side->array, owner);
}

/* In most calls the arrays are all there is to keep, and no tuple is needed. */
static int
keep_sides(dlpy_work_keep *keep, const dlpy_side *input, const dlpy_side *output)
{
    PyObject *in = pins_of(input);
    PyObject *out = pins_of(output);

    keep->outputs = arrays_of(output);
    if (in != NULL && out != NULL) {
        keep->pins = out == keep->outputs ? Py_NewRef(in) : PyTuple_Pack(2, in, out);
    }
    Py_XDECREF(in);
    Py_XDECREF(out);
    return keep->pins == NULL ? -1 : 0;
}

static int
guard_side(dlpy_guard *guard, const dlpy_side *side)
{
    const dlpy_tensor_list *list = &side->list;

    if (side->has_tensor && dlpy_guard_add(guard, side->array, &side->tensor) < 0) {
        return -1;
    }
    for (int i = 0; i < list->count; i++) {
        PyObject *array = PyTuple_GET_ITEM(list->items, i);
        if (dlpy_guard_add(guard, array, &list->tensors[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
note_write(const dlpy_side *side)
{
    const dlpy_tensor_list *list = &side->list;

    if (side->has_tensor && dlpy_tensor_note_write(&side->tensor, side->array) < 0) {
        return -1;
    }
    for (int i = 0; i < list->count; i++) {
        PyObject *array = PyTuple_GET_ITEM(list->items, i);
        if (dlpy_tensor_note_write(&list->tensors[i], array) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The first array of a list represents the whole list. */
static bool
profiler_wants(const dlpy_side *side)
{
    const dlpy_tensor *tensor =
        side->has_tensor || side->list.count == 0 ? &side->tensor : side->list.tensors;

    return (side->has_tensor || side->list.count > 0)
           && dlpy_torch_profiler_wants(tensor);
}

PyObject *
dlpy_sides_finish(dlpy_collective *call, dl_op_type op, const void *args,
                  dlpy_side *input, dlpy_side *output)
{
    dlpy_guard guard = {0};
    dlpy_work_keep keep = {.guard = &guard};
    PyObject *result;

    if (profiler_wants(input) || profiler_wants(output)) {
        call->inputs = arrays_of(input);
    }
    if (note_write(output) < 0
        || (dlpy_collective_outlives_call(call)
            && (guard_side(&guard, input) < 0 || guard_side(&guard, output) < 0
                || keep_sides(&keep, input, output) < 0))) {
        result = dlpy_collective_give_up(call);
    } else {
        result = dlpy_collective_finish(call, op, args, keep);
    }
    dlpy_guard_clear(&guard);
    Py_XDECREF(keep.pins);
    dlpy_side_release(input);
    dlpy_side_release(output);
    return result;
}

PyObject *
dlpy_sides_give_up(dlpy_collective *call, dlpy_side *input, dlpy_side *output)
{
    dlpy_side_release(input);
    dlpy_side_release(output);
    return dlpy_collective_give_up(call);
}
