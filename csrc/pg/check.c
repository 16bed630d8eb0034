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

/* Elements of any size are told apart: where a byte does not hold the size, by the bytes
 * they take in all. */
void
dl_check_describe(const dl_tensor *tensor, dl_fingerprint *fingerprint)
{
    bool is_small = tensor->item_size <= UINT8_MAX;

    fingerprint->count = is_small ? tensor->count : dl_tensor_size(tensor);
    fingerprint->dtype = (uint8_t)tensor->dtype;
    fingerprint->item_size = is_small ? (uint8_t)tensor->item_size : 1;
}

static dl_status
check_reduction(const dl_tensor *tensor, dl_reduce_op op, dl_fingerprint *fingerprint)
{
    fingerprint->reduce_op = (uint8_t)op;
    dl_check_describe(tensor, fingerprint);
    return dl_reduce_check(op, tensor->dtype);
}

dl_status
dl_check_all_reduce(const dl_group *group, const void *args,
                    dl_fingerprint *fingerprint)
{
    const dl_all_reduce_args *call = args;

    DL_TRY(dl_check_tensor(group, &call->tensor, true, fingerprint));
    return check_reduction(&call->tensor, call->op, fingerprint);
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

/* Two versions whose blocks differ in size do not understand each other. */
dl_status
dl_check_objects(const dl_group *group, const void *args, dl_fingerprint *fingerprint)
{
    const dl_objects_args *call = args;

    if (call->root >= 0) {
        DL_TRY(dl_check_root(group, call->root, fingerprint));
    }
    fingerprint->count = call->cards.outputs[call->root < 0 ? 0 : call->root].count;
    return DL_OK;
}

dl_status
dl_check_reduce(const dl_group *group, const void *args, dl_fingerprint *fingerprint)
{
    const dl_reduce_args *call = args;
    bool is_written = dl_group_rank(group) == call->root;

    DL_TRY(dl_check_root(group, call->root, fingerprint));
    DL_TRY(dl_check_tensor(group, &call->tensor, is_written, fingerprint));
    return check_reduction(&call->tensor, call->op, fingerprint);
}
