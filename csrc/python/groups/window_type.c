/* SPDX-License-Identifier: BSD-3-Clause
 *
 * _Window, the Python object around a dl_window, with those of its methods for which a
 * Python frame would cost more than the access itself; distlite/windows.py has the
 * rest. Its buffer is this rank's memory, so the window lives as long as any array over
 * it. */
#include "pg/window.h"
#include "python/arrays/tensor_arg.h"
#include "python/groups/collective_call.h"
#include "python/module/convert.h"
#include "python/module/docstrings.h"
#include "python/module/errors.h"
#include "python/module/gil.h"
#include "python/module/parts.h"
#include "python/record/call_site.h"

/* Accesses to fewer bytes take less time than handing over the GIL; they release it
 * only if they have to wait. */
#define BRIEF ((size_t)16 << 10)

typedef struct window_object {
    PyObject_HEAD dl_window *window;
    dlpy_state *state; /* borrowed: the type holds the module */
} window_object;

static dl_window *
core_of(PyObject *self)
{
    return ((window_object *)self)->window;
}

static dlpy_state *
window_module_state(PyObject *self)
{
    return ((window_object *)self)->state;
}

/* Returns None, or raises. */
static PyObject *
none_or_raise(PyObject *self, dl_status status)
{
    if (status == DL_OK) {
        Py_RETURN_NONE;
    }
    return dlpy_raise_collective(window_module_state(self), status);
}

static int
deadline_from(PyObject *self, PyObject *timeout, dl_deadline *deadline)
{
    int64_t limit = dl_group_timeout(dl_window_group(core_of(self)));

    if (dlpy_timeout_from(timeout, limit, &limit) < 0) {
        return -1;
    }
    *deadline = dl_deadline_after(limit);
    return 0;
}

/* One access on its way to the core. */
typedef struct call {
    dl_window *window;
    dl_access_kind kind;
    dl_window_access core;
    dl_deadline deadline;
    dlpy_tensor input;
    dlpy_tensor compared;
    dlpy_tensor output;
} call;

static void
release_call(call *self)
{
    dlpy_tensor_release(&self->input);
    dlpy_tensor_release(&self->compared);
    dlpy_tensor_release(&self->output);
}

static PyObject *
give_up_call(call *self)
{
    release_call(self);
    return NULL;
}

static int
take_place(PyObject *object, call *self, PyObject *rank, PyObject *offset,
           PyObject *timeout)
{
    self->window = core_of(object);
    self->core.factor = 1;
    if (dlpy_rank_from(rank, "rank", &self->core.rank) < 0
        || (offset != NULL && offset != Py_None
            && dlpy_int64_from(offset, "offset", &self->core.offset) < 0)) {
        return -1;
    }
    return deadline_from(object, timeout, &self->deadline);
}

static int
take_tensor(PyObject *array, const char *name, dlpy_tensor *tensor,
            const dl_tensor **view)
{
    if (dlpy_tensor_from(array, name, tensor) < 0) {
        return -1;
    }
    *view = &tensor->view;
    return 0;
}

static int
take_output(PyObject *array, const char *name, call *self)
{
    if (take_tensor(array, name, &self->output, &self->core.output) < 0) {
        return -1;
    }
    return dlpy_tensor_note_write(&self->output, array);
}

/* Converts a reduction, "replace" or "no_op". */
static int
take_update(PyObject *object, PyObject *op, call *self)
{
    dl_reduce_op reduction;

    if (op != NULL && PyUnicode_Check(op)) {
        if (PyUnicode_CompareWithASCIIString(op, "replace") == 0) {
            self->core.update = DL_UPDATE_REPLACE;
            return 0;
        }
        if (PyUnicode_CompareWithASCIIString(op, "no_op") == 0) {
            self->core.update = DL_UPDATE_NOTHING;
            return 0;
        }
        PyErr_Format(PyExc_ValueError,
                     "op must be a ReduceOp, \"replace\" or \"no_op\", not %R", op);
        return -1;
    }
    if (dlpy_reduce_op_from(window_module_state(object), op, &reduction,
                            &self->core.factor)
        < 0) {
        return -1;
    }
    if (reduction == DL_FUNCTION) {
        PyErr_Format(PyExc_TypeError,
                     "op must be a ReduceOp, \"replace\" or \"no_op\", not %.200s: "
                     "windows do not take functions; use compare_and_swap in a loop",
                     Py_TYPE(op)->tp_name);
        return -1;
    }
    self->core.update = (int)reduction;
    return 0;
}

