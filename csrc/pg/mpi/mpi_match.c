/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_match.h"

static bool
fits(const dl_mpi_comm *comm, const dl_mpi_match *self, int source, int tag)
{
    return self->tag == tag
           && (self->peer == comm->mpi->any_source || self->peer == source);
}

/* Returns the first receive in the queue that takes a message from `source`, or
 * NULL. */
static dl_mpi_match *
find_locked(dl_mpi_comm *comm, int source, int tag)
{
    dl_mpi_queue *queue = &comm->matching;

    for (dl_list *node = queue->head.next; node != &queue->head; node = node->next) {
        dl_mpi_match *each = DL_LIST_ENTRY(node, dl_mpi_match, node);
        if (fits(comm, each, source, tag)) {
            return each;
        }
    }
    return NULL;
}

bool
dl_mpi_match_post(dl_mpi_comm *comm, dl_mpi_match *self, const dl_mpi_part *part,
                  int peer, int tag)
{
    bool is_any = peer == comm->mpi->any_source;
    bool is_queued = is_any || find_locked(comm, peer, tag) != NULL;

    if (is_queued) {
        *self = (dl_mpi_match){.part = *part, .peer = peer, .tag = tag};
        dl_list_append(&comm->matching.head, &self->node);
    }
    return is_queued;
}

static void
conclude_locked(dl_mpi_match *self, int result)
{
    dl_list_remove(&self->node);
    self->result = result;
    self->is_matched = true;
}

bool
dl_mpi_match_give(dl_mpi_comm *comm, int source, int tag, dl_mpi_handle message)
{
    dl_mpi_match *first = find_locked(comm, source, tag);

    if (first != NULL) {
        int result = comm->mpi->imrecv(&first->part, message, &first->request);
        conclude_locked(first, result);
    }
    return first != NULL;
}

/* Matches one message that fits the receive.  Returns false if there is none, or
 * if MPI has failed. */
static bool
match_locked(dl_mpi_comm *comm, dl_mpi_match *self)
{
    dl_mpi_handle message;
    dl_mpi_status found;
    int is_there = 0;
    int result =
        comm->mpi->improbe(self->peer, self->tag, dl_mpi_comm_of_tag(comm, self->tag),
                           &is_there, &message, &found);

    if (result != 0) {
        conclude_locked(self, result);
        return false;
    }
    if (!is_there) {
        return false;
    }
    /* Never false: `self` is in the queue and takes the message. */
    return dl_mpi_match_give(comm, found.source, self->tag, message);
}

bool
dl_mpi_match_look(dl_mpi_comm *comm, dl_mpi_match *self, int *result,
                  dl_mpi_handle *request)
{
    pthread_mutex_lock(&comm->matching.lock);
    while (self->node.next != NULL && match_locked(comm, self)) {
    }
    bool is_matched = self->is_matched;
    if (is_matched) {
        *result = self->result;
        *request = self->request;
    }
    pthread_mutex_unlock(&comm->matching.lock);
    return is_matched;
}

void
dl_mpi_match_take_back(dl_mpi_comm *comm, dl_mpi_match *self)
{
    pthread_mutex_lock(&comm->matching.lock);
    if (self->node.next != NULL) {
        dl_list_remove(&self->node);
    }
    pthread_mutex_unlock(&comm->matching.lock);
}
