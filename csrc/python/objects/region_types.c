/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory as Python objects that have a buffer, for arrays that are created from it.  It
 * exists as long as there are views of it, and knows nothing of shapes.  _SpareMemory
 * holds the arrays of received objects, for object_message.py, and is reused once no
 * views of it exist.  _SharedMemory can be accessed in place by a group's ranks, for
 * distlite/shared.py. */
#include "pg/region.h"
#include "pg/spare.h"
#include "python/groups/group_type.h"
#include "python/module/arguments.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"

/* An array created from the buffer holds this object, and each view holds its array, so
 * the memory is free when this object is deallocated. */
typedef struct region_object {
    PyObject_HEAD dl_region *region;
    Py_ssize_t size; /* of the buffer, at most the region's */
} region_object;

static void
region_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    dl_region_free(((region_object *)object)->region);
    type->tp_free(object);
    Py_DECREF(type);
}

static int
region_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    const region_object *self = (const region_object *)object;

    return PyBuffer_FillInfo(view, object, self->region->memory, self->size, 0, flags);
}

/* Returns a new object, which takes ownership of the region, also on failure. */
static PyObject *
wrap_region(PyTypeObject *type, dl_region *region, size_t size)
{
    region_object *self = (region_object *)type->tp_alloc(type, 0);

    if (self == NULL) {
        dl_region_free(region);
        return NULL;
    }
    self->region = region;
    self->size = (Py_ssize_t)size;
    return (PyObject *)self;
}

static int
check_size(int64_t size)
{
    if (size <= 0) {
        PyErr_Format(PyExc_ValueError, "size must be positive, but is %lld",
                     (long long)size);
        return -1;
    }
    return 0;
}

static PyObject *
spare_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {"_SpareMemory", 1, {"size"}};
    PyObject *values[1];
    dl_region *region;
    int64_t size;

    if (dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_int64_from(values[0], "size", &size) < 0) {
        return NULL;
    }
    if (check_size(size) < 0) {
        return NULL;
    }
    dl_status status = dl_spare_new((size_t)size, &region);
    return status == DL_OK ? wrap_region(type, region, (size_t)size)
                           : dlpy_raise_collective(dlpy_state_of_type(type), status);
}

static PyType_Slot spare_slots[] = {
    {Py_tp_doc, "_SpareMemory(size)\n--\n\n"
                "Writable memory with undefined contents, which may be reused memory."},
    {Py_tp_new, spare_new},
    {Py_tp_dealloc, region_dealloc},
    {Py_bf_getbuffer, region_getbuffer},
    {0, NULL},
};

static PyType_Spec spare_spec = {
    .name = "distlite._SpareMemory",
    .basicsize = sizeof(region_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = spare_slots,
};

static PyObject *
shared_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {"_SharedMemory", 2, {"group", "size"}};
    dlpy_state *state = dlpy_state_of_type(type);
    PyObject *values[2];
    dl_region *region;
    dl_status status;
    int64_t size;

    if (state == NULL
        || dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_int64_from(values[1], "size", &size) < 0) {
        return NULL;
    }
    dl_group *group = dlpy_group_from(state, values[0], "group");
    if (group == NULL || check_size(size) < 0) {
        return NULL;
    }
    dlpy_recorded_site_enter(state);
    Py_BEGIN_ALLOW_THREADS
    status = dl_group_share(group, (size_t)size, &region);
    Py_END_ALLOW_THREADS
    return status == DL_OK ? wrap_region(type, region, region->size)
                           : dlpy_raise_collective(state, status);
}

static PyType_Slot shared_slots[] = {
    {Py_tp_doc, "_SharedMemory(group, size)\n--\n\n"
                "Zeroed memory that the ranks of `group` on this host access in "
                "place."},
    {Py_tp_new, shared_new},
    {Py_tp_dealloc, region_dealloc},
    {Py_bf_getbuffer, region_getbuffer},
    {0, NULL},
};

static PyType_Spec shared_spec = {
    .name = "distlite._SharedMemory",
    .basicsize = sizeof(region_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = shared_slots,
};

static PyObject *
clear_spare_memory(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    dl_spare_clear();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_clear_spare_memory", clear_spare_memory, METH_NOARGS,
     DLPY_DOC__CLEAR_SPARE_MEMORY},
    {0},
};

const dlpy_part dlpy_spare_memory = {.functions = functions, .type = &spare_spec};
const dlpy_part dlpy_shared_memory = {.type = &shared_spec};