static dl_status
run_call(const call *self, dl_deadline deadline)
{
    switch (self->kind) {
    case DL_ACCESS_PUT:
        return dl_window_put(self->window, &self->core, deadline);
    case DL_ACCESS_GET:
        return dl_window_get(self->window, &self->core, deadline);
    case DL_ACCESS_UPDATE:
        return dl_window_update(self->window, &self->core, deadline);
    default:
        return dl_window_swap(self->window, &self->core, deadline);
    }
}

static PyObject *
carry_out_call(PyObject *object, call *self)
{
    const dl_tensor *moved =
        self->core.input != NULL ? self->core.input : self->core.output;
    dlpy_gil gil;

    dlpy_gil_leave_noting(&gil, dl_tensor_size(moved) < BRIEF,
                          window_module_state(object));
    dl_status status = run_call(self, self->deadline);
    status = dlpy_gil_return(&gil, status);
    release_call(self);
    return none_or_raise(object, status);
}

/* A method that accesses memory.  The numbers are those of its parameters in the
 * signature; -1 means that it has none. */
typedef struct access_form {
    dlpy_signature signature;
    dl_access_kind kind;
    int input, compared, output;
    int rank, op, offset, timeout;
} access_form;

/* An update that does nothing has no input: the array is None. */
static PyObject *
run_access(PyObject *object, const access_form *form, dlpy_call given)
{
    PyObject *values[DLPY_ARGUMENTS_LIMIT];
    const char *const *names = form->signature.names;
    call self = {.kind = form->kind};

    if (dlpy_take_arguments(&form->signature, given, values) < 0
        || take_place(object, &self, values[form->rank], values[form->offset],
                      values[form->timeout])
               < 0
        || (form->op >= 0 && take_update(object, values[form->op], &self) < 0)) {
        return give_up_call(&self);
    }
    bool has_input =
        form->input >= 0 && (form->output < 0 || self.core.update != DL_UPDATE_NOTHING);
    if ((has_input
         && take_tensor(values[form->input], names[form->input], &self.input,
                        &self.core.input)
                < 0)
        || (form->compared >= 0
            && take_tensor(values[form->compared], names[form->compared],
                           &self.compared, &self.core.compared)
                   < 0)
        || (form->output >= 0
            && take_output(values[form->output], names[form->output], &self) < 0)) {
        return give_up_call(&self);
    }
    return carry_out_call(object, &self);
}

DLPY_BUILTIN(put, "put", run_access, access_form, .signature.required = 2,
             .signature.names = {"array", "rank", "offset", "*timeout"},
             .kind = DL_ACCESS_PUT, .input = 0, .compared = -1, .output = -1, .rank = 1,
             .op = -1, .offset = 2, .timeout = 3)

DLPY_BUILTIN(get, "get", run_access, access_form, .signature.required = 2,
             .signature.names = {"array", "rank", "offset", "*timeout"},
             .kind = DL_ACCESS_GET, .input = -1, .compared = -1, .output = 0, .rank = 1,
             .op = -1, .offset = 2, .timeout = 3)

DLPY_BUILTIN(accumulate, "accumulate", run_access, access_form, .signature.required = 2,
             .signature.names = {"array", "rank", "op", "offset", "*timeout"},
             .kind = DL_ACCESS_UPDATE, .input = 0, .compared = -1, .output = -1,
             .rank = 1, .op = 2, .offset = 3, .timeout = 4)

DLPY_BUILTIN(fetch, "_fetch", run_access, access_form, .signature.required = 6,
             .signature.names = {"array", "result", "rank", "op", "offset", "timeout"},
             .kind = DL_ACCESS_UPDATE, .input = 0, .compared = -1, .output = 1,
             .rank = 2, .op = 3, .offset = 4, .timeout = 5)

DLPY_BUILTIN(swap, "_swap", run_access, access_form, .signature.required = 6,
             .signature.names = {"value", "compare", "result", "rank", "offset",
                                 "timeout"},
             .kind = DL_ACCESS_SWAP, .input = 0, .compared = 1, .output = 2, .rank = 3,
             .op = -1, .offset = 4, .timeout = 5)

