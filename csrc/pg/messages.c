/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages between two ranks, which the backend matches.  They do not take
 * the group's turn. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
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

/* Starts the messages one after the other. */
static dl_status
post_each(dl_backend *backend, const dl_call *calls, int count, dl_deadline deadline,
          dl_work **works, int *posted)
{
    for (*posted = 0; *posted < count; ++*posted) {
        DL_TRY(backend->ops->post(backend, &calls[*posted], deadline, &works[*posted]));
    }
    return DL_OK;
}

/* Called with the lock held, so that the backend stays. */
static dl_status
post_locked(dl_group *group, const dl_call *calls, int count, dl_deadline deadline,
            dl_work **works, int *posted)
{
    *posted = 0;
    DL_TRY(dl_group_admit(group));
    dl_backend *backend = dl_backend_of_messages(group->host.backend);
    if (backend->ops->post == NULL) {
        return dl_fail(DL_UNSUPPORTED, "the %s backend of group %s has no %s",
                       backend->ops->name, group->name,
                       dl_op_type_name((uint8_t)calls->op));
    }
    return count > 1 && backend->ops->post_all != NULL
               ? backend->ops->post_all(backend, calls, count, deadline, works, posted)
               : post_each(backend, calls, count, deadline, works, posted);
}

static dl_fingerprint
fingerprint_of(const dl_call *call)
{
    dl_fingerprint what = {.op = (uint8_t)call->op, .root = (uint32_t)call->peer};

    dl_check_describe(&call->tensor, &what);
    return what;
}

static dl_op
on_device(const dl_call *call, dl_deadline deadline)
{
    return (dl_op){call,
                   {.fingerprint = fingerprint_of(call),
                    .deadline = deadline,
                    .guard = call->guard}};
}

/* Messages up to this size are copied within a microsecond. */
#define QUICK ((size_t)4 << 10)

int64_t
dl_group_ended_at(const dl_call *message, dl_deadline deadline)
{
    return dl_tensor_size(&message->tensor) <= QUICK ? dl_deadline_start(deadline)
                                                     : dl_now();
}

/* Records messages that were posted, those that have ended well with their end. */
static void
record_messages(const dl_group *group, const dl_call *calls, int count,
                dl_deadline deadline, dl_work *const *works)
{
    const dl_seat *seat = &group->host.seat;

    for (int i = 0; seat->row != NULL && i < count; i++) {
        const dl_call *call = &calls[i];
        dl_work *work = works[i];
        dl_fingerprint what = fingerprint_of(call);
        if (work != NULL && !(dl_work_is_done(work) && work->status == DL_OK)) {
            dl_work_attach(work, dl_recorder_post(seat, &what, call->tag, deadline));
            continue;
        }
        int64_t ended_at =
            work == NULL ? dl_group_ended_at(call, deadline) : work->ended_at;
        dl_recorder_post_ended(seat, &what, call->tag, deadline, ended_at);
    }
}

/* Posts messages that were checked. */
static dl_status
post_checked(dl_group *group, const dl_call *calls, int count, dl_deadline deadline,
             dl_work **works)
{
    int posted;

    /* Checked before locking, because a forked child may have inherited
     * the lock held. */
    DL_TRY(dl_group_admit(group));
    dl_blocking_lock(&group->lock);
    dl_status status = post_locked(group, calls, count, deadline, works, &posted);
    pthread_mutex_unlock(&group->lock);
    record_messages(group, calls, posted, deadline, works);
    return status;
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
    return post_checked(group, call, 1, deadline, work);
}

dl_status
dl_group_post_all(dl_group *group, const dl_call *calls, int count,
                  dl_deadline deadline, dl_work **works)
{
    memset(works, 0, (size_t)count * sizeof(dl_work *));
    for (int i = 0; i < count; i++) {
        DL_TRY(dl_group_check_message(group, &calls[i]));
    }
    return post_checked(group, calls, count, deadline, works);
}

/* Ends the use of the caller's memory after a wait for a message, and drops the
 * work. */
