/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/object_memory.h"

#include "pg/spare.h"
#include "python/arguments.h"
#include "python/convert.h"
#include "python/errors.h"

/* An array created from the buffer holds this object, and each view holds its array, so
 * the memory is free when this object is deallocated. */
typedef struct memory_object {
    PyObject_HEAD dl_region *region;
    Py_ssize_t size; /* the requested size */
} memory_object;

static PyObject *
memory_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {"_SpareMemory", 1, {"size"}};
    PyObject *values[1];
    int64_t size;

    if (dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || dlpy_int64_from(values[0], "size", &size) < 0) {
        return NULL;
    }
    if (size <= 0) {
        PyErr_SetString(PyExc_ValueError, "no memory is of no size");
        return NULL;
    }
    memory_object *self = (memory_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    dl_status status = dl_spare_new((size_t)size, &self->region);
    if (status != DL_OK) {
        Py_DECREF(self);
        return dlpy_raise_collective(dlpy_state_of_type(type), status);
    }
    self->size = size;
    return (PyObject *)self;
}

static void
memory_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    dl_region_free(((memory_object *)object)->region);
    type->tp_free(object);
    Py_DECREF(type);
}

static int
memory_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    const memory_object *self = (const memory_object *)object;

    return PyBuffer_FillInfo(view, object, self->region->memory, self->size, 0, flags);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "_SpareMemory(size)\n--\n\n"
                "Writable bytes of anything, perhaps of what was received before."},
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_bf_getbuffer, memory_getbuffer},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "distlite._SpareMemory",
    .basicsize = sizeof(memory_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = memory_slots,
};

static PyObject *
clear_spare_memory(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    dl_spare_clear();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_clear_spare_memory", clear_spare_memory, METH_NOARGS,
     "_clear_spare_memory()\n--\n\nGives the system what waits for its next use."},
    {0},
};

int
dlpy_add_object_memory(PyObject *module)
{
    PyTypeObject *type = NULL;
    int result = dlpy_add_type(module, &memory_spec, NULL, &type);

    /* The module holds the type. */
    Py_XDECREF(type);
    return result < 0 ? result : PyModule_AddFunctions(module, functions);
}
