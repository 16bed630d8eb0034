/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_cards.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pg/agree/rank_keys.h"
#include "pg/mpi/mpi_leftovers.h"
#include "pg/mpi/mpi_news.h"
#include "pg/record/blocked_threads.h"

/* How long MPI may take to complete the messages of an operation that failed. */
#define PARTING (100 * DL_MILLISECOND)

dl_status
dl_mpi_cards_begin(dl_mpi_meeting *meeting, const dl_op_context *op,
                   const dl_mpi_contribution *own)
{
    dl_mpi_card *mine = dl_mpi_card_at(meeting, 0);

    DL_TRY(dl_mpi_comm_admit(meeting->comm));
    dl_mpi_history_note(&meeting->history, op);
    mine->fingerprint = op->fingerprint;
    mine->sequence = (uint32_t)op->sequence;
    mine->digest = (uint32_t)meeting->history.digest;
    mine->size = (uint16_t)own->array.size;
    mine->flags = (uint16_t)own->flags;
    mine->sent = (uint32_t)dl_mpi_card_size(mine);
    if (own->array.size > 0) {
        memcpy(mine + 1, own->array.data, own->array.size);
    }
    meeting->sent_count = 0;
    meeting->unheard++;
    return DL_OK;
}

size_t
dl_mpi_cards_measure(dl_mpi_meeting *meeting, int count)
{
    const dl_mpi_comm *comm = meeting->comm;
    size_t at = 0;

    for (int i = 0; i < count; i++) {
        int rank = (comm->rank + i) % comm->size;
        meeting->offsets[rank] = at;
        at += dl_mpi_card_size(dl_mpi_card_of(meeting, rank));
    }
    return at;
}

static dl_status
fail_late(const dl_mpi_meeting *meeting, const dl_op_context *op,
          const dl_mpi_partner *missing, bool is_here)
{
    const dl_mpi_comm *comm = meeting->comm;
    dl_rank_list ranks = {.count = 0};

    for (int i = 0; i < missing->count; i++) {
        dl_rank_list_add(&ranks, (missing->first + i) % comm->size);
    }
    dl_rank_list_end(&ranks);
    dl_fail(DL_TIMEOUT,
            "%s #%" PRIu64 " in group %.100s timed out after %" PRId64
            "ms on rank %d of %d",
            dl_op_type_name(op->fingerprint.op), op->sequence, comm->group_name,
            op->deadline.limit / DL_MILLISECOND, comm->rank, comm->size);
    dl_error error = *dl_last_error();
    const char *plural = missing->count == 1 ? "" : "s";
    return is_here ? dl_fail(DL_TIMEOUT,
                             "%.500s: rank%s %s called it, but did not go on with it; "
                             "`distlite ps` shows what each does",
                             error.text, plural, ranks.text)
                   : dl_fail(DL_TIMEOUT,
                             "%.500s: nothing was heard of rank%s %s; whoever of them "
                             "did call it waits for another of them; `distlite ps` "
                             "shows what each does",
                             error.text, plural, ranks.text);
}

/* Publishes what this thread waits for, for the search for deadlocks. */
static void
note_wait(const dl_mpi_comm *comm, const dl_op_context *op, const dl_mpi_partner *other)
{
    dl_awaited awaited = {.count = 0};

    dl_awaited_add(&awaited, other->rank);
    if (other->add_needed != NULL) {
        other->add_needed(comm, op, other->rank, &awaited);
    }
    dl_blocked_look(op->record, &awaited, op->deadline);
}

/* Waits for a request; `bound_until` is that of dl_mpi_pace. */
static dl_status
await_card(dl_mpi_meeting *meeting, const dl_op_context *op,
           const dl_mpi_partner *other, dl_mpi_handle *request, int64_t bound_until)
{
    dl_mpi_comm *comm = meeting->comm;
    dl_mpi_pace pace = {.bound_until = bound_until};
    int is_done = 0;

    for (;;) {
        int result = comm->mpi->test(request, &is_done, NULL);
        if (result != 0) {
            return dl_mpi_check(comm->mpi, result, "MPI_Test");
        }
        if (is_done) {
            return DL_OK;
        }
        dl_status status = dl_mpi_pause(comm, &pace, op->deadline);
        if (pace.naps > 0) {
            note_wait(comm, op, other);
        }
        if (status == DL_OK && pace.naps > 0) {
            status = dl_mpi_news_exchange(meeting, other->rank, pace.naps);
        }
        if (status != DL_OK) {
            return pace.is_late ? fail_late(meeting, op, other, bound_until != 0)
                                : status;
        }
    }
}

