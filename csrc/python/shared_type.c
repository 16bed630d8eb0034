/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/shared_type.h"

#include "pg/region.h"
#include "python/arguments.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/group_type.h"

typedef struct shared_object {
    PyObject_HEAD dl_region *region;
} shared_object;

/* Allocates the memory, with the GIL released.  Returns 0, or -1 with an exception
 * set. */
static int
share(const dlpy_state *state, PyObject *group, size_t size, dl_region **region)
{
    dl_group *core = dlpy_group_core(group);
    dl_status status;

    Py_BEGIN_ALLOW_THREADS
    status = dl_group_share(core, size, region);
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        dlpy_raise_collective(state, status);
        return -1;
    }
    return 0;
}

static PyObject *
shared_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "_SharedMemory",
        .required = 2,
        .names = {"group", "size"},
    };
    const dlpy_state *state = dlpy_state_of_type(type);
    PyObject *values[2];
    dl_region *region;
    int64_t size;

    if (state == NULL
        || dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_int64_from(values[1], "size", &size) < 0) {
        return NULL;
    }
    if (!dlpy_group_check(state, values[0]) || size <= 0) {
        PyErr_SetString(PyExc_TypeError, "a ProcessGroup and a number are needed");
        return NULL;
    }
    if (share(state, values[0], (size_t)size, &region) < 0) {
        return NULL;
    }
    shared_object *self = (shared_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        dl_region_free(region);
        return NULL;
    }
    self->region = region;
    return (PyObject *)self;
}

static void
shared_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    dl_region_free(((shared_object *)object)->region);
    type->tp_free(object);
    Py_DECREF(type);
}

static int
shared_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    const dl_region *region = ((shared_object *)object)->region;

    return PyBuffer_FillInfo(view, object, region->memory, (Py_ssize_t)region->size, 0,
                             flags);
}

static PyType_Slot shared_slots[] = {
    {Py_tp_doc, "_SharedMemory(group, size)\n--\n\n"
                "Zeros that the ranks of `group` on this host can reach in place."},
    {Py_tp_new, shared_new},
    {Py_tp_dealloc, shared_dealloc},
    {Py_bf_getbuffer, shared_getbuffer},
    {0, NULL},
};

static PyType_Spec shared_spec = {
    .name = "distlite._SharedMemory",
    .basicsize = sizeof(shared_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = shared_slots,
};

int
dlpy_add_shared_type(PyObject *module)
{
    PyTypeObject *type = NULL;
    int result = dlpy_add_type(module, &shared_spec, NULL, &type);

    /* The module holds the type. */
    Py_XDECREF(type);
    return result;
}
