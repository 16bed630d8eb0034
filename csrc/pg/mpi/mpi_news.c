/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_news.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Naps, some milliseconds in all, after which a wait is reported to the peer; doubled
 * each time. */
#define FIRST_NAPS 20

/* How long MPI may take to send the news of a failure. */
#define PARTING (100 * DL_MILLISECOND)

typedef struct news {
    dl_mpi_history history;
    int status; /* DL_OK: the rank only waits, and the text is not sent */
    char text[1024];
} news;

/* News for all other ranks, which are left to MPI if it does not send them soon. */
typedef struct circular {
    news news;
    int count;
    dl_mpi_handle requests[];
} circular;

#define SIZE_OF_A_WAIT offsetof(news, text)

dl_status
dl_mpi_differ(const dl_mpi_meeting *meeting, const dl_mpi_call calls[2])
{
    const dl_mpi_call *low = &calls[calls[0].rank > calls[1].rank];
    const dl_mpi_call *high = &calls[calls[0].rank < calls[1].rank];
    const dl_mpi_call *behind = low->sequence <= high->sequence ? low : high;
    const dl_mpi_call *ahead = behind == low ? high : low;
    char what[192], texts[2][DL_FINGERPRINT_TEXT_SIZE];

    snprintf(what, sizeof what, "%s #%" PRIu64 " in group %.100s",
             dl_op_type_name(behind->called->op), behind->sequence,
             meeting->comm->group_name);
    dl_fingerprint_describe(behind->called, texts[0], sizeof texts[0]);
    dl_fingerprint_describe(ahead->called, texts[1], sizeof texts[1]);
    if (behind->sequence < ahead->sequence) {
        return dl_fail(DL_MISMATCH,
                       "%s: rank %d called %s, but rank %d called something else and "
                       "is now at %s #%" PRIu64,
                       what, behind->rank, texts[0], ahead->rank, texts[1],
                       ahead->sequence);
    }
    if (dl_fingerprint_equal(behind->called, ahead->called)) {
        return dl_fail(DL_MISMATCH,
                       "%s: ranks %d and %d called different operations before it; "
                       "TORCH_DISTRIBUTED_DEBUG=DETAIL finds the first one",
                       what, low->rank, high->rank);
    }
    return dl_fail(DL_MISMATCH, "%s: rank %d called %s, rank %d called %s", what,
                   low->rank, texts[0], high->rank, texts[1]);
}

/* Without memory nothing is sent: the peer then fails by its deadline. */
static void
send_to_peer(const dl_mpi_comm *comm, int to, const news *said, size_t size)
{
    dl_mpi_handle request;
    void *letter = malloc(size);

    if (letter == NULL) {
        return;
    }
    memcpy(letter, said, size);
    dl_mpi_part part = {letter, (int)size, comm->mpi->byte};
    if (comm->mpi->isend(&part, to, DL_MPI_NEWS_TAG, comm->handle, &request) != 0) {
        free(letter);
        return;
    }
    /* The wait, or the process, may end before MPI has sent it. */
    dl_mpi_leftover_add(comm->mpi, request, letter);
}

static void
send_to_everyone(const dl_mpi_comm *comm, circular *sent)
{
    dl_mpi_part part = {&sent->news, (int)sizeof sent->news, comm->mpi->byte};

    for (int rank = 0; rank < comm->size; rank++) {
        dl_mpi_handle *request = &sent->requests[sent->count];
        if (rank != comm->rank
            && comm->mpi->isend(&part, rank, DL_MPI_NEWS_TAG, comm->handle, request)
                   == 0) {
            sent->count++;
        }
    }
}

static bool
are_sent(const dl_mpi_comm *comm, circular *sent)
{
    int is_done = 0;

    while (sent->count > 0
           && (comm->mpi->test(&sent->requests[sent->count - 1], &is_done, NULL) != 0
               || is_done)) {
        sent->count--;
    }
    return sent->count == 0;
}

void
dl_mpi_news_send_failure(dl_mpi_comm *comm, const dl_error *cause)
{
    dl_deadline soon = dl_deadline_after(PARTING);

    if (atomic_exchange(&comm->has_told, true) || !dl_mpi_world_is_open()) {
        return;
    }
    circular *sent = malloc(sizeof *sent + (size_t)comm->size * sizeof *sent->requests);
    if (sent == NULL) {
        return; /* the other ranks wait until their deadlines */
    }
    sent->count = 0;
    sent->news = (news){.status = cause->status};
    snprintf(sent->news.text, sizeof sent->news.text, "%.1023s", cause->text);
    atomic_store(&comm->has_pending, true);
    send_to_everyone(comm, sent);
    while (!are_sent(comm, sent)) {
        if (dl_deadline_passed(soon)) {
            for (int i = 0; i < sent->count; i++) {
                dl_mpi_leftover_add(comm->mpi, sent->requests[i], NULL);
            }
            return;
        }
        sched_yield();
    }
    free(sent);
}

