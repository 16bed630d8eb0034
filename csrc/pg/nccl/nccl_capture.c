/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/nccl/nccl_state.h"

/* Whether some streams of a call's arrays are being captured, and some are not. */
typedef struct finding {
    const dl_cuda_table *cuda;
    bool has_captured;
    bool has_other;
} finding;

static dl_status
ask(const dl_cuda_table *cuda, void *stream, bool *is_captured)
{
    int state = DL_CUDA_CAPTURE_NONE;
    int result = cuda->stream_is_capturing(stream, &state);

    if (result == DL_CUDA_CAPTURE_IMPLICIT) {
        cuda->last_error();
        return dl_fail(DL_INVALID,
                       "the array is ordered by the default stream while another "
                       "stream is being captured into a graph; name that one, with "
                       "stream= or cuda_stream()");
    }
    DL_TRY(dl_cuda_check(cuda, result, "cudaStreamIsCapturing"));
    if (state != DL_CUDA_CAPTURE_NONE && state != DL_CUDA_CAPTURE_ACTIVE) {
        return dl_fail(DL_INVALID,
                       "the capture that the array's stream is in has failed");
    }
    *is_captured = state == DL_CUDA_CAPTURE_ACTIVE;
    return DL_OK;
}

static dl_status
ask_item(finding *self, const dl_device_item *item, int size)
{
    dl_arrays arrays = dl_arguments_arrays(item->op, item->args, size);
    void *previous = NULL;
    const dl_tensor *tensor;
    bool is_captured = false;

    for (int i = 0; (tensor = dl_arrays_at(&arrays, i)) != NULL; i++) {
        if (i > 0 && tensor->stream == previous) {
            continue;
        }
        previous = tensor->stream;
        DL_TRY(ask(self->cuda, tensor->stream, &is_captured));
        self->has_captured = self->has_captured || is_captured;
        self->has_other = self->has_other || !is_captured;
    }
    return DL_OK;
}

/* Checks the communicator's own stream: it joins a capture with the first operation in
 * it, and leaves when the capture ends. */
static dl_status
check_comm(const dl_nccl_backend *self, const dl_nccl_comm *comm, bool is_captured)
{
    bool is_inside = false;

    if (comm == NULL) {
        return is_captured ? dl_fail(DL_INVALID,
                                     "a communicator cannot be made while a graph is "
                                     "being captured; run the operation once before, "
                                     "or, for collectives, give "
                                     "init_process_group a device_id")
                           : DL_OK;
    }
    DL_TRY(ask(self->cuda, comm->stream, &is_inside));
    return is_inside && !is_captured
               ? dl_fail(DL_INVALID,
                         "%s is being captured into a graph; until that has ended, "
                         "other streams cannot use it",
                         self->watch->label)
               : DL_OK;
}

dl_status
dl_nccl_capture_look(const dl_nccl_backend *self, const dl_device_call *call,
                     const dl_nccl_comm *comm, bool *is_captured)
{
    finding found = {.cuda = self->cuda};

    for (size_t i = 0; i < call->count; i++) {
        DL_TRY(ask_item(&found, &call->items[i], self->size));
    }
    if (found.has_captured && found.has_other) {
        return dl_fail(DL_INVALID,
                       "of the streams that the arrays are ordered by, only some are "
                       "being captured into a graph");
    }
    *is_captured = found.has_captured;
    return check_comm(self, comm, *is_captured);
}
