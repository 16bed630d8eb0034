/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/arrays/array_guard.h"

#include "python/arrays/dlpack.h"

#define NEAR ((int)(sizeof((dlpy_guard *)0)->near / sizeof(dlpy_hold)))

static dlpy_hold *
hold_at(const dlpy_guard *self, int index)
{
    return (dlpy_hold *)(uintptr_t)(index < NEAR ? &self->near[index]
                                                 : &self->far[index - NEAR]);
}

/* Returns the next free slot.  `far` grows by doubling, as a batch may hold thousands
 * of arrays. */
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

/* Holds the storage, which several tensors may share and each of them may resize, and
 * the tensor, which may be given another storage.  Returns 1 if both are held, 0 if the
 * tensor's memory cannot be read, -1 with an exception set. */
static int
hold_torch(PyObject *array, dlpy_hold *hold)
{
    dlpy_torch_handle *handle = dlpy_torch_hold(array);

    if (handle == NULL) {
        return 0;
    }
    hold->owner = PyObject_CallMethod(array, "untyped_storage", NULL);
    if (hold->owner == NULL || !dlpy_torch_memory_of(handle, &hold->of_torch)) {
        dlpy_torch_drop(handle);
        return hold->owner == NULL ? -1 : 0;
    }
    hold->tensor = handle;
    return 1;
}

/* Holds the memory through a capsule that DLPack's exchange table exports. */
static int
hold_borrowed(PyObject *array, dlpy_hold *hold)
{
    hold->owner = dlpy_exchange_own(array);
    return hold->owner == NULL ? -1 : 1;
}

static int
hold_ndarray(PyObject *array, dlpy_hold *hold)
{
    PyObject *owner = dlpy_ndarray_owner(array);

    if (owner == NULL) {
        return 0;
    }
    hold->owner = Py_NewRef(owner);
    dlpy_ndarray_memory(owner, &hold->of_ndarray);
    return 1;
}

static int
hold_memory(PyObject *array, const dlpy_tensor *tensor, dlpy_hold *hold)
{
    int found = tensor->is_torch ? hold_torch(array, hold) : 0;

    if (found != 0 || tensor->owner != NULL) {
        return found; /* the owner of the view already holds the memory */
    }
    return tensor->is_borrowed ? hold_borrowed(array, hold) : hold_ndarray(array, hold);
}

static void
drop_hold(const dlpy_hold *hold)
{
    Py_XDECREF(hold->owner);
    dlpy_torch_drop(hold->tensor);
}

int
dlpy_guard_add(dlpy_guard *self, PyObject *array, const dlpy_tensor *tensor)
{
    if (tensor->view.pieces != NULL) {
        return dlpy_pack_guard(self, array);
    }
    dlpy_hold hold = {0};
    int found = hold_memory(array, tensor, &hold);
    dlpy_hold *place = found > 0 ? new_hold(self) : NULL;

    if (place == NULL) {
        drop_hold(&hold);
        return found == 0 ? 0 : -1;
    }
    *place = hold;
    self->count++;
    return 0;
}

PyObject *
dlpy_guard_at(const dlpy_guard *self, int index)
{
    return hold_at(self, index)->owner;
}

void
dlpy_guard_clear(dlpy_guard *self)
{
    int count = self->count;

    /* Dropping a reference may run arbitrary code, which must find the guard empty. */
    self->count = 0;
    for (int i = 0; i < count; i++) {
        drop_hold(hold_at(self, i));
    }
    PyMem_Free(self->far);
    self->far = NULL;
}

static bool
is_ndarray_in_place(const dlpy_hold *hold)
{
    const dlpy_memory *then = &hold->of_ndarray;
    dlpy_memory now;

    if (then->data == NULL) {
        return true;
    }
    dlpy_ndarray_memory(hold->owner, &now);
    return now.data == then->data && now.size == then->size && now.shape == then->shape;
}

/* Also detects a storage that was reallocated through another tensor that shares it.
 * A storage that was freed and reallocated may be at the same address again, but
 * smaller. */
static bool
is_tensor_in_place(const dlpy_hold *hold)
{
    dlpy_torch_memory now;

    return dlpy_torch_memory_of(hold->tensor, &now) && now.data == hold->of_torch.data
           && now.storage_size >= hold->of_torch.storage_size;
}

static dl_status
fail_moved(const dlpy_hold *hold)
{
    if (hold->tensor == NULL) {
        return dl_fail(DL_BACKEND,
                       "the array was resized by resize() while the operation was "
                       "pending: %zu bytes were at %p when it was called; wait for the "
                       "Work first",
                       hold->of_ndarray.size, hold->of_ndarray.data);
    }
    return dl_fail(DL_BACKEND,
                   "the array was given other memory, as by resize_(), set_() or an "
                   "assignment to .data, while the operation was pending: it was at %p "
                   "when it was called; wait for the Work first",
                   hold->of_torch.data);
}

static dl_status
check_guard(const dl_guard *guard)
{
    const dlpy_guard *self = (const dlpy_guard *)(const void *)guard;

    for (int i = 0; i < self->count; i++) {
        const dlpy_hold *hold = hold_at(self, i);
        bool is_in_place =
            hold->tensor == NULL ? is_ndarray_in_place(hold) : is_tensor_in_place(hold);
        if (!is_in_place) {
            return fail_moved(hold);
        }
    }
    return DL_OK;
}

const dl_guard *
dlpy_guard_core(dlpy_guard *self)
{
    self->core.check = check_guard;
    return self->count == 0 ? NULL : &self->core;
}
