/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_probe.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

#include "pg/record/blocked_threads.h"

/* A head that a probe has received. */
typedef struct kept {
    dl_list node; /* in the communicator's list, in the order of arrival */
    int source;
    int tag;
    dl_mpi_frame *frame;
} kept;

typedef struct probe {
    dl_work work;
    dl_mpi_comm *comm;
    int peer; /* or MPI_ANY_SOURCE */
    int tag;  /* or MPI_ANY_TAG */
    dl_probed *probed;
    dl_deadline deadline;
} probe;

static probe *
probe_of(dl_work *work)
{
    return (probe *)(void *)work;
}

static bool
fits(const dl_mpi_comm *comm, const kept *each, int peer, int tag)
{
    return (tag == comm->mpi->any_tag || tag == each->tag)
           && (peer == comm->mpi->any_source || peer == each->source);
}

static kept *
find_locked(dl_mpi_comm *comm, int peer, int tag)
{
    dl_list *all = &comm->matching.kept;

    for (dl_list *node = all->next; node != all; node = node->next) {
        kept *each = DL_LIST_ENTRY(node, kept, node);
        if (fits(comm, each, peer, tag)) {
            return each;
        }
    }
    return NULL;
}

bool
dl_mpi_probe_take(dl_mpi_comm *comm, int peer, int tag, dl_mpi_frame **frame,
                  int *source)
{
    kept *found = find_locked(comm, peer, tag);

    if (found == NULL) {
        return false;
    }
    dl_list_remove(&found->node);
    *frame = found->frame;
    *source = found->source;
    free(found);
    return true;
}

void
dl_mpi_probe_drop(dl_mpi_comm *comm)
{
    while (!dl_list_is_empty(&comm->matching.kept)) {
        kept *each = DL_LIST_ENTRY(comm->matching.kept.next, kept, node);
        dl_list_remove(&each->node);
        free(each->frame);
        free(each);
    }
}

/* Receives a head that MPI has matched, which therefore is on its way. */
static dl_status
receive_locked(const probe *self, const dl_mpi_status *found, dl_mpi_handle message)
{
    dl_mpi_comm *comm = self->comm;
    kept *made = calloc(1, sizeof *made);
    int size = found->bytes < (int)sizeof(dl_mpi_head)
                   ? (int)(sizeof(dl_mpi_head) + dl_mpi_most_along(comm))
                   : found->bytes;
    dl_mpi_frame *frame = malloc((size_t)size);
    dl_mpi_handle request;
    int is_done = 0;

    if (made == NULL || frame == NULL) {
        free(made);
        free(frame);
        return dl_fail_no_memory();
    }
    dl_mpi_part part = {frame, size, comm->mpi->byte};
    int result = comm->mpi->imrecv(&part, message, &request);
    while (result == 0 && !is_done) {
        result = comm->mpi->test(&request, &is_done, NULL);
        if (!is_done) {
            sched_yield();
        }
    }
    if (result != 0) {
        free(made);
        free(frame);
        dl_mpi_check(comm->mpi, result, "MPI_Imrecv");
        return dl_fail_while("probe in group %s on rank %d", comm->group_name,
                             comm->rank);
    }
    *made = (kept){.source = found->source, .tag = found->tag, .frame = frame};
    dl_list_append(&comm->matching.kept, &made->node);
    return DL_OK;
}

/* Receives the heads before the one that is looked for as well, whatever their tags, so
 * that all heads are kept in the order in which each rank has sent them. */
