/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The collectives of a group: checks a call, takes the group's turn or queues the call
 * as a job of its lane, and runs it in the backend. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "pg/agree/agreement.h"
#include "pg/check.h"
#include "pg/device/device.h"
#include "pg/device/device_state.h"
#include "pg/device/staging.h"
#include "pg/device/stream_marks.h"
#include "pg/function_reduction.h"
#include "pg/group_state.h"

/* An operation on its way through the group. */
typedef struct operation {
    dl_group *group;
    dl_backend *backend;
    const dl_call *call;
    dl_op_context context;
    dl_stream_marks *marks; /* to be reached first; NULL for arrays of the CPU */
    bool has_failed_alike;  /* on all ranks, which may use the group further */
} operation;

static const char *
operation_name(const operation *self)
{
    return dl_op_type_name(self->context.fingerprint.op);
}

/* The turn did not come in time.  If the earlier operation broke the group, it says why. */
static dl_status
fail_busy(const operation *self)
{
    DL_TRY(dl_group_admit(self->group));
    return dl_fail(DL_TIMEOUT,
                   "%s in group %s timed out after %" PRId64
                   "ms: an earlier operation in this group has not ended",
                   operation_name(self), self->group->name,
                   self->context.deadline.limit / DL_MILLISECOND);
}

/* Numbers and records the operation.  Called with the turn held.  A failure leaves the
 * group as it was, as nothing has been sent. */
static dl_status
begin_operation(operation *self)
{
    DL_TRY(dl_group_admit(self->group));
    self->backend = self->group->host.backend;
    dl_side_begin(&self->group->host, &self->context);
    return DL_OK;
}

static inline dl_status
run_in_backend(const operation *self)
{
    const dl_backend_ops *ops = self->backend->ops;
    dl_collective_fn *entry = dl_backend_entry(ops, self->call->op);

    return entry == NULL
               ? dl_fail(DL_UNSUPPORTED, "the %s backend of group %s has no %s",
                         ops->name, self->group->name, operation_name(self))
               : entry(self->backend, &self->context, self->call);
}

/* Breaks the group with the thread's last error; later calls get the text made here. */
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
                 operation_name(self), self->context.sequence);
    } else {
        snprintf(cause.text, sizeof cause.text, "group %.200s is broken: %.1800s",
                 group->name, error->text);
    }
    dl_group_set_cause(self->group, &cause);
}

static dl_status
check_nothing(const dl_group *group, const dl_call *call, dl_fingerprint *fingerprint)
{
    (void)group;
    (void)call;
    (void)fingerprint;
    return DL_OK;
}

/* By the operation that callers name; uneven and coalesced forms share the check of
 * their even one. */
static dl_check_fn *const checks[DL_OP_TYPE_COUNT] = {
    [DL_BARRIER] = check_nothing,
    [DL_ALL_REDUCE] = dl_check_all_reduce,
    [DL_BROADCAST] = dl_check_broadcast,
    [DL_REDUCE] = dl_check_reduce,
    [DL_SCAN] = dl_check_scan,
    [DL_EXSCAN] = dl_check_scan,
    [DL_ALL_GATHER] = dl_check_all_gather,
    [DL_GATHER] = dl_check_rooted,
    [DL_SCATTER] = dl_check_rooted,
    [DL_REDUCE_SCATTER] = dl_check_reduce_scatter,
    [DL_ALL_TO_ALL] = dl_check_all_to_all,
    [DL_WINDOW] = dl_check_window,
};

/* Aborts the backend after a failure of this rank alone, so that the other ranks, which
 * make the same call, do not wait for this one. */
static dl_status
abort_unless_ok(const operation *self, dl_status status)
{
    if (status != DL_OK) {
        dl_error error = *dl_last_error();
        dl_error cause = dl_error_for_others();
        self->backend->ops->abort(self->backend, &cause);
        (void)dl_rethrow(&error);
    }
    return status;
}

/* Runs a reduction with a reducer in the backend that moves the data. */
static dl_status
run_with_reducer(operation *self)
{
    dl_function_reduction reduction = {
        .backend = self->backend,
        .context = &self->context,
        .sequence = &self->group->host.sequence,
        .rank = self->group->rank,
        .size = self->group->size,
    };

    dl_status status = dl_function_reduction_run(&reduction, self->call);
    self->has_failed_alike = reduction.has_failed_alike;
    return status;
}

