/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "pg/check.h"
#include "pg/group_state.h"

/* One operation on its way through the group. */
typedef struct operation {
    dl_group *group;
    dl_backend *backend;
    const void *args; /* the struct of the operation's kind */
    dl_op_context context;
} operation;

static const char *
name_of(const operation *self)
{
    return dl_op_type_name(self->context.fingerprint.op);
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

/* The one place that words an operation which a backend does not have. */
static dl_status
refuse(const operation *self)
{
    return dl_fail(DL_UNSUPPORTED, "the %s backend of group %s has no %s",
                   self->backend->ops->name, self->group->name, name_of(self));
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

/* All ranks have the same backend: what it lacks leaves the group whole. */
static dl_status
end(const operation *self, dl_status status)
{
    if (status != DL_OK && status != DL_UNSUPPORTED) {
        break_group(self);
    }
    dl_group_pass_turn(self->group);
    return status;
}

static dl_status
call_all_reduce(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->all_reduce == NULL
               ? refuse(self)
               : ops->all_reduce(self->backend, &self->context, self->args);
}

static dl_status
call_broadcast(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->broadcast == NULL
               ? refuse(self)
               : ops->broadcast(self->backend, &self->context, self->args);
}

static dl_status
call_reduce(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->reduce == NULL ? refuse(self)
                               : ops->reduce(self->backend, &self->context, self->args);
}

static dl_status
call_all_gather(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->all_gather == NULL
               ? refuse(self)
               : ops->all_gather(self->backend, &self->context, self->args);
}

static dl_status
call_gather(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->gather == NULL ? refuse(self)
                               : ops->gather(self->backend, &self->context, self->args);
}

static dl_status
call_scatter(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->scatter == NULL
               ? refuse(self)
               : ops->scatter(self->backend, &self->context, self->args);
}

static dl_status
call_reduce_scatter(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->reduce_scatter == NULL
               ? refuse(self)
               : ops->reduce_scatter(self->backend, &self->context, self->args);
}

static dl_status
call_all_to_all(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->all_to_all == NULL
               ? refuse(self)
               : ops->all_to_all(self->backend, &self->context, self->args);
}

static dl_status
call_barrier(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;

    return ops->barrier == NULL ? refuse(self)
                                : ops->barrier(self->backend, &self->context);
}

static dl_status
check_nothing(const dl_group *group, const void *args, dl_fingerprint *fingerprint)
{
    (void)group;
    (void)args;
    (void)fingerprint;
    return DL_OK;
}

typedef struct kind {
    dl_check_fn check;
    dl_status (*call)(const operation *);
} kind;

/* By the operation that callers name; uneven forms belong to their even ones. */
static const kind kinds[DL_OP_TYPE_COUNT] = {
    [DL_BARRIER] = {check_nothing, call_barrier},
    [DL_ALL_REDUCE] = {dl_check_all_reduce, call_all_reduce},
    [DL_BROADCAST] = {dl_check_broadcast, call_broadcast},
    [DL_REDUCE] = {dl_check_reduce, call_reduce},
    [DL_ALL_GATHER] = {dl_check_all_gather, call_all_gather},
    [DL_GATHER] = {dl_check_gather, call_gather},
    [DL_SCATTER] = {dl_check_scatter, call_scatter},
    [DL_REDUCE_SCATTER] = {dl_check_reduce_scatter, call_reduce_scatter},
    [DL_ALL_TO_ALL] = {dl_check_all_to_all, call_all_to_all},
};

static dl_status
run(dl_group *group, dl_op_type op, const void *args, dl_deadline deadline)
{
    const kind *kind = &kinds[op];
    operation self = {
        .group = group,
        .args = args,
        .context = {.fingerprint = {.op = (uint8_t)op}, .deadline = deadline},
    };

    DL_TRY(kind->check(group, args, &self.context.fingerprint));
    DL_TRY(begin(&self));
    return end(&self, kind->call(&self));
}

dl_status
dl_group_all_reduce(dl_group *group, const dl_all_reduce_args *args,
                    dl_deadline deadline)
{
    return run(group, DL_ALL_REDUCE, args, deadline);
}

dl_status
dl_group_broadcast(dl_group *group, const dl_broadcast_args *args, dl_deadline deadline)
{
    return run(group, DL_BROADCAST, args, deadline);
}

dl_status
dl_group_reduce(dl_group *group, const dl_reduce_args *args, dl_deadline deadline)
{
    return run(group, DL_REDUCE, args, deadline);
}

dl_status
dl_group_all_gather(dl_group *group, const dl_all_gather_args *args,
                    dl_deadline deadline)
{
    return run(group, DL_ALL_GATHER, args, deadline);
}

dl_status
dl_group_gather(dl_group *group, const dl_gather_args *args, dl_deadline deadline)
{
    return run(group, DL_GATHER, args, deadline);
}

dl_status
dl_group_scatter(dl_group *group, const dl_scatter_args *args, dl_deadline deadline)
{
    return run(group, DL_SCATTER, args, deadline);
}

dl_status
dl_group_reduce_scatter(dl_group *group, const dl_reduce_scatter_args *args,
                        dl_deadline deadline)
{
    return run(group, DL_REDUCE_SCATTER, args, deadline);
}

dl_status
dl_group_all_to_all(dl_group *group, const dl_all_to_all_args *args,
                    dl_deadline deadline)
{
    return run(group, DL_ALL_TO_ALL, args, deadline);
}

dl_status
dl_group_barrier(dl_group *group, dl_deadline deadline)
{
    return run(group, DL_BARRIER, NULL, deadline);
}
