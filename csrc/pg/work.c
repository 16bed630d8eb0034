/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/work.h"

#include <inttypes.h>
#include <stdlib.h>

void
dl_work_init(dl_work *work, const dl_work_ops *ops, dl_op_type op)
{
    work->ops = ops;
    work->op = op;
    work->is_brief = false;
    work->source = -1;
    work->record = NULL;
    atomic_init(&work->references, 2);
    atomic_init(&work->is_done, false);
    pthread_mutex_init(&work->lock, NULL);
    dl_list_init(&work->notices);
}

void
dl_work_fini(dl_work *work)
{
    free(work->error);
    pthread_mutex_destroy(&work->lock);
}

dl_work *
dl_work_ref(dl_work *work)
{
    atomic_fetch_add_explicit(&work->references, 1, memory_order_relaxed);
    return work;
}

void
dl_work_unref(dl_work *work)
{
    if (work != NULL
        && atomic_fetch_sub_explicit(&work->references, 1, memory_order_acq_rel) == 1) {
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

/* The notice's owner may free it, and the work, in its call. */
static void
call_notices(dl_list *notices)
{
    while (!dl_list_is_empty(notices)) {
        dl_work_notice *notice = DL_LIST_ENTRY(notices->next, dl_work_notice, node);
        dl_list_remove(&notice->node);
        notice->call(notice);
    }
}

void
dl_work_finish(dl_work *work, dl_status status)
{
    dl_list notices;

    dl_list_init(&notices);
    /* The interrupted thread is told as it returns; to all others it was cancelled. */
    work->status = status == DL_INTERRUPTED ? DL_CANCELLED : status;
    if (status != DL_OK) {
        keep_error(work);
    }
    work->ended_at = dl_now();
    pthread_mutex_lock(&work->lock);
    atomic_store_explicit(&work->is_done, true, memory_order_release);
    while (!dl_list_is_empty(&work->notices)) {
        dl_list *node = work->notices.next;
        dl_list_remove(node);
        dl_list_append(&notices, node);
    }
    dl_recorder_end(work->record, status);
    pthread_mutex_unlock(&work->lock);
    call_notices(&notices);
}

void
dl_work_attach(dl_work *work, dl_record *record)
{
    pthread_mutex_lock(&work->lock);
    if (dl_work_is_done(work)) {
        dl_recorder_end(record, work->status);
    } else {
        work->record = record;
    }
    pthread_mutex_unlock(&work->lock);
}

void
dl_work_notify(dl_work *work, dl_work_notice *notice)
{
    pthread_mutex_lock(&work->lock);
    bool is_done = dl_work_is_done(work);
    if (!is_done) {
        dl_list_append(&work->notices, &notice->node);
    }
    pthread_mutex_unlock(&work->lock);
    if (is_done) {
        notice->call(notice);
    }
}

dl_status
dl_work_result(const dl_work *work)
{
    if (work->status == DL_OK) {
        return DL_OK;
    }
    return work->error == NULL ? dl_fail(work->status,
                                         "%s failed, and there was no "
                                         "memory to remember why",
                                         dl_op_type_name((uint8_t)work->op))
                               : dl_fail_again(work->error);
}

dl_status
dl_work_wait(dl_work *work, dl_deadline deadline)
{
    if (!dl_work_is_done(work)) {
        dl_status status = work->ops->wait(work, deadline);
        if (status == DL_TIMEOUT && !dl_work_is_done(work)) {
            return dl_fail(
                DL_TIMEOUT,
                "waiting for %s timed out after %" PRId64 "ms; it has not ended",
                dl_op_type_name((uint8_t)work->op), deadline.limit / DL_MILLISECOND);
        }
        if (!dl_work_is_done(work)) {
            return status;
        }
    }
    return dl_work_result(work);
}