static PyObject *
lock(PyObject *object, PyObject *const *values)
{
    dl_deadline deadline;
    bool is_shared;
    dlpy_gil gil;
    int rank;

    if (dlpy_rank_from(values[0], "rank", &rank) < 0
        || dlpy_bool_from(values[1], "shared", &is_shared) < 0
        || deadline_from(object, values[2], &deadline) < 0) {
        return NULL;
    }
    dlpy_gil_leave_noting(&gil, true, window_module_state(object));
    dl_status status = dl_window_lock(core_of(object), rank, is_shared, deadline);
    /* With the lock, this returns DL_INTERRUPTED only if a signal's handler has raised
     * an exception: then the caller will not give the lock back. */
    bool is_locked = status == DL_OK;
    status = dlpy_gil_return(&gil, status);
    if (is_locked && status != DL_OK) {
        dlpy_signals_hold();
        dlpy_gil_leave(&gil, true);
        (void)dl_window_unlock(core_of(object), rank, deadline);
        (void)dlpy_gil_return(&gil, DL_OK);
        dlpy_signals_release();
    }
    return none_or_raise(object, status);
}

DLPY_PARSED(lock, "_lock", 3, "rank", "shared", "timeout")

static PyObject *
unlock(PyObject *object, PyObject *const *values)
{
    dl_deadline deadline;
    dlpy_gil gil;
    int rank;

    if (dlpy_rank_from(values[0], "rank", &rank) < 0
        || deadline_from(object, values[1], &deadline) < 0) {
        return NULL;
    }
    dlpy_gil_leave_noting(&gil, true, window_module_state(object));
    dl_status status = dl_window_unlock(core_of(object), rank, deadline);
    return none_or_raise(object, dlpy_gil_return(&gil, status));
}

DLPY_PARSED(unlock, "unlock", 1, "rank", "*timeout")

static PyObject *
flush_window(PyObject *object, PyObject *const *values)
{
    dl_deadline deadline;
    dlpy_gil gil;
    int rank = -1;

    if (deadline_from(object, values[1], &deadline) < 0) {
        return NULL;
    }
    if (values[0] != NULL && values[0] != Py_None) {
        if (dlpy_rank_from(values[0], "rank", &rank) < 0) {
            return NULL;
        }
        if (rank < 0) {
            PyErr_Format(PyExc_ValueError, "rank must not be negative, but is %d",
                         rank);
            return NULL;
        }
    }
    dlpy_gil_leave_noting(&gil, true, window_module_state(object));
    dl_status status = dl_window_flush(core_of(object), rank, deadline);
    return none_or_raise(object, dlpy_gil_return(&gil, status));
}

DLPY_PARSED(flush_window, "flush", 0, "rank", "*timeout")

/* A function that all ranks call together. */
typedef struct fence_form {
    dlpy_signature signature;
    dl_status (*function)(dl_window *, dl_deadline);
} fence_form;

static PyObject *
call_fence(PyObject *object, const fence_form *form, dlpy_call given)
{
    PyObject *values[1];
    dl_deadline deadline;
    dl_status status;

    if (dlpy_take_arguments(&form->signature, given, values) < 0
        || deadline_from(object, values[0], &deadline) < 0) {
        return NULL;
    }
    dl_window *window = core_of(object);
    dlpy_recorded_site_enter(window_module_state(object));
    Py_BEGIN_ALLOW_THREADS
    status = form->function(window, deadline);
    Py_END_ALLOW_THREADS
    return none_or_raise(object,
                         status == DL_OK && PyErr_Occurred() ? DL_INTERRUPTED : status);
}

DLPY_BUILTIN(fence, "fence", call_fence, fence_form, .signature.names = {"timeout"},
             .function = dl_window_fence)
DLPY_BUILTIN(close_window, "close", call_fence, fence_form,
             .signature.names = {"timeout"}, .function = dl_window_close)

static PyObject *
end(PyObject *object, PyObject *Py_UNUSED(unused))
{
    dl_window *window = core_of(object);

    DLPY_END(dl_window_end(window));
    Py_RETURN_NONE;
}

static PyObject *
counts(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const dl_window *window = core_of(object);
    int size = dl_group_size(dl_window_group(window));
    PyObject *all = PyTuple_New(size);

    for (int rank = 0; all != NULL && rank < size; rank++) {
        PyObject *count = PyLong_FromUnsignedLongLong(dl_window_count(window, rank));
        if (count == NULL) {
            Py_CLEAR(all);
        } else {
            PyTuple_SET_ITEM(all, rank, count);
        }
    }
    return all;
}

