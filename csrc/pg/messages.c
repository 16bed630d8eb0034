/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two ranks, which the backend matches.  They do not take
 * the group's turn. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pg/check.h"
#include "pg/device/device.h"
#include "pg/group_state.h"

static dl_status
check_peer(const dl_group *group, dl_op_type op, int peer)
{
    const char *end = op == DL_SEND ? "destination" : "source";

    if (op == DL_RECV_ANY) {
        return group->size > 1
                   ? DL_OK
                   : dl_fail(DL_INVALID,
                             "recv: group %s has no other rank to receive from",
                             group->name);
    }
    if (peer < 0 || peer >= group->size) {
        return dl_fail(DL_INVALID, "%s: rank %d is not in group %s of %d",
                       dl_op_type_name((uint8_t)op), peer, group->name, group->size);
    }
    return peer != group->rank
               ? DL_OK
               : dl_fail(DL_INVALID,
                         "Invalid %s rank: %s rank should not be the same as the rank "
                         "of the current process.",
                         end, end);
}

dl_status
dl_group_check_message(const dl_group *group, const dl_call *call)
{
    dl_fingerprint fingerprint = {.op = (uint8_t)call->op};
    const char *name = dl_op_type_name(fingerprint.op);

    DL_TRY(check_peer(group, call->op, call->peer));
    if (call->tag < 0) {
        return dl_fail(DL_INVALID, "%s: tag %" PRId64 " is negative", name, call->tag);
    }
    DL_TRY(dl_check_tensor(group, &call->tensor, call->op != DL_SEND, &fingerprint));
    return call->tensor.device == DL_CPU ? DL_OK : dl_device_check_message(group, name);
}

/* Called with the lock held, so that the backend stays. */
static dl_status
post_locked(dl_group *group, const dl_call *call, dl_deadline deadline, dl_work **work)
{
    DL_TRY(dl_group_admit(group));
    const dl_backend_ops *ops = group->host.backend->ops;
    if (ops->post == NULL) {
        return dl_fail(DL_UNSUPPORTED, "the %s backend of group %s has no %s",
                       ops->name, group->name, dl_op_type_name((uint8_t)call->op));
    }
    return ops->post(group->host.backend, call, deadline, work);
}

static dl_fingerprint
describe(const dl_call *call)
{
    dl_fingerprint what = {.op = (uint8_t)call->op, .root = (uint32_t)call->peer};

    dl_check_describe(&call->tensor, &what);
    return what;
}

static dl_op
on_device(const dl_call *call, dl_deadline deadline)
{
    return (dl_op){
        call,
        {.fingerprint = describe(call), .deadline = deadline, .guard = call->guard}};
}

/* Records a message that was posted.  If it has arrived meanwhile, the record begins
 * and ends at once. */
static void
record(const dl_group *group, const dl_call *call, dl_deadline deadline, dl_work *work)
{
    dl_fingerprint what = describe(call);

    dl_work_attach(work,
                   dl_recorder_post(&group->host.seat, &what, call->tag, deadline));
}

dl_status
dl_group_post(dl_group *group, const dl_call *call, dl_deadline deadline,
              dl_work **work)
{
    DL_TRY(dl_group_check_message(group, call));
    if (call->tensor.device != DL_CPU && group->device != NULL) {
        dl_op op = on_device(call, deadline);
        return dl_device_enqueue(group, &op, work);
    }
    /* Checked before locking, because a forked child may have inherited
     * the lock held. */
    DL_TRY(dl_group_admit(group));
    pthread_mutex_lock(&group->lock);
    dl_status status = post_locked(group, call, deadline, work);
    pthread_mutex_unlock(&group->lock);
    if (status == DL_OK) {
        record(group, call, deadline, *work);
    }
    return status;
}

/* Waits for a message whose memory the caller takes back afterwards, and drops the
 * work. */
static dl_status
await(dl_work *work, dl_message_end *end)
{
    dl_status status = dl_work_wait(work, dl_deadline_after(-1));

    if (!dl_work_is_done(work)) {
        /* The wait was interrupted and the caller gets its array back, so the message
         * must not be written to it any more. */
        dl_fail(DL_CANCELLED, "the wait was interrupted");
        work->ops->withdraw(work);
        status = DL_INTERRUPTED;
    }
    end->source = work->source;
    /* If the work has not ended, withdrawing it was enough. */
    end->keeps_memory = dl_work_is_done(work) && work->keeps_memory;
    dl_work_unref(work);
    return status;
}