static dl_status
look_locked(probe *self, bool *is_found)
{
    dl_mpi_comm *comm = self->comm;
    kept *found = find_locked(comm, self->peer, self->tag);

    while (found == NULL) {
        dl_mpi_handle message;
        dl_mpi_status next;
        int is_there = 0;
        int result = comm->mpi->improbe(self->peer, comm->mpi->any_tag, comm->users,
                                        &is_there, &message, &next);
        DL_TRY(dl_mpi_check(comm->mpi, result, "MPI_Improbe"));
        if (!is_there) {
            return DL_OK;
        }
        /* A receive that waits for its match came first. */
        if (!dl_mpi_match_give(comm, next.source, next.tag, message)) {
            DL_TRY(receive_locked(self, &next, message));
        }
        found = find_locked(comm, self->peer, self->tag);
    }
    *self->probed = (dl_probed){.source = found->source,
                                .tag = found->tag - DL_MPI_USER_TAG,
                                .size = found->frame->head.size,
                                .dtype = (dl_dtype)found->frame->head.dtype,
                                .opaque_code = found->frame->head.code};
    self->work.source = found->source;
    *is_found = true;
    return DL_OK;
}

static void
finish_probe(probe *self, dl_status status)
{
    dl_work_finish(&self->work, status);
    dl_work_unref(&self->work); /* the maker's; the caller has its own */
}

/* Returns whether the probe has ended. */
static bool
poll_probe(probe *self)
{
    bool is_found = false;

    if (dl_work_is_done(&self->work)) {
        return true;
    }
    dl_status status = dl_mpi_comm_admit(self->comm);
    if (status == DL_OK) {
        pthread_mutex_lock(&self->comm->matching.lock);
        status = look_locked(self, &is_found);
        pthread_mutex_unlock(&self->comm->matching.lock);
    }
    if (status != DL_OK || is_found) {
        finish_probe(self, status);
        return true;
    }
    return false;
}

static dl_status
fail_timeout(const probe *self)
{
    int peer = self->peer == self->comm->mpi->any_source ? DL_ANY_RANK : self->peer;

    return dl_mpi_comm_fail_timeout(self->comm, "probe", peer, self->deadline);
}

static dl_status
wait_probe(dl_work *work, dl_deadline deadline)
{
    probe *self = probe_of(work);
    dl_mpi_pace pace = {.patience = dl_mpi_patience(0)};
    dl_deadline first = deadline.at < self->deadline.at ? deadline : self->deadline;

    while (!poll_probe(self)) {
        dl_status status = dl_mpi_pause(self->comm, &pace, first);
        if (status == DL_INTERRUPTED
            || (pace.is_late && dl_deadline_passed(deadline))) {
            return status;
        }
        if (status != DL_OK) {
            finish_probe(self, pace.is_late ? fail_timeout(self) : status);
        }
    }
    return DL_OK;
}

static void
withdraw_probe(dl_work *work)
{
    if (!dl_work_is_done(work)) {
        finish_probe(probe_of(work), dl_last_error()->status);
    }
}

static void
free_probe(dl_work *work)
{
    probe *self = probe_of(work);

    dl_mpi_comm_unref(self->comm);
    dl_work_fini(work);
    free(self);
}

static const dl_work_ops probe_ops = {
    .wait = wait_probe,
    .withdraw = withdraw_probe,
    .free = free_probe,
};

dl_status
dl_mpi_probe_post(dl_mpi_comm *comm, const dl_call *call, dl_deadline deadline,
                  dl_work **work)
{
    DL_TRY(dl_mpi_comm_admit(comm));
    probe *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dl_fail_no_memory();
    }
    dl_work_init(&self->work, &probe_ops, call->op);
    self->comm = dl_mpi_comm_ref(comm);
    self->peer = call->peer == DL_ANY_RANK ? comm->mpi->any_source : call->peer;
    self->tag =
        call->tag == DL_ANY_TAG ? comm->mpi->any_tag : DL_MPI_USER_TAG + (int)call->tag;
    self->probed = call->probed;
    self->deadline = deadline;
    *work = &self->work;
    if (!poll_probe(self) && !call->is_awaited) {
        finish_probe(self, dl_fail(DL_NOT_FOUND, "no such message has arrived"));
    }
    return DL_OK;
}