/* Runs an operation on copies of its arrays in the CPU's memory. */
static dl_status
run_staged(const operation *self)
{
    operation staged = *self;
    dl_staging staging;

    DL_TRY(abort_unless_ok(
        self, dl_staging_init(&staging, self->group, self->call, self->marks->cuda)));
    staged.call = staging.staged;
    dl_status status = run_in_backend(&staged);
    bool keeps_memory = status != DL_OK && dl_backend_take_kept_memory();
    if (status == DL_OK) {
        status = abort_unless_ok(self, dl_staging_copy_back(&staging));
    }
    dl_staging_fini(&staging, keeps_memory);
    return status;
}

/* Runs an operation on arrays of a device once their streams have reached it. */
static dl_status
run_after_streams(const operation *self)
{
    dl_device_stay stay;

    DL_TRY(abort_unless_ok(
        self, dl_stream_marks_enter(self->marks, self->group, &self->context, &stay)));
    dl_status status = run_staged(self);
    dl_stream_marks_leave(&stay);
    return status;
}

/* Runs an operation that has begun.  The arrays are checked once more before it starts.
 * DL_UNSUPPORTED leaves the group usable, because all ranks have the same backend and
 * fail alike. */
static dl_status
carry_out_operation(operation *self)
{
    dl_status status = abort_unless_ok(self, dl_op_check_arrays(&self->context));
    if (status == DL_OK && self->group->host.agreement != NULL) {
        status = dl_agreement_reach(&self->group->host, &self->context, self->call);
    }
    if (status == DL_OK) {
        status = self->call->reducer != NULL ? run_with_reducer(self)
                 : self->marks != NULL       ? run_after_streams(self)
                                             : run_in_backend(self);
    }
    if (status != DL_OK && status != DL_UNSUPPORTED && !self->has_failed_alike) {
        (void)dl_recorder_explain(self->context.record);
        break_group(self);
    }
    return status;
}

/* The forms of operations that move objects. */
static const uint8_t object_forms[DL_OP_TYPE_COUNT] = {
    [DL_BROADCAST] = DL_BROADCAST_OBJECTS,
    [DL_ALL_GATHER] = DL_ALL_GATHER_OBJECTS,
    [DL_GATHER] = DL_GATHER_OBJECTS,
    [DL_SCATTER] = DL_SCATTER_OBJECTS,
};

static dl_status
check_call(operation *self)
{
    const dl_call *call = self->call;
    dl_fingerprint *fingerprint = &self->context.fingerprint;

    fingerprint->op = (uint8_t)call->op;
    DL_TRY(checks[call->op](self->group, call, fingerprint));
    if (call->has_objects) {
        fingerprint->op = object_forms[call->op];
    }
    return DL_OK;
}

/* Takes the turn and runs an operation that was checked, on the caller's thread. */
static inline dl_status
run_operation(operation *self)
{
    dl_group *group = self->group;
    dl_side *side = &group->host;

    DL_TRY(dl_group_admit(group));
    dl_status status = dl_lane_take(&side->lane, self->context.deadline);
    if (status != DL_OK) {
        return status == DL_TIMEOUT ? fail_busy(self) : status;
    }
    status = begin_operation(self);
    if (status == DL_OK) {
        status = carry_out_operation(self);
    }
    dl_recorder_end_in(&side->seat, self->context.record, status, dl_now());
    dl_group_pass_turn(group, side);
    return status;
}

/* Runs an operation on arrays of a device. */
static dl_status
run_on_device(operation *self)
{
    if (self->group->device != NULL) {
        return dl_device_run(self->group, &(dl_op){self->call, self->context});
    }
    if (self->group->device_arrays == DL_ARRAYS_PASSED) {
        return run_operation(self);
    }
    dl_blocking_begin();
    DL_TRY(dl_stream_marks_new(self->group, self->call, &self->marks));
    dl_status status = run_operation(self);
    dl_stream_marks_free(self->marks);
    return status;
}

dl_status
dl_group_run(dl_group *group, const dl_call *call, dl_deadline deadline)
{
    operation self = {.group = group, .call = call, .context.deadline = deadline};

    DL_TRY(check_call(&self));
    return dl_call_is_on_device(call) ? run_on_device(&self) : run_operation(&self);
}

/* Bytes that hold the arguments of an operation on one array. */
#define NEAR 320

/* An operation that was queued and waits for its turn as a job of the lane. */
typedef struct queued {
    dl_work work;
    dl_job job;
    operation operation; /* with a reference to the group */
    dl_call *copy;       /* of the operation's call; in `near` if it fits */
    /* not cleared by queued_new(), as it is large */
    _Alignas(max_align_t) char near[NEAR];
} queued;

static queued *
queued_of_work(dl_work *work)
{
    return (queued *)(void *)work;
}

static queued *
queued_of_job(dl_job *job)
{
    return DL_LIST_ENTRY(job, queued, job);
}

