/* SPDX-License-Identifier: BSD-3-Clause */
#include "pg/mpi/mpi_meeting.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arrays of all ranks together: a few copies of so much cost less than MPI's call. */
#define ROOM ((size_t)16 << 10)
#define MOST_OF_ONE ((size_t)8192)
#define MOST_OF_ALL ((size_t)8192)

/* How long messages that were given up may take to be so. */
#define PARTING (100 * DL_MILLISECOND)

/* Before each array, at a multiple of 8 bytes. */
typedef struct card {
    dl_fingerprint fingerprint;
    uint32_t size; /* of the array */
    uint32_t flags;
    uint64_t sent; /* bytes of all cards and arrays that its rank sends in this round */
} card;

_Static_assert(sizeof(card) % 8 == 0, "cards lie one behind another");

dl_status
dl_mpi_meeting_init(dl_mpi_meeting *meeting, dl_mpi_comm *comm)
{
    size_t count = (size_t)comm->size;
    /* An array may be followed by seven bytes to the next card. */
    size_t most = count * (sizeof(card) + 8) + ROOM;

    meeting->comm = comm;
    meeting->segment = (size_t)comm->mpi->eager_size;
    meeting->buffer = calloc(1, most + meeting->segment);
    meeting->offsets = calloc(count, sizeof *meeting->offsets);
    meeting->sent = calloc(most / meeting->segment + 1, sizeof *meeting->sent);
    bool is_whole =
        meeting->buffer != NULL && meeting->offsets != NULL && meeting->sent != NULL;
    return is_whole ? DL_OK : dl_fail_no_memory();
}

void
dl_mpi_meeting_fini(dl_mpi_meeting *meeting)
{
    free(meeting->buffer);
    free(meeting->offsets);
    free(meeting->sent);
}

size_t
dl_mpi_meeting_room(const dl_mpi_meeting *meeting)
{
    size_t share = ROOM / (size_t)meeting->comm->size;

    return share < MOST_OF_ONE ? share : MOST_OF_ONE;
}

size_t
dl_mpi_meeting_room_for_one(void)
{
    return MOST_OF_ALL;
}

static card *
card_of(const dl_mpi_meeting *meeting, int rank)
{
    return (card *)(void *)(meeting->buffer + meeting->offsets[rank]);
}

const void *
dl_mpi_meeting_array(const dl_mpi_meeting *meeting, int rank)
{
    return card_of(meeting, rank) + 1;
}

static size_t
size_of(const card *self)
{
    return sizeof *self + (((size_t)self->size + 7) & ~(size_t)7);
}

static void
put_own(dl_mpi_meeting *meeting, const dl_op_context *op, const dl_mpi_baggage *own)
{
    card *mine = (card *)(void *)meeting->buffer;

    mine->fingerprint = op->fingerprint;
    mine->size = (uint32_t)own->array.size;
    mine->flags = own->flags;
    if (own->array.size > 0) {
        memcpy(mine + 1, own->array.data, own->array.size);
    }
}

/* Bytes of the first `count` cards and arrays; notes where each begins. */
static size_t
measure(dl_mpi_meeting *meeting, int count)
{
    const dl_mpi_comm *comm = meeting->comm;
    size_t at = 0;

    for (int i = 0; i < count; i++) {
        int rank = (comm->rank + i) % comm->size;
        meeting->offsets[rank] = at;
        at += size_of(card_of(meeting, rank));
    }
    return at;
}

/* "all_reduce #7 in group 0" */
static void
describe(const dl_mpi_meeting *meeting, const dl_op_context *op, char text[192])
{
    snprintf(text, 192, "%s #%" PRIu64 " in group %.100s",
             dl_op_type_name(op->fingerprint.op), op->sequence,
             meeting->comm->group_name);
}