static dl_status
take_back(dl_work *work, dl_status status, dl_message_end *end)
{
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

/* Waits for a message with `peer` whose memory the caller takes back afterwards, and drops
 * the work, NULL if the message has ended. */
static dl_status
await_message(dl_work *work, int peer, dl_message_end *end)
{
    if (work == NULL) {
        *end = (dl_message_end){.source = peer};
        return DL_OK;
    }
    return take_back(work, dl_work_wait(work, dl_deadline_after(-1)), end);
}

/* Messages of one call that need no memory of their own. */
#define NEAR_MESSAGES 8

static void
withdraw_message(dl_work *work, const dl_error *why, dl_message_end *end)
{
    (void)dl_rethrow(why);
    work->ops->withdraw(work);
    end->keeps_memory = dl_work_is_done(work) && work->keeps_memory;
    dl_work_unref(work);
}

/* The messages of one call, and what waiting for them has come to. */
typedef struct batch {
    dl_work **works; /* NULL for those that are not waited for any more */
    int count;
    dl_status status;
    dl_error error;
} batch;

/* Returns the message that has failed, or NULL. */
static const dl_work *
find_failed(const batch *self)
{
    for (int i = 0; i < self->count; i++) {
        const dl_work *work = self->works[i];
        if (work != NULL && dl_work_is_done(work) && work->status != DL_OK) {
            return work;
        }
    }
    return NULL;
}

static bool
has_failed(void *self)
{
    return find_failed(self) != NULL;
}

/* Waits for the message `i`, at most until another one has failed: its peer knows of that
 * as well, and may have withdrawn its side. */
static dl_status
wait_beside(batch *self, int i)
{
    dl_interrupt_own before =
        dl_interrupt_set_own((dl_interrupt_own){.check = has_failed, .context = self});
    dl_status status = dl_work_wait(self->works[i], dl_deadline_after(-1));

    (void)dl_interrupt_set_own(before);
    const dl_work *failed = status == DL_INTERRUPTED ? find_failed(self) : NULL;
    return failed == NULL ? status : dl_work_result(failed);
}

/* Waits for the message `i`, unless one has failed: then it is withdrawn. */
static void
await_one(batch *self, const dl_call *calls, int i, dl_message_end *ends)
{
    dl_work *work = self->works[i];

    if (work == NULL) {
        ends[i].source = calls[i].peer;
        return;
    }
    dl_status own = self->status == DL_OK ? wait_beside(self, i) : DL_OK;
    if (own != DL_OK) {
        self->status = own;
        self->error = *dl_last_error();
    }
    self->works[i] = NULL;
    if (dl_work_is_done(work) || own == DL_INTERRUPTED) {
        (void)take_back(work, own, &ends[i]);
    } else {
        withdraw_message(work, &self->error, &ends[i]);
    }
}

/* Waits for the messages in turn.  No peer is delayed by a rank that waits for one
 * message first, because all sends were posted before.  A backend may take a message
 * only while a thread waits for it, so the receives come first: two ranks that waited
 * for their sends would wait for each other. */
static dl_status
await_all(dl_work **works, const dl_call *calls, int count, dl_status status,
          dl_message_end *ends)
{
    batch all = {works, count, status, *dl_last_error()};

    for (int i = 0; i < count; i++) {
        if (calls[i].op != DL_SEND) {
            await_one(&all, calls, i, ends);
        }
    }
    for (int i = 0; i < count; i++) {
        if (calls[i].op == DL_SEND) {
            await_one(&all, calls, i, ends);
        }
    }
    return all.status == DL_OK || all.status == DL_INTERRUPTED ? all.status
                                                               : dl_rethrow(&all.error);
}

/* Posts the messages as parts of one call, and waits for them. */
static dl_status
exchange_in(dl_group *group, const dl_call *calls, int count, dl_deadline deadline,
            dl_message_end *ends, dl_call *parts, dl_work **works)
{
    for (int i = 0; i < count; i++) {
        parts[i] = calls[i];
        parts[i].is_awaited = true;
    }
    dl_status status = dl_group_post_all(group, parts, count, deadline, works);
    return await_all(works, parts, count, status, ends);
}

dl_status
dl_group_exchange_all(dl_group *group, const dl_call *calls, int count,
                      dl_deadline deadline, dl_message_end *ends)
{
    dl_call near_parts[NEAR_MESSAGES];
    dl_work *near_works[NEAR_MESSAGES];

    memset(ends, 0, (size_t)count * sizeof *ends);
    if (count <= NEAR_MESSAGES) {
        return exchange_in(group, calls, count, deadline, ends, near_parts, near_works);
    }
    dl_call *parts = malloc((size_t)count * sizeof *parts);
    dl_work **works = malloc((size_t)count * sizeof(dl_work *));
    dl_status status =
        parts == NULL || works == NULL
            ? dl_fail_no_memory()
            : exchange_in(group, calls, count, deadline, ends, parts, works);
    free(parts);
    free(works);
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
    int posted;

    *found = (dl_probed){0};
    DL_TRY(check_peer(group, call.op, peer));
    if (tag < 0 && tag != DL_ANY_TAG) {
        return dl_fail(DL_INVALID, "probe: tag %" PRId64 " is negative", tag);
    }
    DL_TRY(dl_group_admit(group));
    dl_blocking_lock(&group->lock);
    dl_status status = post_locked(group, &call, 1, deadline, &work, &posted);
    pthread_mutex_unlock(&group->lock);
    DL_TRY(status);
    status = await_message(work, peer, &end);
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
    return await_message(work, call->peer, end);
}
