/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"
#include "base/references.h"
#include "base/thread.h"
#include "pg/nccl/nccl_comm.h"
#include "pg/nccl/nccl_watch_state.h"

void
dl_nccl_fail_works_locked(dl_nccl_watch *self)
{
    dl_list works;

    dl_list_init(&works);
    for (dl_list *node = self->works.next; node != &self->works; node = node->next) {
        DL_LIST_ENTRY(node, dl_nccl_work, node)->is_watched = false;
    }
    dl_list_move(&self->works, &works);
    pthread_mutex_unlock(&dl_nccl_all.lock);
    dl_nccl_finish_works(&works, &self->cause);
    pthread_mutex_lock(&dl_nccl_all.lock);
}

/* Communicators to be freed, which one thread at a time takes from. */
typedef struct freeing {
    dl_nccl_watch *watch;
    dl_list comms;
    bool is_aborted;
} freeing;

/* Frees the first communicator, while a thread of their own frees the others: freeing
 * waits for all kernels of the device, and so for those of communicators that have not
 * been aborted yet.  NCCL's calls for that may be grouped from 2.22 on only. */
static void *
free_comms(void *argument)
{
    freeing *self = argument;
    pthread_t others;

    if (dl_list_is_empty(&self->comms)) {
        return NULL;
    }
    dl_nccl_comm *comm = DL_LIST_ENTRY(self->comms.next, dl_nccl_comm, node);
    dl_list_remove(&comm->node);
    bool has_thread = !dl_list_is_empty(&self->comms)
                      && dl_thread_start(&others, free_comms, self) == DL_OK;
    dl_nccl_comm_free(self->watch, comm, self->is_aborted);
    if (has_thread) {
        pthread_join(others, NULL);
        return NULL;
    }
    return free_comms(self);
}

/* Frees all communicators, those whose handles NCCL may still store after the ones that
 * they are made from. */
static void
free_all_comms(dl_nccl_watch *self)
{
    freeing first = {.watch = self}, last = {.watch = self};
    dl_list *next;

    dl_list_init(&first.comms);
    dl_list_init(&last.comms);
    pthread_mutex_lock(&dl_nccl_all.lock);
    first.is_aborted = last.is_aborted = self->has_cause;
    dl_list_move(&self->comms, &first.comms);
    for (dl_list *node = first.comms.next; node != &first.comms; node = next) {
        next = node->next;
        if (DL_LIST_ENTRY(node, dl_nccl_comm, node)->is_waiting) {
            dl_list_remove(node);
            dl_list_append(&last.comms, node);
        }
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
    free_comms(&first);
    free_comms(&last);
}

/* The teardown's thread.  Aborted communicators are freed before the works fail, since
 * until then the device may write to the arrays of these. */
static void *
tear_down(void *argument)
{
    dl_nccl_watch *self = argument;

    free_all_comms(self);
    pthread_mutex_lock(&dl_nccl_all.lock);
    dl_nccl_fail_works_locked(self);
    self->is_over = true;
    pthread_cond_broadcast(&dl_nccl_all.changed);
    pthread_mutex_unlock(&dl_nccl_all.lock);
    dl_nccl_watch_unref(self);
    return NULL;
}

void
dl_nccl_begin_teardown_locked(dl_nccl_watch *self)
{
    pthread_t thread;

    if (self->has_cause && self->cause.status != DL_CLOSED
        && self->cause.status != DL_CANCELLED) {
        dl_log(DL_LOG_ERROR, "%s; the communicators of this group are aborted",
               self->cause.text);
    }
    self->is_torn = true;
    self->fail_by = dl_now() + DL_NCCL_GRACE;
    if (dl_list_is_empty(&self->comms) && dl_list_is_empty(&self->works)) {
        self->is_over = true;
        pthread_cond_broadcast(&dl_nccl_all.changed);
        return;
    }
    dl_reference_take(&self->references);
    if (dl_thread_start(&thread, tear_down, self) == DL_OK) {
        pthread_detach(thread);
        return;
    }
    pthread_mutex_unlock(&dl_nccl_all.lock);
    tear_down(self);
    pthread_mutex_lock(&dl_nccl_all.lock);
}
