/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "python/arrays/array_guard.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "tensor/blocks.h"
#include "tensor/strided.h"

/* The references that keep the memory of one piece alive. */
typedef struct source {
    PyObject *array;
    PyObject *owner; /* as in dlpy_tensor */
    int64_t *layout; /* shape and strides if not contiguous; else NULL */
    bool is_borrowed;
    bool is_torch;
} source;

/* Not tracked by the garbage collector. */
typedef struct pack {
    PyObject_HEAD dl_tensor view;
    dl_pieces pieces;
    int room;
    dl_tensor *tensors;
    size_t *ends;
    source *sources;
} pack;

static PyObject *
pack_new(PyTypeObject *type, Py_ssize_t room)
{
    pack *self = (pack *)type->tp_alloc(type, 0);

    if (self == NULL) {
        return NULL;
    }
    self->room = (int)room;
    self->tensors = PyMem_Malloc((size_t)room * sizeof *self->tensors);
    self->ends = PyMem_Malloc((size_t)room * sizeof *self->ends);
    self->sources = PyMem_Malloc((size_t)room * sizeof *self->sources);
    if (self->tensors == NULL || self->ends == NULL || self->sources == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int
pack_clear(PyObject *object)
{
    pack *self = (pack *)object;
    int count = self->pieces.count;

    self->pieces.count = 0;
    for (int i = 0; i < count; i++) {
        Py_DECREF(self->sources[i].array);
        Py_XDECREF(self->sources[i].owner);
        PyMem_Free(self->sources[i].layout);
    }
    return 0;
}

static void
pack_dealloc(PyObject *object)
{
    pack *self = (pack *)object;
    PyTypeObject *type = Py_TYPE(object);

    pack_clear(object);
    PyMem_Free(self->tensors);
    PyMem_Free(self->ends);
    PyMem_Free(self->sources);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Copies shape and strides: the array may be reshaped meanwhile. */
static int64_t *
copy_layout(const dl_tensor *view)
{
    size_t size = (size_t)view->ndim * sizeof(int64_t);
    int64_t *layout = PyMem_Malloc(2 * size + 1);

    if (layout != NULL && size > 0) {
        memcpy(layout, view->shape, size);
        memcpy(layout + view->ndim, view->strides, size);
    }
    return layout;
}

static int
fail_different(const pack *self, const dl_tensor *view)
{
    PyErr_Format(PyExc_ValueError,
                 "array %d of the list has dtype %s and array 0 has dtype %s, but the "
                 "arrays at these places in the call's other list have the same dtype",
                 self->pieces.count, dl_dtype_name(view->dtype),
                 dl_dtype_name(self->tensors[0].dtype));
    return -1;
}

/* Appends a piece; `view` is a view into the array that `tensor` describes. */
static int
pack_put(PyObject *object, PyObject *array, const dlpy_tensor *tensor,
         const dl_tensor *view)
{
    pack *self = (pack *)object;
    int at = self->pieces.count;
    int64_t *layout = NULL;

    if (at > 0 && !dl_tensors_have_same_dtype(view, &self->tensors[0])) {
        return fail_different(self, view);
    }
    if (!view->is_contiguous && (layout = copy_layout(view)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->tensors[at] = *view;
    self->tensors[at].shape = layout;
    self->tensors[at].strides = layout == NULL ? NULL : layout + view->ndim;
    self->ends[at] = dl_tensor_size(view) + (at == 0 ? 0 : self->ends[at - 1]);
    self->sources[at] = (source){
        .array = Py_NewRef(array),
        .owner = Py_XNewRef(tensor->owner),
        .layout = layout,
        .is_borrowed = tensor->is_borrowed,
        .is_torch = tensor->is_torch,
    };
    self->pieces.count++;
    return 0;
}

/* Completes the pack's own view once all pieces have been added. */
static void
pack_complete(PyObject *object)
{
    pack *self = (pack *)object;
    bool is_writable = true;
    size_t count = 0;

    for (int i = 0; i < self->pieces.count; i++) {
        is_writable = is_writable && self->tensors[i].is_writable;
        count += self->tensors[i].count;
    }
    self->pieces.tensors = self->tensors;
    self->pieces.ends = self->ends;
    self->view = self->tensors[0];
    self->view.data = &self->pieces;
    self->view.count = count;
    self->view.ndim = 0;
    self->view.is_contiguous = false;
    self->view.is_writable = is_writable;
    self->view.shape = NULL;
    self->view.strides = NULL;
    self->view.pieces = &self->pieces;
}

/* Compares the deallocator, which no other type has: the cheapest test, as this runs
 * for every argument that is not an ndarray. */
static bool
is_pack(PyObject *object)
{
    return Py_TYPE(object)->tp_dealloc == pack_dealloc;
}

bool
dlpy_pack_view(PyObject *object, dl_tensor *view)
{
    if (!is_pack(object)) {
        return false;
    }
    *view = ((pack *)object)->view;
    return true;
}

static dlpy_tensor
tensor_at(const pack *self, int index)
{
    const source *from = &self->sources[index];

    return (dlpy_tensor){
        .view = self->tensors[index],
        .owner = from->owner,
        .is_borrowed = from->is_borrowed,
        .is_torch = from->is_torch,
    };
}

int
dlpy_pack_note_write(PyObject *object)
{
    const pack *self = (pack *)object;

    for (int i = 0; i < self->pieces.count; i++) {
        if (self->sources[i].is_torch
            && dlpy_torch_note_write(self->sources[i].array) < 0) {
            return -1;
        }
    }
    return 0;
}

int
dlpy_pack_guard(dlpy_guard *guard, PyObject *object)
{
    const pack *self = (pack *)object;

    for (int i = 0; i < self->pieces.count; i++) {
        dlpy_tensor tensor = tensor_at(self, i);
        if (dlpy_guard_add(guard, self->sources[i].array, &tensor) < 0) {
            return -1;
        }
    }
    return 0;
}

int
dlpy_array_list_check(PyObject *object)
{
    if (PyList_Check(object) || PyTuple_Check(object)) {
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "a list of arrays was expected, not %R",
                 (PyObject *)Py_TYPE(object));
    return -1;
}

/* Adds block i of the array, cut along its first dimension, to pack i. */
static int
put_parts(const dlpy_state *state, PyObject *packs, PyObject *array,
          const dlpy_tensor *tensor)
{
    int parts = (int)PyList_GET_SIZE(packs);
    dl_blocks blocks;

    if (parts == 0) {
        return 0;
    }
    dl_status status = dl_blocks_cut(&blocks, &tensor->view, NULL, parts);
    if (status != DL_OK) {
        dlpy_raise_collective(state, status);
        return -1;
    }
    int result = 0;
    for (int i = 0; i < parts && result == 0; i++) {
        result = pack_put(PyList_GET_ITEM(packs, i), array, tensor, &blocks.tensors[i]);
    }
    dl_blocks_fini(&blocks);
    return result;
}

static int
put_arrays(const dlpy_state *state, PyObject *packs, PyObject *arrays, bool is_cut)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arrays); i++) {
        PyObject *array = PyTuple_GET_ITEM(arrays, i);
        dlpy_tensor tensor;
        if (dlpy_tensor_from(array, "tensor", &tensor) < 0) {
            return -1;
        }
        int result =
            is_cut ? put_parts(state, packs, array, &tensor)
                   : pack_put(PyList_GET_ITEM(packs, 0), array, &tensor, &tensor.view);
        dlpy_tensor_release(&tensor);
        if (result < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(packs); i++) {
        pack_complete(PyList_GET_ITEM(packs, i));
    }
    return 0;
}

/* Returns a new list of `parts` empty packs. */
static PyObject *
new_packs(const dlpy_state *state, Py_ssize_t room, int parts)
{
    PyObject *packs = PyList_New(0);

    for (int i = 0; packs != NULL && i < parts; i++) {
        if (dlpy_append(packs, pack_new(state->pack_type, room)) < 0) {
            Py_CLEAR(packs);
        }
    }
    return packs;
}

static PyObject *
make_packs(const dlpy_state *state, PyObject *arrays, int parts, bool is_cut)
{
    /* A tuple cannot change while the arrays' own code runs. */
    PyObject *items =
        dlpy_array_list_check(arrays) < 0 ? NULL : PySequence_Tuple(arrays);
    if (items == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    PyObject *packs = NULL;
    if (count == 0 || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a pack takes at least one array");
    } else {
        packs = new_packs(state, count, parts);
    }
    if (packs != NULL && put_arrays(state, packs, items, is_cut) < 0) {
        Py_CLEAR(packs);
    }
    Py_DECREF(items);
    return packs;
}

static PyObject *
pack_function(PyObject *module, PyObject *arrays)
{
    PyObject *packs = make_packs(dlpy_state_of_module(module), arrays, 1, false);
    PyObject *only = packs == NULL ? NULL : Py_NewRef(PyList_GET_ITEM(packs, 0));

    Py_XDECREF(packs);
    return only;
}

static PyObject *
pack_blocks_function(PyObject *module, PyObject *const *values)
{
    int parts;

    if (dlpy_int_from(values[1], "parts", &parts) < 0) {
        return NULL;
    }
    return make_packs(dlpy_state_of_module(module), values[0], parts, true);
}

DLPY_PARSED(pack_blocks_function, "_pack_blocks", 2, "arrays", "parts")

/* The memory range of one array of a list. */
typedef struct span {
    dl_extent extent;
    Py_ssize_t index;
    bool is_other; /* of the list that the first is compared with */
} span;

static int
compare_spans(const void *left, const void *right)
{
    uintptr_t first = ((const span *)left)->extent.first;
    uintptr_t second = ((const span *)right)->extent.first;

    return (first > second) - (first < second);
}

/* Appends the spans of all arrays of a list that are not empty to `*spans`, which the
 * caller frees. */
static int
add_spans(PyObject *arrays, bool is_other, span **spans, size_t *count)
{
    PyObject *items =
        dlpy_array_list_check(arrays) < 0 ? NULL : PySequence_Tuple(arrays);

    if (items == NULL) {
        return -1;
    }
    size_t size = (size_t)PyTuple_GET_SIZE(items);
    span *grown = PyMem_Realloc(*spans, (*count + size) * sizeof *grown + 1);
    int result = grown == NULL ? (PyErr_NoMemory(), -1) : 0;
    *spans = grown == NULL ? *spans : grown;
    for (size_t i = 0; result == 0 && i < size; i++) {
        dlpy_tensor tensor;
        result =
            dlpy_tensor_from(PyTuple_GET_ITEM(items, (Py_ssize_t)i), "tensor", &tensor);
        if (result == 0) {
            dl_extent extent = dl_tensor_extent(&tensor.view);
            dlpy_tensor_release(&tensor);
            if (extent.first != extent.end) {
                grown[(*count)++] = (span){extent, (Py_ssize_t)i, is_other};
            }
        }
    }
    Py_DECREF(items);
    return result;
}

/* Appends the indices of arrays that overlap each other: each span is compared with the
 * one before it that ends last. */
static int
find_among_themselves(const span *spans, size_t count, PyObject *found)
{
    const span *farthest = NULL;

    for (size_t i = 0; i < count; i++) {
        if (farthest != NULL && spans[i].extent.first < farthest->extent.end
            && (dlpy_append(found, PyLong_FromSsize_t(farthest->index)) < 0
                || dlpy_append(found, PyLong_FromSsize_t(spans[i].index)) < 0)) {
            return -1;
        }
        if (farthest == NULL || spans[i].extent.end > farthest->extent.end) {
            farthest = &spans[i];
        }
    }
    return 0;
}

/* Appends the indices of arrays that overlap one of the others: the one before that ends
 * last, or the next one, which is found from the end on. */
static int
find_among_others(const span *spans, size_t count, PyObject *found)
{
    uintptr_t farthest = 0, next = UINTPTR_MAX;
    int result = 0;

    for (size_t i = 0; result == 0 && i < count; i++) {
        dl_extent extent = spans[i].extent;
        if (!spans[i].is_other && extent.first < farthest) {
            result = dlpy_append(found, PyLong_FromSsize_t(spans[i].index));
        } else if (spans[i].is_other && extent.end > farthest) {
            farthest = extent.end;
        }
    }
    for (size_t i = count; result == 0 && i-- > 0;) {
        if (spans[i].is_other) {
            next = spans[i].extent.first;
        } else if (next < spans[i].extent.end) {
            result = dlpy_append(found, PyLong_FromSsize_t(spans[i].index));
        }
    }
    return result;
}

static PyObject *
find_shared_function(PyObject *Py_UNUSED(module), PyObject *const *values)
{
    span *spans = NULL;
    size_t count = 0;

    bool has_others = values[1] != NULL && values[1] != Py_None;
    PyObject *found = PyList_New(0);
    if (found == NULL || add_spans(values[0], false, &spans, &count) < 0
        || (has_others && add_spans(values[1], true, &spans, &count) < 0)) {
        Py_CLEAR(found);
    } else {
        qsort(spans, count, sizeof *spans, compare_spans);
        if ((has_others ? find_among_others(spans, count, found)
                        : find_among_themselves(spans, count, found))
            < 0) {
            Py_CLEAR(found);
        }
    }
    PyMem_Free(spans);
    return found;
}

DLPY_PARSED(find_shared_function, "_find_shared", 1, "arrays", "others")

static PyType_Slot pack_slots[] = {
    {Py_tp_doc, "Several arrays that an operation takes as one."},
    {Py_tp_dealloc, pack_dealloc},
    {0, NULL},
};

static PyType_Spec pack_spec = {
    .name = "distlite._C._Pack",
    .basicsize = sizeof(pack),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = pack_slots,
};

/* Returns the arrays of a pack, for code that handles them one by one. */
static PyObject *
pack_arrays_function(PyObject *Py_UNUSED(module), PyObject *object)
{
    const pack *self = (pack *)object;

    if (!is_pack(object)) {
        PyErr_Format(PyExc_TypeError, "a pack was expected, not %R",
                     (PyObject *)Py_TYPE(object));
        return NULL;
    }
    PyObject *arrays = PyTuple_New(self->pieces.count);
    for (int i = 0; arrays != NULL && i < self->pieces.count; i++) {
        PyTuple_SET_ITEM(arrays, i, Py_NewRef(self->sources[i].array));
    }
    return arrays;
}

static PyMethodDef functions[] = {
    {"_pack", pack_function, METH_O, DLPY_DOC__PACK},
    DLPY_FUNCTION("_pack_blocks", pack_blocks_function_call, DLPY_DOC__PACK_BLOCKS),
    {"_pack_arrays", pack_arrays_function, METH_O, DLPY_DOC__PACK_ARRAYS},
    DLPY_FUNCTION("_find_shared", find_shared_function_call, DLPY_DOC__FIND_SHARED),
    {0},
};

const dlpy_part dlpy_packs = {
    .functions = functions,
    .type = &pack_spec,
    .slot = offsetof(dlpy_state, pack_type),
};
