/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/groups/collective_blocks.h"

#include "pg/backend.h"
#include "python/module/convert.h"
#include "python/module/errors.h"

static int
fail_type(PyObject *object, const char *parameter)
{
    PyErr_Format(
        PyExc_TypeError,
        "Invalid function argument. Expected parameter `%s` of type "
        "List[numpy.ndarray]\n             but got %R instead. It is a list with "
        "one array for each rank.",
        parameter, (PyObject *)Py_TYPE(object));
    return -1;
}

/* An item that is not an array is converted again to name it in the error message:
 * formatting a name for every item would cost more than the conversion. */
static int
take_tensor(PyObject *item, const char *parameter, int index, dlpy_tensor *tensor)
{
    char name[80];

    if (dlpy_tensor_from(item, parameter, tensor) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        return -1;
    }
    PyErr_Clear();
    snprintf(name, sizeof name, "%s[%d]", parameter, index);
    return dlpy_tensor_from(item, name, tensor);
}

static int
take_tensors(dlpy_tensor_list *self, const char *parameter)
{
    for (int i = 0; i < self->count; i++) {
        PyObject *item = PyTuple_GET_ITEM(self->items, i);
        if (take_tensor(item, parameter, i, &self->tensors[i]) < 0) {
            self->count = i;
            return -1;
        }
        self->views[i] = self->tensors[i].view;
    }
    return 0;
}

static void
list_release(dlpy_tensor_list *list)
{
    for (int i = 0; i < list->count; i++) {
        dlpy_tensor_release(&list->tensors[i]);
    }
    Py_CLEAR(list->items);
    PyMem_Free(list->tensors);
    PyMem_Free(list->views);
    *list = (dlpy_tensor_list){0};
}

/* Converts a list of `count` arrays.  Returns 0, or -1 with an exception set and
 * nothing to release.  Accepts only a list, as torch does: a tuple of arrays is most
 * likely a forgotten star. */
static int
list_from(PyObject *object, const char *parameter, int count, dlpy_tensor_list *list)
{
    dlpy_tensor_list self = {.count = count};

    /* The tuple stays as it is whatever another thread does to the list. */
    if (object == NULL || !PyList_Check(object)) {
        return fail_type(object == NULL ? Py_None : object, parameter);
    }
    self.items = PyList_AsTuple(object);
    if (self.items != NULL && PyTuple_GET_SIZE(self.items) != count) {
        PyErr_Format(PyExc_ValueError,
                     "`%s` must have one array for each of the group's %d ranks, but "
                     "has %zd",
                     parameter, count, PyTuple_GET_SIZE(self.items));
        Py_DECREF(self.items);
        return -1;
    }
    self.tensors = PyMem_Calloc((size_t)count, sizeof *self.tensors);
    self.views = PyMem_Calloc((size_t)count, sizeof *self.views);
    if (self.items == NULL || self.tensors == NULL || self.views == NULL) {
        PyErr_NoMemory();
        self.count = 0;
        list_release(&self);
        return -1;
    }
    if (take_tensors(&self, parameter) < 0) {
        list_release(&self);
        return -1;
    }
    *list = self;
    return 0;
}

static bool
has_owners(const dlpy_tensor_list *list)
{
    for (int i = 0; i < list->count; i++) {
        if (list->tensors[i].owner != NULL) {
            return true;
        }
    }
    return false;
}

/* Returns a new reference to everything that must stay alive for the views: the tuple
 * of arrays, or a tuple that also has the views' owners, or None for a zeroed list. */
static PyObject *
list_pins(const dlpy_tensor_list *list)
{
    if (!has_owners(list)) {
        return Py_NewRef(list->items == NULL ? Py_None : list->items);
    }
    PyObject *pins = PyTuple_New(1 + list->count);
    if (pins == NULL) {
        return NULL;
    }
    PyTuple_SET_ITEM(pins, 0, Py_NewRef(list->items));
    for (int i = 0; i < list->count; i++) {
        PyObject *owner = list->tensors[i].owner;
        PyTuple_SET_ITEM(pins, 1 + i, Py_NewRef(owner == NULL ? Py_None : owner));
    }
    return pins;
}

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
    /* A tuple cannot change while the items' __index__ runs. */
    PyObject *items = is_given ? PySequence_Tuple(object) : NULL;

    *rows = NULL;
    if (items == NULL) {
        if (is_given && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_SetString(PyExc_TypeError, "split sizes must be a list");
        }
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
    return list_from(object, parameter, dl_group_size(call->core), &side->list);
}

static void
side_release(dlpy_side *side)
{
    if (side->has_blocks) {
        dl_blocks_fini(&side->blocks);
    }
    if (side->has_tensor) {
        dlpy_tensor_release(&side->tensor);
    }
    list_release(&side->list);
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
        return list_pins(&side->list);
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
shows_event(const dlpy_side *side)
{
    const dlpy_tensor *tensor =
        side->has_tensor || side->list.count == 0 ? &side->tensor : side->list.tensors;

    return (side->has_tensor || side->list.count > 0) && dlpy_events_want(tensor);
}

/* A list has a reference to its arrays already. */
static void
keep_forever(const dlpy_side *side)
{
    if (side->has_tensor) {
        Py_INCREF(side->array);
    }
}

PyObject *
dlpy_sides_finish(dlpy_collective *self, dl_call *call, dlpy_side *input,
                  dlpy_side *output)
{
    dlpy_guard guard = {0};
    dlpy_work_keep keep = {.guard = &guard};
    PyObject *result;

    if (shows_event(input) || shows_event(output)) {
        self->inputs = arrays_of(input);
    }
    if (note_write(output) < 0
        || (dlpy_collective_outlives_call(self)
            && (guard_side(&guard, input) < 0 || guard_side(&guard, output) < 0
                || keep_sides(&keep, input, output) < 0))) {
        result = dlpy_collective_give_up(self);
    } else {
        result = dlpy_collective_finish(self, call, &keep);
    }
    dlpy_guard_clear(&guard);
    Py_XDECREF(keep.pins);
    if (result == NULL && dl_backend_take_kept_memory()) {
        keep_forever(input);
        keep_forever(output);
        return NULL;
    }
    side_release(input);
    side_release(output);
    return result;
}

PyObject *
dlpy_sides_give_up(dlpy_collective *call, dlpy_side *input, dlpy_side *output)
{
    side_release(input);
    side_release(output);
    return dlpy_collective_give_up(call);
}