static dl_status
await(dl_mpi_meeting *meeting, const dl_op_context *op, const dl_mpi_partner *other,
      dl_mpi_handle *request, int64_t bound_until)
{
    dl_status status = await_card(meeting, op, other, request, bound_until);

    dl_blocked_end();
    return status;
}

static bool
ends_before(const dl_mpi_table *mpi, dl_mpi_handle *request, dl_deadline deadline)
{
    int is_done = 0;

    while (!is_done && mpi->test(request, &is_done, NULL) == 0) {
        if (!is_done && dl_deadline_passed(deadline)) {
            return false;
        }
    }
    return is_done != 0;
}

/* Cancels what is pending.  Requests that MPI does not complete soon are left to it,
 * with the buffer. */
static void
part(dl_mpi_meeting *meeting)
{
    dl_mpi_comm *comm = meeting->comm;
    const dl_mpi_table *mpi = comm->mpi;
    dl_deadline soon = dl_deadline_after(PARTING);
    bool is_left = false;

    atomic_store(&comm->has_pending, true);
    if (meeting->is_receiving) {
        mpi->cancel(&meeting->received);
        if (!ends_before(mpi, &meeting->received, soon)) {
            dl_mpi_leftover_add(mpi, meeting->received, NULL);
            is_left = true;
        }
    }
    for (int i = 0; i < meeting->sent_count; i++) {
        if (!ends_before(mpi, &meeting->sent[i].request, soon)) {
            dl_mpi_leftover_add(mpi, meeting->sent[i].request, NULL);
            is_left = true;
        }
    }
    meeting->is_receiving = false;
    meeting->sent_count = 0;
    if (is_left) {
        meeting->buffer = NULL;
    }
}

dl_status
dl_mpi_cards_end(dl_mpi_meeting *meeting, dl_status status)
{
    if (status == DL_OK) {
        return DL_OK;
    }
    dl_error error = *dl_last_error();
    dl_mpi_news_tell_failure(meeting->comm, &error);
    if (status == DL_MISMATCH) {
        dl_mpi_news_end(meeting); /* it may be long until this rank calls MPI again */
    }
    part(meeting);
    return status == DL_INTERRUPTED ? status : dl_fail_again(&error);
}

/* Describes the segment that begins at `at` in a message of `size` bytes. */
static dl_mpi_part
segment_at(const dl_mpi_meeting *meeting, char *data, size_t size, size_t at)
{
    size_t left = size - at, most = meeting->segment;

    return (dl_mpi_part){data + at, (int)(left < most ? left : most),
                         meeting->comm->mpi->byte};
}

dl_status
dl_mpi_cards_send(dl_mpi_meeting *meeting, int to, size_t at)
{
    const dl_mpi_comm *comm = meeting->comm;
    char *message = meeting->buffer + at;
    size_t size = dl_mpi_card_at(meeting, at)->sent;

    for (size_t done = 0; done < size; done += meeting->segment) {
        dl_mpi_part part = segment_at(meeting, message, size, done);
        dl_mpi_pending_send *sent = &meeting->sent[meeting->sent_count];
        sent->to = to;
        DL_TRY(dl_mpi_check(
            comm->mpi,
            comm->mpi->isend(&part, to, DL_MPI_OWN_TAG, comm->handle, &sent->request),
            "MPI_Isend"));
        meeting->sent_count++;
    }
    return DL_OK;
}