static dl_group *
group_from(const dlpy_state *state, PyObject *object)
{
    dl_group *group = dlpy_group_from(state, object, "group");

    if (group != NULL && ((dlpy_group *)object)->is_custom) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a group whose backend is written in Python has no windows; "
                        "make one with new_group(backend=\"gloo\")");
        return NULL;
    }
    return group;
}

static PyObject *
window_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const dlpy_signature signature = {
        "_Window", 4, {"group", "model", "count", "timeout"}};
    dlpy_state *state = dlpy_state_of_type(type);
    PyObject *values[4];
    dlpy_tensor model;
    dl_group *group;
    dl_window *window;
    dl_status status;
    int64_t count, timeout;

    if (state == NULL
        || dlpy_take_init_arguments(&signature, args, keywords, values) < 0
        || (group = group_from(state, values[0])) == NULL
        || dlpy_int64_from(values[2], "count", &count) < 0) {
        return NULL;
    }
    if (count < 0) {
        PyErr_SetString(PyExc_ValueError, "negative dimensions are not allowed");
        return NULL;
    }
    if (dlpy_timeout_from(values[3], dl_group_timeout(group), &timeout) < 0
        || dlpy_tensor_from(values[1], "model", &model) < 0) {
        return NULL;
    }
    window_object *self = (window_object *)type->tp_alloc(type, 0);
    if (self == NULL) {
        dlpy_tensor_release(&model);
        return NULL;
    }
    dlpy_recorded_site_enter(state);
    Py_BEGIN_ALLOW_THREADS
    status = dl_window_new(group, &model.view, (uint64_t)count,
                           dl_deadline_after(timeout), &window);
    Py_END_ALLOW_THREADS
    dlpy_tensor_release(&model);
    if (status != DL_OK) {
        dlpy_raise_collective(state, status);
        Py_DECREF(self);
        return NULL;
    }
    self->window = window;
    self->state = state;
    return (PyObject *)self;
}

static void
window_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    dl_window *window = core_of(object);

    DLPY_END(dl_window_free(window));
    type->tp_free(object);
    Py_DECREF(type);
}

static int
window_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    const dl_window *window = core_of(object);

    return PyBuffer_FillInfo(view, object, dl_window_own(window),
                             (Py_ssize_t)dl_window_size(window), 0, flags);
}

static PyMethodDef methods[] = {
    DLPY_FUNCTION("put", put, DLPY_DOC__WINDOW_PUT),
    DLPY_FUNCTION("get", get, DLPY_DOC__WINDOW_GET),
    DLPY_FUNCTION("accumulate", accumulate, DLPY_DOC__WINDOW_ACCUMULATE),
    DLPY_FUNCTION("unlock", unlock_call, DLPY_DOC__WINDOW_UNLOCK),
    DLPY_FUNCTION("flush", flush_window_call, DLPY_DOC__WINDOW_FLUSH),
    DLPY_FUNCTION("fence", fence, DLPY_DOC__WINDOW_FENCE),
    DLPY_FUNCTION("close", close_window, DLPY_DOC__WINDOW_CLOSE),
    DLPY_FUNCTION("_fetch", fetch, DLPY_DOC__WINDOW__FETCH),
    DLPY_FUNCTION("_swap", swap, DLPY_DOC__WINDOW__SWAP),
    DLPY_FUNCTION("_lock", lock_call, DLPY_DOC__WINDOW__LOCK),
    {"_end", end, METH_NOARGS, DLPY_DOC__WINDOW__END},
    {"_counts", counts, METH_NOARGS, DLPY_DOC__WINDOW__COUNTS},
    {0},
};

static PyType_Slot window_slots[] = {
    {Py_tp_doc, "The base class of distlite.Window."},
    {Py_tp_new, window_new},
    {Py_tp_dealloc, window_dealloc},
    {Py_tp_methods, methods},
    {Py_bf_getbuffer, window_getbuffer},
    {0, NULL},
};

static PyType_Spec window_spec = {
    .name = "distlite._Window",
    .basicsize = sizeof(window_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = window_slots,
};

const dlpy_part dlpy_window_type = {.type = &window_spec};
