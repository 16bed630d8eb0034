/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/array_guard.h"

#include <stdlib.h>

#include "python/dlpack_exchange.h"

#define NEAR ((int)(sizeof((dlpy_guard *)0)->near / sizeof(dlpy_hold)))

static dlpy_hold *
hold_at(const dlpy_guard *self, int index)
{
    return (dlpy_hold *)(uintptr_t)(index < NEAR ? &self->near[index]
                                                 : &self->far[index - NEAR]);
}

/* Grown by doubling: a batch may bring thousands. */
static dlpy_hold *
new_hold(dlpy_guard *self)
{
    int far = self->count - NEAR;

    if (far >= 0 && (far & (far - 1)) == 0) {
        size_t room = far == 0 ? 1 : 2 * (size_t)far;
        dlpy_hold *grown = PyMem_Realloc(self->far, room * sizeof *grown);
        if (grown == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        self->far = grown;
    }
    return hold_at(self, self->count);
}

/* What was borrowed by DLPack's table: of torch the storage, which several tensors may
 * share and any of them resize; of others the memory, as the table hands it over.  1: it
 * is held; 0: it cannot be. */
static int
hold_borrowed(PyObject *array, const dl_tensor *view, dlpy_hold *hold)
{
    hold->owner = PyObject_CallMethod(array, "untyped_storage", NULL);
    if (hold->owner != NULL) {
        hold->array = Py_NewRef(array);
        hold->memory.data = view->data;
        hold->memory.size = dl_tensor_size(view);
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    }
    PyErr_Clear();
    hold->owner = dlpy_exchange_own(array);
    return hold->owner == NULL ? -1 : 1;
}

int
dlpy_guard_add(dlpy_guard *self, PyObject *array, const dlpy_tensor *tensor)
{
    dlpy_hold hold = {0};
    int found = 0;

    if (tensor->owner != NULL) {
        return 0; /* holds the memory by itself, and is held */
    }
    if (tensor->is_borrowed) {
        found = hold_borrowed(array, &tensor->view, &hold);
    } else if ((hold.owner = dlpy_ndarray_owner(array)) != NULL) {
        Py_INCREF(hold.owner);
        dlpy_ndarray_memory(hold.owner, &hold.memory);
        found = 1;
    }
    dlpy_hold *place = found > 0 ? new_hold(self) : NULL;
    if (place == NULL) {
        Py_XDECREF(hold.owner);
        Py_XDECREF(hold.array);
        return found == 0 ? 0 : -1;
    }
    *place = hold;
    self->count++;
    self->has_storages |= hold.array != NULL;
    return 0;
}

PyObject *
dlpy_guard_at(const dlpy_guard *self, int index)
{
    const dlpy_hold *hold = hold_at(self, index / 2);

    return index % 2 == 0 ? hold->owner : hold->array;
}

void
dlpy_guard_clear(dlpy_guard *self)
{
    int count = self->count;

    /* What goes may run anything, which finds nothing here. */
    self->count = 0;
    for (int i = 0; i < count; i++) {
        Py_DECREF(hold_at(self, i)->owner);
        Py_XDECREF(hold_at(self, i)->array);
    }
    PyMem_Free(self->far);
    self->far = NULL;
}

static bool
is_same(const dlpy_memory *left, const dlpy_memory *right)
{
    return left->data == right->data && left->size == right->size
           && left->shape == right->shape;
}

static dl_status
fail_moved(const dlpy_hold *hold)
{
    return dl_fail(
        DL_BACKEND,
        "the array was %s while the operation was pending: %zu bytes were at "
        "%p when it was called; wait for the Work first",
        hold->array == NULL ? "resized by resize()"
                            : "given other memory, as by resize_(), set_() "
                              "or an assignment to .data",
        hold->memory.size, hold->memory.data);
}

/* With the GIL.  A storage that gets other memory is seen as well, from every tensor that
 * shares it. */
static bool
is_tensor_in_place(const dlpy_hold *hold)
{
    dlpy_dimensions dimensions;
    dl_tensor view;

    bool is_in_place = dlpy_exchange_view(hold->array, "tensor", &view, &dimensions) > 0
                       && view.data == hold->memory.data
                       && dl_tensor_size(&view) == hold->memory.size;
    PyErr_Clear();
    return is_in_place;
}

/* Keeps what the thread has of exceptions: whoever waits may be about to raise one. */
static dl_status
check_storages(const dlpy_guard *self)
{
    PyObject *error[3];
    dl_status status = DL_OK;

    PyErr_Fetch(&error[0], &error[1], &error[2]);
    for (int i = 0; i < self->count && status == DL_OK; i++) {
        const dlpy_hold *hold = hold_at(self, i);
        if (hold->array != NULL && !is_tensor_in_place(hold)) {
            status = fail_moved(hold);
        }
    }
    PyErr_Restore(error[0], error[1], error[2]);
    return status;
}

static bool
is_python_ending(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

/* A thread that asks for the GIL of an interpreter that ends never comes back; what is
 * held is not given back by then. */
static dl_status
check(const dl_guard *guard, bool is_brief)
{
    const dlpy_guard *self = (const dlpy_guard *)(const void *)guard;

    for (int i = 0; i < self->count; i++) {
        const dlpy_hold *hold = hold_at(self, i);
        dlpy_memory now;
        if (hold->array != NULL || hold->memory.data == NULL) {
            continue;
        }
        dlpy_ndarray_memory(hold->owner, &now);
        if (!is_same(&now, &hold->memory)) {
            return fail_moved(hold);
        }
    }
    if (!self->has_storages || is_brief || is_python_ending()) {
        return DL_OK;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    dl_status status = check_storages(self);
    PyGILState_Release(state);
    return status;
}

const dl_guard *
dlpy_guard_core(dlpy_guard *self)
{
    self->core.check = check;
    return self->count == 0 ? NULL : &self->core;
}
