/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/work.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/references.h"
#include "base/thread.h"

void
dl_work_init(dl_work *work, const dl_work_ops *ops, dl_op_type op)
{
    work->ops = ops;
    work->op = op;
    work->creator = dl_own_pid();
    work->is_brief = false;
    work->is_queued = false;
    work->keeps_memory = false;
    work->source = -1;
    atomic_init(&work->references, 2);
    atomic_init(&work->notices, NULL);
    atomic_init(&work->record, NULL);
    atomic_init(&work->sequence, 0);
}

void
dl_work_fini(dl_work *work)
{
    free(work->error);
}

static void
keep_memory(dl_work *work)
{
    (void)work;
}

void
dl_work_init_ended(dl_work *work, dl_op_type op, int source, int64_t now)
{
    static const dl_work_ops ops = {.free = keep_memory};

    dl_work_init(work, &ops, op);
    work->source = source;
    work->status = DL_OK;
    work->error = NULL;
    work->ended_at = now;
    atomic_store_explicit(&work->references, 1, memory_order_relaxed);
    atomic_store_explicit(&work->notices, DL_WORK_DONE, memory_order_release);
}

static void
free_ended(dl_work *work)
{
    free(work);
}

dl_work *
dl_work_new_ended(dl_op_type op, int source)
{
    static const dl_work_ops ops = {.free = free_ended};
    dl_work *work = malloc(sizeof *work);

    if (work != NULL) {
        dl_work_init_ended(work, op, source, dl_now());
        work->ops = &ops;
    }
    return work;
}

void
dl_work_unref(dl_work *work)
{
    if (work != NULL && dl_reference_drop(&work->references)) {
        work->ops->free(work);
    }
}

static void
keep_error(dl_work *work)
{
    work->error = malloc(sizeof *work->error);
    if (work->error != NULL) {
        *work->error = *dl_last_error();
        work->error->status = work->status;
    }
}

static dl_work_notice *
reverse_notices(dl_work_notice *first)
{
    dl_work_notice *reversed = NULL;

    while (first != NULL) {
        dl_work_notice *next = first->next;
        first->next = reversed;
        reversed = first;
        first = next;
    }
    return reversed;
}

/* Calls the notices in the order in which they were registered.  A notice may free
 * itself and drop the work. */
static void
call_notices(dl_work_notice *last)
{
    for (dl_work_notice *notice = reverse_notices(last); notice != NULL;) {
        dl_work_notice *next = notice->next;
        notice->call(notice);
        notice = next;
    }
}

/* dl_work_finish_at() sets DL_WORK_DONE before it reads the record, and
 * dl_work_attach() sets the record before it reads DL_WORK_DONE: at least one of them
 * sees both, and the exchange lets only one complete the record. */
static void
complete_record(dl_work *work)
{
    if (atomic_load(&work->record) != NULL) {
        dl_recorder_end_at(atomic_exchange(&work->record, NULL), work->status,
                           work->ended_at);
    }
}

void
dl_work_finish(dl_work *work, dl_status status)
{
    dl_work_finish_at(work, status, dl_now());
}

void
dl_work_finish_at(dl_work *work, dl_status status, int64_t now)
{
    /* Only the interrupted call returns DL_INTERRUPTED; for all others the
     * work was cancelled. */
    work->status = status == DL_INTERRUPTED ? DL_CANCELLED : status;
    if (status != DL_OK) {
        (void)dl_recorder_explain(atomic_load(&work->record));
        keep_error(work);
    }
    work->ended_at = now;
    dl_work_notice *last = atomic_exchange(&work->notices, DL_WORK_DONE);
    complete_record(work);
    call_notices(last);
}

void
dl_work_attach(dl_work *work, dl_record *record)
{
    atomic_store(&work->record, record);
    if (atomic_load(&work->notices) == DL_WORK_DONE) {
        complete_record(work);
    }
}

void
dl_work_notify(dl_work *work, dl_work_notice *notice)
{
    dl_work_notice *last = atomic_load(&work->notices);

    do {
        if (last == DL_WORK_DONE) {
            notice->call(notice);
            return;
        }
        notice->next = last;
    } while (!atomic_compare_exchange_weak(&work->notices, &last, notice));
}

dl_status
dl_work_result(const dl_work *work)
{
    if (work->status == DL_OK) {
        return DL_OK;
    }
    return work->error == NULL ? dl_fail(work->status,
                                         "%s failed; its cause is unknown, because "
                                         "there was no memory to record it",
                                         dl_op_type_name((uint8_t)work->op))
                               : dl_rethrow(work->error);
}

void
dl_work_expedite(dl_work *work)
{
    if (work->ops->expedite != NULL && !dl_work_is_done(work)
        && work->creator == dl_own_pid()) {
        work->ops->expedite(work);
    }
}

dl_status
dl_work_wait(dl_work *work, dl_deadline deadline)
{
    if (!dl_work_is_done(work) && work->creator != dl_own_pid()) {
        return dl_fail(
            DL_CLOSED,
            "%s was started by process %d; a forked child cannot wait for it",
            dl_op_type_name((uint8_t)work->op), work->creator);
    }
    if (!dl_work_is_done(work)) {
        dl_status status = work->ops->wait(work, deadline);
        if (status == DL_TIMEOUT && !dl_work_is_done(work)) {
            return dl_fail(
                DL_TIMEOUT,
                "waiting for %s timed out after %" PRId64 "ms; it has not finished",
                dl_op_type_name((uint8_t)work->op), deadline.limit / DL_MILLISECOND);
        }
        /* An interrupt takes precedence over an end that came with it, as it is
         * reported only once. */
        if (!dl_work_is_done(work) || status == DL_INTERRUPTED) {
            return status;
        }
    }
    return dl_work_result(work);
}
