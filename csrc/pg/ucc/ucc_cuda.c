/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "pg/ucc/ucc_backend.h"
#include "pg/ucc/ucc_state.h"

/* The use of a device by one operation. */
typedef struct stay {
    const dl_cuda_table *cuda;
    int device;
    int previous; /* the thread's device before */
    int mode;     /* its capture mode before */
} stay;

/* Waits until the stream of an array has reached the operation.  Polls instead of
 * blocking in CUDA: there is a deadline, and other threads may abort. */
static dl_status
await(dl_ucc_backend *self, const dl_op_context *op, void *event)
{
    const dl_cuda_table *cuda = self->memory.cuda;
    dl_ucc_patience patience;
    int result;

    dl_ucc_patience_init(&patience, 0);
    while ((result = cuda->event_query(event)) == DL_CUDA_NOT_READY) {
        /* Some versions keep "not ready" as the thread's last error. */
        cuda->last_error();
        DL_TRY(dl_ucc_admit(self));
        if (dl_deadline_passed(op->deadline)) {
            return dl_fail(DL_TIMEOUT,
                           "%s #%" PRIu64 " timed out after %" PRId64
                           "ms in %s: the stream of its array has not reached it",
                           dl_op_type_name(op->fingerprint.op), op->sequence,
                           op->deadline.limit / DL_MILLISECOND, self->label);
        }
        DL_TRY(dl_ucc_patience_rest(&patience));
    }
    return dl_cuda_check(cuda, result, "cudaEventQuery");
}

static dl_status
await_all(dl_ucc_backend *self, const dl_op_context *op, const dl_arrays *arrays)
{
    void *previous = NULL;
    const dl_tensor *tensor;

    for (int i = 0; (tensor = dl_arrays_at(arrays, i)) != NULL; i++) {
        if (tensor->stream != previous) {
            DL_TRY(await(self, op, tensor->stream));
        }
        previous = tensor->stream;
    }
    return DL_OK;
}

static dl_status
end(const stay *self, dl_status status)
{
    int mode = self->mode;

    self->cuda->exchange_mode(&mode);
    dl_cuda_leave(self->cuda, self->device, self->previous);
    return status;
}

/* Makes the device of the arrays current, on whatever thread this is: a thread that
 * waits may carry out queued operations.  In relaxed mode, queries and allocations do
 * not invalidate a capture on another thread. */
static dl_status
begin(stay *made, dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    dl_ucc_backend *self = dl_ucc_self(backend);
    const dl_cuda_table *cuda = self->memory.cuda;
    dl_arrays arrays = dl_call_arrays(call, self->size);

    *made =
        (stay){cuda, dl_arrays_at(&arrays, 0)->device_index, 0, DL_CUDA_MODE_RELAXED};
    DL_TRY(dl_cuda_enter(cuda, made->device, &made->previous));
    cuda->exchange_mode(&made->mode);
    dl_status status = await_all(self, op, &arrays);
    return status == DL_OK ? DL_OK : end(made, status);
}

/* The entry of every collective that has arrays. */
static dl_status
run_on_device(dl_backend *backend, const dl_op_context *op, const dl_call *call)
{
    const dl_backend_ops *prepared = dl_ucc_self(backend)->prepared;
    stay stay;

    DL_TRY(begin(&stay, backend, op, call));
    return end(&stay, dl_backend_entry(prepared, call->op)(backend, op, call));
}

dl_status
dl_ucc_cuda_new(const dl_backend_options *options, dl_deadline deadline,
                dl_backend **backend)
{
    dl_ucc_memory memory;

    dl_status status = dl_ucc_memory_on_device(&memory);
    if (status != DL_OK) {
        dl_ucc_backend_refuse(options);
        return status;
    }
    status = dl_ucc_backend_new(options, deadline, backend);
    if (status != DL_OK) {
        dl_ucc_memory_fini(&memory);
        return status;
    }
    dl_ucc_backend *self = dl_ucc_self(*backend);
    self->memory = memory;
    self->on_device = *self->base.ops;
    self->prepared = self->base.ops;
    for (int op = 0; op < DL_OP_TYPE_COUNT; op++) {
        if (self->prepared->collectives[op] != NULL && op != DL_BARRIER) {
            self->on_device.collectives[op] = run_on_device;
        }
    }
    self->on_device.collectives[DL_SCAN] = NULL;
    self->on_device.collectives[DL_EXSCAN] = NULL;
    self->on_device.post = NULL;
    self->on_device.share = NULL;
    self->base.ops = &self->on_device;
    return DL_OK;
}
