/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/errors.h"
#include "python/store_methods.h"
#include "python/value_buffer.h"

/* The store is looked for first: that __init__ has not run is the better answer. */
int
dlpy_store_begin(PyObject *self, const dlpy_store_method *method, dlpy_call passed,
                 dlpy_store_call *call)
{
    dl_store *store = dlpy_store_core(self);

    if (store == NULL
        || dlpy_take_arguments(&method->signature, passed, call->values) < 0) {
        return -1;
    }
    call->store = dlpy_python_store_without(store, method->entry, &call->base);
    call->deadline = dl_store_deadline(call->store);
    return 0;
}

int
dlpy_store_begin_key(PyObject *self, const dlpy_store_method *method, dlpy_call passed,
                     dlpy_store_call *call)
{
    if (dlpy_store_begin(self, method, passed, call) < 0) {
        return -1;
    }
    return dlpy_bytes_from(call->values[0], "key", &call->key);
}

/* Only failures need the module's state. */
static PyObject *
raise(PyTypeObject *defining_class, dl_status status)
{
    return dlpy_raise_store(dlpy_state_of_class(defining_class), status);
}

PyObject *
dlpy_answer_none(PyTypeObject *defining_class, dl_status status)
{
    return status == DL_OK ? Py_NewRef(Py_None) : raise(defining_class, status);
}

PyObject *
dlpy_answer_truth(PyTypeObject *defining_class, dl_status status, bool truth)
{
    return status == DL_OK ? PyBool_FromLong(truth) : raise(defining_class, status);
}

PyObject *
dlpy_answer_number(PyTypeObject *defining_class, dl_status status, int64_t number)
{
    return status == DL_OK ? PyLong_FromLongLong(number)
                           : raise(defining_class, status);
}

PyObject *
dlpy_answer_value(PyTypeObject *defining_class, dl_status status, dl_buffer *value)
{
    if (status == DL_OK) {
        return dlpy_object_from_buffer(value);
    }
    /* Raised first: the text is the thread's last error, and good only until something
     * else fails. */
    raise(defining_class, status);
    dl_buffer_fini(value);
    return NULL;
}