/* With `known` of the ranks, from this one on, heard of. */
static dl_status
fail_late(const dl_mpi_meeting *meeting, const dl_op_context *op, int known)
{
    const dl_mpi_comm *comm = meeting->comm;
    char what[192], ranks[256] = "";
    size_t used = 0;

    describe(meeting, op, what);
    for (int i = known; i < comm->size && used < sizeof ranks; i++) {
        int put = snprintf(ranks + used, sizeof ranks - used, "%s%d",
                           used == 0 ? "" : ", ", (comm->rank + i) % comm->size);
        used += put > 0 ? (size_t)put : 0;
    }
    return dl_fail(DL_TIMEOUT,
                   "%s timed out after %" PRId64 "ms on rank %d of %d: nothing was "
                   "heard of rank%s %s; whoever of them did call it waits for another "
                   "of them; `distlite ps` shows what each does",
                   what, op->deadline.limit / DL_MILLISECOND, comm->rank, comm->size,
                   known + 1 == comm->size ? "" : "s", ranks);
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

/* After a failure: nothing may come into the buffer any more, or the buffer stays. */
static void
part(dl_mpi_meeting *meeting)
{
    dl_mpi_comm *comm = meeting->comm;
    const dl_mpi_table *mpi = comm->mpi;
    dl_deadline soon = dl_deadline_after(PARTING);
    bool is_left = false;

    atomic_store(&comm->is_forsaken, true);
    if (meeting->is_receiving) {
        is_left = mpi->cancel(&meeting->received) != 0
                  || !ends_before(mpi, &meeting->received, soon);
    }
    for (int i = 0; i < meeting->sent_count && !is_left; i++) {
        is_left = !ends_before(mpi, &meeting->sent[i], soon);
    }
    if (is_left) {
        meeting->buffer = NULL;
        meeting->sent = NULL;
        dl_mpi_world_forsake();
    }
}

/* What is left of `size` bytes from `at` on, as a message. */
static dl_mpi_part
segment_at(const dl_mpi_meeting *meeting, char *data, size_t size, size_t at)
{
    size_t left = size - at, most = meeting->segment;

    return (dl_mpi_part){data + at, (int)(left < most ? left : most),
                         meeting->comm->mpi->byte};
}

static dl_status
send(dl_mpi_meeting *meeting, int to, size_t size)
{
    const dl_mpi_comm *comm = meeting->comm;

    ((card *)(void *)meeting->buffer)->sent = size;
    for (size_t at = 0; at < size; at += meeting->segment) {
        dl_mpi_part part = segment_at(meeting, meeting->buffer, size, at);
        dl_mpi_handle *request = &meeting->sent[meeting->sent_count];
        DL_TRY(dl_mpi_check(
            comm->mpi,
            comm->mpi->isend(&part, to, DL_MPI_OWN_TAG, comm->handle, request),
            "MPI_Isend"));
        meeting->sent_count++;
    }
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

/* The first segment is expected already, and tells whether there are more. */
static dl_status
receive(dl_mpi_meeting *meeting, int from, dl_deadline deadline, size_t *filled)
{
    char *inbox = meeting->buffer + *filled;

    for (size_t at = meeting->segment;; at += meeting->segment) {
        DL_TRY(dl_mpi_wait(meeting->comm, &meeting->received, deadline, NULL));
        meeting->is_receiving = false;
        size_t size = (size_t)((const card *)(const void *)inbox)->sent;
        if (at >= size) {
            *filled += size;
            return DL_OK;
        }
        dl_mpi_part next = segment_at(meeting, inbox, size, at);
        DL_TRY(expect(meeting, from, &next));
    }
}

/* One round: `*filled` bytes are known, of `distance` ranks. */
static dl_status
exchange(dl_mpi_meeting *meeting, const dl_op_context *op, int distance, size_t *filled)
{
    dl_mpi_comm *comm = meeting->comm;
    int behind = (comm->rank + distance) % comm->size;
    int before = (comm->rank - distance + comm->size) % comm->size;
    int wanted = distance < comm->size - distance ? distance : comm->size - distance;
    int known = distance;

    dl_mpi_part first = {meeting->buffer + *filled, (int)meeting->segment,
                         comm->mpi->byte};

    meeting->sent_count = 0;
    DL_TRY(expect(meeting, behind, &first));
    dl_status status = send(meeting, before, measure(meeting, wanted));
    if (status == DL_OK) {
        status = receive(meeting, behind, op->deadline, filled);
    }
    known += status == DL_OK ? wanted : 0;
    for (int i = 0; i < meeting->sent_count && status == DL_OK; i++) {
        status = dl_mpi_wait(comm, &meeting->sent[i], op->deadline, NULL);
    }
    if (status == DL_OK) {
        return DL_OK;
    }
    if (status == DL_TIMEOUT) {
        fail_late(meeting, op, known);
    }
    dl_error error = *dl_last_error();
    part(meeting);
    return status == DL_INTERRUPTED ? status : dl_fail_again(&error);
}

/* Everyone has the same cards, so everyone says the same. */
static dl_status
compare(dl_mpi_meeting *meeting, const dl_op_context *op)
{
    const dl_fingerprint *first = &card_of(meeting, 0)->fingerprint;
    char what[192], calls[2][DL_FINGERPRINT_TEXT_SIZE];

    meeting->flags = 0;
    for (int rank = 0; rank < meeting->comm->size; rank++) {
        const card *theirs = card_of(meeting, rank);
        meeting->flags |= theirs->flags;
        if (!dl_fingerprint_equal(first, &theirs->fingerprint)) {
            describe(meeting, op, what);
            dl_fingerprint_describe(first, calls[0], sizeof calls[0]);
            dl_fingerprint_describe(&theirs->fingerprint, calls[1], sizeof calls[1]);
            return dl_fail(DL_MISMATCH, "%s: rank 0 called %s, rank %d called %s", what,
                           calls[0], rank, calls[1]);
        }
    }
    return DL_OK;
}

dl_status
dl_mpi_meet(dl_mpi_meeting *meeting, const dl_op_context *op, const dl_mpi_baggage *own)
{
    int size = meeting->comm->size;

    DL_TRY(dl_mpi_comm_admit(meeting->comm));
    put_own(meeting, op, own);
    size_t filled = size_of((const card *)(void *)meeting->buffer);
    for (int distance = 1; distance < size; distance *= 2) {
        DL_TRY(exchange(meeting, op, distance, &filled));
    }
    measure(meeting, size);
    return compare(meeting, op);
}
