/* SPDX-License-Identifier: BSD-3-Clause */
#include "python/collective_functions.h"

#include "pg/device/device.h"
#include "python/collective_call.h"
#include "python/convert.h"
#include "python/cuda_arg.h"
#include "python/docstrings.h"
#include "python/errors.h"
#include "python/reduce_op_arg.h"
#include "python/torch_profiler.h"

/* `writes` is true if this rank receives a result in the array.  torch's version
 * counter is incremented here, at the call, for asynchronous operations too: no thread
 * may be running Python when the operation ends, and a tensor must not be read or saved
 * while an operation on it is pending.
 *
 * For a synchronous call the array is kept alive by the caller's frame.  Only a Work,
 * or a batch, which begins the operation later, needs a reference to it. */
static PyObject *
finish(dlpy_collective *self, dl_op_type op, const void *args, dlpy_tensor *tensor,
       PyObject *array, bool writes)
{
    PyObject *result;

    if (dlpy_torch_profiler_wants(tensor)) {
        self->inputs = array;
    }
    if (writes && dlpy_tensor_note_write(tensor, array) < 0) {
        result = dlpy_collective_give_up(self);
    } else if (dlpy_collective_outlives_call(self)) {
        dlpy_guard guard = {0};
        dlpy_work_keep keep = {
            .pins = tensor->owner, .outputs = array, .guard = &guard};
        result = dlpy_guard_add(&guard, array, tensor) < 0
                     ? dlpy_collective_give_up(self)
                     : dlpy_collective_finish(self, op, args, keep);
        dlpy_guard_clear(&guard);
    } else {
        result = dlpy_collective_finish(self, op, args, (dlpy_work_keep){0});
    }
    dlpy_tensor_release(tensor);
    return result;
}

static PyObject *
all_reduce(PyObject *module, PyObject *const *args, Py_ssize_t count,
           PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "all_reduce",
        .required = 1,
        .names = {"tensor", "op", "group", "async_op", "*stream"},
    };
    dlpy_call call = {args, count, keywords};
    PyObject *values[5];
    dlpy_collective self;
    dlpy_tensor tensor;
    dl_all_reduce_args core;

    if (dlpy_take_arguments(&signature, call, values) < 0) {
        return NULL;
    }
    int begun = dlpy_collective_begin(module, &signature, values, 2, &self);
    if (begun <= 0) {
        return dlpy_collective_answer(&self, begun);
    }
    if (dlpy_reduce_op_from(self.state, values[1], &core.op, &core.factor) < 0
        || dlpy_tensor_from(values[0], "tensor", &tensor) < 0) {
        return dlpy_collective_give_up(&self);
    }
    core.tensor = tensor.view;
    return finish(&self, DL_ALL_REDUCE, &core, &tensor, values[0], true);
}

static PyObject *
broadcast(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "broadcast",
        .required = 1,
        .names = {"tensor", "src", "group", "async_op", "group_src", "*stream"},
    };
    dlpy_call call = {args, count, keywords};
    PyObject *values[6];
    dlpy_collective self;
    dlpy_tensor tensor;
    dl_broadcast_args core;

    if (dlpy_take_arguments(&signature, call, values) < 0) {
        return NULL;
    }
    int begun = dlpy_collective_begin(module, &signature, values, 2, &self);
    if (begun <= 0) {
        return dlpy_collective_answer(&self, begun);
    }
    if (dlpy_collective_root(&self, "src", values[1], values[4], -1, &core.root) < 0
        || dlpy_tensor_from(values[0], "tensor", &tensor) < 0) {
        return dlpy_collective_give_up(&self);
    }
    core.tensor = tensor.view;
    bool is_root = core.root == dl_group_rank(self.core);
    return finish(&self, DL_BROADCAST, &core, &tensor, values[0], !is_root);
}