static dl_status
report_difference(dl_mpi_meeting *meeting, const dl_mpi_call *theirs)
{
    const dl_mpi_history *history = &meeting->history;
    uint64_t sequence = history->newest;

    if (dl_mpi_history_at(history, theirs->sequence) != NULL) {
        sequence = theirs->sequence;
    }
    dl_mpi_call calls[2] = {
        {meeting->comm->rank, sequence, dl_mpi_history_at(history, sequence)}, *theirs};
    dl_mpi_differ(meeting, calls);
    dl_error error = *dl_last_error();
    dl_mpi_news_send_failure(meeting->comm, &error);
    return dl_fail_again(&error);
}

dl_status
dl_mpi_news_refuse(dl_mpi_meeting *meeting, int rank, uint32_t low_sequence,
                   const dl_fingerprint *called)
{
    uint64_t newest = meeting->history.newest;
    uint64_t sequence =
        newest + (uint64_t)(int64_t)(int32_t)(low_sequence - (uint32_t)newest);
    dl_fingerprint theirs = *called;

    return report_difference(meeting, &(dl_mpi_call){rank, sequence, &theirs});
}

/* Compares the operations that both ranks remember. */
static dl_status
compare_histories(dl_mpi_meeting *meeting, int rank, const dl_mpi_history *theirs)
{
    const dl_mpi_history *mine = &meeting->history;
    uint64_t last = mine->newest < theirs->newest ? mine->newest : theirs->newest;
    uint64_t first = last < DL_MPI_REMEMBERED ? 1 : last - DL_MPI_REMEMBERED + 1;

    for (uint64_t sequence = first; sequence <= last; sequence++) {
        const dl_fingerprint *one = dl_mpi_history_at(mine, sequence);
        const dl_fingerprint *other = dl_mpi_history_at(theirs, sequence);
        if (one != NULL && other != NULL && !dl_fingerprint_equal(one, other)) {
            return report_difference(meeting, &(dl_mpi_call){rank, sequence, other});
        }
    }
    return DL_OK;
}

/* Returns false if there are no news, or if they cannot be received. */
static bool
receive_news(dl_mpi_meeting *meeting, news *said, int *from)
{
    dl_mpi_comm *comm = meeting->comm;
    const dl_mpi_table *mpi = comm->mpi;
    dl_mpi_part part = {said, sizeof *said, mpi->byte};
    dl_mpi_handle request;
    int is_there = 0;

    if (mpi->iprobe(DL_MPI_NEWS_TAG, comm->handle, &is_there, from) != 0 || !is_there
        || mpi->irecv(&part, *from, DL_MPI_NEWS_TAG, comm->handle, &request) != 0) {
        return false;
    }
    return dl_mpi_finish(comm, &request) == DL_OK;
}

/* Fails with the error in the news, which their sender has sent to all other ranks. */
static dl_status
fail_with_news(dl_mpi_comm *comm, int from, news *said)
{
    atomic_store(&comm->has_told, true);
    if (said->status == DL_PEER_LOST) {
        dl_mpi_world_skip_finalize();
    }
    said->text[sizeof said->text - 1] = '\0';
    return said->status == DL_MISMATCH
               ? dl_fail(DL_MISMATCH, "%s", said->text)
               : dl_fail(said->status == DL_TIMEOUT ? DL_TIMEOUT : DL_PEER_LOST,
                         "group %s: rank %d gave up: %s", comm->group_name, from,
                         said->text);
}

dl_status
dl_mpi_news_receive(dl_mpi_meeting *meeting)
{
    news said;
    int from;

    while (receive_news(meeting, &said, &from)) {
        if (said.status != DL_OK) {
            return fail_with_news(meeting->comm, from, &said);
        }
        DL_TRY(compare_histories(meeting, from, &said.history));
    }
    return DL_OK;
}

/* True in naps 20, 40, 80, ... */
static bool
is_report_due(int nap)
{
    int times = nap / FIRST_NAPS;

    return nap % FIRST_NAPS == 0 && (times & (times - 1)) == 0;
}

dl_status
dl_mpi_news_exchange(dl_mpi_meeting *meeting, int rank, int nap)
{
    DL_TRY(dl_mpi_news_receive(meeting));
    if (is_report_due(nap)) {
        news said = {.history = meeting->history};
        send_to_peer(meeting->comm, rank, &said, SIZE_OF_A_WAIT);
    }
    return DL_OK;
}

void
dl_mpi_news_end(dl_mpi_meeting *meeting)
{
    news said;
    int from;

    if (!dl_mpi_world_is_open()) {
        return;
    }
    while (receive_news(meeting, &said, &from)) {
    }
}