/* Messages whose works need no memory of their own. */
#define NEAR_MESSAGES 16

/* Posts the messages in their order; `*posted` is how many. */
static dl_status
post_all(dl_group *group, const dl_call *calls, int count, dl_deadline deadline,
         dl_work **works, int *posted)
{
    for (*posted = 0; *posted < count; ++*posted) {
        dl_call call = calls[*posted];
        call.is_awaited = true;
        DL_TRY(dl_group_post(group, &call, deadline, &works[*posted]));
    }
    return DL_OK;
}

/* A rank that waits for its receives first lets nobody wait for long: all that they
 * need was posted before. */
static dl_status
await_all(dl_work **works, int count, dl_status status, dl_message_end *ends)
{
    dl_error error = *dl_last_error();

    for (int i = 0; i < count; i++) {
        if (status != DL_OK && !dl_work_is_done(works[i])) {
            (void)dl_fail_again(&error);
            works[i]->ops->withdraw(works[i]);
            ends[i].keeps_memory = dl_work_is_done(works[i]) && works[i]->keeps_memory;
            dl_work_unref(works[i]);
            continue;
        }
        dl_status own = await(works[i], &ends[i]);
        if (status == DL_OK && own != DL_OK) {
            status = own;
            error = *dl_last_error();
        }
    }
    return status == DL_OK || status == DL_INTERRUPTED ? status : dl_fail_again(&error);
}

dl_status
dl_group_exchange_all(dl_group *group, const dl_call *calls, int count,
                      dl_deadline deadline, dl_message_end *ends)
{
    dl_work *near[NEAR_MESSAGES];
    dl_work **works = near;
    int posted;

    memset(ends, 0, (size_t)count * sizeof *ends);
    for (int i = 0; i < count; i++) {
        DL_TRY(dl_group_check_message(group, &calls[i]));
    }
    if (count > NEAR_MESSAGES) {
        works = malloc((size_t)count * sizeof *works);
        if (works == NULL) {
            return dl_fail_no_memory();
        }
    }
    dl_status status = post_all(group, calls, count, deadline, works, &posted);
    status = await_all(works, posted, status, ends);
    if (works != near) {
        free(works);
    }
    return status;
}

dl_status
dl_group_probe(dl_group *group, int peer, int64_t tag, bool waits, dl_deadline deadline,
               dl_probed *found, bool *is_found)
{
    dl_call call = {.op = peer == DL_ANY_RANK ? DL_RECV_ANY : DL_RECV,
                    .tensor = {.is_contiguous = true, .dtype = DL_UINT8},
                    .peer = peer,
                    .tag = tag,
                    .probed = found,
                    .is_awaited = waits};
    dl_message_end end;
    dl_work *work;

    *found = (dl_probed){0};
    DL_TRY(check_peer(group, call.op, peer));
    if (tag < 0 && tag != DL_ANY_TAG) {
        return dl_fail(DL_INVALID, "probe: tag %" PRId64 " is negative", tag);
    }
    DL_TRY(dl_group_admit(group));
    pthread_mutex_lock(&group->lock);
    dl_status status = post_locked(group, &call, deadline, &work);
    pthread_mutex_unlock(&group->lock);
    DL_TRY(status);
    status = await(work, &end);
    *is_found = status == DL_OK;
    return status == DL_NOT_FOUND && !waits ? DL_OK : status;
}

dl_status
dl_group_exchange(dl_group *group, const dl_call *call, dl_deadline deadline,
                  dl_message_end *end)
{
    dl_message_end ignored;
    dl_call awaited = *call;
    dl_work *work;

    end = end == NULL ? &ignored : end;
    *end = (dl_message_end){.source = call->peer};
    if (call->tensor.device != DL_CPU && group->device != NULL) {
        DL_TRY(dl_group_check_message(group, call));
        dl_op op = on_device(call, deadline);
        return dl_device_run(group, &op);
    }
    awaited.is_awaited = true;
    DL_TRY(dl_group_post(group, &awaited, deadline, &work));
    return await(work, end);
}