static PyObject *
reduce(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "reduce",
        .required = 1,
        .names = {"tensor", "dst", "op", "group", "async_op", "group_dst", "*stream"},
    };
    dlpy_call call = {args, count, keywords};
    PyObject *values[7];
    dlpy_collective self;
    dlpy_tensor tensor;
    dl_reduce_args core;

    if (dlpy_take_arguments(&signature, call, values) < 0) {
        return NULL;
    }
    int begun = dlpy_collective_begin(module, &signature, values, 3, &self);
    if (begun <= 0) {
        return dlpy_collective_answer(&self, begun);
    }
    if (dlpy_collective_root(&self, "dst", values[1], values[5], -1, &core.root) < 0
        || dlpy_reduce_op_from(self.state, values[2], &core.op, &core.factor) < 0
        || dlpy_tensor_from(values[0], "tensor", &tensor) < 0) {
        return dlpy_collective_give_up(&self);
    }
    core.tensor = tensor.view;
    bool is_root = core.root == dl_group_rank(self.core);
    return finish(&self, DL_REDUCE, &core, &tensor, values[0], is_root);
}

/* Waits until the devices of all ranks have reached the barrier.  Returns 0, or -1 with
 * an exception set. */
static int
meet_on_device(const dlpy_collective *self, int64_t timeout)
{
    void *stream;
    dl_status status;

    if (dlpy_cuda_stream_in_use(&stream) < 0) {
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    status = dl_device_barrier(self->core, stream, dl_deadline_after(timeout));
    Py_END_ALLOW_THREADS
    if (status != DL_OK) {
        dlpy_raise_collective(self->state, status);
        return -1;
    }
    return 0;
}

/* The only collective with a timeout parameter; the others use the group's timeout. */
static PyObject *
barrier(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const dlpy_signature signature = {
        .function = "barrier",
        .names = {"group", "async_op", "device_ids", "timeout"},
    };
    dlpy_call call = {args, count, keywords};
    PyObject *values[4];
    dlpy_collective self;
    int64_t timeout;

    if (dlpy_take_arguments(&signature, call, values) < 0) {
        return NULL;
    }
    int begun = dlpy_collective_begin(module, &signature, values, 0, &self);
    if (begun <= 0) {
        return dlpy_collective_answer(&self, begun);
    }
    if (dlpy_timeout_from(values[3], dlpy_collective_timeout(&self), &timeout) < 0) {
        return dlpy_collective_give_up(&self);
    }
    if (dl_device_takes_barriers(self.core) && !self.is_async
        && meet_on_device(&self, timeout) < 0) {
        return dlpy_collective_give_up(&self);
    }
    if (dlpy_torch_profiler_is_on()) {
        self.inputs = Py_None;
    }
    return dlpy_collective_finish_by(&self, DL_BARRIER, NULL,
                                     (dlpy_work_keep){.outputs = Py_None},
                                     dl_deadline_after(timeout));
}

static PyMethodDef functions[] = {
    DLPY_COLLECTIVE(all_reduce,
                    "all_reduce($module, /, tensor, op=ReduceOp.SUM, group=None, "
                    "async_op=False, *, stream=None)\n--\n\n" DLPY_DOC_ALL_REDUCE),
    DLPY_COLLECTIVE(
        broadcast,
        "broadcast($module, /, tensor, src=None, group=None, "
        "async_op=False, group_src=None, *, stream=None)\n--\n\n" DLPY_DOC_BROADCAST),
    DLPY_COLLECTIVE(
        reduce,
        "reduce($module, /, tensor, dst=None, op=ReduceOp.SUM, group=None, "
        "async_op=False, group_dst=None, *, stream=None)\n--\n\n" DLPY_DOC_REDUCE),
    DLPY_COLLECTIVE(barrier,
                    "barrier($module, /, group=None, async_op=False, device_ids=None, "
                    "timeout=None)\n--\n\n" DLPY_DOC_BARRIER),
    {0},
};

int
dlpy_add_collective_functions(PyObject *module)
{
    return dlpy_add_functions(module, functions);
}