static dl_status
wait_queued(dl_work *work, dl_deadline deadline)
{
    queued *self = queued_of_work(work);

    return dl_lane_join(&self->operation.group->host.lane, &self->job, deadline);
}

static void
expedite_queued(dl_work *work)
{
    dl_lane_expedite(&queued_of_work(work)->operation.group->host.lane);
}

static void
free_queued(dl_work *work)
{
    queued *self = queued_of_work(work);

    dl_group_unref(self->operation.group);
    if (self->copy != (void *)self->near) {
        free(self->copy);
    }
    dl_work_fini(work);
    free(self);
}

static const dl_work_ops queued_ops = {
    .wait = wait_queued,
    .free = free_queued,
    .expedite = expedite_queued,
};

static void
run_queued(dl_job *job)
{
    queued *self = queued_of_job(job);
    dl_status status = begin_operation(&self->operation);
    if (status == DL_OK) {
        atomic_store_explicit(&self->work.sequence, self->operation.context.sequence,
                              memory_order_relaxed);
        status = carry_out_operation(&self->operation);
        self->work.keeps_memory = status != DL_OK && dl_backend_take_kept_memory();
    }
    int64_t now = dl_now();

    dl_recorder_end_in(&self->operation.group->host.seat,
                       self->operation.context.record, status, now);
    dl_work_finish_at(&self->work, status, now);
}

/* The group breaks: the other ranks carry the operation out, so this rank's next call
 * would be matched with a different call of theirs. */
static void
expire_queued(dl_job *job)
{
    queued *self = queued_of_job(job);
    dl_status status = fail_busy(&self->operation);

    break_group(&self->operation);
    dl_recorder_end(self->operation.context.record, status);
    dl_work_finish(&self->work, status);
}

static void
release_queued(dl_job *job)
{
    queued *self = queued_of_job(job);

    dl_stream_marks_free(self->operation.marks);
    dl_group_free_backend_if_closed(self->operation.group,
                                    &self->operation.group->host);
    dl_work_unref(&self->work);
}

/* Makes a queued operation with two references to its work, the caller's and the
 * lane's. */
static dl_status
queued_new(const operation *asked, queued **made)
{
    const dl_group *group = asked->group;
    queued *self = malloc(sizeof *self);

    if (self == NULL) {
        return dl_fail_no_memory();
    }
    memset(self, 0, offsetof(queued, near));
    dl_status status = dl_call_copy(asked->call, group->size,
                                    (dl_room){self->near, NEAR}, &self->copy);
    if (status != DL_OK) {
        free(self);
        return status;
    }
    dl_work_init(&self->work, &queued_ops, asked->call->op);
    self->work.is_queued = true;
    self->work.is_brief = dl_group_is_brief(group, asked->call);
    self->job.deadline = asked->context.deadline;
    self->job.run = run_queued;
    self->job.expire = expire_queued;
    self->job.release = release_queued;
    self->job.queued_at = dl_deadline_start(asked->context.deadline);
    self->operation = *asked;
    self->operation.group = dl_group_ref(asked->group);
    self->operation.call = self->copy;
    *made = self;
    return DL_OK;
}

/* Queues an operation that was checked. */
static dl_status
submit_operation(const operation *asked, dl_work **work)
{
    dl_side *side = &asked->group->host;
    queued *self = NULL;

    DL_TRY(dl_group_admit(asked->group));
    DL_TRY(queued_new(asked, &self));
    dl_record *record = dl_recorder_queue(&side->seat, &asked->context.fingerprint,
                                          asked->context.deadline);
    self->operation.context.record = record;
    dl_status status = dl_lane_submit(&side->lane, &self->job);
    if (status != DL_OK) {
        dl_recorder_end(record, status);
        free_queued(&self->work);
        return status;
    }
    *work = &self->work;
    return DL_OK;
}

dl_status
dl_group_submit(dl_group *group, const dl_call *call, dl_deadline deadline,
                dl_work **work)
{
    operation asked = {.group = group,
                       .call = call,
                       .context.deadline = deadline,
                       .context.guard = call->guard};

    DL_TRY(check_call(&asked));
    if (!dl_call_is_on_device(call) || group->device_arrays == DL_ARRAYS_PASSED) {
        return submit_operation(&asked, work);
    }
    if (group->device != NULL) {
        return dl_device_enqueue(group, &(dl_op){call, asked.context}, work);
    }
    /* The streams of the arrays are marked now, and waited for at its turn. */
    DL_TRY(dl_stream_marks_new(group, call, &asked.marks));
    dl_status status = submit_operation(&asked, work);
    if (status != DL_OK) {
        dl_stream_marks_free(asked.marks);
    }
    return status;
}
