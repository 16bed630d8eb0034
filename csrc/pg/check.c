/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/check.h"

#include "pg/device.h"
#include "tensor/strided.h"

dl_status
dl_check_tensor(const dl_group *group, const dl_tensor *tensor, bool is_written,
                const dl_fingerprint *fingerprint)
{
    const char *name = dl_op_type_name(fingerprint->op);

    if (tensor->device != DL_CPU) {
        DL_TRY(dl_device_check(group, tensor, name));
    }
    if (is_written && !tensor->is_writable) {
        return dl_fail(DL_INVALID,
                       "%s: the array is read-only, or of a library that does not say "
                       "whether it may be written to; pass a copy, as numpy.array() "
                       "makes one",
                       name);
    }
    if (!tensor->is_contiguous && tensor->ndim > DL_TENSOR_DIMENSIONS) {
        return dl_fail(DL_INVALID, "%s: the array has %d dimensions, more than %d",
                       name, tensor->ndim, DL_TENSOR_DIMENSIONS);
    }
    if (is_written && dl_strided_may_overlap(tensor)) {
        return dl_fail(DL_INVALID,
                       "%s: elements of the array share memory, so that it cannot be "
                       "written to",
                       name);
    }
    return DL_OK;
}

dl_status
dl_check_root(const dl_group *group, int root, dl_fingerprint *fingerprint)
{
    if (root < 0 || root >= dl_group_size(group)) {
        return dl_fail(DL_INVALID, "%s: rank %d is not in group %s of %d",
                       dl_op_type_name(fingerprint->op), root, dl_group_name(group),
                       dl_group_size(group));
    }
    fingerprint->root = (uint32_t)root;
    return DL_OK;
}

void
dl_check_describe(const dl_tensor *tensor, dl_fingerprint *fingerprint)
{
    dl_fingerprint_set_count(fingerprint, tensor->count);
    fingerprint->dtype = (uint8_t)tensor->dtype;
    fingerprint->detail = tensor->opaque_code;
}

/* Only numbers are reduced, and their description leaves `detail` free
 * for the reduction. */
dl_status
dl_check_reduction(const dl_tensor *tensor, dl_reduce_op op,
                   dl_fingerprint *fingerprint)
{
    dl_check_describe(tensor, fingerprint);
    DL_TRY(dl_reduce_check(op, tensor));
    fingerprint->detail = (uint32_t)op;
    return DL_OK;
}

dl_status
dl_check_all_reduce(const dl_group *group, const void *args,
                    dl_fingerprint *fingerprint)
{
    const dl_all_reduce_args *call = args;

    if (call->tensor.pieces != NULL) {
        fingerprint->op = DL_ALL_REDUCE_COALESCED;
        fingerprint->root = dl_fingerprint_of_blocks(&call->tensor, 1);
    }
    DL_TRY(dl_check_tensor(group, &call->tensor, true, fingerprint));
    return dl_check_reduction(&call->tensor, call->op, fingerprint);
}

dl_status
dl_check_broadcast(const dl_group *group, const void *args, dl_fingerprint *fingerprint)
{
    const dl_broadcast_args *call = args;
    bool is_written = dl_group_rank(group) != call->root;

    DL_TRY(dl_check_root(group, call->root, fingerprint));
    DL_TRY(dl_check_tensor(group, &call->tensor, is_written, fingerprint));
    dl_check_describe(&call->tensor, fingerprint);
    return DL_OK;
}

/* The size of a card is compared as well: two versions of the library with different
 * cards could not read each other's. */
dl_status
dl_check_objects(const dl_group *group, const void *args, dl_fingerprint *fingerprint)
{
    const dl_objects_args *call = args;

    if (call->root >= 0) {
        DL_TRY(dl_check_root(group, call->root, fingerprint));
    }
    dl_fingerprint_set_count(
        fingerprint, call->cards.outputs[call->root < 0 ? 0 : call->root].count);
    return DL_OK;
}

dl_status
dl_check_reduce(const dl_group *group, const void *args, dl_fingerprint *fingerprint)
{
    const dl_reduce_args *call = args;
    bool is_written = dl_group_rank(group) == call->root;

    DL_TRY(dl_check_root(group, call->root, fingerprint));
    DL_TRY(dl_check_tensor(group, &call->tensor, is_written, fingerprint));
    return dl_check_reduction(&call->tensor, call->op, fingerprint);
}
