/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/tensor_list.h"

static int
fail_type(PyObject *object, const char *parameter)
{
    PyErr_Format(PyExc_TypeError,
                 "Invalid function argument. Expected parameter `%s` of type "
                 "List[numpy.ndarray]\n             but got %R instead.",
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

/* Accepts only a list, as torch does: a tuple of arrays is most likely a forgotten
 * star. */
int
dlpy_tensor_list_from(PyObject *object, const char *parameter, int count,
                      dlpy_tensor_list *list)
{
    dlpy_tensor_list self = {.count = count};

    if (object == NULL || !PyList_Check(object)) {
        return fail_type(object == NULL ? Py_None : object, parameter);
    }
    if (PyList_GET_SIZE(object) != count) {
        PyErr_Format(PyExc_ValueError,
                     "`%s` must have one array for each of the group's %d ranks, but "
                     "has %zd",
                     parameter, count, PyList_GET_SIZE(object));
        return -1;
    }
    self.items = PyList_AsTuple(object);
    self.tensors = PyMem_Calloc((size_t)count, sizeof *self.tensors);
    self.views = PyMem_Calloc((size_t)count, sizeof *self.views);
    if (self.items == NULL || self.tensors == NULL || self.views == NULL) {
        PyErr_NoMemory();
        self.count = 0;
        dlpy_tensor_list_release(&self);
        return -1;
    }
    if (take_tensors(&self, parameter) < 0) {
        dlpy_tensor_list_release(&self);
        return -1;
    }
    *list = self;
    return 0;
}

void
dlpy_tensor_list_release(dlpy_tensor_list *list)
{
    for (int i = 0; i < list->count; i++) {
        dlpy_tensor_release(&list->tensors[i]);
    }
    Py_CLEAR(list->items);
    PyMem_Free(list->tensors);
    PyMem_Free(list->views);
    *list = (dlpy_tensor_list){0};
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

PyObject *
dlpy_tensor_list_pins(const dlpy_tensor_list *list)
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
