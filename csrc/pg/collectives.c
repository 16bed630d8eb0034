/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "pg/group_state.h"
#include "tensor/strided.h"

/* One operation on its way through the group. */
typedef struct operation {
    dl_group *group;
    dl_backend *backend;
    dl_op_context context;
} operation;

static const char *
name_of(const operation *self)
{
    return dl_op_type_name(self->context.fingerprint.op);
}

static operation
operation_of(dl_group *group, dl_op_type op, dl_deadline deadline)
{
    return (operation){
        .group = group,
        .context = {.fingerprint = {.op = (uint8_t)op}, .deadline = deadline},
    };
}

/* Elements of any size are told apart: where a byte does not hold the size, by the bytes
 * they take in all. */
static void
describe_tensor(operation *self, const dl_tensor *tensor)
{
    dl_fingerprint *fingerprint = &self->context.fingerprint;
    bool is_small = tensor->item_size <= UINT8_MAX;

    fingerprint->count = is_small ? tensor->count : dl_tensor_size(tensor);
    fingerprint->dtype = (uint8_t)tensor->dtype;
    fingerprint->item_size = is_small ? (uint8_t)tensor->item_size : 1;
}

static dl_status
check_tensor(const operation *self, const dl_tensor *tensor, bool is_written)
{
    if (tensor->device != DL_CPU) {
        return dl_fail(DL_UNSUPPORTED, "%s: group %s has no backend for this device",
                       name_of(self), self->group->name);
    }
    if (is_written && !tensor->is_writable) {
        return dl_fail(DL_INVALID, "%s: the array is read-only", name_of(self));
    }
    if (!tensor->is_contiguous && tensor->ndim > DL_TENSOR_DIMENSIONS) {
        return dl_fail(DL_INVALID, "%s: the array has %d dimensions, more than %d",
                       name_of(self), tensor->ndim, DL_TENSOR_DIMENSIONS);
    }
    if (is_written && dl_strided_may_overlap(tensor)) {
        return dl_fail(DL_INVALID,
                       "%s: elements of the array share memory, so that it cannot be "
                       "written to",
                       name_of(self));
    }
    return DL_OK;
}

static dl_status
fail_busy(const operation *self)
{
    return dl_fail(DL_TIMEOUT,
                   "%s in group %s timed out after %" PRId64
                   "ms: another thread's operation in this group has not ended",
                   name_of(self), self->group->name,
                   self->context.deadline.limit / DL_MILLISECOND);
}

/* Takes the turn.  A failure leaves the group as it was: nothing has been sent. */
static dl_status
begin(operation *self)
{
    dl_group *group = self->group;

    DL_TRY(dl_group_admit(group));
    dl_status status = dl_turn_take(&group->turn, self->context.deadline);
    if (status != DL_OK) {
        return status == DL_TIMEOUT ? fail_busy(self) : status;
    }
    status = dl_group_admit(group);
    if (status != DL_OK) {
        dl_group_pass_turn(group);
        return status;
    }
    self->backend = group->backend;
    /* Only the turn's holder writes it. */
    self->context.sequence = dl_group_sequence(group) + 1;
    atomic_store_explicit(&group->sequence, self->context.sequence,
                          memory_order_relaxed);
    return DL_OK;
}

/* The one place that words an operation which a backend does not have.  All ranks have
 * the same backend: the group stays whole. */
static dl_status
refuse(const operation *self)
{
    const char *backend = self->backend->ops->name;

    dl_group_pass_turn(self->group);
    return dl_fail(DL_UNSUPPORTED, "the %s backend of group %s has no %s", backend,
                   self->group->name, name_of(self));
}

/* What later calls are told of this failure. */
static void
break_group(const operation *self)
{
    const dl_group *group = self->group;
    const dl_error *error = dl_last_error();
    dl_error cause = {.status = error->status};

    if (error->status == DL_INTERRUPTED) {
        cause.status = DL_CANCELLED;
        snprintf(cause.text, sizeof cause.text,
                 "group %s is broken: %s #%" PRIu64 " was interrupted", group->name,
                 name_of(self), self->context.sequence);
    } else {
        snprintf(cause.text, sizeof cause.text, "group %.200s is broken: %.1800s",
                 group->name, error->text);
    }
    dl_group_set_cause(self->group, &cause);
}

static dl_status
end(const operation *self, dl_status status)
{
    if (status != DL_OK) {
        break_group(self);
    }
    dl_group_pass_turn(self->group);
    return status;
}

dl_status
dl_group_all_reduce(dl_group *group, const dl_all_reduce_args *args,
                    dl_deadline deadline)
{
    operation self = operation_of(group, DL_ALL_REDUCE, deadline);

    DL_TRY(check_tensor(&self, &args->tensor, true));
    DL_TRY(dl_reduce_check(args->op, args->tensor.dtype));
    describe_tensor(&self, &args->tensor);
    self.context.fingerprint.reduce_op = (uint8_t)args->op;
    DL_TRY(begin(&self));
    const dl_backend_ops *ops = self.backend->ops;
    if (ops->all_reduce == NULL) {
        return refuse(&self);
    }
    return end(&self, ops->all_reduce(self.backend, &self.context, args));
}

dl_status
dl_group_broadcast(dl_group *group, const dl_broadcast_args *args, dl_deadline deadline)
{
    operation self = operation_of(group, DL_BROADCAST, deadline);

    if (args->root < 0 || args->root >= group->size) {
        return dl_fail(DL_INVALID, "broadcast: rank %d is not in group %s of %d",
                       args->root, group->name, group->size);
    }
    DL_TRY(check_tensor(&self, &args->tensor, group->rank != args->root));
    describe_tensor(&self, &args->tensor);
    self.context.fingerprint.root = (uint32_t)args->root;
    DL_TRY(begin(&self));
    const dl_backend_ops *ops = self.backend->ops;
    if (ops->broadcast == NULL) {
        return refuse(&self);
    }
    return end(&self, ops->broadcast(self.backend, &self.context, args));
}

dl_status
dl_group_barrier(dl_group *group, dl_deadline deadline)
{
    operation self = operation_of(group, DL_BARRIER, deadline);

    DL_TRY(begin(&self));
    const dl_backend_ops *ops = self.backend->ops;
    if (ops->barrier == NULL) {
        return refuse(&self);
    }
    return end(&self, ops->barrier(self.backend, &self.context));
}