dl_status
dl_mpi_cards_sent(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    for (int i = 0; i < meeting->sent_count; i++) {
        dl_mpi_pending_send *sent = &meeting->sent[i];
        dl_mpi_partner taker = {sent->to, sent->to, 1, NULL};
        DL_TRY(await(meeting, op, &taker, &sent->request, 0));
    }
    meeting->sent_count = 0;
    return DL_OK;
}

static dl_status
expect(dl_mpi_meeting *meeting, int from, const dl_mpi_part *segment)
{
    const dl_mpi_comm *comm = meeting->comm;
    int result = comm->mpi->irecv(segment, from, DL_MPI_OWN_TAG, comm->handle,
                                  &meeting->received);

    meeting->is_receiving = result == 0;
    return dl_mpi_check(comm->mpi, result, "MPI_Irecv");
}

dl_status
dl_mpi_cards_expect(dl_mpi_meeting *meeting, int from, size_t at)
{
    dl_mpi_part first = {meeting->buffer + at, (int)meeting->segment,
                         meeting->comm->mpi->byte};

    return expect(meeting, from, &first);
}

/* Checks the first card of a message.  In a meeting, calls are compared only after each
 * rank has the cards of all, so that all ranks fail with the same text. */
static dl_status
check(dl_mpi_meeting *meeting, int from, const dl_mpi_card *first, size_t at)
{
    const dl_mpi_card *mine = dl_mpi_card_at(meeting, 0);
    bool is_one_way = (mine->flags & DL_MPI_ONE_WAY) != 0;
    bool is_due = first->sequence == mine->sequence
                  && (first->flags & DL_MPI_ONE_WAY) == (mine->flags & DL_MPI_ONE_WAY)
                  && first->sent <= meeting->capacity - at;
    bool is_same = first->digest == mine->digest
                   && dl_fingerprint_equal(&first->fingerprint, &mine->fingerprint);

    return is_due && (is_same || !is_one_way)
               ? DL_OK
               : dl_mpi_news_refuse(meeting, from, first);
}

dl_status
dl_mpi_cards_receive(dl_mpi_meeting *meeting, const dl_op_context *op,
                     const dl_mpi_partner *from, size_t *at)
{
    char *inbox = meeting->buffer + *at;
    const dl_mpi_card *first = dl_mpi_card_at(meeting, *at);

    for (size_t got = meeting->segment;; got += meeting->segment) {
        DL_TRY(await(meeting, op, from, &meeting->received, 0));
        meeting->is_receiving = false;
        if (got == meeting->segment) {
            DL_TRY(check(meeting, from->rank, first, *at));
        }
        if (got >= first->sent) {
            *at += first->sent;
            return DL_OK;
        }
        dl_mpi_part next = segment_at(meeting, inbox, first->sent, got);
        DL_TRY(expect(meeting, from->rank, &next));
    }
}

dl_status
dl_mpi_cards_send_go(dl_mpi_meeting *meeting, int to)
{
    const dl_mpi_comm *comm = meeting->comm;
    dl_mpi_part nothing = {meeting->buffer, 0, comm->mpi->byte};
    dl_mpi_pending_send *sent = &meeting->sent[meeting->sent_count];

    sent->to = to;
    DL_TRY(dl_mpi_check(
        comm->mpi,
        comm->mpi->isend(&nothing, to, DL_MPI_GO_TAG, comm->handle, &sent->request),
        "MPI_Isend"));
    meeting->sent_count++;
    return DL_OK;
}

dl_status
dl_mpi_cards_receive_go(dl_mpi_meeting *meeting, const dl_op_context *op, int from,
                        int64_t bound_until)
{
    const dl_mpi_comm *comm = meeting->comm;
    dl_mpi_part nothing = {meeting->buffer, 0, comm->mpi->byte};
    dl_mpi_partner partner = {from, from, 1, NULL};
    int result = comm->mpi->irecv(&nothing, from, DL_MPI_GO_TAG, comm->handle,
                                  &meeting->received);

    meeting->is_receiving = result == 0;
    DL_TRY(dl_mpi_check(comm->mpi, result, "MPI_Irecv"));
    DL_TRY(await(meeting, op, &partner, &meeting->received, bound_until));
    meeting->is_receiving = false;
    return DL_OK;
}
